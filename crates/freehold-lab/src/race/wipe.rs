//! Wipes a CPU's private caches, so that the next call starts cold.

use std::fs;
use std::hint::black_box;
use std::path::Path;

use freehold_host::allowed_cpus;

/// The size of a second-level cache if the machine does not say: twice that of most CPUs.
const L2_BYTES: usize = 2 << 20;

/// The size of the buffer as a multiple of the second-level cache. Caches do not replace strictly
/// the oldest line first, so one cache full of other lines would leave some behind.
const TIMES: usize = 2;

const LINE_BYTES: usize = 64;

/// A buffer that fills the first- and second-level caches. Their former content is then in the next
/// level or in memory.
pub(super) struct Wipe(Vec<u8>);

impl Wipe {
    /// A buffer for the CPU that this thread is bound to.
    pub(super) fn new() -> Self {
        let cpu = allowed_cpus().ok().and_then(|cpus| cpus.first().copied());
        let caches = cpu.map(|cpu| format!("/sys/devices/system/cpu/cpu{}/cache", cpu.index()));
        let bytes = caches.and_then(|caches| l2_bytes(Path::new(&caches)));
        // Not zeros: their pages would all be the same one.
        Wipe(vec![1; TIMES * bytes.unwrap_or(L2_BYTES)])
    }

    /// Writes to every line of the buffer.
    pub(super) fn wipe(&mut self) {
        for byte in self.0.iter_mut().step_by(LINE_BYTES) {
            *byte = byte.wrapping_add(1);
        }
        black_box(&mut self.0);
    }
}

/// The size of the second-level cache in a folder of sysfs that describes caches.
fn l2_bytes(caches: &Path) -> Option<usize> {
    let text = |file: &Path| fs::read_to_string(file).ok();
    let is_l2 = |cache: &Path| text(&cache.join("level")).is_some_and(|level| level.trim() == "2");
    let all = fs::read_dir(caches).ok()?.filter_map(|entry| Some(entry.ok()?.path()));
    let l2 = all.into_iter().find(|cache| is_l2(cache))?;
    let kib: usize = text(&l2.join("size"))?.trim().strip_suffix('K')?.parse().ok()?;
    (kib > 0).then_some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_the_second_level() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(l2_bytes(folder.path()), None);
        for (index, level, size) in
            [(0, "1\n", "48K\n"), (2, "2\n", "1024K\n"), (3, "3\n", "32M\n")]
        {
            let cache = folder.path().join(format!("index{index}"));
            fs::create_dir(&cache).unwrap();
            fs::write(cache.join("level"), level).unwrap();
            fs::write(cache.join("size"), size).unwrap();
        }
        fs::write(folder.path().join("uevent"), "").unwrap();
        assert_eq!(l2_bytes(folder.path()), Some(1 << 20));
        fs::write(folder.path().join("index2/size"), "much\n").unwrap();
        assert_eq!(l2_bytes(folder.path()), None);
    }

    #[test]
    fn every_line_is_written() {
        let mut wipe = Wipe::new();
        assert!(wipe.0.len() >= 2 * LINE_BYTES);
        wipe.wipe();
        assert!(wipe.0.chunks(LINE_BYTES).all(|line| line[0] == 2));
    }
}
