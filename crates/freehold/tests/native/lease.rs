//! Leases: the holder allocates without a lock, and no other call depends on it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

use crate::common::{TestPlatform, relaxed, run_on};
use crate::machine::Machine;
use freehold::designs::Freehold;
use freehold::{
    Config, CpuId, Error, FrameCount, MemoryRange, MigrateType, NodeId, Order, Pfn, Request,
    Watermark,
};

type Frames = Machine<TestPlatform, Freehold<TestPlatform>>;

const CPU: CpuId = CpuId::new(0);

fn machine(frames: u64, cpus: usize) -> Frames {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
    let cpus = vec![NodeId::new(0); cpus];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    Machine::new(TestPlatform, &config, &Default::default())
}

fn all_free(frames: &Frames) -> bool {
    frames.drain_all();
    frames.validate().expect("the accounting is right");
    frames.zones().all(|zone| zone.free == zone.managed)
}

#[test]
fn a_holder_gets_every_frame_once_and_releases_all() {
    let frames = machine(4096, 2);
    let lease = frames.lease(CPU).unwrap();
    for order in [0, 1, 3, 8, 9, 10].map(Order::new) {
        for migratetype in MigrateType::ALL {
            let request = Request::new(order).migratetype(migratetype);
            let mut got: Vec<_> = std::iter::from_fn(|| lease.alloc(request).ok()).collect();
            got.sort();
            got.dedup();
            assert_eq!(got.len() as u64, 4096 >> order.get(), "{order}");
            assert_eq!(lease.alloc(request), Err(Error::OutOfMemory));
            for &pfn in &got {
                lease.free(pfn, order).unwrap();
            }
            assert_eq!(lease.free(got[0], order), Err(Error::DoubleFree));
        }
    }
    assert_eq!(lease.free(Pfn::new(4096), Order::ZERO), Err(Error::ForeignFrame));
    drop(lease);
    assert!(all_free(&frames));
}

#[test]
fn one_thread_at_a_time() {
    let frames = machine(1024, 2);
    let lease = frames.lease(CPU).unwrap();
    assert_eq!(frames.lease(CPU).err(), Some(Error::Leased));
    assert_eq!(frames.lease(CpuId::new(2)).err(), Some(Error::UnknownCpu));
    let other = frames.lease(CpuId::new(1)).expect("that one is free");
    drop(lease);
    drop(other);
    drop(frames.lease(CPU).expect("it is free again"));
}

#[test]
fn what_is_taken_counts_for_the_leased_cpu_and_for_the_one_that_borrows() {
    let ranges = [0, 1].map(|node| {
        let start = Pfn::new(u64::from(node) * 2048);
        MemoryRange::new(start, FrameCount::new(2048)).on_node(NodeId::new(node))
    });
    let cpus = [0, 1].map(NodeId::new);
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    let frames = Frames::new(TestPlatform, &config, &Default::default());
    run_on(0);
    let numa = |zone| {
        let events = frames.numa_events(zone).expect("there is such a zone");
        [events.hit, events.miss, events.foreign, events.local, events.other].map(FrameCount::get)
    };
    let lease = frames.lease(CPU).unwrap();
    for order in [0, 0, 2, 9].map(Order::new) {
        lease.alloc(Request::new(order)).unwrap();
    }
    assert_eq!(numa(0), [518, 0, 0, 518, 0]);
    // CPU 0 cannot use its own caches meanwhile, and takes from those of CPU 1.
    for order in [0, 3].map(Order::new) {
        frames.alloc(Request::new(order)).unwrap();
    }
    assert_eq!(numa(0), [527, 0, 0, 527, 0]);
    // CPU 1 takes from the same caches.
    run_on(1);
    frames.alloc(Request::default().node(NodeId::new(0))).unwrap();
    assert_eq!(numa(0), [528, 0, 0, 527, 1]);
    // The holder uses up what is near to it and not in CPU 1's caches, and goes on elsewhere.
    run_on(0);
    let full = (0..2048).map(|_| lease.alloc(Request::default())).all(|pfn| pfn.is_ok());
    assert!(full, "node 1 has room");
    let (near, far) = (numa(0)[0], numa(1)[1]);
    assert!(near > 528 && far > 0 && near + far == 2048 + 528, "{near} near, {far} far");
    assert_eq!((numa(0), numa(1)), ([near, 0, far, near - 1, 1], [0, far, 0, 0, far]));
    assert_eq!(frames.events().allocated.get(), near + far);
    assert_eq!(frames.events().freed, FrameCount::ZERO);
    drop(lease);
}

#[test]
fn a_drain_asks_and_does_not_wait() {
    let frames = machine(4096, 2);
    let lease = frames.lease(CPU).unwrap();
    let pfn = lease.alloc(Request::default()).unwrap();
    assert!(!lease.is_asked());
    frames.drain(CPU).unwrap();
    assert!(lease.is_asked());
    assert!(frames.zones().next().unwrap().per_cpu > FrameCount::ZERO, "nothing is taken by force");
    lease.give_back_if_asked();
    assert!(!lease.is_asked());
    let zone = frames.zones().next().unwrap();
    assert_eq!((zone.per_cpu.get(), zone.free.get()), (0, 4095));
    lease.free(pfn, Order::ZERO).unwrap();
    drop(lease);
    assert!(all_free(&frames));
}

#[test]
fn a_holder_that_never_answers_loses_nothing() {
    let frames = machine(2048, 2);
    let lease = frames.lease(CPU).unwrap();
    let held = lease.alloc(Request::default()).unwrap();
    // All others get what the caches of the holder do not hold: those hold one pageblock.
    run_on(0);
    let others: Vec<_> = std::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
    assert_eq!(others.len(), 2048 - 512);
    assert!(lease.is_asked());
    for &pfn in &others {
        frames.free(pfn, Order::ZERO).unwrap();
    }
    // Another thread frees the holder's own frame, and the holder finds it.
    frames.free(held, Order::ZERO).unwrap();
    assert_eq!(frames.free(held, Order::ZERO), Err(Error::DoubleFree));
    assert_eq!(lease.free(held, Order::ZERO), Err(Error::DoubleFree));
    let all: Vec<_> = std::iter::from_fn(|| lease.alloc(Request::default()).ok()).collect();
    assert_eq!(all.len(), 2048);
    for &pfn in &all {
        lease.free(pfn, Order::ZERO).unwrap();
    }
    drop(lease);
    assert!(all_free(&frames));
}

#[test]
fn what_a_holder_leaves_behind_is_found_when_memory_is_low() {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(2048))];
    let cpus = [NodeId::new(0); 2];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::new(100));
    let frames: Frames = Machine::new(TestPlatform, &config, &Default::default());
    let request = Request::default().watermark(Watermark::Ignore);
    let count = || std::iter::from_fn(|| frames.alloc(request).ok()).count();
    let lease = frames.lease(CPU).unwrap();
    lease.alloc(request).unwrap();
    run_on(1);
    assert_eq!(count(), 2048 - 512);
    // It was asked, and has not responded.
    drop(lease);
    assert_eq!(count(), 511);
}

#[test]
fn an_allocation_that_fails_waits_for_no_lease() {
    let frames = machine(4096, 4);
    let leases = [1, 2, 3].map(|cpu| frames.lease(CpuId::new(cpu)).unwrap());
    run_on(0);
    let all: Vec<_> = std::iter::from_fn(|| frames.alloc(Request::default()).ok()).collect();
    assert_eq!(all.len(), 4096);
    assert!(leases.iter().all(|lease| lease.is_asked()));
    // One holds free frames, and does not respond.
    frames.free(all[0], Order::ZERO).unwrap();
    leases[0].give_back();
    leases[0].alloc(Request::default()).unwrap();
    for &pfn in &all[512..1024] {
        leases[0].free(pfn, Order::ZERO).unwrap();
    }
    let before = relaxed();
    for _ in 0..10 {
        while frames.alloc(Request::default()).is_ok() {}
        assert_eq!(frames.alloc(Request::new(Order::new(9))), Err(Error::OutOfMemory));
    }
    let waits = relaxed() - before;
    assert!(waits <= 20, "{waits} waits for leases in 20 failures");
}

#[test]
fn requests_that_leave_the_reserves_alone_do_so_here() {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(4096))];
    let cpus = [NodeId::new(0)];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::new(400));
    let frames: Frames = Machine::new(TestPlatform, &config, &Default::default());
    let lease = frames.lease(CPU).unwrap();
    let take = |class| {
        let request = Request::default().watermark(class);
        std::iter::from_fn(|| lease.alloc(request).ok()).count()
    };
    let classes = [Watermark::High, Watermark::Low, Watermark::Min, Watermark::Ignore];
    assert_eq!(classes.map(take), [3496, 100, 100, 400]);
}

#[test]
fn a_holder_among_others() {
    const ROUNDS: usize = 30_000;
    let frames = machine(8192, 2);
    let (handed, done) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        // The holder hands every other frame to a thread that frees it; a third one drains.
        scope.spawn(|| {
            let lease = frames.lease(CPU).unwrap();
            for round in 0..ROUNDS {
                let pfn = lease.alloc(Request::default()).expect("there is enough");
                if round % 2 == 0 {
                    lease.free(pfn, Order::ZERO).unwrap();
                } else {
                    while handed.compare_exchange(0, pfn.get() + 1, SeqCst, SeqCst).is_err() {
                        thread::yield_now();
                    }
                }
            }
            done.store(true, SeqCst);
        });
        scope.spawn(|| {
            run_on(1);
            loop {
                match handed.swap(0, SeqCst) {
                    0 if done.load(SeqCst) => break,
                    0 => thread::yield_now(),
                    pfn => frames.free(Pfn::new(pfn - 1), Order::ZERO).unwrap(),
                }
            }
        });
        scope.spawn(|| {
            while !done.load(SeqCst) {
                frames.drain_all();
                frames.validate().expect("the accounting is right");
                thread::yield_now();
            }
        });
    });
    if let pfn @ 1.. = handed.swap(0, SeqCst) {
        frames.free(Pfn::new(pfn - 1), Order::ZERO).unwrap();
    }
    assert!(all_free(&frames));
    assert_eq!(frames.events().allocated.get(), ROUNDS as u64);
}
