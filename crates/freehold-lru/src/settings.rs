//! What can be set: the scope of locks, how many groups there may be, batches, and which content
//! goes first.

use crate::id::SLOTS_MAX;
use freehold::Error;

/// The most frames in a batch (Linux 6.12's `PAGEVEC_SIZE`).
pub const BATCH_MAX: usize = 31;

/// The scope of a lock over lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LruLock {
    /// All groups on a node, as in Linux up to 5.10.
    Node,
    /// One group on a node, as in Linux since 5.11.
    Group,
    /// A part of a group on a node, a shard for each two CPUs, once many CPUs want the lock of a
    /// group that is large enough; until then, one group on a node.
    #[default]
    Shards,
}

impl LruLock {
    /// Whether as little as possible is done under the lock. The others do what Linux does there:
    /// references are dropped while the lock for the last frame is held, and each frame is counted
    /// as it comes or goes.
    pub(crate) const fn is_brief(self) -> bool {
        matches!(self, LruLock::Shards)
    }
}

/// Which content of a group goes first. `docs/lru.md` compares the policies with others, and with
/// the optimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LruPolicy {
    /// As in Linux: content used twice becomes active, and leaves its active list again while the
    /// inactive one is shorter. The second [`mark_accessed`](crate::Lru::mark_accessed) of a frame
    /// activates it. Better where recent content is the likeliest to be used.
    #[default]
    TwoLists,
    /// The inactive list is a tenth, and grows only where that helps; what is used twice on it
    /// stays, and so does content that comes [back](crate::Lru::refault) soon. Scans, and loops
    /// over more than there is room for, leave the rest alone. After 2Q (Johnson and Shasha, VLDB
    /// 1994) and S3-FIFO (Yang et al., SOSP 2023), with a target that adapts as in ARC (Megiddo
    /// and Modha, FAST 2003).
    ///
    /// Call [`mark_accessed`](crate::Lru::mark_accessed) for hits alone, not for the access that
    /// adds a frame. It moves no frame then, and takes no lock.
    ///
    /// Without shadows it is worse than the two lists.
    ScanResistant,
}

impl LruPolicy {
    /// By which a limit is divided for how much is reclaimed at a time when it is hit. Lists that
    /// are judged by the evictions from them are judged better when these come one by one: with a
    /// 64th, loops over more than there is room for hit 60 % of the time, with a 512th 81 %.
    pub(crate) const fn reclaim_part(self) -> u64 {
        match self {
            LruPolicy::TwoLists => 16,
            LruPolicy::ScanResistant => 512,
        }
    }
}

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LruSettings {
    /// The scope of a lock over lists.
    pub lock: LruLock,
    /// The maximum number of groups at a time, the root included: 1 to 65535. A removed group
    /// counts while any of its frames is still in use.
    pub groups: u32,
    /// With [`LruLock::Shards`], how often calls have to wait for the lock of a group on a node
    /// before its lists are divided.
    pub shard_waits: u32,
    /// How many frames for each shard a group on a node must have for that; with less than a
    /// quarter of them, its lists are joined again.
    pub shard_frames: u32,
    /// How many frames a CPU collects before it takes a lock for them: 1 to [`BATCH_MAX`].
    pub batch: u32,
    /// Which content goes first.
    pub policy: LruPolicy,
    /// How much reclaim leans towards anonymous frames, from 0 (files only) over 100 (both alike)
    /// to 200.
    pub swappiness: u32,
}

impl Default for LruSettings {
    fn default() -> Self {
        LruSettings {
            lock: LruLock::Shards,
            groups: 64,
            shard_waits: 16,
            shard_frames: 128,
            batch: BATCH_MAX as u32,
            policy: LruPolicy::default(),
            swappiness: 60,
        }
    }
}

impl LruSettings {
    /// Sets [`LruSettings::lock`].
    #[must_use]
    pub const fn lock(self, lock: LruLock) -> Self {
        LruSettings { lock, ..self }
    }

    /// Sets [`LruSettings::groups`].
    #[must_use]
    pub const fn groups(self, groups: u32) -> Self {
        LruSettings { groups, ..self }
    }

    /// Sets [`LruSettings::shard_waits`].
    #[must_use]
    pub const fn shard_waits(self, waits: u32) -> Self {
        LruSettings { shard_waits: waits, ..self }
    }

    /// Sets [`LruSettings::shard_frames`].
    #[must_use]
    pub const fn shard_frames(self, frames: u32) -> Self {
        LruSettings { shard_frames: frames, ..self }
    }

    /// Sets [`LruSettings::batch`].
    #[must_use]
    pub const fn batch(self, frames: u32) -> Self {
        LruSettings { batch: frames, ..self }
    }

    /// Sets [`LruSettings::policy`].
    #[must_use]
    pub const fn policy(self, policy: LruPolicy) -> Self {
        LruSettings { policy, ..self }
    }

    /// Sets [`LruSettings::swappiness`].
    #[must_use]
    pub const fn swappiness(self, swappiness: u32) -> Self {
        LruSettings { swappiness, ..self }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let groups = 1..=SLOTS_MAX as u32;
        let batch = 1..=BATCH_MAX as u32;
        match groups.contains(&self.groups) && batch.contains(&self.batch) && self.swappiness <= 200
        {
            true => Ok(()),
            false => Err(Error::BadSetting),
        }
    }
}
