//! How tasks on the host reach the allocator and the memory of an arena.

use std::marker::PhantomData;

use freehold::{FrameCount, PageAllocator, Pfn};
use freehold_host::{FrameArena, Host, HostError, HostLru};

use super::lru::{HostKeeper, LruPlan, ReclaimingFrames};
use super::{Block, Content};
use crate::host::HostDesign;

/// The memory behind the frames, whatever the design of their allocator.
pub(super) trait Memory: Sync {
    /// Writes one byte of a frame.
    fn touch(&self, pfn: Pfn);

    /// Copies the content of a block.
    fn copy(&self, from: Block, to: Pfn);

    /// Fills a frame.
    fn write(&self, pfn: Pfn, content: &Content);

    /// Copies what is in a frame.
    fn read(&self, pfn: Pfn, content: &mut Content);

    /// Replaces the stamp of each frame of a block: its second word.
    ///
    /// # Errors
    ///
    /// The first frame that bears another one.
    fn restamp(&self, block: Block, from: u64, to: u64) -> Result<(), Pfn>;

    /// An LRU for the frames.
    fn lru<'a>(
        &self,
        plan: &LruPlan,
        keeper: HostKeeper<'a>,
    ) -> Result<HostLru<HostKeeper<'a>>, HostError>;
}

impl<D: HostDesign> Memory for FrameArena<D> {
    #[inline]
    fn touch(&self, pfn: Pfn) {
        self.store_byte(pfn, 1);
    }

    fn copy(&self, from: Block, to: Pfn) {
        self.copy_block(from.pfn, to, from.order);
    }

    fn write(&self, pfn: Pfn, content: &Content) {
        self.write_frame(pfn, content);
    }

    fn read(&self, pfn: Pfn, content: &mut Content) {
        self.read_frame(pfn, content);
    }

    fn restamp(&self, block: Block, from: u64, to: u64) -> Result<(), Pfn> {
        for frame in 0..block.order.frames().get() {
            let pfn = block.pfn.offset(FrameCount::new(frame));
            if self.load_word(pfn, 1) != from {
                return Err(pfn);
            }
            self.store_word(pfn, 1, to);
        }
        Ok(())
    }

    fn lru<'a>(
        &self,
        plan: &LruPlan,
        keeper: HostKeeper<'a>,
    ) -> Result<HostLru<HostKeeper<'a>>, HostError> {
        FrameArena::lru(self, &plan.settings(), keeper)
    }
}

/// How tasks reach an arena.
pub(super) trait Reach {
    type Frames: ReclaimingFrames + Sync + ?Sized;
    type Memory: Memory + ?Sized;
    /// Whether the clock is read around calls.
    const TIMED: bool;
}

/// Through trait objects.
pub(super) struct Indirect<'a>(PhantomData<&'a ()>);

impl<'a> Reach for Indirect<'a> {
    type Frames = dyn ReclaimingFrames + Sync + 'a;
    type Memory = dyn Memory + 'a;
    const TIMED: bool = true;
}

/// As the type that it is, without a clock around calls.
pub(super) struct Direct<'a, D>(PhantomData<&'a D>);

impl<'a, D: HostDesign> Reach for Direct<'a, D> {
    type Frames = &'a PageAllocator<Host, D>;
    type Memory = FrameArena<D>;
    const TIMED: bool = false;
}

/// An arena.
pub(super) struct Ground<'a, R: Reach> {
    pub(super) frames: &'a R::Frames,
    pub(super) memory: &'a R::Memory,
}
