//! The statistics of an allocator, for people and for monitoring: text in the formats of
//! `/proc/buddyinfo`, `/proc/zoneinfo`, `/proc/pagetypeinfo` and `/proc/vmstat`, and the text
//! format of Prometheus.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use freehold::platform::Platform;
use freehold::{Design, FrameCount, MigrateType, NumaEvents, Order, PageAllocator, ZoneStats};

use crate::prometheus::Metrics;

/// The state of an allocator at one moment, in plain numbers. Counts of frames, unless the name
/// says otherwise.
///
/// ```
/// use freehold_host::Arena;
///
/// let arena = Arena::builder().bytes(64 << 20).build()?;
/// let snapshot = arena.snapshot();
/// print!("{}", snapshot.buddyinfo());
/// print!("{}", snapshot.prometheus()); // What an endpoint for Prometheus answers.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Snapshot {
    /// The zones, in the allocator's order.
    pub zones: Vec<ZoneSnapshot>,
    /// What has happened so far, by name: letters, digits, `_` and `:`, as Prometheus requires.
    pub events: BTreeMap<String, u64>,
}

/// The state of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ZoneSnapshot {
    /// The number of its node.
    pub node: u64,
    /// Its kind, by the name that `/proc` uses, such as `DMA32`.
    pub kind: String,
    /// Frames added to the zone.
    pub managed: u64,
    /// Frames on its free lists.
    pub free: u64,
    /// Free frames that CPUs cache.
    pub per_cpu: u64,
    /// Free frames in isolated pageblocks.
    pub isolated: u64,
    /// The watermarks: minimum, low, high.
    pub marks: [u64; 3],
    /// Free blocks by order.
    pub free_blocks: Vec<u64>,
    /// Free blocks by migratetype and order.
    pub free_by_type: Vec<Vec<u64>>,
    /// Pageblocks by migratetype.
    pub pageblocks: Vec<u64>,
    /// Pageblocks that changed their migratetype for lack of free blocks of another.
    pub claims: u64,
    /// Chunks taken from a pageblock of another migratetype.
    pub steals: u64,
    /// NUMA events, by name.
    pub numa: BTreeMap<String, u64>,
}

impl Snapshot {
    /// The state of an allocator now. Exact if no call is under way.
    ///
    /// Cost: visits every free block, and briefly takes the lock of each CPU's lists.
    pub fn of<P: Platform, D: Design<P>>(allocator: &PageAllocator<P, D>) -> Self {
        let zones = allocator.zones().enumerate().filter_map(|(index, zone)| {
            let types = allocator.free_by_type(index)?;
            Some(ZoneSnapshot {
                free_by_type: types.blocks.map(Vec::from).to_vec(),
                pageblocks: types.pageblocks.to_vec(),
                numa: by_name(allocator.numa_events(index)?.by_name()),
                ..ZoneSnapshot::of(&zone)
            })
        });
        Snapshot { zones: zones.collect(), events: by_name(allocator.events().by_name()) }
    }

    /// Free blocks by order, in the format of `/proc/buddyinfo`.
    pub fn buddyinfo(&self) -> String {
        lines(&self.zones, |zone, text| {
            write!(text, "{} ", zone.heading())?;
            row(&zone.free_blocks, 6, text)
        })
    }

    /// Levels and watermarks, in the format of `/proc/zoneinfo`.
    pub fn zoneinfo(&self) -> String {
        lines(&self.zones, |zone, text| {
            let [min, low, high] = zone.marks;
            writeln!(text, "{}", zone.heading())?;
            writeln!(text, "  pages free     {}", zone.free)?;
            let rest = [
                ("min", min),
                ("low", low),
                ("high", high),
                ("managed", zone.managed),
                ("per-cpu", zone.per_cpu),
                ("isolated", zone.isolated),
            ];
            rest.iter().try_for_each(|(name, count)| writeln!(text, "        {name:8} {count}"))?;
            let mut numa =
                NumaEvents::NAMES.iter().filter_map(|&name| Some((name, zone.numa.get(name)?)));
            numa.try_for_each(|(name, count)| writeln!(text, "      {name:12} {count}"))
        })
    }

    /// Free blocks by migratetype and order, and pageblocks by migratetype, in the format of
    /// `/proc/pagetypeinfo`.
    pub fn pagetypeinfo(&self) -> String {
        let orders = self.zones.iter().flat_map(|zone| &zone.free_by_type).map(Vec::len).max();
        let orders =
            (0..orders.unwrap_or(0)).map(|order| format!("{order:6} ")).collect::<String>();
        let head = format!(
            "Page block order: {}\nPages per block:  {}\n\n{:43} {orders}\n",
            Order::PAGEBLOCK.get(),
            Order::PAGEBLOCK.frames().get(),
            "Free pages count per migrate type at order",
        );
        let free = lines(&self.zones, |zone, text| {
            for (blocks, of) in zone.free_by_type.iter().zip(MigrateType::ALL) {
                // Linux gives the number of the node four columns here, and nowhere else.
                let ZoneSnapshot { node, kind, .. } = zone;
                write!(text, "Node {node:4}, zone {kind:>8}, type {:>12} ", type_name(of))?;
                row(blocks, 6, text)?;
            }
            Ok(())
        });
        let names = MigrateType::ALL.map(|of| format!("{:>12} ", type_name(of))).concat();
        let blocks = lines(&self.zones, |zone, text| {
            write!(text, "{} ", zone.heading())?;
            row(&zone.pageblocks, 12, text)
        });
        format!("{head}{free}\n{:23}{names}\n{blocks}", "Number of blocks type ")
    }

    /// Sums over all zones and events, in the format of `/proc/vmstat`.
    pub fn vmstat(&self) -> String {
        let mut sums = vec![
            ("nr_free_pages".to_owned(), self.sum(|zone| zone.free)),
            ("nr_pcp_pages".to_owned(), self.sum(|zone| zone.per_cpu)),
            ("nr_isolated_pages".to_owned(), self.sum(|zone| zone.isolated)),
            ("nr_managed_pages".to_owned(), self.sum(|zone| zone.managed)),
            ("pageblock_claim".to_owned(), self.sum(|zone| zone.claims)),
            ("pageblock_steal".to_owned(), self.sum(|zone| zone.steals)),
        ];
        sums.extend(NumaEvents::NAMES.map(|name| {
            let of = |zone: &ZoneSnapshot| zone.numa.get(name).copied().unwrap_or(0);
            (name.to_owned(), self.sum(of))
        }));
        sums.extend(self.events.clone());
        sums.iter().map(|(name, count)| format!("{name} {count}\n")).collect()
    }

    fn sum(&self, of: impl Fn(&ZoneSnapshot) -> u64) -> u64 {
        // A snapshot read from a file can contain any numbers.
        self.zones.iter().map(of).fold(0, u64::saturating_add)
    }

    /// Everything in the text format of Prometheus, version 0.0.4: the response of an embedder's
    /// `/metrics` endpoint, with the content type `text/plain; version=0.0.4`.
    pub fn prometheus(&self) -> String {
        type Of = fn(&ZoneSnapshot) -> u64;
        let gauges: [(&str, &str, Of); 7] = [
            ("free_frames", "Frames on the free lists of the zone.", |zone| zone.free),
            ("per_cpu_frames", "Free frames that CPUs keep.", |zone| zone.per_cpu),
            ("isolated_frames", "Free frames being emptied around.", |zone| zone.isolated),
            ("managed_frames", "Frames of the zone.", |zone| zone.managed),
            ("min_watermark_frames", "The minimum watermark.", |zone| zone.marks[0]),
            ("low_watermark_frames", "The low watermark.", |zone| zone.marks[1]),
            ("high_watermark_frames", "The high watermark.", |zone| zone.marks[2]),
        ];
        let counters: [(&str, &str, Of); 2] = [
            ("claims_total", "Pageblocks that changed their type.", |zone| zone.claims),
            ("steals_total", "Chunks of pageblocks of another type.", |zone| zone.steals),
        ];
        let mut metrics = Metrics::new("freehold_");
        let labelled = |zone: &ZoneSnapshot| {
            format!("node=\"{}\",{}", zone.node, Metrics::label("zone", &zone.kind))
        };
        let by_order = |labels: String, blocks: &[u64]| -> Vec<(String, u64)> {
            let orders = blocks.iter().enumerate();
            orders.map(|(order, &count)| (format!("{labels},order=\"{order}\""), count)).collect()
        };
        let of_type =
            |zone: &ZoneSnapshot, of| format!("{},type=\"{}\"", labelled(zone), type_name(of));
        for (all, kind) in [(&gauges[..], "gauge"), (&counters[..], "counter")] {
            for (name, help, of) in all {
                let values = self.zones.iter().map(|zone| (labelled(zone), of(zone)));
                metrics.add(&format!("zone_{name}"), kind, help, values);
            }
        }
        let zones = self.zones.iter();
        let blocks = zones.clone().flat_map(|zone| by_order(labelled(zone), &zone.free_blocks));
        metrics.add("zone_free_blocks", "gauge", "Free blocks by order.", blocks);
        let blocks = zones.clone().flat_map(|zone| {
            let types = zone.free_by_type.iter().zip(MigrateType::ALL);
            types.flat_map(move |(blocks, of)| by_order(of_type(zone, of), blocks))
        });
        let help = "Free blocks by migratetype and order.";
        metrics.add("zone_free_blocks_by_type", "gauge", help, blocks);
        let blocks = zones.flat_map(|zone| {
            let types = zone.pageblocks.iter().zip(MigrateType::ALL);
            types.map(move |(&count, of)| (of_type(zone, of), count))
        });
        metrics.add("zone_pageblocks", "gauge", "Pageblocks by migratetype.", blocks);
        for name in NumaEvents::NAMES {
            let of = |zone: &ZoneSnapshot| Some((labelled(zone), *zone.numa.get(name)?));
            let values = self.zones.iter().filter_map(of);
            let help = "Frames by where they were wanted and where they came from.";
            metrics.add(&format!("{name}_frames_total"), "counter", help, values);
        }
        for (name, &count) in &self.events {
            let values = [(String::new(), count)];
            metrics.add(&format!("{name}_total"), "counter", "Since the start.", values);
        }
        metrics.into_text()
    }
}

fn by_name<const N: usize>(counts: [(&'static str, u64); N]) -> BTreeMap<String, u64> {
    counts.map(|(name, count)| (name.to_owned(), count)).into_iter().collect()
}

impl ZoneSnapshot {
    fn of(zone: &ZoneStats) -> Self {
        ZoneSnapshot {
            node: zone.node.index() as u64,
            kind: zone.kind.name().to_owned(),
            managed: zone.managed.get(),
            free: zone.free.get(),
            per_cpu: zone.per_cpu.get(),
            isolated: zone.isolated.get(),
            marks: [zone.marks.min, zone.marks.low, zone.marks.high].map(FrameCount::get),
            free_blocks: zone.free_blocks.to_vec(),
            claims: zone.claims,
            steals: zone.steals,
            ..ZoneSnapshot::default()
        }
    }

    fn heading(&self) -> String {
        format!("Node {}, zone {:>8}", self.node, self.kind)
    }
}

fn type_name(of: MigrateType) -> String {
    format!("{of:?}")
}

/// Ends a line with counts in columns, each followed by a space, as Linux has them.
fn row(counts: &[u64], width: usize, text: &mut String) -> fmt::Result {
    counts.iter().try_for_each(|count| write!(text, "{count:width$} "))?;
    writeln!(text)
}

/// The text that `write` makes of all zones.
fn lines(
    zones: &[ZoneSnapshot],
    write: impl Fn(&ZoneSnapshot, &mut String) -> fmt::Result,
) -> String {
    let mut text = String::new();
    zones.iter().try_for_each(|zone| write(zone, &mut text)).expect("a string takes all text");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ArenaBuilder, Host};
    use freehold::ZoneKind;
    use freehold::designs::Freehold;

    /// As Linux 6.18 prints it, as far as the same exists here. A `$` marks a space that ends a
    /// line.
    #[test]
    fn text_is_as_proc_has_it() {
        let arena = ArenaBuilder::<Freehold<Host>>::new().bytes(64 << 20).build_frames().unwrap();
        let mut stats = arena.allocator().zones().next().unwrap();
        let mut zone = |kind| {
            stats.kind = kind;
            let mut zone = ZoneSnapshot::of(&stats);
            (zone.managed, zone.free, zone.per_cpu, zone.marks) = (3840, 3840, 0, [10, 13, 16]);
            zone.free_blocks = vec![0, 17, 1024];
            zone.free_by_type = vec![vec![0, 0, 1], vec![0, 17, 1023], vec![0; 3]];
            zone.pageblocks = vec![1, 7, 0];
            zone.numa = NumaEvents::NAMES.map(|name| (name.to_owned(), name.len() as u64)).into();
            zone
        };
        let zones = vec![zone(ZoneKind::Dma), zone(ZoneKind::Dma32)];
        let snapshot = Snapshot { zones, ..Snapshot::default() };
        let with_ends = |text: String| text.replace(" \n", " $\n");
        let buddyinfo = "\
Node 0, zone      DMA      0     17   1024 $
Node 0, zone    DMA32      0     17   1024 $
";
        assert_eq!(with_ends(snapshot.buddyinfo()), buddyinfo);
        let pagetypeinfo = "\
Page block order: 9
Pages per block:  512

Free pages count per migrate type at order       0      1      2 $
Node    0, zone      DMA, type    Unmovable      0      0      1 $
Node    0, zone      DMA, type      Movable      0     17   1023 $
Node    0, zone      DMA, type  Reclaimable      0      0      0 $
Node    0, zone    DMA32, type    Unmovable      0      0      1 $
Node    0, zone    DMA32, type      Movable      0     17   1023 $
Node    0, zone    DMA32, type  Reclaimable      0      0      0 $

Number of blocks type     Unmovable      Movable  Reclaimable $
Node 0, zone      DMA            1            7            0 $
Node 0, zone    DMA32            1            7            0 $
";
        assert_eq!(with_ends(snapshot.pagetypeinfo()), pagetypeinfo);
        let zoneinfo = "\
Node 0, zone      DMA
  pages free     3840
        min      10
        low      13
        high     16
        managed  3840
        per-cpu  0
        isolated 0
      numa_hit     8
      numa_miss    9
      numa_foreign 12
      numa_interleave 15
      numa_local   10
      numa_other   10
Node 0, zone    DMA32
";
        assert!(snapshot.zoneinfo().starts_with(zoneinfo), "{}", snapshot.zoneinfo());
        let numa = "numa_hit 16\nnuma_miss 18\nnuma_foreign 24\nnuma_interleave 30\n";
        assert!(snapshot.vmstat().contains(numa), "{}", snapshot.vmstat());
    }

    #[test]
    fn every_line_for_prometheus_is_well_formed() {
        let arena = ArenaBuilder::<Freehold<Host>>::new().bytes(64 << 20).build_frames().unwrap();
        let metrics = Snapshot::of(arena.allocator()).prometheus();
        let (mut declared, mut seen) = (Vec::new(), Vec::new());
        for line in metrics.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(["gauge", "counter"].contains(&kind), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(!declared.contains(&name), "{name} is declared twice");
                declared.push(name);
            } else if !line.starts_with("# HELP ") {
                let (series, value) = line.rsplit_once(' ').unwrap();
                let name = series.split('{').next().unwrap();
                assert_eq!(declared.last(), Some(&name), "values follow their declaration");
                assert!(value.parse::<u64>().is_ok() && !seen.contains(&series), "{line}");
                seen.push(series);
            }
        }
        assert!(declared.len() > 10);
    }

    #[test]
    fn sums_end_at_the_largest_number() {
        let zone = ZoneSnapshot {
            free: u64::MAX,
            numa: BTreeMap::from([("numa_hit".to_owned(), u64::MAX)]),
            ..ZoneSnapshot::default()
        };
        let vmstat = Snapshot { zones: vec![zone; 2], ..Snapshot::default() }.vmstat();
        let line = |name| format!("{name} {}\n", u64::MAX);
        assert!(vmstat.starts_with(&line("nr_free_pages")), "{vmstat}");
        assert!(vmstat.contains(&line("numa_hit")), "{vmstat}");
    }

    #[test]
    fn prometheus_has_blocks_by_type_and_escapes_names() {
        let zone = ZoneSnapshot {
            kind: "a\"b\\c\nd".to_owned(),
            free_by_type: vec![vec![1, 2], vec![3, 4], vec![5, 6]],
            pageblocks: vec![7, 8, 9],
            ..ZoneSnapshot::default()
        };
        let metrics = Snapshot { zones: vec![zone], ..Snapshot::default() }.prometheus();
        let zone = r#"node="0",zone="a\"b\\c\nd""#;
        for (name, labels, value) in [
            ("free_frames", "", 0),
            ("free_blocks_by_type", r#",type="Unmovable",order="1""#, 2),
            ("free_blocks_by_type", r#",type="Reclaimable",order="0""#, 5),
            ("pageblocks", r#",type="Movable""#, 8),
        ] {
            let line = format!("freehold_zone_{name}{{{zone}{labels}}} {value}");
            assert!(metrics.lines().any(|of| of == line), "{line}: {metrics}");
        }
    }
}
