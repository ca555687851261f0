//! What the cache knows of a tenant: who is charged for which blocks, within which limits.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use freehold_host::FrameCount;
use freehold_host::lru::{GroupId, Shadow};

use crate::counters::Counters;
use crate::error::CacheError;
use crate::key::Key;
use crate::sync::{AtomicU64, Mutex};

/// How much of the cache a tenant may have, and how much of that others cannot take from it. In
/// bytes, of which whole blocks count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    max_bytes: Option<u64>,
    protected_bytes: u64,
}

impl Limits {
    /// No limit and no protection: the tenant shares the memory with all others.
    pub const fn new() -> Self {
        Limits { max_bytes: None, protected_bytes: 0 }
    }

    /// The most memory that the blocks of the tenant have at any moment, rounded down to whole
    /// blocks. A tenant at its limit evicts blocks of its own.
    #[must_use]
    pub const fn max_bytes(self, bytes: u64) -> Self {
        Limits { max_bytes: Some(bytes), ..self }
    }

    /// So much is evicted for the sake of others only if nothing else can be (cgroup v2's
    /// `memory.low`), rounded up to whole blocks.
    #[must_use]
    pub const fn protected_bytes(self, bytes: u64) -> Self {
        Limits { protected_bytes: bytes, ..self }
    }

    pub(crate) fn max_blocks(self, block_bytes: usize) -> Result<Option<FrameCount>, CacheError> {
        let too_small = || {
            let reason = format!("less than a block of {block_bytes} bytes");
            CacheError::BadSetting("max_bytes", reason)
        };
        match self.max_bytes.map(|bytes| bytes / block_bytes as u64) {
            Some(0) => Err(too_small()),
            blocks => Ok(blocks.map(FrameCount::new)),
        }
    }

    pub(crate) fn protected_blocks(self, block_bytes: usize) -> FrameCount {
        FrameCount::new(self.protected_bytes.div_ceil(block_bytes as u64))
    }
}

/// What the cache knows of a tenant.
pub(crate) struct TenantState {
    pub(crate) name: String,
    pub(crate) group: GroupId,
    pub(crate) counters: Counters,
    /// Blocks in the index. A block is counted after it was charged, and no more before that is
    /// undone, so that there are never more than may be charged.
    cached: AtomicU64,
    dirty: AtomicU64,
    /// The dirty blocks of all tenants.
    dirty_of_all: Arc<AtomicU64>,
    /// Blocks that were dirty when their file was closed, and could not be written.
    lost: AtomicU64,
    shadows: Mutex<VecDeque<(Key, Shadow)>>,
    shadows_max: AtomicU64,
    blocks_max: AtomicU64,
}

impl TenantState {
    /// A new tenant, of which so many shadows are kept.
    pub(crate) fn new(
        name: String,
        group: GroupId,
        threads: usize,
        shadows_max: u64,
        dirty_of_all: Arc<AtomicU64>,
    ) -> Self {
        TenantState {
            name,
            group,
            counters: Counters::new(threads),
            cached: AtomicU64::new(0),
            dirty: AtomicU64::new(0),
            dirty_of_all,
            lost: AtomicU64::new(0),
            shadows: Mutex::default(),
            shadows_max: AtomicU64::new(shadows_max),
            blocks_max: AtomicU64::new(u64::MAX),
        }
    }

    pub(crate) fn add_cached(&self) {
        // Relaxed: a count on which no other memory depends; here and below. That a block is
        // charged before and uncharged after is ordered by the LRU's steps on the charge, which
        // acquire and release.
        self.cached.fetch_add(1, Relaxed);
    }

    pub(crate) fn remove_cached(&self) {
        self.cached.fetch_sub(1, Relaxed);
    }

    pub(crate) fn cached(&self) -> u64 {
        self.cached.load(Relaxed)
    }

    pub(crate) fn add_dirty(&self, blocks: u64) {
        self.dirty.fetch_add(blocks, Relaxed);
        self.dirty_of_all.fetch_add(blocks, Relaxed);
    }

    pub(crate) fn remove_dirty(&self, blocks: u64) {
        self.dirty.fetch_sub(blocks, Relaxed);
        self.dirty_of_all.fetch_sub(blocks, Relaxed);
    }

    pub(crate) fn dirty(&self) -> u64 {
        self.dirty.load(Relaxed)
    }

    pub(crate) fn add_lost(&self, blocks: u64) {
        self.lost.fetch_add(blocks, Relaxed);
    }

    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// How many shadows are kept, and how many blocks the tenant may have.
    pub(crate) fn set_max(&self, shadows: u64, blocks: u64) {
        self.shadows_max.store(shadows, Relaxed);
        self.blocks_max.store(blocks, Relaxed);
    }

    pub(crate) fn blocks_max(&self) -> u64 {
        self.blocks_max.load(Relaxed)
    }

    /// How many shadows are known, those of blocks that came back since included.
    pub(crate) fn shadows(&self) -> u64 {
        self.shadows.lock().len() as u64
    }

    /// Notes a shadow. Returns those that are to go: at most two, so that a lowered limit is
    /// reached in time. A block that came back since counts as well, so that no tenant has more
    /// than it may.
    pub(crate) fn push_shadow(&self, key: Key, shadow: Shadow) -> [Option<(Key, Shadow)>; 2] {
        let most = self.shadows_max.load(Relaxed) as usize;
        let mut shadows = self.shadows.lock();
        shadows.push_back((key, shadow));
        [(); 2].map(|()| if shadows.len() > most { shadows.pop_front() } else { None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Block;

    #[test]
    fn a_tenant_keeps_the_latest_shadows() {
        let tenant = TenantState::new("a".into(), GroupId::ROOT, 1, 2, Arc::default());
        let push = |block, bits| {
            let key = Key::new(0, Block(block)).unwrap();
            let gone = tenant.push_shadow(key, Shadow::from_bits(bits));
            gone.map(|gone| gone.map(|(key, shadow)| (key.block().0, shadow.to_bits())))
        };
        assert_eq!(push(7, 70), [None, None]);
        assert_eq!(push(8, 80), [None, None]);
        assert_eq!(push(7, 71), [Some((7, 70)), None]);
        tenant.set_max(1, 9);
        assert_eq!(push(6, 60), [Some((8, 80)), Some((7, 71))]);
    }

    #[test]
    fn limits_are_whole_blocks() {
        let limits = Limits::new().max_bytes(10_000).protected_bytes(4097);
        assert_eq!(limits.max_blocks(4096).unwrap(), Some(FrameCount::new(2)));
        assert_eq!(limits.protected_blocks(4096), FrameCount::new(2));
        assert!(Limits::new().max_bytes(4095).max_blocks(4096).is_err());
        assert_eq!(Limits::new().max_blocks(4096).unwrap(), None);
    }
}
