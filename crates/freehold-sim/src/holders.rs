//! Which cores hold a line: what an access changes, and what it takes from other cores.

use crate::access::Op;
use crate::hierarchy::{Hierarchy, Holding};
use crate::sharers::SetId;
use crate::spec::Picos;

impl Hierarchy {
    /// Whether an access is a hit that changes nothing for other cores.
    pub(crate) fn stays_within_core(&self, core: usize, index: usize, op: Op) -> bool {
        let line = &self.lines[index];
        match line.holding {
            Holding::None => false,
            Holding::Single => {
                line.core as usize == core
                    && self.caches.in_core(core, self.caches.age(core, line.stamp_or_set))
                    && !(line.spun_on && op.writes())
            }
            Holding::Shared => {
                op == Op::Read && self.age_as_sharer(line.stamp_or_set, core).is_some()
            }
        }
    }

    /// The age of a core's own copy of a shared line, if it still has one.
    pub(crate) fn age_as_sharer(&self, set: SetId, core: usize) -> Option<u32> {
        let stamp = self.sharers.core_stamp(set, core)?;
        let age = self.caches.age(core, stamp);
        self.caches.in_core(core, age).then_some(age)
    }

    /// The cost of invalidating the other copies before a write: as much as a transfer from the
    /// farthest of them. Copies that were silently dropped count as well, since the directory of a
    /// real machine does not know of that either.
    pub(crate) fn invalidation(&self, index: usize, core: usize) -> Picos {
        let line = &self.lines[index];
        if line.holding != Holding::Shared {
            // A single holder gives up its copy in the transfer, and a clean one elsewhere is
            // invalidated by the home while the memory is read.
            return 0;
        }
        let set = line.stamp_or_set;
        let own_llc = self.caches.llc_of(core);
        let socket = self.caches.socket_of_llc(own_llc);
        let mut cost = 0;
        if self.sharers.others_in(set, self.caches.cores_of(own_llc), core) {
            cost = self.costs.same_llc;
        }
        let mut others = self.sharers.llcs_of(set) & !(1 << own_llc);
        while others != 0 {
            let llc = others.trailing_zeros() as usize;
            others &= others - 1;
            cost = cost.max(if self.caches.socket_of_llc(llc) == socket {
                self.costs.same_socket
            } else {
                self.costs.remote_home_writer
            });
        }
        cost
    }

    /// The core becomes the only holder and makes the line dirty.
    pub(crate) fn take(&mut self, index: usize, core: usize) {
        let line = &mut self.lines[index];
        if line.holding == Holding::Shared {
            self.sharers.release(line.stamp_or_set);
        }
        line.holding = Holding::Single;
        line.core = core as u16;
        line.stamp_or_set = self.caches.core_stamp(core);
        line.llc_stamp = self.caches.llc_stamp(self.caches.llc_of(core));
        line.dirty = true;
    }

    /// The core gets a copy in addition to the others.
    pub(crate) fn share(&mut self, now: Picos, index: usize, core: usize) {
        let own_llc = self.caches.llc_of(core);
        let line = &self.lines[index];
        match line.holding {
            Holding::Shared => {
                if line.dirty && self.sharers.llcs_of(line.stamp_or_set) != 1 << own_llc {
                    self.clean(now, index);
                }
                self.lines[index].core = core as u16;
                self.renew_share(index, core);
            }
            Holding::Single if line.core as usize != core => {
                let (holder, stamp, llc_stamp) =
                    (line.core as usize, line.stamp_or_set, line.llc_stamp);
                let llc = self.caches.llc_of(holder);
                // Nor is there anything between cores that could keep it, without such a cache.
                if line.dirty && (llc != own_llc || !self.caches.has_llcs()) {
                    self.clean(now, index);
                }
                if self.caches.in_core(holder, self.caches.age(holder, stamp)) {
                    let (set, evicted) = self.sharers.acquire(index as u32);
                    if let Some(other) = evicted {
                        self.drop_everywhere(now, other as usize);
                    }
                    self.sharers.touch(set, holder, stamp, llc, llc_stamp);
                    let line = &mut self.lines[index];
                    line.holding = Holding::Shared;
                    line.stamp_or_set = set;
                    line.core = core as u16;
                    self.renew_share(index, core);
                } else {
                    self.hold_alone(index, core);
                }
            }
            _ => self.hold_alone(index, core),
        }
    }

    /// The core becomes the only holder; the line stays as dirty as it was.
    fn hold_alone(&mut self, index: usize, core: usize) {
        let line = &mut self.lines[index];
        line.holding = Holding::Single;
        line.core = core as u16;
        line.stamp_or_set = self.caches.core_stamp(core);
        line.llc_stamp = self.caches.llc_stamp(self.caches.llc_of(core));
    }

    /// Notes that a core touched a line of which it has a share.
    pub(crate) fn renew_share(&mut self, index: usize, core: usize) {
        let llc = self.caches.llc_of(core);
        let set = self.lines[index].stamp_or_set;
        let (stamp, llc_stamp) = (self.caches.core_stamp(core), self.caches.llc_stamp(llc));
        self.sharers.touch(set, core, stamp, llc, llc_stamp);
    }

    /// The line goes back to the memory.
    pub(crate) fn clean(&mut self, now: Picos, index: usize) {
        let line = &mut self.lines[index];
        line.dirty = false;
        self.memory.write(now, line.home as usize, 1);
    }

    /// Every cache drops the line, whose set of sharers is needed for another line.
    fn drop_everywhere(&mut self, now: Picos, index: usize) {
        if self.lines[index].dirty {
            self.clean(now, index);
        }
        self.lines[index].holding = Holding::None;
    }
}
