//! The machine that was recorded: its CPUs, its nodes, and what its zones look like before and
//! after, read from `/proc` and `/sys`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The machine that a recording is from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The release of its kernel.
    pub kernel: String,
    /// Its processors, as `/proc/cpuinfo` calls them.
    pub processor: String,
    /// The numbers of its CPUs that were online.
    pub cpus: Vec<u32>,
    /// The CPUs of each node.
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// The size of a frame.
    pub frame_bytes: u64,
    /// Pageblocks have 2^order frames.
    pub pageblock_order: Option<u8>,
}

/// The zones of a machine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Zones {
    /// Each zone that has memory.
    pub zones: Vec<Zone>,
}

/// One zone. Counts are in frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Zone {
    /// The node it is part of.
    pub node: u32,
    /// `DMA`, `DMA32`, `Normal`, `Movable`.
    pub name: String,
    /// Its first frame.
    pub start_pfn: u64,
    /// From its first frame to its last, holes included.
    pub spanned: u64,
    /// What the page allocator manages.
    pub managed: u64,
    /// What is free.
    pub free: u64,
    /// The watermark that only requests with access to the reserve go below.
    pub min: u64,
    /// The watermark below which reclaim is woken.
    pub low: u64,
    /// The watermark up to which reclaim works.
    pub high: u64,
    /// The largest `high` of its per-CPU lists.
    pub pcp_high: u64,
    /// The `batch` of its per-CPU lists.
    pub pcp_batch: u64,
    /// Free blocks by order, on the free lists of the zone.
    pub free_blocks: Vec<u64>,
    /// Free blocks by order, for each migratetype. Empty where the kernel does not say.
    pub free_blocks_by_type: BTreeMap<String, Vec<u64>>,
    /// Pageblocks of each migratetype.
    pub pageblocks_by_type: BTreeMap<String, u64>,
}

impl Machine {
    /// This machine.
    ///
    /// # Errors
    ///
    /// `/sys` does not name the CPUs.
    pub fn here() -> io::Result<Self> {
        let online = fs::read_to_string("/sys/devices/system/cpu/online")?;
        let mut nodes = BTreeMap::new();
        for entry in fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name.strip_prefix("node").and_then(|digits| digits.parse().ok());
            let cpus = fs::read_to_string(entry.path().join("cpulist"));
            if let (Some(number), Ok(cpus)) = (number, cpus) {
                nodes.insert(number, cpu_list(&cpus));
            }
        }
        let types = fs::read_to_string("/proc/pagetypeinfo").unwrap_or_default();
        Ok(Machine {
            kernel: first_line("/proc/sys/kernel/osrelease"),
            processor: processor(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            cpus: cpu_list(&online),
            nodes,
            frame_bytes: rustix::param::page_size() as u64,
            pageblock_order: types
                .lines()
                .find_map(|line| line.strip_prefix("Page block order:")?.trim().parse().ok()),
        })
    }
}

impl Zones {
    /// The zones of this machine now. `/proc/pagetypeinfo`, which only root may read, is left out
    /// if it cannot be read.
    ///
    /// # Errors
    ///
    /// `/proc/zoneinfo` cannot be read.
    pub fn now() -> io::Result<Self> {
        let read = |name: &str| fs::read_to_string(Path::new("/proc").join(name));
        let zoneinfo = read("zoneinfo")?;
        let buddyinfo = read("buddyinfo").unwrap_or_default();
        Ok(Self::parse(&zoneinfo, &buddyinfo, &read("pagetypeinfo").unwrap_or_default()))
    }

    /// The zones that these three files of `/proc` describe.
    pub fn parse(zoneinfo: &str, buddyinfo: &str, pagetypeinfo: &str) -> Self {
        let mut zones = zones_of(zoneinfo);
        for (node, name, numbers) in buddyinfo.lines().filter_map(of_zone) {
            if let Some(zone) = find(&mut zones, node, name) {
                zone.free_blocks = integers(numbers).collect();
            }
        }
        types_of(pagetypeinfo, &mut zones);
        zones.retain(|zone| zone.managed > 0);
        Zones { zones }
    }

    /// Free frames of all zones; at most [`u64::MAX`], whatever a file says of them.
    pub fn free(&self) -> u64 {
        sum(self.zones.iter().map(|zone| zone.free))
    }

    /// Frames that the allocator manages in all zones; at most [`u64::MAX`].
    pub fn managed(&self) -> u64 {
        sum(self.zones.iter().map(|zone| zone.managed))
    }

    /// Free blocks by order, of all zones; at most [`u64::MAX`].
    pub fn free_blocks(&self) -> Vec<u64> {
        let orders = self.zones.iter().map(|zone| zone.free_blocks.len()).max().unwrap_or(0);
        let of_order = |order: usize| {
            sum(self.zones.iter().filter_map(|zone| zone.free_blocks.get(order)).copied())
        };
        (0..orders).map(of_order).collect()
    }
}

/// A file may say anything: what adds up to too much is the most that there can be.
pub(crate) fn sum(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// The zones of `/proc/zoneinfo`.
fn zones_of(zoneinfo: &str) -> Vec<Zone> {
    let mut zones: Vec<Zone> = Vec::new();
    for line in zoneinfo.lines() {
        if let Some((node, name, _)) = of_zone(line) {
            zones.push(Zone { node, name: name.to_owned(), ..Zone::default() });
            continue;
        }
        let Some(zone) = zones.last_mut() else { continue };
        let mut words = line.split_whitespace();
        let (Some(key), Some(value)) = (words.next(), words.next()) else { continue };
        // `pages free 3840` has one word more than the lines below it.
        let value = if key == "pages" { words.next() } else { Some(value) };
        let Some(value) = value.and_then(|digits| digits.parse::<u64>().ok()) else { continue };
        match key {
            "pages" => zone.free = value,
            "min" => zone.min = value,
            "low" => zone.low = value,
            // Of the watermarks' line; each per-CPU list has `high:`.
            "high" => zone.high = value,
            "high:" => zone.pcp_high = zone.pcp_high.max(value),
            "batch:" => zone.pcp_batch = zone.pcp_batch.max(value),
            "spanned" => zone.spanned = value,
            "managed" => zone.managed = value,
            "start_pfn:" => zone.start_pfn = value,
            _ => {}
        }
    }
    zones
}

/// Adds what `/proc/pagetypeinfo` says: free blocks by type and order, then pageblocks by type.
fn types_of(pagetypeinfo: &str, zones: &mut [Zone]) {
    let mut types: Vec<&str> = Vec::new();
    for line in pagetypeinfo.lines() {
        if let Some(names) = line.strip_prefix("Number of blocks type") {
            types = names.split_whitespace().collect();
        }
        let Some((node, name, rest)) = of_zone(line) else { continue };
        let Some(zone) = find(zones, node, name) else { continue };
        if let Some(rest) = rest.trim_start().strip_prefix(", type") {
            let mut words = rest.split_whitespace();
            let Some(of_type) = words.next() else { continue };
            // A kernel stops to count at 100,000 and writes `>100000`.
            let counts =
                words.map(|word| word.trim_start_matches('>')).filter_map(|n| n.parse().ok());
            zone.free_blocks_by_type.insert(of_type.to_owned(), counts.collect());
        } else {
            let counts = types.iter().map(|name| (*name).to_owned()).zip(integers(rest));
            zone.pageblocks_by_type = counts.collect();
        }
    }
}

/// Node, name of the zone, and what follows, of `Node 0, zone   Normal ...`.
fn of_zone(line: &str) -> Option<(u32, &str, &str)> {
    let (node, rest) = line.strip_prefix("Node")?.split_once(',')?;
    let rest = rest.trim_start().strip_prefix("zone")?.trim_start();
    let end = rest.find(|c: char| c.is_whitespace() || c == ',').unwrap_or(rest.len());
    Some((node.trim().parse().ok()?, &rest[..end], &rest[end..]))
}

fn find<'a>(zones: &'a mut [Zone], node: u32, name: &str) -> Option<&'a mut Zone> {
    zones.iter_mut().find(|zone| zone.node == node && zone.name == name)
}

fn integers(text: &str) -> impl Iterator<Item = u64> {
    text.split_whitespace().map_while(|digits| digits.parse().ok())
}

/// No kernel numbers its CPUs higher (`CONFIG_NR_CPUS`).
pub(crate) const CPU_MAX: u32 = 65_534;

/// A list of CPUs as the kernel writes it: `0-3,8`. Those that no kernel has are left out.
fn cpu_list(text: &str) -> Vec<u32> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?.min(CPU_MAX))
    });
    let cpus: BTreeSet<u32> = ranges.flatten().collect();
    cpus.into_iter().collect()
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

fn processor(cpuinfo: &str) -> String {
    let named = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let name = named.and_then(|line| line.split_once(':')).map(|(_, name)| name.trim());
    name.unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const ZONEINFO: &str = include_str!("samples/zoneinfo.txt");

    const PAGETYPEINFO: &str = include_str!("samples/pagetypeinfo.txt");

    #[test]
    fn zones_are_those_of_three_files() {
        let buddyinfo = "Node 0, zone   Normal  18756   6975   2635 \n";
        let Zones { zones } = Zones::parse(ZONEINFO, buddyinfo, PAGETYPEINFO);
        assert_eq!(zones.len(), 2, "one has no memory");
        let normal = &zones[1];
        assert_eq!((normal.free, normal.min, normal.low, normal.high), (100, 10, 12, 14));
        assert_eq!((normal.pcp_high, normal.pcp_batch), (1200, 63));
        assert_eq!((normal.start_pfn, normal.spanned, normal.managed), (1_048_576, 8192, 8000));
        assert_eq!(normal.free_blocks, [18756, 6975, 2635]);
        assert_eq!(normal.free_blocks_by_type["Movable"], [100_000, 3, 2]);
        assert_eq!(normal.pageblocks_by_type["Movable"], 5475);
        assert_eq!(zones[0].pageblocks_by_type["Unmovable"], 1);
        assert_eq!((zones[0].high, zones[0].pcp_high), (25, 28));
    }

    #[test]
    fn lists_of_cpus_have_ranges() {
        assert_eq!(cpu_list("0-2,5\n"), [0, 1, 2, 5]);
        assert!(cpu_list("\n").is_empty());
        assert_eq!(cpu_list("3-1,2,65534-4294967295,1,2"), [1, 2, 65_534]);
    }

    mod fuzz {
        use super::*;

        /// Three files, divided by zero bytes; and those above with one of them in it.
        #[test]
        fn any_files_are_read() {
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(
                |bytes: &[u8]| {
                    let text = String::from_utf8_lossy(bytes);
                    let mut files = text.split('\0');
                    let [zones, buddies, types] =
                        std::array::from_fn(|_| files.next().unwrap_or_default());
                    let read = Zones::parse(zones, buddies, types);
                    read.free_blocks();
                    assert!(read.zones.iter().all(|zone| zone.free <= read.free()));
                    assert!(read.zones.iter().all(|zone| zone.managed <= read.managed()));
                    Zones::parse(ZONEINFO, zones, zones);
                    let cpus = cpu_list(zones);
                    assert!(cpus.iter().all(|cpu| *cpu <= CPU_MAX));
                },
            );
        }
    }
}
