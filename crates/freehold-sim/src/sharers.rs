//! The sharers of a line: sets of cores for the few lines that several cores hold.
//!
//! A line that one core holds keeps its state in the directory. A line that several hold gets a set
//! here: which cores, when each touched it last, and the same for each last-level cache. There are
//! as many sets as shared lines, up to a limit. Past it the oldest set is reused, and its line
//! counts as dropped by all, as when a real snoop filter is full.

use crate::cache::Stamp;

/// Sets that can exist at a time.
const SETS_MAX: usize = 1 << 16;

/// The number of a set.
pub(crate) type SetId = u32;

/// The state of a line in one last-level cache.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LlcCopy {
    /// The last core under this cache that touched the line.
    pub(crate) core: u16,
    /// The cache's counter at that touch.
    pub(crate) stamp: Stamp,
}

/// All sets of sharers of a machine.
#[derive(Debug)]
pub(crate) struct Sharers {
    cores: usize,
    llcs: usize,
    /// Words of 64 members in a set.
    words: usize,
    members: Vec<u64>,
    llc_members: Vec<u64>,
    core_stamps: Vec<Stamp>,
    llc_copies: Vec<LlcCopy>,
    line_of: Vec<u32>,
    free: Vec<SetId>,
    /// The next set to reuse when all are in use.
    hand: SetId,
}

impl Sharers {
    pub(crate) fn new(cores: usize, llcs: usize) -> Self {
        Sharers {
            cores,
            llcs,
            words: cores.div_ceil(64),
            members: Vec::new(),
            llc_members: Vec::new(),
            core_stamps: Vec::new(),
            llc_copies: Vec::new(),
            line_of: Vec::new(),
            free: Vec::new(),
            hand: 0,
        }
    }

    /// An empty set for `line`, and the line whose set was reused for it, if any.
    pub(crate) fn acquire(&mut self, line: u32) -> (SetId, Option<u32>) {
        let (set, evicted) = if let Some(set) = self.free.pop() {
            (set, None)
        } else if self.line_of.len() < SETS_MAX {
            self.members.resize(self.members.len() + self.words, 0);
            self.llc_members.push(0);
            self.core_stamps.resize(self.core_stamps.len() + self.cores, 0);
            self.llc_copies.resize(self.llc_copies.len() + self.llcs, LlcCopy::default());
            self.line_of.push(0);
            ((self.line_of.len() - 1) as SetId, None)
        } else {
            let set = self.hand;
            self.hand = (self.hand + 1) % SETS_MAX as SetId;
            (set, Some(self.line_of[set as usize]))
        };
        self.members[set as usize * self.words..][..self.words].fill(0);
        self.llc_members[set as usize] = 0;
        self.line_of[set as usize] = line;
        (set, evicted)
    }

    /// Frees a set.
    pub(crate) fn release(&mut self, set: SetId) {
        self.free.push(set);
    }

    /// Adds a core, or renews its touch.
    pub(crate) fn touch(&mut self, set: SetId, core: usize, stamp: Stamp, llc: usize, at: Stamp) {
        let at_set = set as usize;
        self.members[at_set * self.words + core / 64] |= 1 << (core % 64);
        self.llc_members[at_set] |= 1 << llc;
        self.core_stamps[at_set * self.cores + core] = stamp;
        self.llc_copies[at_set * self.llcs + llc] = LlcCopy { core: core as u16, stamp: at };
    }

    /// When this core touched the line last, if it is a member.
    pub(crate) fn core_stamp(&self, set: SetId, core: usize) -> Option<Stamp> {
        let set = set as usize;
        let member = self.members[set * self.words + core / 64] >> (core % 64) & 1 == 1;
        member.then(|| self.core_stamps[set * self.cores + core])
    }

    /// The state of the line in this last-level cache, if any core under it is a member.
    pub(crate) fn llc_copy(&self, set: SetId, llc: usize) -> Option<LlcCopy> {
        let set = set as usize;
        (self.llc_members[set] >> llc & 1 == 1).then(|| self.llc_copies[set * self.llcs + llc])
    }

    /// The last-level caches with members, as a set of bits.
    pub(crate) fn llcs_of(&self, set: SetId) -> u64 {
        self.llc_members[set as usize]
    }

    /// Whether a core of the range other than `core` is a member.
    pub(crate) fn others_in(&self, set: SetId, cores: std::ops::Range<usize>, core: usize) -> bool {
        let members = &self.members[set as usize * self.words..][..self.words];
        members.iter().enumerate().any(|(word, &members)| {
            let first = cores.start.clamp(word * 64, word * 64 + 64) - word * 64;
            let end = cores.end.clamp(word * 64, word * 64 + 64) - word * 64;
            let below = |bit: usize| if bit == 64 { u64::MAX } else { (1 << bit) - 1 };
            let own = if core / 64 == word { 1 << (core % 64) } else { 0 };
            members & below(end) & !below(first) & !own != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_knows_its_members_and_when_they_touched() {
        let mut sharers = Sharers::new(256, 4);
        let (set, evicted) = sharers.acquire(7);
        assert_eq!(evicted, None);
        sharers.touch(set, 200, 11, 3, 22);
        assert_eq!(sharers.core_stamp(set, 200), Some(11));
        assert_eq!(sharers.core_stamp(set, 199), None);
        assert_eq!(sharers.llc_copy(set, 3).map(|copy| (copy.core, copy.stamp)), Some((200, 22)));
        assert!(sharers.llc_copy(set, 0).is_none());
        assert!(!sharers.others_in(set, 192..256, 200));
        assert!(sharers.others_in(set, 192..256, 201));
        sharers.release(set);
        let (again, _) = sharers.acquire(8);
        assert_eq!(again, set);
        assert_eq!(sharers.core_stamp(again, 200), None, "a new set is empty");
    }

    #[test]
    fn past_the_limit_the_oldest_set_is_taken_away() {
        let mut sharers = Sharers::new(1, 1);
        for line in 0..SETS_MAX as u32 {
            assert_eq!(sharers.acquire(line).1, None);
        }
        assert_eq!(sharers.acquire(1_000_000), (0, Some(0)));
        assert_eq!(sharers.acquire(1_000_001), (1, Some(1)));
    }
}
