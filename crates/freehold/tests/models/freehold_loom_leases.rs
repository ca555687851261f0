//! Leases in the design `freehold`, under loom: see `freehold_loom.rs` for how such
//! models are made.

use crate::freehold_models::{
    ALL, BLOCK, Frames, Sound, build, check_held, explore, frame, join, on_cpu, take,
};
use crate::loom_platform::{LoomCell, LoomPlatform, refuse_barriers, run_on};
use freehold::designs::{Lease, ParkedLease};
use freehold::platform::{Platform, SharedCell};
use freehold::{CpuId, Error, Order, Pfn};
use loom::sync::Arc;

/// Where the owner of a lease may read whether it was revoked before others see that it is busy.
type Unfenced = LoomPlatform<true, true, true, false>;

const CPU: CpuId = CpuId::new(0);

/// The frame that is free initially, and the one that the owner frees.
const LAST: u64 = BLOCK - 1;
const FREED: u64 = 7;

/// What was written into the frames that change hands: loom panics if two threads that had one of
/// them are not ordered.
#[derive(Clone)]
struct Contents(Arc<[LoomCell<u64>; 2]>);

impl Contents {
    fn new() -> Self {
        Contents(Arc::new([0, 0].map(LoomCell::new)))
    }

    fn touch(&self, pfn: u64) {
        let content = &self.0[usize::from(pfn == LAST)];
        content.set(content.get() + 1);
    }
}

/// A lease of CPU 0, through which one pageblock was taken but for the last frame. All other memory
/// is allocated.
fn one_frame_left<P: Platform + Default>() -> (Arc<Frames<P>>, ParkedLease) {
    let machine = build::<P>(3);
    let lease = machine.lease(CPU).expect("there is no other lease");
    (0..LAST).for_each(|nth| assert_eq!(lease.alloc(frame()), Ok(Pfn::new(nth))));
    let parked = lease.park();
    run_on(1);
    take(&machine, BLOCK);
    (machine, parked)
}

fn resume<P: Platform>(machine: &Frames<P>, parked: ParkedLease) -> Lease<'_, P> {
    machine.resume(parked).expect("it is of this allocator")
}

/// Frees a frame and allocates one, by a lease; returns how many of the frames that were free
/// initially, or were freed, it then holds.
fn work<P: Platform>(lease: &Lease<'_, P>, contents: &Contents) -> u64 {
    contents.touch(FREED);
    lease.free(Pfn::new(FREED), Order::ZERO).expect("it is held");
    take_one(lease.alloc(frame()), contents)
}

/// Writes into a frame, if there was one; returns how many.
fn take_one(taken: Result<Pfn, Error>, contents: &Contents) -> u64 {
    match taken {
        Ok(pfn) => {
            assert!([LAST, FREED].contains(&pfn.get()), "{pfn} has another user");
            contents.touch(pfn.get());
            1
        }
        Err(error) => {
            // What another call has in hand may be what is free.
            assert!(matches!(error, Error::OutOfMemory | Error::BelowWatermark), "{error}");
            0
        }
    }
}

/// The owner of a lease frees a frame and allocates one while another CPU runs out of memory and
/// revokes the lease: no thread gets a frame that another one has, and none is lost.
#[test]
fn an_owner_works_while_another_cpu_runs_out() {
    explore(1, || {
        let ((machine, parked), contents) = (one_frame_left::<Sound>(), Contents::new());
        let theirs = contents.clone();
        let other = on_cpu(&machine, 1, move |machine| take_one(machine.alloc(frame()), &theirs));
        run_on(2);
        let taken = work(&resume(&machine, parked), &contents);
        let taken = taken + join(other);
        check_held(&machine, ALL - 2 + taken);
    });
}

fn work_against_drain<P: Platform + Default + Send + Sync>() {
    explore(2, || {
        let ((machine, parked), contents) = (one_frame_left::<P>(), Contents::new());
        let owner = on_cpu(&machine, 2, move |machine| {
            let lease = resume(machine, parked);
            contents.touch(FREED);
            lease.free(Pfn::new(FREED), Order::ZERO).expect("it is held");
            lease.try_alloc(frame()).map_or(0, |pfn| take_one(Ok(pfn), &contents))
        });
        run_on(1);
        machine.drain(CPU).expect("the CPU exists");
        let taken = join(owner);
        check_held(&machine, ALL - 2 + taken);
    });
}

/// The same against a drain, by which thread runs first.
#[test]
fn a_lease_is_revoked_while_its_owner_works() {
    work_against_drain::<Sound>();
}

#[test]
#[should_panic]
fn an_owner_without_a_barrier_is_caught() {
    work_against_drain::<Unfenced>();
}

/// Two CPUs revoke the lease at the same time, while its owner works.
#[test]
fn two_cpus_revoke_at_once() {
    explore(1, || {
        let ((machine, parked), contents) = (one_frame_left::<Sound>(), Contents::new());
        let others = [1, 2].map(|cpu| on_cpu(&machine, cpu, |machine| machine.drain(CPU)));
        run_on(2);
        let taken = work(&resume(&machine, parked), &contents);
        others.into_iter().for_each(|other| join(other).expect("the CPU exists"));
        check_held(&machine, ALL - 2 + taken);
    });
}

/// What the owner of a lease does with it meanwhile.
#[derive(Clone, Copy)]
enum Act {
    Keeps,
    Renews,
    Ends,
}

impl Act {
    /// Does it, and returns the lease that the owner has then.
    fn on<'a>(self, machine: &'a Frames<Sound>, mut lease: Lease<'a, Sound>) -> Lease<'a, Sound> {
        match self {
            Act::Keeps => {}
            Act::Renews => lease.renew(),
            Act::Ends => {
                drop(lease);
                lease = machine.lease(CPU).expect("there is no other lease");
            }
        }
        lease
    }
}

/// The owner ends its lease, or finds it revoked and takes the caches again, while another CPU
/// drains them.
#[test]
fn a_lease_ends_and_is_renewed_while_another_cpu_drains() {
    for act in [Act::Ends, Act::Renews] {
        explore(2, move || {
            let ((machine, parked), contents) = (one_frame_left::<Sound>(), Contents::new());
            let other = on_cpu(&machine, 1, |machine| machine.drain(CPU));
            run_on(2);
            let lease = act.on(&machine, resume(&machine, parked));
            let taken = work(&lease, &contents);
            drop(lease);
            join(other).expect("the CPU exists");
            check_held(&machine, ALL - 2 + taken);
        });
    }
}

/// The owner of a lease ends it while another CPU frees a frame of one of its pageblocks, which is
/// full, and drains.
#[test]
fn a_lease_ends_while_another_cpu_frees() {
    explore(2, || {
        let machine = build::<Sound>(2);
        let lease = machine.lease(CPU).expect("there is no other lease");
        (0..=BLOCK).for_each(|nth| assert_eq!(lease.alloc(frame()), Ok(Pfn::new(nth))));
        let other = on_cpu(&machine, 1, |machine| {
            machine.free(Pfn::new(FREED), Order::ZERO).expect("it is held");
            machine.drain(CPU).expect("the CPU exists");
        });
        drop(lease);
        join(other);
        check_held(&machine, BLOCK);
    });
}

/// A lease is revoked and ended, and another thread has the next one of the same caches, while the
/// call that revoked the first is still at work.
#[test]
fn the_next_lease_begins_while_the_last_one_is_revoked() {
    explore(1, || {
        let ((machine, parked), contents) = (one_frame_left::<Sound>(), Contents::new());
        let theirs = contents.clone();
        let drain = on_cpu(&machine, 1, |machine| machine.drain(CPU));
        let next = on_cpu(&machine, 2, move |machine| {
            let lease = machine.lease(CPU);
            lease.map_or(0, |lease| take_one(lease.alloc(frame()), &theirs))
        });
        run_on(2);
        let taken = work(&resume(&machine, parked), &contents);
        join(drain).expect("the CPU exists");
        let taken = taken + join(next);
        check_held(&machine, ALL - 2 + taken);
    });
}

/// Two owners run out of memory, and each takes what the other one has: neither waits forever.
#[test]
fn two_owners_revoke_each_other() {
    explore(1, || {
        let (machine, parked) = one_frame_left::<Sound>();
        let second = machine.lease(CpuId::new(1)).expect("there is no other lease");
        let second = second.park();
        let work = |machine: &Frames<Sound>, parked| {
            u64::from(resume(machine, parked).alloc(frame()).is_ok())
        };
        let other = on_cpu(&machine, 1, move |machine| work(machine, second));
        run_on(0);
        let taken = work(&machine, parked) + join(other);
        assert!(taken <= 1, "one frame is free");
        check_held(&machine, ALL - 1 + taken);
    });
}

/// The machine refuses the barrier for a drain: the owner goes on, renews the lease or ends it, and
/// only in the last case the drain gets what the caches hold.
#[test]
fn a_lease_is_given_back_without_a_barrier() {
    for act in [Act::Keeps, Act::Renews, Act::Ends] {
        explore(2, move || {
            let ((machine, parked), contents) = (one_frame_left::<Sound>(), Contents::new());
            let other = on_cpu(&machine, 1, |machine| {
                refuse_barriers();
                machine.drain(CPU)
            });
            run_on(2);
            let lease = act.on(&machine, resume(&machine, parked));
            let taken = work(&lease, &contents);
            join(other).expect("the CPU exists");
            assert!(!lease.is_revoked());
            drop(lease);
            check_held(&machine, ALL - 2 + taken);
        });
    }
}
