//! Revocable leases: a biased lock.
//!
//! A revocable lease has the lock of a CPU's caches, and its owner uses them without a locked step.
//! A call that needs what they hold takes the lock from the lease, between two operations of the
//! owner:
//!
//! | owner, for each operation | call that revokes |
//! |---|---|
//! | sets `busy` | changes the lease word from `REVOCABLE` to `REVOKED` |
//! | light barrier | heavy barrier |
//! | reads the lease word | waits until `busy` is clear |
//! | operates, if it reads `REVOCABLE` | has the lock |
//! | clears `busy` | |
//!
//! This is Dekker's pattern: two writes, each followed by a read of what the other one wrote, with
//! a barrier between. At least one of the two sees the other. If the owner sees `REVOKED`, it
//! leaves the caches alone. If the other call sees `busy`, it waits, as for a lock, until the
//! operation has ended. So an operation itself never waits for another call: two owners that waited
//! for each other would do so for ever. What takes more than its own caches, the owner does by the
//! ordinary path, when it is not busy.
//!
//! The word stays `REVOKED` until the owner ends the lease or takes the lock again. Until then
//! there can be no other lease of these caches. Otherwise the former owner, which has not looked
//! yet, would overwrite the `busy` of the new one.
//!
//! A machine may refuse the heavy barrier although it had one: a process can give up the right to
//! it. Then the call that revokes changes the word back. The owner, which has not lost the lock,
//! goes on; if it has ended the lease in between, that call has the lock after all.

use core::fmt;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::lease::Lease;
use super::lock::{PerCpu, REVOCABLE, REVOKED, VACANT};
use crate::allocator::PageAllocator;
use crate::designs::freehold::Freehold;
use crate::error::Error;
use crate::platform::{Pin, Platform, Word};
use crate::request::Request;
use crate::units::{CpuId, Order, Pfn};

/// The right of one thread to the caches of one CPU, until other calls need what they hold: for
/// threads that may go idle at any time.
///
/// Its owner allocates and frees without any locked step, a little slower than the holder of a
/// [`Lease`]. A call that drains, or runs out of memory, takes the caches from it, with all that is
/// free there: nothing that an idle owner has is out of reach. From then on the owner's calls take
/// the ordinary path, until [`RevocableLease::renew`].
///
/// ```
/// # use freehold::designs::Freehold;
/// # use freehold::platform::Platform;
/// # use freehold::{CpuId, Error, Order, PageAllocator, Request};
/// fn work<P: Platform>(frames: &PageAllocator<P, Freehold<P>>) -> Result<(), Error> {
///     let lease = frames.lease_revocable(CpuId::new(0))?;
///     let frame = lease.alloc(Request::default())?;
///     lease.free(frame, Order::ZERO)
/// }
/// ```
pub struct RevocableLease<'a, P: Platform> {
    /// Has the lock as long as the word is `REVOCABLE`, and is dropped by hand.
    lease: ManuallyDrop<Lease<'a, P>>,
}

/// A parked [`RevocableLease`], without its allocator: for places that cannot store a reference to
/// that. Meanwhile, other calls can revoke it. If it is never resumed, there is no other lease of
/// its caches.
#[must_use = "its caches can be leased again only if it is resumed"]
pub struct ParkedLease {
    /// The address of the CPU's `PerCpu`: no two allocators that exist at the same time share it.
    address: usize,
    cpu: u32,
}

impl<P: Platform> PageAllocator<P, Freehold<P>> {
    /// Leases the caches of a CPU until the result is dropped, or another call revokes the lease.
    /// The CPU need not be the one that the caller runs on.
    ///
    /// Cost: a heavy barrier; waits for a call under way on these caches.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`]; [`Error::Leased`] if there is another lease, or one that was revoked
    /// and has not been dropped yet; [`Error::NoBarrier`] if the machine has no
    /// [`Platform::heavy_barrier`].
    pub fn lease_revocable(&self, cpu: CpuId) -> Result<RevocableLease<'_, P>, Error> {
        let context = self.context();
        if cpu.index() >= context.topology.cpus() {
            return Err(Error::UnknownCpu);
        }
        if !context.platform.heavy_barrier() {
            return Err(Error::NoBarrier);
        }
        let per_cpu = self.design().per_cpu(cpu.index());
        match self.design().begin_lease(context, per_cpu, (VACANT, REVOCABLE)) {
            true => Ok(RevocableLease::over(self, per_cpu, cpu.index())),
            false => Err(Error::Leased),
        }
    }

    /// Takes over a revoked lease whose owner does not exist any more: in the child of a `fork`, a
    /// lease of another thread of the parent. `None` if the lease of this CPU was not revoked, or
    /// there is none. If its owner exists after all, two threads share the caches, which corrupts
    /// the accounting.
    pub fn inherit_lease(&self, cpu: CpuId) -> Option<ParkedLease> {
        let per_cpu = self.design().cpus.try_get(cpu.index())?;
        // Acquire: what the former owner did comes before what the next one does.
        let is_revoked = per_cpu.lease.load(Acquire) == REVOKED;
        is_revoked.then(|| ParkedLease { address: address_of(per_cpu), cpu: cpu.index() as u32 })
    }

    /// Resumes a parked lease. Costs a comparison.
    ///
    /// # Errors
    ///
    /// Returns the parked lease if it belongs to another allocator, which still exists.
    #[inline(always)]
    pub fn resume(&self, parked: ParkedLease) -> Result<RevocableLease<'_, P>, ParkedLease> {
        match self.design().cpus.try_get(parked.cpu as usize) {
            Some(per_cpu) if address_of(per_cpu) == parked.address => {
                Ok(RevocableLease::over(self, per_cpu, parked.cpu as usize))
            }
            _ => Err(parked),
        }
    }
}

impl ParkedLease {
    /// The CPU whose caches are leased.
    pub fn cpu(&self) -> CpuId {
        CpuId::new(self.cpu)
    }
}

#[inline(always)]
fn address_of<P: Platform>(per_cpu: &PerCpu<P>) -> usize {
    core::ptr::from_ref(per_cpu).addr()
}

impl<'a, P: Platform> RevocableLease<'a, P> {
    #[inline(always)]
    fn over(
        allocator: &'a PageAllocator<P, Freehold<P>>,
        per_cpu: &'a PerCpu<P>,
        cpu: usize,
    ) -> Self {
        RevocableLease { lease: ManuallyDrop::new(Lease::over(allocator, per_cpu, cpu)) }
    }

    /// Parks the lease. Costs nothing.
    #[inline(always)]
    pub fn park(self) -> ParkedLease {
        let lease = ManuallyDrop::new(self);
        ParkedLease { address: address_of(lease.lease.per_cpu), cpu: lease.lease.cpu as u32 }
    }

    /// Begins an operation. `None` if the lease was revoked, or if an operation is under way: then
    /// this call comes from a handler that has interrupted it.
    #[inline(always)]
    fn enter(&self) -> Option<Busy<'_, 'a, P>> {
        let (per_cpu, platform) = (self.lease.per_cpu, self.lease.allocator.platform());
        // Relaxed: this thread alone writes it.
        if per_cpu.busy.load(Relaxed) != 0 {
            return None;
        }
        // A call that waits for the end of the operation must not have to wait for this thread to
        // get a CPU.
        let (_, pin) = Pin::new(platform);
        // Relaxed: the barrier orders it before the read of the word.
        per_cpu.busy.store(1, Relaxed);
        let busy = Busy { lease: &self.lease, _pin: pin };
        platform.light_barrier();
        // Relaxed: `REVOCABLE` was written by this thread, or by one that has passed the lease to
        // it.
        (per_cpu.lease.load(Relaxed) == REVOCABLE).then_some(busy)
    }

    /// Allocates a block out of the caches, which may acquire pageblocks for it. `None` if that
    /// takes more, or the lease was revoked. Waits for no other call.
    #[inline(always)]
    pub fn try_alloc(&self, request: Request) -> Option<Pfn> {
        let busy = self.enter()?;
        busy.alloc_fast(request).or_else(|| busy.alloc_own(&request))
    }

    /// Frees a block in a pageblock that the caches hold, or a whole pageblock to their spares.
    /// `None` if it is something else, which is left alone, or the lease was revoked. Waits for no
    /// other call.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free`].
    #[inline(always)]
    pub fn try_free(&self, pfn: Pfn, order: Order) -> Option<Result<(), Error>> {
        let busy = self.enter()?;
        if busy.free_fast(pfn, order) {
            return Some(Ok(()));
        }
        busy.free_own(pfn, order)
    }

    /// Allocates one block, as [`PageAllocator::alloc`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::alloc`].
    #[inline(always)]
    pub fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        match self.try_alloc(request) {
            Some(pfn) => Ok(pfn),
            // Not busy: a call that takes from all caches must be able to take from these.
            None => self.lease.allocator.alloc(request),
        }
    }

    /// Frees a block, or part of one, as [`PageAllocator::free`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free`].
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.try_free(pfn, order).unwrap_or_else(|| self.lease.allocator.free(pfn, order))
    }

    /// Whether another call has revoked the lease.
    #[inline]
    pub fn is_revoked(&self) -> bool {
        // Relaxed: each operation checks for itself.
        self.lease.per_cpu.lease.load(Relaxed) != REVOCABLE
    }

    /// Takes the caches again if the lease was revoked. Waits for a call under way on them.
    pub fn renew(&mut self) {
        if self.is_revoked() {
            let (allocator, per_cpu) = (self.lease.allocator, self.lease.per_cpu);
            // If not: the call that revoked the lease has given it back; or this is a copy, whose
            // freeze could not revoke it, and which has no use of these caches.
            let _begun =
                allocator.design().begin_lease(allocator.context(), per_cpu, (REVOKED, REVOCABLE));
        }
    }
}

impl<P: Platform> Drop for RevocableLease<'_, P> {
    fn drop(&mut self) {
        let (per_cpu, design) = (self.lease.per_cpu, self.lease.allocator.design());
        let (_, _pin) = self.lease.allocator.context().pin();
        loop {
            // Relaxed: the lock is released after it.
            match per_cpu.lease.compare_exchange(REVOCABLE, VACANT, Relaxed, Relaxed) {
                Ok(_) => return design.end_lease(per_cpu),
                Err(REVOKED) => {}
                // A copy, whose caches stay leased: see `renew`.
                Err(_) => return,
            }
            // Release: the write by which this owner is not busy comes before what the next one
            // writes. Fails if the call that revoked the lease has just given it back.
            if per_cpu.lease.compare_exchange(REVOKED, VACANT, Release, Relaxed).is_ok() {
                return;
            }
        }
    }
}

impl<P: Platform> fmt::Debug for RevocableLease<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RevocableLease")
            .field("cpu", &self.lease.cpu)
            .field("revoked", &self.is_revoked())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ParkedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedLease").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

/// An operation under way: the owner uses the caches.
struct Busy<'b, 'a, P: Platform> {
    lease: &'b Lease<'a, P>,
    _pin: Pin<'b, P>,
}

impl<'a, P: Platform> Deref for Busy<'_, 'a, P> {
    type Target = Lease<'a, P>;

    #[inline(always)]
    fn deref(&self) -> &Lease<'a, P> {
        self.lease
    }
}

impl<P: Platform> Drop for Busy<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `revoke`, whose caller reads what the operation wrote.
        self.lease.per_cpu.busy.store(0, Release);
    }
}
