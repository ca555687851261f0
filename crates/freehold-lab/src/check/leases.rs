//! Leases of any kind: how one is had, what it can do, and what became of it.

use freehold::designs::{Freehold, Lease, ParkedLease};
use freehold::platform::Platform;
use freehold::{CpuId, Error, Order, PageAllocator, Pfn, Request};

/// How a lease is had.
pub(super) enum Terms {
    /// A new one, of this CPU's caches.
    New(CpuId),
    /// One that was parked.
    Resumed(ParkedLease),
}

/// What became of a lease.
pub(super) enum Ending {
    /// The design has no leases.
    Unsupported,
    /// It was not granted.
    Refused(Error),
    /// It was used, and has ended.
    Ended,
    /// It was used, and is parked.
    Parked(ParkedLease),
}

/// The calls of a lease.
pub(super) trait Leased {
    fn alloc(&self, request: Request) -> Result<Pfn, Error>;
    fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error>;
    /// Allocates blocks out of its caches as far as they are there.
    fn alloc_own(&self, request: Request, out: &mut [Pfn]) -> usize;
    /// Takes the caches again if another call has taken them away.
    fn renew(&mut self);
}

impl<P: Platform> Leased for Lease<'_, P> {
    fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        Lease::alloc(self, request)
    }

    fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        Lease::free(self, pfn, order)
    }

    fn alloc_own(&self, request: Request, out: &mut [Pfn]) -> usize {
        let own = std::iter::from_fn(|| self.try_alloc(request));
        out.iter_mut().zip(own).map(|(place, pfn)| *place = pfn).count()
    }

    fn renew(&mut self) {
        Lease::renew(self);
    }
}

/// Has a lease by these terms, and works through it: `work` says whether to park it.
pub(super) fn with_lease<P: Platform>(
    frames: &PageAllocator<P, Freehold<P>>,
    terms: Terms,
    work: &mut dyn FnMut(&mut dyn Leased) -> bool,
) -> Ending {
    let granted = match terms {
        Terms::New(cpu) => frames.lease(cpu),
        Terms::Resumed(parked) => Ok(frames.resume(parked).expect("it is this allocator's")),
    };
    match granted {
        Ok(mut lease) => match work(&mut lease) {
            true => Ending::Parked(lease.park()),
            false => Ending::Ended,
        },
        Err(error) => Ending::Refused(error),
    }
}
