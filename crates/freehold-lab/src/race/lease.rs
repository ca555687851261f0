//! The design `freehold` as users with a thread a CPU have it: each thread leases its caches, and
//! takes no lock.

use crate::peers::{Peer, Refused, Seat};
use freehold::designs::{Freehold, Lease};
use freehold::{CpuId, Error, MigrateType, Order, Pfn, Request};
use freehold_host::Host;

use super::design::DesignPeer;

/// An arena whose every thread leases the caches of a CPU.
pub(super) struct LeasePeer(DesignPeer<Freehold<Host>>);

impl LeasePeer {
    /// An arena of so many frames; `None` if it has fewer CPUs than there are threads.
    pub(super) fn new(frames: u64, threads: usize) -> anyhow::Result<Option<Self>> {
        let peer = LeasePeer(DesignPeer::new(frames)?);
        let enough = (0..threads).all(|thread| peer.lease(thread).is_ok());
        Ok(enough.then_some(peer))
    }

    fn lease(&self, thread: usize) -> Result<Lease<'_, Host>, Error> {
        self.0.allocator().lease(CpuId::new(thread as u32))
    }
}

impl Peer for LeasePeer {
    type Block = Pfn;
    type Seat<'a> = LeaseSeat<'a>;

    fn sit(&self, thread: usize) -> LeaseSeat<'_> {
        let lease = self.lease(thread);
        LeaseSeat(lease.expect("there is a CPU for each thread, and each sits once at a time"))
    }

    fn first_frame(block: &Pfn) -> u64 {
        block.get()
    }

    fn managed_frames(&self) -> Option<u64> {
        self.0.managed_frames()
    }

    fn serves(&self, order: Order) -> bool {
        self.0.serves(order)
    }

    fn metadata_bytes(&self) -> Option<usize> {
        self.0.metadata_bytes()
    }

    fn audit(&self) -> Result<(), String> {
        self.0.audit()
    }
}

/// The caches of one CPU.
pub(super) struct LeaseSeat<'a>(Lease<'a, Host>);

impl LeaseSeat<'_> {
    /// Takes the caches again, if another thread has run out of memory and taken them away.
    #[inline(never)]
    fn alloc_again(&mut self, request: Request) -> Option<Pfn> {
        self.0.renew();
        self.0.alloc(request).ok()
    }
}

impl Seat for LeaseSeat<'_> {
    type Block = Pfn;

    #[inline(always)]
    fn alloc(&mut self, order: Order, migratetype: MigrateType) -> Option<Pfn> {
        let request = Request::new(order).migratetype(migratetype);
        self.0.try_alloc(request).or_else(|| self.alloc_again(request))
    }

    #[inline(always)]
    fn free(&mut self, block: Pfn, order: Order) -> Result<(), Refused> {
        self.0.free(block, order).map_err(|_| Refused)
    }
}
