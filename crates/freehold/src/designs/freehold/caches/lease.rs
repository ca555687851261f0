//! Leases: a biased lock.
//!
//! A lease has the lock of a CPU's caches, and its owner uses them without a locked step. A call
//! that needs what they hold takes the lock from the lease, between two operations of the owner:
//!
//! | owner, for each operation | call that revokes |
//! |---|---|
//! | sets `busy` | changes the lease word from `LEASED` to `REVOKED` |
//! | light barrier | heavy barrier |
//! | reads the lease word | waits until `busy` is clear |
//! | operates, if it reads `LEASED` | has the lock |
//! | clears `busy` | |
//!
//! This is Dekker's pattern: two writes, each followed by a read of what the other one wrote, with
//! a barrier between. At least one of the two sees the other. If the owner sees `REVOKED`, it
//! leaves the caches alone. If the other call sees `busy`, it waits, as for a lock, until the
//! operation has ended. So an operation itself never waits for another call: two owners that waited
//! for each other would do so for ever. What takes more than its own caches, the owner does by the
//! ordinary path, when it is not busy.
//!
//! The lease word:
//!
//! | from | to | by whom | who has the lock then |
//! |---|---|---|---|
//! | `VACANT` | `LEASED` | who begins a lease, and has just locked | the lease |
//! | `LEASED` | `VACANT` | the owner, which ends it | the owner, which unlocks |
//! | `LEASED` | `REVOKED` | a call that revokes it | that call, after its barrier |
//! | `REVOKED` | `LEASED` | that call, if the machine refuses the barrier | the lease |
//! | `REVOKED` | `LEASED` | the owner, which renews it, and has just locked | the lease |
//! | `REVOKED` | `VACANT` | the owner, which ends it | unchanged |
//! | any | `LOST` | the repair of a copy whose freeze did not get the lock | none, ever |
//!
//! The word stays `REVOKED` until the owner ends the lease or takes the lock again. Until then
//! there can be no other lease of these caches. Otherwise the former owner, which has not looked
//! yet, would overwrite the `busy` of the new one.
//!
//! A machine may refuse the heavy barrier although it had one: a process can give up the right to
//! it. Then the call that revokes changes the word back. The owner, which has not lost the lock,
//! goes on; if it has ended the lease in between, that call has the lock after all.

use core::cell::Cell;
use core::fmt;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::lock::{CacheGuard, PerCpu};
use crate::allocator::PageAllocator;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::error::Error;
use crate::memmap::index::ZoneIndex;
use crate::platform::{Pin, Platform, Word};
use crate::request::Request;
use crate::units::{CpuId, Order, Pfn};

/// There is no lease.
const VACANT: u32 = 0;
/// A lease has the lock.
const LEASED: u32 = 1;
/// The lease has lost the lock. Its owner has yet to end it or to take the lock again.
const REVOKED: u32 = 2;
/// No call may use the caches: in a copy, an operation of an owner that does not exist there may be
/// half done.
const LOST: u32 = 3;

/// What a CPU's caches know of their lease.
#[repr(C)]
pub(crate) struct LeaseState<P: Platform> {
    /// One of the values above.
    word: P::U32,
    /// Whether the owner uses the caches at the moment. The owner alone writes it.
    busy: P::U32,
}

impl<P: Platform> LeaseState<P> {
    pub(crate) fn vacant() -> Self {
        LeaseState { word: P::U32::new(VACANT), busy: P::U32::new(0) }
    }

    /// Whether a lease has the lock.
    pub(crate) fn has_lock(&self) -> bool {
        // Relaxed: a hint that does not go away while it matters.
        matches!(self.word.load(Relaxed), LEASED | LOST)
    }

    /// Keeps the caches from all callers of a copy, which has one thread.
    pub(crate) fn lose(&self) {
        // Relaxed: there is no other thread.
        self.word.store(LOST, Relaxed);
    }
}

/// Why the lock was not taken from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotRevoked {
    /// There is none, or another call has revoked it.
    Changed,
    /// It has the lock as before: the machine refused the heavy barrier, or it is lost.
    Kept,
}

impl<P: Platform> Freehold<P> {
    /// Takes the lock of a CPU's caches from a lease, if one has it. Waits for an operation of its
    /// owner that is under way.
    #[cold]
    pub(crate) fn revoke<'a>(
        &'a self,
        context: Context<'a, P>,
        cpu: usize,
        zone: ZoneIndex,
    ) -> Result<CacheGuard<'a, P>, NotRevoked> {
        let (per_cpu, platform) = (self.per_cpu(cpu), context.platform);
        let (_, pin) = context.pin();
        // Acquire: if the owner has published nothing else, it has not used the caches yet. Of
        // several calls that revoke, one succeeds, and the others wait for the lock.
        match per_cpu.lease.word.compare_exchange(LEASED, REVOKED, Acquire, Relaxed) {
            Ok(_) => {}
            Err(LOST) => return Err(NotRevoked::Kept),
            Err(_) => return Err(NotRevoked::Changed),
        }
        if !platform.heavy_barrier() {
            // Given back. Acquire: an owner that has ended the lease meanwhile has left the lock to
            // this call, and is not busy.
            if per_cpu.lease.word.compare_exchange(REVOKED, LEASED, Relaxed, Acquire).is_ok() {
                return Err(NotRevoked::Kept);
            }
            return Ok(self.guard_of(pin, per_cpu, cpu, zone));
        }
        // The owner sets `busy`, and then reads the lease: at least one of the two sees the other.
        // Acquire: pairs with the release at the end of its last operation.
        while per_cpu.lease.busy.load(Acquire) != 0 {
            platform.relax();
        }
        Ok(self.guard_of(pin, per_cpu, cpu, zone))
    }

    /// Takes the lock of a CPU's caches for a lease, whose word is `before` now. Waits for a call
    /// under way on these caches; returns whether there was no other lease.
    fn begin_lease(&self, context: Context<'_, P>, per_cpu: &PerCpu<P>, before: u32) -> bool {
        // Relaxed: re-checked once the lock is taken.
        while per_cpu.lease.word.load(Relaxed) == before {
            // Calls wait for the lock as long as the word does not say that a lease has it.
            let (_, _pin) = context.pin();
            if per_cpu.try_lock() {
                // Acquire: the last write of the owner of the previous lease, by which it is not
                // busy, comes before what this owner writes. Release: see `revoke`.
                let word = &per_cpu.lease.word;
                let begun = word.compare_exchange(before, LEASED, AcqRel, Relaxed).is_ok();
                if !begun {
                    per_cpu.unlock();
                }
                return begun;
            }
            context.platform.relax();
        }
        false
    }

    /// Ends a lease.
    fn end_lease(&self, context: Context<'_, P>, per_cpu: &PerCpu<P>) {
        let (_, _pin) = context.pin();
        loop {
            // Relaxed: the lock is released after it.
            match per_cpu.lease.word.compare_exchange(LEASED, VACANT, Relaxed, Relaxed) {
                Ok(_) => break,
                Err(REVOKED) => {}
                // A copy, whose caches are lost.
                Err(_) => return,
            }
            // Release: the write by which this owner is not busy comes before what the next one
            // writes. Fails if the call that revoked the lease has just given it back.
            if per_cpu.lease.word.compare_exchange(REVOKED, VACANT, Release, Relaxed).is_ok() {
                return;
            }
        }
        per_cpu.unlock();
    }
}

/// The right of one thread to the caches of one CPU, until other calls need what they hold: for
/// programs with a thread a core, for threads that allocate much, and for those that may go idle at
/// any time.
///
/// Its owner allocates and frees without any locked step. Threads that run on this CPU take from
/// other caches, and all others free frames of the owner's pageblocks remotely. A call that drains,
/// or runs out of memory, takes the caches from the owner, with all that is free there: nothing
/// that an idle owner has is out of reach. From then on the owner's calls take the ordinary path,
/// until [`Lease::renew`].
///
/// ```
/// # use freehold::designs::Freehold;
/// # use freehold::platform::Platform;
/// # use freehold::{CpuId, Error, Order, PageAllocator, Request};
/// fn work<P: Platform>(frames: &PageAllocator<P, Freehold<P>>) -> Result<(), Error> {
///     let lease = frames.lease(CpuId::new(0))?;
///     let frame = lease.alloc(Request::default())?;
///     lease.free(frame, Order::ZERO)
/// }
/// ```
pub struct Lease<'a, P: Platform> {
    pub(super) allocator: &'a PageAllocator<P, Freehold<P>>,
    pub(super) per_cpu: &'a PerCpu<P>,
    pub(super) cpu: usize,
    /// `Send`, but not `Sync`: a lease may move to another thread, but no two use it at once.
    one_thread: PhantomData<Cell<()>>,
}

/// A parked [`Lease`], without its allocator: for places that cannot store a reference to that.
/// Meanwhile, other calls can revoke it. If it is never resumed, there is no other lease of its
/// caches.
#[must_use = "its caches can be leased again only if it is resumed"]
pub struct ParkedLease {
    /// The address of the CPU's `PerCpu`: no two allocators that exist at the same time share it.
    address: usize,
    cpu: u32,
}

impl<P: Platform> PageAllocator<P, Freehold<P>> {
    /// Leases the caches of a CPU until the result is dropped, or another call revokes the lease.
    /// The CPU need not be the one that the caller runs on, though the caches best serve a thread
    /// that runs there: their zones are near to that CPU.
    ///
    /// Cost: a heavy barrier; waits for a call under way on these caches.
    ///
    /// # Errors
    ///
    /// [`Error::UnknownCpu`]; [`Error::Leased`] if there is another lease, or one that was revoked
    /// and has not been dropped yet; [`Error::NoBarrier`] if the machine has no
    /// [`Platform::heavy_barrier`].
    pub fn lease(&self, cpu: CpuId) -> Result<Lease<'_, P>, Error> {
        let context = self.context();
        if cpu.index() >= context.topology.cpus() {
            return Err(Error::UnknownCpu);
        }
        if !context.platform.heavy_barrier() {
            return Err(Error::NoBarrier);
        }
        let per_cpu = self.design().per_cpu(cpu.index());
        match self.design().begin_lease(context, per_cpu, VACANT) {
            true => Ok(Lease::over(self, per_cpu, cpu.index())),
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
        let is_revoked = per_cpu.lease.word.load(Acquire) == REVOKED;
        is_revoked.then(|| ParkedLease { address: address_of(per_cpu), cpu: cpu.index() as u32 })
    }

    /// Resumes a parked lease. Costs a comparison.
    ///
    /// # Errors
    ///
    /// Returns the parked lease if it belongs to another allocator, which still exists.
    #[inline(always)]
    pub fn resume(&self, parked: ParkedLease) -> Result<Lease<'_, P>, ParkedLease> {
        match self.design().cpus.try_get(parked.cpu as usize) {
            Some(per_cpu) if address_of(per_cpu) == parked.address => {
                Ok(Lease::over(self, per_cpu, parked.cpu as usize))
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

impl<'a, P: Platform> Lease<'a, P> {
    #[inline(always)]
    fn over(
        allocator: &'a PageAllocator<P, Freehold<P>>,
        per_cpu: &'a PerCpu<P>,
        cpu: usize,
    ) -> Self {
        Lease { allocator, per_cpu, cpu, one_thread: PhantomData }
    }

    /// Parks the lease. Costs nothing.
    #[inline(always)]
    pub fn park(self) -> ParkedLease {
        let lease = ManuallyDrop::new(self);
        ParkedLease { address: address_of(lease.per_cpu), cpu: lease.cpu as u32 }
    }

    /// Begins an operation. `None` if the lease was revoked, or if an operation is under way: then
    /// this call comes from a handler that has interrupted it.
    #[inline(always)]
    fn enter(&self) -> Option<Operation<'_, 'a, P>> {
        let (state, platform) = (&self.per_cpu.lease, self.allocator.platform());
        // Relaxed: this thread alone writes it.
        if state.busy.load(Relaxed) != 0 {
            return None;
        }
        // A call that waits for the end of the operation must not have to wait for this thread to
        // get a CPU.
        let pin = Pin::anywhere(platform);
        // Relaxed: the barrier orders it before the read of the word.
        state.busy.store(1, Relaxed);
        let operation = Operation { lease: self, _pin: pin };
        platform.light_barrier();
        // Relaxed: `LEASED` was written by this thread, or by one that has passed the lease to it.
        (state.word.load(Relaxed) == LEASED).then_some(operation)
    }

    /// Allocates a block out of the caches, which may acquire pageblocks for it. `None` if that
    /// takes more, or the lease was revoked. Waits for no other call.
    #[inline(always)]
    pub fn try_alloc(&self, request: Request) -> Option<Pfn> {
        let operation = self.enter()?;
        operation.alloc_fast(request).or_else(|| operation.alloc(&request))
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
        let operation = self.enter()?;
        if operation.free_fast(pfn, order) {
            return Some(Ok(()));
        }
        operation.free(pfn, order)
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
            None => self.alloc_ordinarily(request),
        }
    }

    /// Allocates by the ordinary path, when the owner is not busy: a call that takes from all
    /// caches must be able to take from these.
    // Apart, or its registers are saved and restored around each operation.
    #[inline(never)]
    fn alloc_ordinarily(&self, request: Request) -> Result<Pfn, Error> {
        self.allocator.alloc(request)
    }

    /// Frees a block, or part of one, as [`PageAllocator::free`] does.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::free`].
    #[inline(always)]
    pub fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        match self.try_free(pfn, order) {
            Some(result) => result,
            None => self.free_ordinarily(pfn, order),
        }
    }

    /// Frees by the ordinary path.
    #[inline(never)]
    fn free_ordinarily(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.allocator.free(pfn, order)
    }

    /// Whether another call has revoked the lease.
    #[inline]
    pub fn is_revoked(&self) -> bool {
        // Relaxed: each operation checks for itself.
        self.per_cpu.lease.word.load(Relaxed) != LEASED
    }

    /// Takes the caches again if the lease was revoked. Waits for a call under way on them.
    pub fn renew(&mut self) {
        if self.is_revoked() {
            let (design, context) = (self.allocator.design(), self.allocator.context());
            // If not: the call that revoked the lease has given it back; or this is a copy, in
            // which it is lost.
            let _begun = design.begin_lease(context, self.per_cpu, REVOKED);
        }
    }
}

impl<P: Platform> Drop for Lease<'_, P> {
    fn drop(&mut self) {
        self.allocator.design().end_lease(self.allocator.context(), self.per_cpu);
    }
}

impl<P: Platform> fmt::Debug for Lease<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("cpu", &self.cpu)
            .field("revoked", &self.is_revoked())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ParkedLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParkedLease").field("cpu", &self.cpu).finish_non_exhaustive()
    }
}

/// An operation under way: the owner uses the caches. What it does is in `operation`.
pub(super) struct Operation<'b, 'a, P: Platform> {
    pub(super) lease: &'b Lease<'a, P>,
    _pin: Pin<'b, P>,
}

impl<P: Platform> Drop for Operation<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the acquire in `revoke`, whose caller reads what the operation wrote.
        self.lease.per_cpu.lease.busy.store(0, Release);
    }
}
