//! A process that loses the right to `membarrier(2)` while threads have leases, as by a sandbox
//! that it enters late: no call waits for ever, and nothing is lost.

use std::sync::Barrier;
use std::thread;

use freehold::{Error, FrameCount, Order};
use freehold_host::{Arena, FrameArena, Leases};

use crate::calls::{call_often, take_all};
use crate::common::in_child;
use crate::refuse::{Refused, refuse, refuse_here, refusing};

const MIB: usize = 1 << 20;

/// The barrier itself is refused, not that it is registered for.
fn no_barrier() -> Refused {
    let barrier = refuse(libc::SYS_membarrier, libc::EPERM);
    barrier.with(0, libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
}

/// Takes everything, and gives it back.
fn count(arena: &FrameArena) -> usize {
    let all = take_all(arena);
    all.iter().for_each(|&pfn| arena.free(pfn, Order::ZERO).expect("it is ours"));
    arena.allocator().drain_all();
    arena.allocator().validate().expect("the books are in order");
    all.len()
}

#[test]
fn leases_stay_where_they_are_without_a_barrier() {
    // In a child, which ends if a call waits for ever.
    let ended = in_child(|| {
        let builder = Arena::builder().bytes(16 * MIB).cpus(2).nodes(1).leases(Leases::Auto);
        let arena = builder.build_frames().expect("16 MiB");
        if arena.leases() == Leases::Off {
            eprintln!("SKIPPED: the machine has no membarrier(2)");
            return;
        }
        let (has_lease, go_on) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                call_often(&arena);
                assert_eq!(arena.spare_leases(), 1);
                has_lease.wait();
                go_on.wait();
                // It has lost nothing, and works as before.
                call_often(&arena);
                assert_eq!(arena.spare_leases(), 1);
            });
            has_lease.wait();
            refusing(&[no_barrier()], || {
                // The caches of the lease hold a pageblock at least, and out of reach.
                let reached = count(&arena);
                assert!((2048..4096).contains(&reached), "{reached}");
                call_often(&arena);
                let lease = arena.allocator().lease(freehold::CpuId::new(1));
                assert_eq!(lease.err(), Some(Error::NoBarrier));
                // A child has them leased for good, and does not wait either.
                let child = in_child(|| {
                    assert!((2048..=reached).contains(&count(&arena)));
                    call_often(&arena);
                });
                assert_eq!(child, Ok(()));
            });
            go_on.wait();
        });
        assert_eq!(count(&arena), 4096, "the lease has ended");
        let census = arena.allocator().validate().expect("the books are in order");
        assert_eq!(census.allocated, FrameCount::ZERO);
    });
    assert_eq!(ended, Ok(()));
}

/// The thread that forks has a lease itself, which its child cannot use.
#[test]
fn the_child_of_a_thread_with_a_lease_goes_on_without_it() {
    let ended = in_child(|| {
        let builder = Arena::builder().bytes(16 * MIB).cpus(2).nodes(1).leases(Leases::Auto);
        let arena = builder.build_frames().expect("16 MiB");
        thread::scope(|scope| {
            scope.spawn(|| {
                call_often(&arena);
                if !refuse_here(&[no_barrier()]) {
                    return;
                }
                let child = in_child(|| {
                    call_often(&arena);
                    call_often(&arena);
                    assert!(count(&arena) >= 2048);
                });
                assert_eq!(child, Ok(()));
                call_often(&arena);
            });
        });
        assert_eq!(count(&arena), 4096);
    });
    assert_eq!(ended, Ok(()));
}
