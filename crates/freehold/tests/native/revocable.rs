//! Revocable leases: nothing that an idle owner has is out of reach.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::SeqCst};
use std::thread;

use crate::common::{TestPlatform, relaxed, run_on};
use crate::machine::Machine;
use freehold::designs::{Freehold, RevocableLease};
use freehold::platform::{Pinned, Platform, Scalar};
use freehold::{Config, CpuId, Error, FrameCount, MemoryRange, MigrateType, NodeId, Order, Pfn};
use freehold::{Request, Watermark};

type Frames<P = TestPlatform> = Machine<P, Freehold<P>>;

const CPU: CpuId = CpuId::new(0);

fn machine_on<P: Platform>(platform: P, frames: u64, cpus: usize) -> Frames<P> {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
    let cpus = vec![NodeId::new(0); cpus];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    Machine::new(platform, &config, &Default::default())
}

fn machine(frames: u64, cpus: usize) -> Frames {
    machine_on(TestPlatform, frames, cpus)
}

fn lease(frames: &Frames, cpu: u32) -> RevocableLease<'_, TestPlatform> {
    frames.lease_revocable(CpuId::new(cpu)).expect("there is no other lease")
}

fn all_free(frames: &Frames) -> bool {
    frames.drain_all();
    frames.validate().expect("the accounting is right");
    frames.zones().all(|zone| zone.free == zone.managed)
}

fn take_all(mut alloc: impl FnMut() -> Result<Pfn, Error>) -> Vec<Pfn> {
    std::iter::from_fn(|| alloc().ok()).collect()
}

#[test]
fn an_owner_gets_every_frame_once_and_releases_all() {
    let frames = machine(4096, 2);
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
    assert!(all_free(&frames));
}

#[test]
fn what_an_idle_owner_has_is_there_for_all() {
    let frames = machine(2048, 2);
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
    lease.free(held, Order::ZERO).unwrap();
    assert_eq!(lease.free(held, Order::ZERO), Err(Error::DoubleFree));
    for &pfn in &others {
        frames.free(pfn, Order::ZERO).unwrap();
    }
    lease.renew();
    assert!(!lease.is_revoked());
    let held = lease.try_alloc(Request::default()).expect("the cache can acquire");
    assert_eq!(lease.try_free(held, Order::ZERO), Some(Ok(())));
    drop(lease);
    assert!(all_free(&frames));
}

#[test]
fn the_reserves_count_what_a_lease_has() {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(4096))];
    let cpus = [NodeId::new(0); 2];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::new(400));
    let frames: Frames = Machine::new(TestPlatform, &config, &Default::default());
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
    let frames = machine(1024, 2);
    let first = lease(&frames, 0);
    let leased = |result: Result<_, _>| result.err() == Some(Error::Leased);
    assert!(leased(frames.lease_revocable(CPU)));
    assert_eq!(frames.lease(CPU).err(), Some(Error::Leased));
    assert_eq!(frames.lease_revocable(CpuId::new(2)).err(), Some(Error::UnknownCpu));
    frames.drain(CPU).unwrap();
    assert!(first.is_revoked());
    // Its owner may be about to look: until it ends the lease, there can be no other one.
    assert!(leased(frames.lease_revocable(CPU)));
    assert_eq!(frames.lease(CPU).err(), Some(Error::Leased));
    drop(first);
    let held = frames.lease(CPU).expect("it has ended");
    assert!(leased(frames.lease_revocable(CPU)));
    frames.drain(CPU).unwrap();
    assert!(held.is_asked(), "it is no revocable one");
    drop(held);
    drop(lease(&frames, 0));
}

#[test]
fn a_look_revokes_nothing() {
    let frames = machine(1024, 2);
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
    let frames = machine(2048, 2);
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
    let (frames, others) = (machine(1024, 2), machine(1024, 2));
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

/// A machine without a heavy barrier.
struct Unbarred(TestPlatform);

impl Platform for Unbarred {
    type U32 = <TestPlatform as Platform>::U32;
    type U64 = <TestPlatform as Platform>::U64;
    type Cell<T: Scalar> = <TestPlatform as Platform>::Cell<T>;
    type LocalCell<T: Scalar> = <TestPlatform as Platform>::LocalCell<T>;
    type Lock = <TestPlatform as Platform>::Lock;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        self.0.cpu()
    }

    fn pin(&self) -> Pinned<()> {
        self.0.pin()
    }

    fn unpin(&self, (): ()) {}

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}
}

#[test]
fn without_a_barrier_there_is_no_such_lease() {
    let frames = machine_on(Unbarred(TestPlatform), 1024, 1);
    assert_eq!(frames.lease_revocable(CPU).err(), Some(Error::NoBarrier));
    drop(frames.lease(CPU).expect("the other kind needs none"));
}

/// The holder of each frame: none, or one of the threads.
struct Owners(Vec<AtomicU8>);

impl Owners {
    fn take(&self, pfn: Pfn, order: Order) {
        self.change(pfn, order, 0, 1);
    }

    fn give(&self, pfn: Pfn, order: Order) {
        self.change(pfn, order, 1, 0);
    }

    fn change(&self, pfn: Pfn, order: Order, from: u8, to: u8) {
        for owner in &self.0[pfn.get() as usize..][..1 << order.get()] {
            assert_eq!(owner.swap(to, SeqCst), from, "{pfn} has changed hands");
        }
    }
}

#[test]
fn owners_among_cpus_that_revoke() {
    const ROUNDS: usize = 40_000;
    /// How often each lease is revoked.
    const REVOKED: usize = 20;
    const FRAMES: u64 = 4096;
    let frames = machine(FRAMES, 3);
    let owners = Owners((0..FRAMES).map(|_| AtomicU8::new(0)).collect());
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let (frames, owners, done) = (&frames, &owners, &done);
        let work = move |cpu: u32| {
            let (mut lease, mut own) = (lease(frames, cpu), Vec::new());
            let (mut round, mut renewed) = (0, 0);
            while round < ROUNDS || renewed < REVOKED {
                round += 1;
                if round % 64 == 0 && lease.is_revoked() {
                    lease.renew();
                    renewed += 1;
                }
                let order = Order::new((round % 7 == 0).into());
                if let Ok(pfn) = lease.alloc(Request::new(order)) {
                    owners.take(pfn, order);
                    own.push((pfn, order));
                }
                if own.len() > 1500 || round % 3 == 0 && !own.is_empty() {
                    let (pfn, order) = own.swap_remove(round % own.len());
                    owners.give(pfn, order);
                    lease.free(pfn, order).unwrap();
                }
            }
            for (pfn, order) in own {
                owners.give(pfn, order);
                lease.free(pfn, order).unwrap();
            }
        };
        let leases = [0, 1].map(|cpu| scope.spawn(move || work(cpu)));
        scope.spawn(move || {
            run_on(2);
            while !done.load(SeqCst) {
                let got = take_all(|| frames.alloc(Request::default()));
                got.iter().for_each(|&pfn| owners.take(pfn, Order::ZERO));
                for &pfn in &got {
                    owners.give(pfn, Order::ZERO);
                    frames.free(pfn, Order::ZERO).unwrap();
                }
                frames.validate().expect("the accounting is right");
                thread::yield_now();
            }
        });
        let ended = leases.map(|lease| lease.join());
        done.store(true, SeqCst);
        ended.into_iter().for_each(Result::unwrap);
    });
    assert!(all_free(&frames));
}
