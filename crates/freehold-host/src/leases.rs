//! Leases that the threads of an arena get automatically.
//!
//! An arena with [`Leases::Auto`] has twice the CPUs: behind each real one, a *lease home* of the
//! same node, whose caches no thread uses by running on that CPU. A thread that has made many calls
//! gets a lease of a free home of its node, if there is one, and from then on allocates
//! and frees without a locked step. The lease goes back to the arena when the thread ends, with
//! what its caches hold, for the next thread; or when the thread finds that the lease was revoked.
//!
//! No thread refers to an arena. It has only numbers that are unique to an arena and never reused,
//! and a weak reference to the place where the lease returns to when the thread ends, if that still
//! exists. So arenas and threads may end in any order.

use core::any::Any;
use core::cell::Cell;
use core::fmt;
use core::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use freehold::designs::{Lease, ParkedLease};
use freehold::platform::Platform;
use freehold::{CpuId, Design, Error, NodeId, Order, PageAllocator, Pfn, Request};

use crate::fork::ForkMutex;
use crate::{Host, HostAllocator, HostError};

/// Whether the threads of an arena get leases automatically: see
/// [`ArenaBuilder::leases`](crate::ArenaBuilder::leases).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Leases {
    /// They do not: each call locks the caches of the CPU that it runs on.
    #[default]
    Off,
    /// A thread that makes many calls leases caches of its own, which it uses without a locked step
    /// until another call needs what they hold.
    Auto,
}

impl FromStr for Leases {
    type Err = HostError;

    /// `off` or `auto`.
    fn from_str(text: &str) -> Result<Self, HostError> {
        match text {
            "off" => Ok(Leases::Off),
            "auto" => Ok(Leases::Auto),
            _ => {
                let reason = format!("{text:?} is neither `auto` nor `off`");
                Err(HostError::BadSetting { setting: "leases", reason })
            }
        }
    }
}

impl fmt::Display for Leases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Leases::Off => "off",
            Leases::Auto => "auto",
        })
    }
}

/// After so many calls on an arena a thread gets a lease. With one, a call saves 3.5 ns of 6;
/// getting one takes 0.1 µs, and taking it back 0.85 µs (`benches/leases.rs`, a virtual machine of
/// 2 CPUs). So even if each lease is taken back at once, 1 ns a call is lost, and threads that live
/// for a few hundred calls leave the leases to others.
pub(crate) const ENOUGH_CALLS: u32 = 1024;

/// A lease home that is not in use by a thread.
enum Spare {
    /// It was never leased.
    New(CpuId),
    /// A lease that a thread has returned; it may have been revoked.
    Used(ParkedLease),
}

impl Spare {
    fn cpu(&self) -> CpuId {
        match self {
            Spare::New(home) => *home,
            Spare::Used(parked) => parked.cpu(),
        }
    }
}

/// The lease homes not in use by threads, by node. Each list has room for all homes of its node.
type Spares = ForkMutex<Vec<Vec<Spare>>>;

/// The leases of an arena.
pub(crate) struct Pool {
    /// Unique among all arenas of this process, past ones included, and not 0.
    id: u64,
    /// The node of each CPU, without lease homes.
    cpu_nodes: Arc<[NodeId]>,
    spares: Arc<Spares>,
}

/// The part of a [`Pool`] that fork handlers use.
pub(crate) struct Homes(Pool);

/// This thread's lease, of one arena at a time. It needs no destructor, so it exists for as long as
/// the thread runs.
struct Current {
    /// The arena that the lease is of; 0 if there is none.
    arena: Cell<u64>,
    /// The lease. It is absent while in use, so that a signal handler that interrupts a call finds
    /// none.
    lease: Cell<Option<ParkedLease>>,
    /// How many recent calls had no lease, and on which arena.
    calls: Cell<u32>,
    calls_on: Cell<u64>,
}

/// Where the lease of this thread returns to when this is dropped: at the latest when the thread
/// ends.
struct Return {
    spares: Weak<Spares>,
    node: usize,
}

thread_local! {
    static CURRENT: Current = const {
        Current {
            arena: Cell::new(0),
            lease: Cell::new(None),
            calls: Cell::new(0),
            calls_on: Cell::new(0),
        }
    };
    static RETURN: Cell<Option<Return>> = const { Cell::new(None) };
}

impl Drop for Return {
    fn drop(&mut self) {
        let lease = CURRENT.with(|current| {
            current.arena.set(0);
            current.lease.take()
        });
        // If the arena is gone, so are the slots of the lease.
        if let (Some(lease), Some(spares)) = (lease, self.spares.upgrade()) {
            // The last one goes first: its caches hold frames, whose metadata the hardware has
            // cached.
            spares.lock()[self.node].push(Spare::Used(lease));
        }
    }
}

/// The allocator, if its design is the one that has leases. Known at compile time.
#[inline(always)]
pub(crate) fn with_leases<D: Design<Host>>(
    allocator: &PageAllocator<Host, D>,
) -> Option<&HostAllocator> {
    (allocator as &dyn Any).downcast_ref()
}

impl Pool {
    /// The leases of an allocator whose lease homes, one for each of `cpu_nodes`, follow its CPUs.
    /// `None` if the machine has no barrier for them.
    pub(crate) fn new(allocator: &HostAllocator, cpu_nodes: &[NodeId]) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        if !allocator.platform().heavy_barrier() {
            return None;
        }
        let nodes = cpu_nodes.iter().map(|node| node.index() + 1).max().unwrap_or(0);
        let mut spares: Vec<Vec<Spare>> = (0..nodes).map(|_| Vec::new()).collect();
        for (cpu, node) in cpu_nodes.iter().enumerate().rev() {
            let home = CpuId::new((cpu_nodes.len() + cpu) as u32);
            spares[node.index()].push(Spare::New(home));
        }
        // Relaxed: the numbers only need to differ.
        let id = NEXT.fetch_add(1, Relaxed);
        Some(Pool { id, cpu_nodes: cpu_nodes.into(), spares: Arc::new(ForkMutex::new(spares)) })
    }

    /// The same, for fork handlers.
    pub(crate) fn homes(&self) -> Homes {
        let Pool { id, cpu_nodes, spares } = self;
        Homes(Pool { id: *id, cpu_nodes: Arc::clone(cpu_nodes), spares: Arc::clone(spares) })
    }

    /// The lease home of a CPU.
    fn home_of(&self, cpu: usize) -> CpuId {
        CpuId::new((self.cpu_nodes.len() + cpu) as u32)
    }

    /// How many lease homes are not in use by a thread.
    pub(crate) fn spare_homes(&self) -> usize {
        let spares = self.spares.lock();
        spares.iter().map(Vec::len).sum()
    }

    /// Makes a call by the thread's lease, if it has one that can do without a lock.
    #[inline(always)]
    fn by_lease<R>(
        &self,
        allocator: &HostAllocator,
        call: impl FnOnce(&Lease<'_, Host>) -> Option<R>,
    ) -> Option<R> {
        CURRENT.with(|current| {
            let Some(lease) = self.lease_of(current) else {
                self.count(allocator, current);
                return None;
            };
            let lease = allocator.resume(lease).ok()?;
            let done = call(&lease);
            let revoked = done.is_none() && lease.is_revoked();
            current.lease.set(Some(lease.park()));
            if revoked {
                give_back();
            }
            done
        })
    }

    /// Allocates one block, by the thread's lease if it has one.
    #[inline]
    pub(crate) fn alloc(&self, allocator: &HostAllocator, request: Request) -> Result<Pfn, Error> {
        let taken = self.by_lease(allocator, |lease| lease.try_alloc(request));
        taken.map_or_else(|| allocator.alloc(request), Ok)
    }

    /// Frees a block, by the thread's lease if it has one.
    #[inline]
    pub(crate) fn free(
        &self,
        allocator: &HostAllocator,
        pfn: Pfn,
        order: Order,
    ) -> Result<(), Error> {
        let freed = self.by_lease(allocator, |lease| lease.try_free(pfn, order));
        freed.unwrap_or_else(|| allocator.free(pfn, order))
    }

    /// The thread's lease, if it is of this arena. The caller puts it back.
    #[inline(always)]
    fn lease_of(&self, current: &Current) -> Option<ParkedLease> {
        if current.arena.get() == self.id { current.lease.take() } else { None }
    }

    /// Counts a call without a lease; after enough of them, gets one.
    #[inline(always)]
    fn count(&self, allocator: &HostAllocator, current: &Current) {
        let before = if current.calls_on.get() == self.id { current.calls.get() } else { 0 };
        current.calls_on.set(self.id);
        current.calls.set(before + 1);
        if before + 1 >= ENOUGH_CALLS {
            self.get(allocator, current);
        }
    }

    /// Gets a lease for this thread, if a home of its node is free. A lease of another arena is
    /// returned.
    #[cold]
    #[inline(never)]
    fn get(&self, allocator: &HostAllocator, current: &Current) {
        current.calls.set(0);
        // Its own lease is in use: this is a handler that interrupted a call.
        if current.arena.get() == self.id {
            return;
        }
        let cpu = allocator.platform().cpu().index() % self.cpu_nodes.len();
        let node = self.cpu_nodes[cpu].index();
        // A thread that is ending can no longer register where a lease returns to.
        let _ending = RETURN.try_with(|place| {
            // If the lock is taken, tries again after as many calls.
            let Some(mut spares) = self.spares.try_lock() else { return };
            let Some(spare) = spares[node].pop() else { return };
            drop(spares);
            let lease = match spare {
                Spare::New(home) => allocator.lease(home).map_err(|_| Spare::New(home)),
                Spare::Used(parked) => allocator.resume(parked).map_err(Spare::Used),
            };
            let mut lease = match lease {
                Ok(lease) => lease,
                // The machine refuses the barrier by now, or this child has the home leased for
                // good.
                Err(spare) => return self.spares.lock()[node].push(spare),
            };
            lease.renew();
            drop(place.take());
            place.set(Some(Return { spares: Arc::downgrade(&self.spares), node }));
            current.lease.set(Some(lease.park()));
            current.arena.set(self.id);
        });
    }
}

impl Homes {
    /// Waits until no thread takes or returns a home, and keeps it so.
    pub(crate) fn hold(&self) {
        self.0.spares.hold();
    }

    /// Ends what [`Homes::hold`] began.
    pub(crate) fn release(&self) {
        self.0.spares.release();
    }

    /// Takes over, in a child, the homes of threads that do not exist there: all but its own
    /// thread's. All leases have been revoked.
    pub(crate) fn inherit(&self, allocator: &HostAllocator) {
        let Homes(pool) = self;
        let own = CURRENT.with(|current| {
            if current.arena.get() != pool.id {
                return Some(None);
            }
            let lease = current.lease.take();
            let home = lease.as_ref().map(ParkedLease::cpu);
            current.lease.set(lease);
            home.map(Some)
        });
        // A call of this thread is using its lease, and was interrupted by a signal handler that
        // forked.
        let Some(own) = own else { return };
        let mut spares = pool.spares.lock();
        for (cpu, node) in pool.cpu_nodes.iter().enumerate() {
            let (home, spares) = (pool.home_of(cpu), &mut spares[node.index()]);
            if own != Some(home) && !spares.iter().any(|spare| spare.cpu() == home) {
                let parked = allocator.inherit_lease(home);
                spares.push(parked.map_or(Spare::New(home), Spare::Used));
            }
        }
    }
}

/// Returns the thread's lease.
#[cold]
#[inline(never)]
fn give_back() {
    // While a thread ends, its lease has been returned already.
    let _ending = RETURN.try_with(|place| drop(place.take()));
}
