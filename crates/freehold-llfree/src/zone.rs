//! A zone: its watermarks, which trees it has memory in, and the state of its compaction.

use core::sync::atomic::Ordering::Relaxed;

use freehold::compact::state::CompactionState;
use freehold::designs::hotplug::Marked;
use freehold::platform::{LockClass, Pin, Platform, RawLock, Word};
use freehold::request::Request;
use freehold::units::{FrameCount, NodeId, ZoneKind};
use freehold::zone::watermark::{Watermark, Watermarks};

/// The record of a zone. Written when memory is added, and when reservations begin again after all
/// were ended; what compaction writes is on lines of its own.
#[repr(C, align(64))]
pub(crate) struct Zone<P: Platform> {
    pub(crate) node: NodeId,
    pub(crate) kind: ZoneKind,
    managed: P::U64,
    pub(crate) watermarks: Watermarks<P>,
    /// The trees from the first one with memory to behind the last one.
    first: P::U32,
    end: P::U32,
    /// Whether a CPU may have reserved a tree since all reservations were ended.
    is_cached: P::U32,
    compaction: CompactionState<P>,
    /// Of the state of compaction.
    pub(crate) lock: P::Lock,
}

impl<P: Platform> Zone<P> {
    /// A zone without memory.
    pub(crate) fn new(node: NodeId, kind: ZoneKind) -> Self {
        Zone {
            node,
            kind,
            managed: P::U64::new(0),
            watermarks: Watermarks::new(),
            first: P::U32::new(u32::MAX),
            end: P::U32::new(0),
            is_cached: P::U32::new(0),
            compaction: CompactionState::new(),
            lock: P::Lock::new(LockClass::Compaction),
        }
    }

    // Relaxed throughout: these words change under the hotplug lock, or are hints, and a call that
    // sees an old value is as good as one that came a moment earlier.

    pub(crate) fn managed(&self) -> u64 {
        self.managed.load(Relaxed)
    }

    /// Changes how many frames it has. Under the hotplug lock.
    pub(crate) fn add_managed(&self, change: i64) {
        self.managed.store(self.managed().wrapping_add_signed(change), Relaxed);
    }

    /// What its watermarks follow from, and these.
    pub(crate) fn marked(&self) -> Marked<'_, P> {
        let managed = FrameCount::new(self.managed());
        Marked { node: self.node, kind: self.kind, managed, watermarks: &self.watermarks }
    }

    /// The trees that it may have memory in.
    pub(crate) fn trees(&self) -> core::ops::Range<u32> {
        self.first.load(Relaxed)..self.end.load(Relaxed)
    }

    /// Notes that it has memory in a tree. Under the hotplug lock.
    pub(crate) fn extend(&self, tree: u32) {
        let now = self.trees();
        self.first.store(now.start.min(tree), Relaxed);
        self.end.store(now.end.max(tree + 1), Relaxed);
    }

    /// How many frames must be left once a request has its own.
    pub(crate) fn floor(&self, request: &Request, class: Watermark) -> u64 {
        self.watermarks.floor(class, request.effective_limit()).unwrap_or(0)
    }

    /// The low watermark: nothing is reserved that would leave less.
    pub(crate) fn low(&self) -> u64 {
        self.watermarks.floor(Watermark::Low, self.kind).unwrap_or(0)
    }

    /// Whether a CPU may have reserved a tree.
    pub(crate) fn is_cached(&self) -> bool {
        self.is_cached.load(Relaxed) != 0
    }

    pub(crate) fn note_cached(&self, is_cached: bool) {
        if self.is_cached() != is_cached {
            self.is_cached.store(u32::from(is_cached), Relaxed);
        }
    }

    /// What is done with the state of its compaction, under a lock that nothing else takes.
    pub(crate) fn with_compaction<T>(
        &self,
        platform: &P,
        act: impl FnOnce(&CompactionState<P>) -> T,
    ) -> T {
        let _pin = Pin::anywhere(platform);
        self.lock.lock();
        let done = act(&self.compaction);
        self.lock.unlock();
        done
    }
}
