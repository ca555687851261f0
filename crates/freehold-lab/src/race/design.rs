//! The designs as contestants: an arena on this host with the design's default settings.

use crate::peers::{FRAME_BYTES, Peer, Refused, Seat};
use anyhow::Result;
use freehold::{MigrateType, Order, PageAllocator, Pfn, Request};
use freehold_host::{FrameArena, Host};

use crate::books::check_all_back;
use crate::host::{HostDesign, arena};

/// An arena of design `D`.
pub(super) struct DesignPeer<D: HostDesign> {
    arena: FrameArena<D>,
}

impl<D: HostDesign> DesignPeer<D> {
    /// An arena of so many frames.
    pub(super) fn new(frames: u64) -> Result<Self> {
        let bytes = usize::try_from(frames)?.saturating_mul(FRAME_BYTES);
        Ok(DesignPeer { arena: arena::<D>().bytes(bytes).build_frames()? })
    }

    pub(super) fn allocator(&self) -> &PageAllocator<Host, D> {
        self.arena.allocator()
    }
}

impl<D: HostDesign + Send + 'static> Peer for DesignPeer<D> {
    type Block = Pfn;
    type Seat<'a> = DesignSeat<'a, D>;

    fn sit(&self, _thread: usize) -> DesignSeat<'_, D> {
        DesignSeat(self.arena.allocator())
    }

    fn first_frame(block: &Pfn) -> u64 {
        block.get()
    }

    fn managed_frames(&self) -> Option<u64> {
        Some(self.arena.total_frames().get())
    }

    fn serves(&self, order: Order) -> bool {
        order <= D::ORDER_MAX
    }

    fn has_bulk(&self) -> bool {
        true
    }

    fn metadata_bytes(&self) -> Option<usize> {
        Some(self.arena.metadata_bytes())
    }

    fn audit(&self) -> Result<(), String> {
        check_all_back(&self.arena.allocator(), self.arena.total_frames())
            .map_err(|error| format!("{error:#}"))
    }
}

/// The allocator of an arena.
pub(super) struct DesignSeat<'a, D: HostDesign>(&'a PageAllocator<Host, D>);

impl<D: HostDesign> Seat for DesignSeat<'_, D> {
    type Block = Pfn;

    #[inline(always)]
    fn alloc(&mut self, order: Order, migratetype: MigrateType) -> Option<Pfn> {
        self.0.alloc(Request::new(order).migratetype(migratetype)).ok()
    }

    #[inline(always)]
    fn free(&mut self, block: Pfn, order: Order) -> Result<(), Refused> {
        self.0.free(block, order).map_err(|_| Refused)
    }

    #[inline]
    fn alloc_bulk(&mut self, out: &mut [Pfn]) -> usize {
        self.0.alloc_bulk(Request::default(), out).unwrap_or(0)
    }

    #[inline]
    fn free_bulk(&mut self, blocks: &mut [Pfn]) -> Result<(), Refused> {
        self.0.free_bulk(blocks, Order::ZERO).map_err(|_| Refused)
    }
}
