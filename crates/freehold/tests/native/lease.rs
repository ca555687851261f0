//! Leases: the owner allocates without a lock, and nothing that an idle one has is out of reach.

use crate::common::{TestPlatform, refuse_barriers, relaxed, run_on};
use crate::tested::{Tested, build, check_whole, range};
use freehold::designs::{Freehold, Lease};
use freehold::{CpuId, Error, FrameCount, MigrateType, NodeId, Order, Pfn, Request, Watermark};

type Frames = Tested<Freehold<TestPlatform>>;

const CPU: CpuId = CpuId::new(0);

/// So many frames, of which so many are reserved.
fn machine_with(frames: u64, reserved: u64) -> Frames {
    build(&[range(0, frames)], &[0; 4], reserved)
}

fn machine(frames: u64) -> Frames {
    machine_with(frames, 0)
}

fn lease(frames: &Frames, cpu: u32) -> Lease<'_, TestPlatform> {
    frames.lease(CpuId::new(cpu)).expect("there is no other lease")
}

fn take_all(mut alloc: impl FnMut() -> Result<Pfn, Error>) -> Vec<Pfn> {
    std::iter::from_fn(|| alloc().ok()).collect()
}

#[test]
fn an_owner_gets_every_frame_once_and_releases_all() {
    let frames = machine(4096);
    let mut lease = lease(&frames, 0);
    run_on(1);
    for order in [0, 1, 3, 8, 9, 10].map(Order::new) {
        for migratetype in MigrateType::ALL {
            lease.renew();
            let request = Request::new(order).migratetype(migratetype);
            let mut got = take_all(|| lease.alloc(request));
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
    check_whole(&frames);
}

#[test]
fn what_an_idle_owner_has_is_there_for_all() {
    let frames = machine(2048);
    let mut lease = lease(&frames, 0);
    let held = lease.try_alloc(Request::default()).expect("the cache can acquire");
    assert!(frames.zones().next().unwrap().per_cpu > FrameCount::ZERO);
    run_on(1);
    let before = relaxed();
    let others = take_all(|| frames.alloc(Request::default()));
    assert_eq!(others.len(), 2047, "nothing stays with the lease");
    assert!(lease.is_revoked());
    assert!(relaxed() - before <= 2, "no call is waited for");
    // The owner continues by the ordinary path.
    assert_eq!(lease.try_alloc(Request::default()), None);
    assert_eq!(lease.try_free(held, Order::ZERO), None);
    assert_eq!(lease.alloc(Request::default()), Err(Error::OutOfMemory));
    // Another thread frees what it has, and it finds that.
    frames.free(held, Order::ZERO).unwrap();
    assert_eq!(lease.free(held, Order::ZERO), Err(Error::DoubleFree));
    for &pfn in &others {
        frames.free(pfn, Order::ZERO).unwrap();
    }
    lease.renew();
    assert!(!lease.is_revoked());
    let held = lease.try_alloc(Request::default()).expect("the cache can acquire");
    assert_eq!(lease.try_free(held, Order::ZERO), Some(Ok(())));
    drop(lease);
    check_whole(&frames);
}

#[test]
fn the_reserves_count_what_a_lease_has() {
    let frames = machine_with(4096, 400);
    let lease = lease(&frames, 0);
    let classes = [Watermark::High, Watermark::Low, Watermark::Min, Watermark::Ignore];
    let take = |class| {
        let request = Request::default().watermark(class);
        take_all(|| lease.alloc(request)).len()
    };
    assert_eq!(classes.map(take), [3496, 100, 100, 400]);
}

#[test]
fn one_owner_at_a_time() {
    let frames = machine(1024);
    let first = lease(&frames, 0);
    assert_eq!(frames.lease(CPU).err(), Some(Error::Leased));
    assert_eq!(frames.lease(CpuId::new(4)).err(), Some(Error::UnknownCpu));
    drop(lease(&frames, 1));
    frames.drain(CPU).unwrap();
    assert!(first.is_revoked());
    // Its owner may be about to look: until it ends the lease, there can be no other one.
    assert_eq!(frames.lease(CPU).err(), Some(Error::Leased));
    drop(first);
    drop(lease(&frames, 0));
}

#[test]
fn a_look_revokes_nothing() {
    let frames = machine(1024);
    let lease = lease(&frames, 0);
    lease.alloc(Request::default()).unwrap();
    let zone = frames.zones().next().unwrap();
    assert_eq!((zone.free.get(), zone.per_cpu.get()), (512, 511));
    assert_eq!(frames.events().allocated.get(), 1);
    frames.validate().unwrap();
    frames.tick(CPU).unwrap();
    assert!(!lease.is_revoked());
    frames.offline_cpu(CPU).unwrap();
    assert!(lease.is_revoked());
    assert_eq!(frames.zones().next().unwrap().per_cpu, FrameCount::ZERO);
}

#[test]
fn what_is_left_when_a_lease_ends_is_found() {
    let frames = machine(2048);
    for revoked in [false, true] {
        let lease = lease(&frames, 0);
        lease.alloc(Request::default()).unwrap();
        if revoked {
            frames.drain(CPU).unwrap();
        }
        drop(lease);
        run_on(1);
        let others = take_all(|| frames.alloc(Request::default()));
        assert_eq!(others.len(), 2047);
        (0..2048).for_each(|pfn| frames.free(Pfn::new(pfn), Order::ZERO).unwrap());
    }
}

#[test]
fn a_lease_can_be_put_away() {
    let (frames, others) = (machine(1024), machine(1024));
    let lease = lease(&frames, 0);
    let held = lease.alloc(Request::default()).unwrap();
    let parked = others.resume(lease.park()).expect_err("it is not theirs");
    assert_eq!(frames.lease(CPU).err(), Some(Error::Leased));
    let lease = frames.resume(parked).unwrap();
    assert_eq!(lease.try_free(held, Order::ZERO), Some(Ok(())));
    // Others take from it while it is parked, too.
    let parked = lease.park();
    run_on(1);
    assert_eq!(take_all(|| frames.alloc(Request::default())).len(), 1024);
    let lease = frames.resume(parked).unwrap();
    assert!(lease.is_revoked());
}

#[test]
fn without_a_barrier_there_is_no_lease() {
    let frames = machine(1024);
    refuse_barriers(true);
    assert_eq!(frames.lease(CPU).err(), Some(Error::NoBarrier));
}

#[test]
fn an_allocation_that_fails_does_not_wait_for_leases_that_stay() {
    let frames = machine(4096);
    let leases = [1, 2, 3].map(|cpu| lease(&frames, cpu));
    run_on(0);
    refuse_barriers(true);
    let held = leases.each_ref().map(|lease| lease.alloc(Request::default()).unwrap());
    // Others get what the caches of the leases do not hold: each of those holds one pageblock.
    let all = take_all(|| frames.alloc(Request::default()));
    assert_eq!(all.len(), 4096 - 3 * 512);
    let before = relaxed();
    for _ in 0..10 {
        assert_eq!(frames.alloc(Request::default()), Err(Error::OutOfMemory));
        assert_eq!(frames.alloc(Request::new(Order::new(9))), Err(Error::OutOfMemory));
    }
    let waits = relaxed() - before;
    assert!(waits <= 20, "{waits} waits for leases in 20 failures");
    // Their owners have lost nothing, and find what others free.
    frames.free(held[0], Order::ZERO).unwrap();
    assert_eq!(frames.free(held[0], Order::ZERO), Err(Error::DoubleFree));
    assert_eq!(leases[0].free(held[0], Order::ZERO), Err(Error::DoubleFree));
    let own = take_all(|| leases[0].try_alloc(Request::default()).ok_or(Error::Leased));
    assert_eq!(own.len(), 512);
    for _ in 0..2 {
        frames.free(own[0], Order::ZERO).unwrap();
        assert_eq!(leases[0].try_alloc(Request::default()), Some(own[0]));
        assert_eq!(leases[0].try_alloc(Request::default()), None);
    }
    assert!(leases.iter().all(|lease| !lease.is_revoked()));
}

#[test]
fn a_free_on_a_leased_cpu_reaches_the_zone() {
    let frames = machine(1024);
    let lease = lease(&frames, 0);
    run_on(1);
    let pfn = frames.alloc(Request::default()).unwrap();
    frames.drain(CpuId::new(1)).unwrap();
    run_on(0);
    frames.free(pfn, Order::ZERO).unwrap();
    assert_eq!(frames.zones().next().unwrap().free.get(), 1024);
    assert!(!lease.is_revoked());
}

#[test]
fn what_a_lease_that_stays_leaves_behind_is_found_when_memory_is_low() {
    let frames = machine_with(2048, 100);
    let request = Request::default().watermark(Watermark::Ignore);
    let count = || take_all(|| frames.alloc(request)).len();
    let lease = lease(&frames, 0);
    lease.alloc(request).unwrap();
    run_on(1);
    refuse_barriers(true);
    assert_eq!(count(), 2048 - 512);
    drop(lease);
    assert_eq!(count(), 511);
}

#[test]
fn what_is_taken_counts_for_the_leased_cpu_and_for_the_one_that_borrows() {
    let ranges = [range(0, 2048), range(2048, 2048).on_node(NodeId::new(1))];
    let frames: Frames = build(&ranges, &[0, 1], 0);
    let numa = |zone| {
        let events = frames.numa_events(zone).expect("there is such a zone");
        [events.hit, events.miss, events.foreign, events.local, events.other].map(FrameCount::get)
    };
    let lease = lease(&frames, 0);
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
    // The owner uses up what is near to it and not in CPU 1's caches, and goes on elsewhere.
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
