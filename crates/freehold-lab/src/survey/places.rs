//! Which CPUs of this machine share what, by sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use freehold::CpuId;

/// A CPU, and what it shares with others: two that share it have the same text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cpu: CpuId,
    pub(super) core: String,
    pub(super) llc: String,
    pub(super) socket: String,
    pub(super) node: String,
}

/// The sizes of a CPU's caches in bytes, by level; 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CacheBytes {
    pub(super) l1: usize,
    pub(super) l2: usize,
    pub(super) llc: usize,
}

/// The CPUs in the order in which simulated machines number theirs: a thread of each core, socket
/// by socket and cache by cache, then the second threads in the same order.
pub(super) fn places(sys: &Path, allowed: &[CpuId]) -> Vec<Place> {
    let mut places: Vec<_> = allowed.iter().map(|&cpu| place(sys, cpu)).collect();
    places.sort_by_key(|place| place.cpu);
    let first = |of: &dyn Fn(&Place) -> &str, place: &Place| {
        let same = places.iter().find(|other| of(other) == of(place));
        same.map_or(place.cpu, |other| other.cpu)
    };
    let keys: Vec<_> = places
        .iter()
        .map(|place| {
            let before = |other: &&Place| other.core == place.core && other.cpu < place.cpu;
            let thread = places.iter().filter(before).count();
            let socket = first(&|of| &of.socket, place);
            (thread, socket, first(&|of| &of.llc, place), place.cpu)
        })
        .collect();
    let mut keyed: Vec<_> = keys.into_iter().zip(places).collect();
    keyed.sort_by_key(|&(key, _)| key);
    keyed.into_iter().map(|(_, place)| place).collect()
}

fn folder(sys: &Path, cpu: CpuId) -> PathBuf {
    sys.join(format!("devices/system/cpu/cpu{}", cpu.get()))
}

/// What a file of sysfs says, if it is there.
fn text(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

fn place(sys: &Path, cpu: CpuId) -> Place {
    let folder = folder(sys, cpu);
    let text = |path: &str| text(&folder.join(path));
    let own = || format!("CPU {}", cpu.get());
    let socket = text("topology/physical_package_id").unwrap_or_default();
    let node = fs::read_dir(&folder).ok().and_then(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_node = |name: &String| {
            let number = name.strip_prefix("node");
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        names.into_iter().find(is_node)
    });
    let llc = (0..=9).rev().find_map(|index| {
        let level = text(&format!("cache/index{index}/level"))?;
        (level == "3").then(|| text(&format!("cache/index{index}/shared_cpu_list")))?
    });
    Place {
        cpu,
        core: text("topology/thread_siblings_list").unwrap_or_else(own),
        // Without one, as with an Arm server's mesh, a socket counts as sharing.
        llc: llc.unwrap_or_else(|| format!("socket {socket}")),
        socket,
        node: node.unwrap_or_default(),
    }
}

/// The caches of a CPU that data is in.
pub(super) fn cache_bytes(sys: &Path, cpu: CpuId) -> CacheBytes {
    let mut bytes = [0; 4];
    for index in 0..=9 {
        let cache = folder(sys, cpu).join(format!("cache/index{index}"));
        let text = |file| text(&cache.join(file)).unwrap_or_default();
        let level = text("level").parse::<usize>().unwrap_or_default();
        if text("type") != "Instruction"
            && let Some(place) = bytes.get_mut(level)
            // As the kernel writes it, `32K` are KiB.
            && let Ok(size) = format!("{}iB", text("size")).parse::<bytesize::ByteSize>()
        {
            *place = size.as_u64() as usize;
        }
    }
    CacheBytes { l1: bytes[1], l2: bytes[2], llc: bytes[3] }
}

/// On how many CPUs, from the first on, it is worth to look: one, two, those of a last-level cache,
/// of a socket, all cores, all.
pub(super) fn steps(places: &[Place]) -> Vec<u32> {
    let first = &places[0];
    let with = |shares: &dyn Fn(&Place) -> bool| places.iter().take_while(|p| shares(p)).count();
    let cores = (1..places.len())
        .find(|&nth| places[..nth].iter().any(|place| place.core == places[nth].core));
    let cores = cores.unwrap_or(places.len());
    let mut steps = vec![
        1,
        2.min(places.len()),
        with(&|place| place.llc == first.llc).min(cores),
        with(&|place| place.socket == first.socket).min(cores),
        cores,
        places.len(),
    ];
    steps.sort_unstable();
    steps.dedup();
    steps.into_iter().map(|step| step as u32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two sockets with two caches of two cores of two threads each, as Linux numbers
    /// CPUs on servers.
    fn sysfs() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for cpu in 0..16 {
            let (core, folder) = (cpu % 8, format!("devices/system/cpu/cpu{cpu}"));
            let write = |file: &str, text: String| {
                let path = root.path().join(&folder).join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            write("topology/thread_siblings_list", format!("{core},{}\n", core + 8));
            write("topology/physical_package_id", format!("{}\n", core / 4));
            write(&format!("node{}/cpulist", core / 4), String::new());
            let llc = core / 2 * 2;
            for (index, level, kind, size, shared) in [
                (0, 1, "Data", "32K", format!("{core},{}", core + 8)),
                (1, 1, "Instruction", "64K", format!("{core},{}", core + 8)),
                (2, 2, "Unified", "1M", format!("{core},{}", core + 8)),
                (3, 3, "Unified", "32M", format!("{llc}-{},{}-{}", llc + 1, llc + 8, llc + 9)),
            ] {
                write(&format!("cache/index{index}/level"), format!("{level}\n"));
                write(&format!("cache/index{index}/type"), format!("{kind}\n"));
                write(&format!("cache/index{index}/size"), format!("{size}\n"));
                write(&format!("cache/index{index}/shared_cpu_list"), format!("{shared}\n"));
            }
        }
        root
    }

    #[test]
    fn cpus_are_in_the_order_of_simulated_ones() {
        let root = sysfs();
        let mixed = [3, 9, 0, 15, 1, 8, 2, 4, 5, 6, 7, 10, 11, 12, 13, 14].map(CpuId::new);
        let places = places(root.path(), &mixed);
        let order: Vec<_> = places.iter().map(|place| place.cpu.get()).collect();
        assert_eq!(order, (0..16).collect::<Vec<_>>());
        assert_eq!(steps(&places), [1, 2, 4, 8, 16]);
        assert_eq!(places[2].node, "node0");
        assert_ne!(places[1].llc, places[2].llc);
        let caches = cache_bytes(root.path(), CpuId::new(3));
        assert_eq!(caches, CacheBytes { l1: 32 << 10, l2: 1 << 20, llc: 32 << 20 });
    }

    #[test]
    fn a_machine_that_says_nothing_has_one_socket_of_single_threads() {
        let root = tempfile::tempdir().unwrap();
        let places = places(root.path(), &[5, 2].map(CpuId::new));
        assert_eq!(places.iter().map(|place| place.cpu.get()).collect::<Vec<_>>(), [2, 5]);
        assert_eq!(steps(&places), [1, 2]);
        assert_eq!(cache_bytes(root.path(), CpuId::new(2)), CacheBytes { l1: 0, l2: 0, llc: 0 });
    }
}
