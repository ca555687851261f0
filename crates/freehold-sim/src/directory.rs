//! The directory of cache lines: which caches have a line, and what an access of it costs.
//!
//! A line is in no cache, with a single core, or shared by several. A single core may write it
//! without asking. It stays the line's last holder after its private cache dropped the line; then
//! the line is in its last-level cache or in memory, depending on the line's age.
//!
//! An access costs, in this order of preference,
//! * a hit in the core's own cache, by age the first level or the second;
//! * a transfer from a core under the same last-level cache that has the line to itself, clean or
//!   dirty, since only that core knows which;
//! * a hit in the core's last-level cache;
//! * a transfer from another socket or last-level cache that has the line dirty;
//! * the memory at the line's home, which also waits for the memory's queue.
//!
//! A write pays the longer of this and of invalidating the other copies, which takes as long as a
//! transfer from them. One transfer of a line is under way at a time: later requests wait.

use crate::access::{Asker, Op, Outcome, Served};
use crate::hierarchy::{Hierarchy, Holding, NO_HOME};
use crate::sharers::SetId;
use crate::spec::{CoreCosts, Picos};

/// Where the data of a miss comes from, and how long that takes.
struct Fetch {
    served: Served,
    cost: Picos,
}

/// A hit in the core's own cache.
#[inline]
fn hit(in_l1: bool, prices: &CoreCosts) -> Fetch {
    if in_l1 {
        Fetch { served: Served::L1, cost: prices.l1 }
    } else {
        Fetch { served: Served::L2, cost: prices.l2 }
    }
}

impl Hierarchy {
    /// Charges one access.
    #[inline]
    pub(crate) fn access(&mut self, by: Asker, index: usize, op: Op) -> Outcome {
        let Asker { now, core, siblings } = by;
        let prices = &self.costs.core[self.caches.class_of(core)][siblings];
        let line = &mut self.lines[index];
        if line.holding == Holding::Single && line.core as usize == core {
            let age = self.caches.age(core, line.stamp_or_set);
            if self.caches.in_core(core, age) {
                line.stamp_or_set = self.caches.core_stamp(core);
                line.llc_stamp = self.caches.llc_stamp(self.caches.llc_of(core));
                line.dirty |= op.writes();
                // The line may still be on its way to this core, on behalf of a sibling.
                let start = now.max(line.free_at);
                let Fetch { served, cost } = hit(self.caches.in_l1(age), prices);
                let mut done_at = start + cost;
                if op == Op::Rmw {
                    done_at += prices.rmw;
                    line.free_at = done_at;
                }
                if line.spun_on && op.writes() {
                    self.reread_by_spinner(done_at, core, index);
                }
                return Outcome { served, done_at };
            }
        }
        self.access_slowly(by, index, op)
    }

    /// An access of a line that the core does not have to itself.
    fn access_slowly(&mut self, by: Asker, index: usize, op: Op) -> Outcome {
        let Asker { now, core, .. } = by;
        let line = &mut self.lines[index];
        if line.home == NO_HOME {
            line.home = self.caches.node_of(core) as u8;
        }
        let (holding, set) = (line.holding, line.stamp_or_set);
        let own = match holding {
            Holding::Shared => self.age_as_sharer(set, core),
            _ => None,
        };
        if let (Some(age), Op::Read) = (own, op) {
            // Transfers to other cores may be under way, but this core has its own copy, unless
            // that is the one that is on its way, on behalf of a sibling.
            let line = &self.lines[index];
            let start = if line.core as usize == core { now.max(line.free_at) } else { now };
            self.renew_share(index, core);
            let Fetch { served, cost } = hit(self.caches.in_l1(age), self.core_costs(by));
            return Outcome { served, done_at: start + cost };
        }
        let start = now.max(self.lines[index].free_at);
        let invalidation = if op.writes() { self.invalidation(index, core) } else { 0 };
        let mut fetch = match own {
            Some(_) if invalidation > 0 => Fetch { served: Served::Upgrade, cost: 0 },
            Some(age) => hit(self.caches.in_l1(age), self.core_costs(by)),
            None => self.fetch(now, core, index),
        };
        fetch.cost = fetch.cost.max(invalidation);
        if own.is_none() {
            let inside = matches!(fetch.served, Served::Llc | Served::SameLlc);
            self.caches.fill(core, 1, !inside);
        }
        if op.writes() {
            self.take(index, core);
        } else {
            self.share(now, index, core);
        }
        let mut done_at = start + fetch.cost;
        if op == Op::Rmw {
            done_at += self.core_costs(by).rmw;
        }
        self.lines[index].free_at = done_at;
        if self.lines[index].spun_on && op.writes() {
            self.reread_by_spinner(done_at, core, index);
        }
        Outcome { served: fetch.served, done_at }
    }

    /// Finds the data of a line that the core's own cache does not have. Memory that is read, and a
    /// stale copy that an eviction has meanwhile refreshed, take their share of the bandwidth.
    fn fetch(&mut self, now: Picos, core: usize, index: usize) -> Fetch {
        let own_llc = self.caches.llc_of(core);
        let line = &self.lines[index];
        let dirty = line.dirty;
        match line.holding {
            Holding::None => {}
            Holding::Single => {
                let holder = line.core as usize;
                let llc = self.caches.llc_of(holder);
                let age = self.caches.age(holder, line.stamp_or_set);
                let private = self.caches.in_core(holder, age);
                if private && llc == own_llc {
                    return self.transfer(index, llc, own_llc);
                }
                if private || self.caches.in_llc(holder, line.llc_stamp, age) {
                    if llc == own_llc {
                        return Fetch { served: Served::Llc, cost: self.costs.llc };
                    }
                    if dirty {
                        return self.transfer(index, llc, own_llc);
                    }
                    return self.read_memory(now, core, index);
                }
            }
            Holding::Shared => {
                let set = line.stamp_or_set;
                if self.shared_in_llc(set, own_llc) {
                    return Fetch { served: Served::Llc, cost: self.costs.llc };
                }
                if dirty {
                    // Sharing across last-level caches cleans a line, so a dirty one is in one.
                    let llc = self.sharers.llcs_of(set).trailing_zeros() as usize;
                    if llc != own_llc && self.shared_in_llc(set, llc) {
                        return self.transfer(index, llc, own_llc);
                    }
                } else {
                    return self.read_memory(now, core, index);
                }
            }
        }
        let fetch = self.read_memory(now, core, index);
        if dirty {
            // Every cache has dropped the line, and the last of them wrote it back. The time is not
            // known, so the write takes its share of the bandwidth now.
            self.clean(now, index);
        }
        fetch
    }

    /// Whether a last-level cache, or a core under it, still has a shared line.
    fn shared_in_llc(&self, set: SetId, llc: usize) -> bool {
        self.sharers.llc_copy(set, llc).is_some_and(|copy| {
            let core = copy.core as usize;
            let age = self.sharers.core_stamp(set, core).map_or(0, |s| self.caches.age(core, s));
            self.caches.in_llc(core, copy.stamp, age)
        })
    }

    /// A line that another core has to itself, or a dirty one from under another last-level cache.
    fn transfer(&self, index: usize, from: usize, to: usize) -> Fetch {
        let (writer, reader) = (self.caches.socket_of_llc(from), self.caches.socket_of_llc(to));
        if from == to && self.caches.has_llcs() {
            Fetch { served: Served::SameLlc, cost: self.costs.same_llc }
        } else if writer == reader {
            Fetch { served: Served::SameSocket, cost: self.costs.same_socket }
        } else if self.costs.sockets[self.lines[index].home as usize] == writer {
            Fetch { served: Served::RemoteCache, cost: self.costs.remote_home_writer }
        } else {
            Fetch { served: Served::RemoteCache, cost: self.costs.remote_home_reader }
        }
    }

    fn read_memory(&mut self, now: Picos, core: usize, index: usize) -> Fetch {
        let home = self.lines[index].home as usize;
        let queued = self.memory.read(now, home, 1);
        let (served, costs) = self.place_of(core, home);
        Fetch { served, cost: costs.line + queued }
    }

    /// After a write to a line that a lock's first waiter keeps reading, the waiter reads it again.
    /// The writer does not wait for that, but its next access of the line does.
    #[cold]
    fn reread_by_spinner(&mut self, at: Picos, core: usize, index: usize) {
        let spinner =
            self.spinners.iter().find(|(line, _)| *line == index as u32).map(|(_, core)| *core);
        if let Some(spinner) = spinner
            && spinner as usize != core
        {
            self.access(Asker::alone(at, spinner as usize), index, Op::Read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hierarchy::Line;
    use crate::spec::{Key, preset};

    fn skylake() -> Hierarchy {
        let mut hierarchy = Hierarchy::new(&preset("skylake-2s").unwrap());
        hierarchy.lines = vec![Line::COLD; 4096];
        hierarchy
    }

    /// Accesses line 0, long after everything before; returns where it was served and at what cost.
    fn at(hierarchy: &mut Hierarchy, now_us: u64, core: usize, op: Op) -> (Served, Picos) {
        let now = now_us * 1_000_000;
        let outcome = hierarchy.access(Asker::alone(now, core), 0, op);
        (outcome.served, outcome.done_at - now)
    }

    #[test]
    fn a_clean_line_of_another_socket_comes_from_its_home() {
        let mut h = skylake();
        h.lines[0].home = 1;
        assert_eq!(at(&mut h, 1, 0, Op::Read), (Served::RemoteDram, 131_100));
        assert_eq!(at(&mut h, 2, 30, Op::Read), (Served::LocalDram, 81_300));
    }

    #[test]
    fn core_complexes_of_one_socket_have_caches_of_their_own() {
        let mut h = Hierarchy::new(&preset("epyc-2s").unwrap());
        h.lines = vec![Line::COLD; 1];
        at(&mut h, 1, 0, Op::Write);
        assert_eq!(at(&mut h, 2, 3, Op::Write), (Served::SameLlc, 25_300));
        assert_eq!(at(&mut h, 3, 4, Op::Write), (Served::SameSocket, 132_100));
        assert_eq!(at(&mut h, 4, 64, Op::Write).0, Served::RemoteCache);
    }

    #[test]
    fn a_full_table_of_sharers_drops_the_oldest_shared_line() {
        let mut spec = preset("uma-2").unwrap();
        spec.set(Key::L2Kib, 1048576.0, "a test");
        let mut h = Hierarchy::new(&spec);
        h.lines = vec![Line::COLD; (1 << 16) + 1];
        for index in 0..h.lines.len() {
            h.access(Asker::alone(0, 0), index, Op::Write);
            h.access(Asker::alone(0, 1), index, Op::Read);
        }
        assert_eq!(at(&mut h, 1_000_000, 1, Op::Read).0, Served::LocalDram);
    }
}
