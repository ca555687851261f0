//! Measuring on the real machine.

use freehold::Design;
use freehold_host::Host;

pub(crate) mod tasks;
pub(crate) mod yardstick;

/// A design that the tasks of a run can share.
pub(crate) trait HostDesign: Design<Host> + Sync {}

impl<D: Design<Host> + Sync> HostDesign for D {}

/// How many bytes the operating system could give, if it says so.
pub(crate) fn memory_available() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}
