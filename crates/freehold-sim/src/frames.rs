//! The contents of page frames in the caches: lines that move as one, 64 to a frame of 4 KiB.
//!
//! Clearing a frame is not an access of the directory for each of its lines. A frame remembers, as
//! a line does, which core touched it last and when. So a frame that was freed and is allocated
//! again at once is cleared in the cache, while one that is allocated later pushes its lines
//! through the private cache and the last-level cache and takes its share of the memory's
//! bandwidth. A frame is in a cache as a whole or not at all. Writing it takes its lines from their
//! holders at no further cost.

use freehold::geometry::FRAME_BYTES;

use crate::access::{Asker, Outcome, Served};
use crate::hierarchy::{Content, Hierarchy};

/// Lines in a frame.
pub(crate) const LINES: u32 = (FRAME_BYTES / 64) as u32;

/// Where the content of a frame is, as seen from one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearness {
    Private { in_l1: bool },
    OwnLlc,
    Elsewhere,
}

impl Hierarchy {
    /// Clears a frame; its memory is on `node`.
    pub(crate) fn clear_frame(&mut self, by: Asker, pfn: u64, node: usize) -> Outcome {
        let Asker { now, core, .. } = by;
        // The core is no faster with lines that it does not have.
        let of_core = self.core_costs(by).clear_cached;
        let outcome = match self.nearness(core, pfn) {
            Nearness::Private { .. } => Outcome { served: Served::L2, done_at: now + of_core },
            Nearness::OwnLlc => {
                self.caches.fill(core, LINES, false);
                Outcome { served: Served::Llc, done_at: now + self.costs.clear_llc.max(of_core) }
            }
            Nearness::Elsewhere => {
                self.caches.fill(core, LINES, true);
                self.memory.read(now, node, self.costs.clear_reads);
                // In the long run each dirty line that comes into a cache pushes one out.
                self.memory.write(now, node, u64::from(LINES));
                let (served, costs) = self.place_of(core, node);
                let slowest = costs.clear.max(of_core).max(self.memory.backlog(now, node));
                Outcome { served, done_at: now + slowest }
            }
        };
        self.touched(core, pfn);
        outcome
    }

    /// Reads or writes one line of a frame's content; its memory is on `node`.
    pub(crate) fn touch_frame(&mut self, by: Asker, pfn: u64, node: usize) -> Outcome {
        let Asker { now, core, .. } = by;
        let outcome = match self.nearness(core, pfn) {
            Nearness::Private { in_l1: true } => {
                Outcome { served: Served::L1, done_at: now + self.core_costs(by).l1 }
            }
            Nearness::Private { in_l1: false } => {
                Outcome { served: Served::L2, done_at: now + self.core_costs(by).l2 }
            }
            Nearness::OwnLlc => {
                self.caches.fill(core, 1, false);
                Outcome { served: Served::Llc, done_at: now + self.costs.llc }
            }
            Nearness::Elsewhere => {
                self.caches.fill(core, 1, true);
                let queued = self.memory.read(now, node, 1);
                let (served, costs) = self.place_of(core, node);
                Outcome { served, done_at: now + costs.line + queued }
            }
        };
        self.touched(core, pfn);
        outcome
    }

    fn nearness(&self, core: usize, pfn: u64) -> Nearness {
        let Some(content) = self.content_index(pfn).map(|index| self.frames.contents[index]) else {
            return Nearness::Elsewhere;
        };
        let Some(holder) = (content.toucher as usize).checked_sub(1) else {
            return Nearness::Elsewhere;
        };
        let age = self.caches.age(holder, content.stamp);
        let llc = self.caches.llc_of(holder);
        if holder == core && self.caches.in_core(core, age) {
            Nearness::Private { in_l1: self.caches.in_l1(age) }
        } else if llc == self.caches.llc_of(core)
            && self.caches.in_llc(holder, content.llc_stamp, age)
        {
            Nearness::OwnLlc
        } else {
            Nearness::Elsewhere
        }
    }

    fn touched(&mut self, core: usize, pfn: u64) {
        if let Some(index) = self.content_index(pfn) {
            self.frames.contents[index] = Content {
                stamp: self.caches.core_stamp(core),
                llc_stamp: self.caches.llc_stamp(self.caches.llc_of(core)),
                toucher: core as u16 + 1,
            };
        }
    }

    fn content_index(&self, pfn: u64) -> Option<usize> {
        let index = pfn.checked_sub(self.frames.first)? as usize;
        (index < self.frames.contents.len()).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::preset;

    #[test]
    fn a_frame_is_cleared_where_it_is() {
        let mut h = Hierarchy::new(&preset("skylake-2s").unwrap());
        h.frames.cover(100, 1000);
        let mut clear = |core: usize, pfn: u64, ms: u64| {
            let now = ms * 1_000_000_000;
            let outcome = h.clear_frame(Asker::alone(now, core), pfn, 0);
            (outcome.served, outcome.done_at - now)
        };
        assert_eq!(clear(0, 100, 1), (Served::LocalDram, 325_000));
        assert_eq!(clear(0, 100, 2), (Served::L2, 205_000), "still in the private cache");
        assert_eq!(clear(1, 100, 3), (Served::Llc, 205_000), "in a neighbour's");
        assert_eq!(clear(40, 100, 4), (Served::RemoteDram, 524_077), "in another socket's");
        for pfn in 101..102 + 16_384 / 64 {
            clear(0, pfn, 5);
        }
        assert_eq!(clear(0, 101, 6).0, Served::Llc, "256 frames fill the private cache");
        assert_eq!(clear(0, 5, 7).0, Served::LocalDram, "frames that are not covered are cold");
    }
}
