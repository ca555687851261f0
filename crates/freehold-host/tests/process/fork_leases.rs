//! Leases in children of forks: those of the forking thread continue, and those of other threads
//! block no call.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use freehold::designs::Lease;
use freehold::{CpuId, Error, FrameCount, Order, Request};
use freehold_host::{Arena, FrameArena, Host, Leases};

use crate::calls::{MANY, call_often, take_all};
use crate::common::in_child;

const MIB: usize = 1 << 20;

/// Forks of each test.
const FORKS: usize = 25;

fn arena(leases: Leases) -> FrameArena {
    let builder = Arena::builder().bytes(16 * MIB).cpus(2).nodes(1).leases(leases);
    builder.build_frames().expect("16 MiB")
}

/// Runs threads again and again while the process forks and each child runs `child`.
fn fork_beside(threads: &[&(dyn Fn() + Sync)], child: impl Fn()) {
    let _one = crate::ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let stop = AtomicBool::new(false);
    let failure = thread::scope(|scope| {
        for act in threads {
            let stop = &stop;
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    act();
                }
            });
        }
        let failure = (0..FORKS).find_map(|fork| {
            thread::sleep(Duration::from_millis(2));
            in_child(&child).err().map(|error| format!("fork {fork}: {error}"))
        });
        stop.store(true, Relaxed);
        failure
    });
    assert_eq!(failure, None);
}

#[test]
fn homes_of_threads_that_a_child_lacks_are_free_there() {
    let arena = arena(Leases::Auto);
    if arena.leases() == Leases::Off {
        return;
    }
    let act = || call_often(&arena);
    fork_beside(&[&act, &act, &act], || {
        assert_eq!(arena.spare_leases(), 2);
        let frames = take_all(&arena);
        assert!(frames.len() >= 4096 - 3, "{}", frames.len());
        frames.iter().for_each(|&pfn| arena.free(pfn, Order::ZERO).expect("it is ours"));
        call_often(&arena);
        assert_eq!(arena.spare_leases(), 1);
        arena.allocator().drain_all();
        arena.allocator().validate().expect("the books are in order");
    });
    let everything = take_all(&arena);
    assert_eq!(everything.len(), 4096, "nothing is lost in the parent");
    everything.iter().for_each(|&pfn| arena.free(pfn, Order::ZERO).expect("it is ours"));
    // Threads return their leases a little after everything else has ended.
    let begun = Instant::now();
    while arena.spare_leases() != 1 {
        assert!(begun.elapsed() < Duration::from_secs(10), "leases go on in the parent");
        call_often(&arena);
    }
}

#[test]
fn the_lease_of_the_forking_thread_stays_its_own() {
    let arena = arena(Leases::Auto);
    if arena.leases() == Leases::Off {
        return;
    }
    fork_beside(&[], || {
        call_often(&arena);
        assert_eq!(arena.spare_leases(), 1);
        let grandchild = in_child(|| {
            assert_eq!(arena.spare_leases(), 1);
            call_often(&arena);
            call_often(&arena);
            assert_eq!(arena.spare_leases(), 1, "it has one again");
            assert_eq!(take_all(&arena).len(), 4096);
        });
        assert_eq!(grandchild, Ok(()));
    });
}

#[test]
fn the_owner_of_a_lease_goes_on_in_the_child() {
    let arena = arena(Leases::Off);
    let (frames, cpu) = (arena.allocator(), CpuId::new(0));
    let Ok(mut lease) = frames.lease(cpu) else { return };
    let first = lease.alloc(Request::default()).expect("memory is free");
    let act = || call_often(&arena);
    let work = |lease: &mut Lease<'_, Host>| {
        lease.free(first, Order::ZERO).expect("it is ours");
        lease.renew();
        assert!(!lease.is_revoked());
        let own: Vec<_> = (0..100).map(|_| lease.alloc(Request::default())).collect();
        for pfn in own {
            lease.free(pfn.expect("memory is free"), Order::ZERO).expect("it is ours");
        }
        assert_eq!(frames.lease(cpu).err(), Some(Error::Leased));
    };
    let parked = Cell::new(Some(lease.park()));
    let resume = || match parked.take().map(|parked| frames.resume(parked)) {
        Some(Ok(lease)) => lease,
        _ => panic!("it is of this allocator"),
    };
    fork_beside(&[&act], || {
        work(&mut resume());
        frames.validate().expect("the books are in order");
    });
    lease = resume();
    work(&mut lease);
    drop(lease);
    frames.drain_all();
    let census = frames.validate().expect("the books are in order");
    assert_eq!(census.allocated, FrameCount::ZERO);
}

#[test]
fn a_lease_is_revoked_by_a_fork_and_can_be_inherited() {
    let arena = arena(Leases::Off);
    let frames = arena.allocator();
    let cpu = CpuId::new(1);
    if frames.lease(cpu).is_err() {
        return;
    }
    let act = || {
        let mut lease = frames.lease(cpu).expect("it is free");
        for round in 0..MANY {
            let pfn = lease.alloc(Request::default()).expect("memory is free");
            lease.free(pfn, Order::ZERO).expect("it is ours");
            if round.is_multiple_of(100) {
                lease.renew();
            }
        }
    };
    fork_beside(&[&act], || {
        // The other thread may have one frame in hand.
        assert!(take_all(&arena).len() >= 4095);
        if frames.lease(cpu).err() == Some(Error::Leased) {
            let parked = frames.inherit_lease(cpu).expect("it was revoked");
            assert_eq!(parked.cpu(), cpu);
            let Ok(mut lease) = frames.resume(parked) else { panic!("it is of this allocator") };
            lease.renew();
            assert!(!lease.is_revoked());
        }
        assert!(frames.inherit_lease(cpu).is_none(), "it has ended, or was taken over");
        frames.lease(cpu).expect("and so it is free");
    });
}
