//! Measuring on the real machine.

use anyhow::{Result, anyhow};
use bytesize::ByteSize;
use freehold::{Design, FrameSize};
use freehold_host::{ArenaBuilder, Host};

use crate::report::document::cpus_in_words;

pub(crate) mod tasks;
pub(crate) mod yardstick;

/// A design that the tasks of a run can share.
pub(crate) trait HostDesign: Design<Host> + Sync {}

impl<D: Design<Host> + Sync> HostDesign for D {}

/// A builder of arenas with frames as large as on all machines of the lab. Building one is refused
/// on a machine whose pages are larger: there, the lab needs `FREEHOLD_FRAME_BYTES` at build time.
pub(crate) fn arena<D: Design<Host>>() -> ArenaBuilder<D> {
    ArenaBuilder::new().frame_size(FrameSize::DEFAULT)
}

/// How many bytes the operating system could provide, if known.
pub(crate) fn memory_available() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// Checks that the operating system can provide `bytes`. `sizes` names what a user can lower.
pub(crate) fn check_memory(cpus: usize, bytes: u64, sizes: &str) -> Result<()> {
    match memory_available().filter(|&available| available < bytes) {
        None => Ok(()),
        Some(available) => Err(anyhow!(
            "{} need {}, but this machine has {} to spare: lower {sizes}",
            cpus_in_words(cpus),
            ByteSize(bytes),
            ByteSize(available)
        )),
    }
}
