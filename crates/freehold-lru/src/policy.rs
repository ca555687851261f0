//! The choice of what to evict.

/// Which content of a group goes first. `docs/lru.md` compares the policies with others, and with
/// the optimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LruPolicy {
    /// As in Linux: content used twice becomes active, and leaves its active list again while the
    /// inactive one is shorter. The second [`mark_accessed`](super::Lru::mark_accessed) of a frame
    /// activates it. Better where recent content is the likeliest to be used.
    #[default]
    TwoLists,
    /// The inactive list is a tenth, and grows only where that helps; what is used twice on it
    /// stays, and so does content that comes [back](super::Lru::refault) soon. Scans, and loops
    /// over more than there is room for, leave the rest alone. After 2Q (Johnson and Shasha, VLDB
    /// 1994) and S3-FIFO (Yang et al., SOSP 2023), with a target that adapts as in ARC (Megiddo
    /// and Modha, FAST 2003).
    ///
    /// Call [`mark_accessed`](super::Lru::mark_accessed) for hits alone, not for the access that
    /// adds a frame. It moves no frame then, and takes no lock.
    ///
    /// Without shadows it is worse than the two lists.
    ScanResistant,
}

impl LruPolicy {
    /// By which a limit is divided for how much is reclaimed at a time when it is hit. Lists that
    /// are judged by the evictions from them are judged better when these come one by one: with a
    /// 64th, loops over more than there is room for hit 60 % of the time, with a 512th 81 %.
    pub(super) const fn reclaim_part(self) -> u64 {
        match self {
            LruPolicy::TwoLists => 16,
            LruPolicy::ScanResistant => 512,
        }
    }
}
