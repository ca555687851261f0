//! The capacity of the caches, modelled by age.
//!
//! A cache is a counter of the lines that have come into it. A line remembers the counter's value
//! at its last touch. It is still cached if fewer lines have come in since than the cache holds.
//! True LRU would count different lines; this counts all, so a line stays for as long as it takes
//! to bring in that many lines, and lines that are touched again and again take no room. It costs
//! one word a line and one comparison, models no conflicts between addresses, and is the same on
//! every host.
//!
//! Two levels are modelled: a core's private cache (its L2, with the L1 as its youngest part), and
//! a last-level cache that several cores share and that takes what they evict. A line that left its
//! core `n` lines ago is in the last-level cache if fewer than its capacity have come in since
//! then. Only the last touch is remembered, so the time of leaving is estimated: the core's lines
//! are assumed to have come in evenly among those of its neighbours.
//!
//! Counters are 32 bits wide and wrap. A line that was not touched while 2^32 lines came in, about
//! a minute of one core clearing memory without pause, may seem to be cached again.

use crate::spec::{Costs, Key, Spec};

/// The counter of lines that came into a cache, at some moment.
pub(crate) type Stamp = u32;

/// The private cache of a core.
#[derive(Clone, Copy, Debug)]
struct Private {
    fills: Stamp,
    l2_lines: u32,
    class: u8,
}

/// The private caches of all cores and all last-level caches.
#[derive(Debug)]
pub(crate) struct Caches {
    private: Vec<Private>,
    llc_fills: Vec<Stamp>,
    cores_per_llc: usize,
    llcs_per_node: usize,
    llcs_per_socket: usize,
    l1_lines: u32,
    llc_lines: u32,
}

impl Caches {
    pub(crate) fn new(spec: &Spec, costs: &Costs) -> Self {
        let private = |core| {
            let class = spec.class_of(core);
            Private { fills: 0, l2_lines: costs.l2_lines[class], class: class as u8 }
        };
        Caches {
            private: (0..spec.cores()).map(private).collect(),
            llc_fills: vec![0; spec.llcs()],
            cores_per_llc: spec.cores_of_llc(),
            llcs_per_node: spec.llcs() / spec.cpu_nodes(),
            llcs_per_socket: spec.get(Key::LlcsPerSocket) as usize,
            l1_lines: costs.l1_lines,
            llc_lines: costs.llc_lines,
        }
    }

    /// The last-level cache of a core.
    #[inline]
    pub(crate) fn llc_of(&self, core: usize) -> usize {
        core / self.cores_per_llc
    }

    /// Whether there are last-level caches. Without, there are still the groups of cores that
    /// would have one.
    #[inline]
    pub(crate) fn has_llcs(&self) -> bool {
        self.llc_lines > 0
    }

    /// The class of a core.
    #[inline]
    pub(crate) fn class_of(&self, core: usize) -> usize {
        usize::from(self.private[core].class)
    }

    /// The socket of a last-level cache.
    #[inline]
    pub(crate) fn socket_of_llc(&self, llc: usize) -> usize {
        llc / self.llcs_per_socket
    }

    /// The node of a last-level cache.
    #[inline]
    pub(crate) fn node_of_llc(&self, llc: usize) -> usize {
        llc / self.llcs_per_node
    }

    /// The node of a core.
    #[inline]
    pub(crate) fn node_of(&self, core: usize) -> usize {
        self.node_of_llc(self.llc_of(core))
    }

    /// The cores under a last-level cache.
    pub(crate) fn cores_of(&self, llc: usize) -> std::ops::Range<usize> {
        llc * self.cores_per_llc..(llc + 1) * self.cores_per_llc
    }

    #[inline]
    pub(crate) fn core_stamp(&self, core: usize) -> Stamp {
        self.private[core].fills
    }

    #[inline]
    pub(crate) fn llc_stamp(&self, llc: usize) -> Stamp {
        self.llc_fills[llc]
    }

    /// How many lines have come into the core since the stamp.
    #[inline]
    pub(crate) fn age(&self, core: usize, stamp: Stamp) -> u32 {
        self.private[core].fills.wrapping_sub(stamp)
    }

    /// Whether a line of this age is in the first-level cache.
    #[inline]
    pub(crate) fn in_l1(&self, age: u32) -> bool {
        age < self.l1_lines
    }

    /// Whether a line of this age is in the core's private cache.
    #[inline]
    pub(crate) fn in_core(&self, core: usize, age: u32) -> bool {
        age < self.private[core].l2_lines
    }

    /// Whether the last-level cache of a core holds, or could take from it, a line whose last touch
    /// was `llc_stamp` there and `age` lines ago in the core.
    pub(crate) fn in_llc(&self, core: usize, llc_stamp: Stamp, age: u32) -> bool {
        let since = u64::from(self.llc_fills[self.llc_of(core)].wrapping_sub(llc_stamp));
        let l2_lines = self.private[core].l2_lines;
        let private =
            if age > l2_lines { since * u64::from(l2_lines) / u64::from(age) } else { since };
        since - private < u64::from(self.llc_lines)
    }

    /// Lines come into a core: from outside its last-level cache, or from there.
    #[inline]
    pub(crate) fn fill(&mut self, core: usize, lines: u32, from_outside: bool) {
        let fills = &mut self.private[core].fills;
        *fills = fills.wrapping_add(lines);
        if from_outside {
            let llc = self.llc_of(core);
            self.llc_fills[llc] = self.llc_fills[llc].wrapping_add(lines);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::{Key, preset};

    /// Two cores, 4 lines of L1, 16 of L2, 32 of last-level cache.
    fn caches() -> Caches {
        let mut spec = preset("uma-2").unwrap();
        for (key, kib) in [(Key::L1Kib, 1.0), (Key::L2Kib, 1.0), (Key::LlcKib, 2.0)] {
            spec.set(key, kib, "a test");
        }
        Caches::new(&spec, &Costs::new(&spec))
    }

    #[test]
    fn lines_from_the_llc_itself_push_nothing_out_of_it() {
        let mut caches = caches();
        caches.fill(0, 1, true);
        let (stamp, llc_stamp) = (caches.core_stamp(0), caches.llc_stamp(0));
        caches.fill(0, 1000, false);
        assert!(!caches.in_core(0, caches.age(0, stamp)));
        assert!(caches.in_llc(0, llc_stamp, caches.age(0, stamp)));
    }
}
