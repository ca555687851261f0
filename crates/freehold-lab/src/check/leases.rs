//! Leases in a scenario: a CPU works through the lease of some CPU's caches, and ends or parks it.

use std::rc::Rc;

use freehold::designs::{Freehold, Lease, ParkedLease};
use freehold::platform::Platform;
use freehold::{CpuId, Error, Order, PageAllocator, Pfn, Request};

use super::actor::Actor;
use super::ledger::Block;

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

impl Actor {
    /// Works through a lease for a while.
    pub(super) fn lease(&mut self) {
        let world = Rc::clone(&self.world);
        let cpu = CpuId::new(self.rng.u32(..world.slots));
        let parked = if self.rng.bool() { world.parked.borrow_mut().pop() } else { None };
        let terms = match parked {
            Some(parked) => Terms::Resumed(parked),
            None => Terms::New(cpu),
        };
        let mut work = |lease: &mut dyn Leased| {
            for _ in 0..self.rng.usize(1..=30) {
                self.lease_step(lease);
            }
            self.rng.bool()
        };
        match world.frames.with_lease(terms, &mut work) {
            Ending::Unsupported => {}
            Ending::Refused(error) => assert_eq!(error, Error::Leased),
            Ending::Ended => world.tally.borrow_mut().leases += 1,
            Ending::Parked(parked) => {
                world.tally.borrow_mut().leases += 1;
                world.parked.borrow_mut().push(parked);
            }
        }
    }

    fn lease_step(&mut self, lease: &mut dyn Leased) {
        match self.rng.u8(..16) {
            0..8 => self.alloc_by(&|request| lease.alloc(request)),
            8..13 => self.free_by(&|block| lease.free(block.pfn, block.order)),
            13..15 => self.alloc_own(lease),
            _ => lease.renew(),
        }
    }

    fn alloc_own(&mut self, lease: &dyn Leased) {
        let (request, limit) = self.request(Order::ZERO);
        let mut out = vec![Pfn::default(); self.rng.usize(1..=80)];
        let wanted = out.len() as u64;
        let call = || lease.alloc_own(request, &mut out);
        let count = self.world.flow.allocating(wanted, call, |&count| count as u64);
        for &pfn in &out[..count] {
            self.take(Block { pfn, order: Order::ZERO }, limit);
        }
    }
}
