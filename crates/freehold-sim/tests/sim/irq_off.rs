//! How long interrupts are off, by design and by the protection of its lists: a refill or a drain
//! keeps them off for `batch << batch_scale` frames, however many it moves.

use std::rc::Rc;

use freehold::{Config, Design, FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
use freehold_linux::{
    BlockOwner, Cluster, Counters, LazyMerge, Locking, MergeAhead, OwnSettings, Pcp, ZoneLock,
    ZonedSettings,
};
use freehold_sim::{Machine, Path, Sim, SimFrames, preset};

/// The costs of one CPU of a machine of 1 GiB.
struct IrqOff {
    sections: u64,
    /// Of the one CPU's time.
    ns: f64,
    ns_max: f64,
}

/// Allocates so many frames one by one on each of the first CPUs of two and frees them in an order
/// that merges late; then drains.
fn run<D, O>(cpus: usize, frames: usize, settings: &ZonedSettings<O>) -> IrqOff
where
    O: OwnSettings,
    D: Design<Sim, Settings = ZonedSettings<O>> + 'static,
{
    let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
    let memory = [MemoryRange::new(Pfn::new(0), FrameCount::new(1 << 18))];
    let nodes = [NodeId::new(0); 2];
    let config = Config::new(&memory, &nodes).frame_record_bytes(64);
    let allocator = Rc::new(SimFrames::<D>::new(&mut machine, Sim, &config, settings).unwrap());
    for cpu in 0..cpus {
        let allocator = Rc::clone(&allocator);
        machine.spawn(cpu, move |handle| {
            let alloc = || allocator.alloc(Request::default());
            let mut held: Vec<_> =
                (0..frames).map(|_| handle.on_path(Path::Alloc, alloc).unwrap()).collect();
            // Far from each other, as after a while of use.
            held.sort_unstable_by_key(|pfn| pfn.get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for pfn in held {
                handle.on_path(Path::Free, || allocator.free(pfn, Order::ZERO)).unwrap();
            }
            handle.on_path(Path::Free, || allocator.drain_all());
        });
    }
    let report = machine.run().unwrap();
    let off = report.irq_off;
    assert_eq!(allocator.validate().unwrap().free, FrameCount::new(1 << 18));
    IrqOff {
        sections: off.sections,
        ns: off.share * (report.time.all_ns - report.time.barrier_ns),
        ns_max: off.ns_max,
    }
}

/// A batch of a zone of 1 GiB and more.
const BATCH_FRAMES: f64 = 63.0;

/// The bound: what one frame of a batch may take that finds all its records in memory and merges
/// now and then at all orders.
const FRAME_NS_MAX: f64 = 250.0;

/// The same if other CPUs were the last to write those records.
const SHARED_FRAME_NS_MAX: f64 = 500.0;

/// A CPU waits for the zone lock with interrupts off, at most once for each other CPU. With `irq`,
/// it also waits for any CPU that drains its lists remotely, which in turn waits for the zone lock;
/// so there the bound is for lists that no other CPU works on.
fn stays_within_the_bound<D, O>(locking: Locking)
where
    O: OwnSettings,
    D: Design<Sim, Settings = ZonedSettings<O>> + 'static,
{
    let all = [(1, 500), (1, 60_000), (2, 30_000)];
    let cases = if locking == Locking::Irq { &all[..2] } else { &all };
    for (batch_scale, &(cpus, frames)) in
        [0, 5].iter().flat_map(|of| cases.iter().map(|it| (*of, it)))
    {
        let settings = ZonedSettings { pcp: Pcp::Auto, locking, batch_scale, ..Default::default() };
        let off = run::<D, O>(cpus, frames, &settings);
        assert!(off.sections > 0);
        let frame_ns_max = if cpus > 1 { SHARED_FRAME_NS_MAX } else { FRAME_NS_MAX };
        let hold_ns_max = BATCH_FRAMES * f64::from(1 << batch_scale) * frame_ns_max;
        assert!(
            off.ns_max <= hold_ns_max * cpus as f64,
            "{}: {frames} frames on each of {cpus}, {locking:?}, scale {batch_scale}: {} ns",
            D::NAME,
            off.ns_max
        );
    }
}

fn all_stay_within_the_bound(locking: Locking) {
    stays_within_the_bound::<ZoneLock<Sim>, _>(locking);
    stays_within_the_bound::<LazyMerge<Sim>, _>(locking);
    stays_within_the_bound::<Cluster<Sim>, _>(locking);
    stays_within_the_bound::<MergeAhead<Sim>, _>(locking);
    stays_within_the_bound::<BlockOwner<Sim>, _>(locking);
}

// Two tests, which take seconds each and run at the same time.
#[test]
fn a_hold_of_the_zone_lock_is_bounded_with_irq() {
    all_stay_within_the_bound(Locking::Irq);
}

#[test]
fn a_hold_of_the_zone_lock_is_bounded_with_local() {
    all_stay_within_the_bound(Locking::Local);
}

#[test]
fn each_protection_disables_interrupts_less_than_the_one_before() {
    let of = |locking, counters| {
        let settings = ZonedSettings { locking, counters, ..Default::default() };
        run::<ZoneLock<Sim>, _>(1, 4000, &settings)
    };
    let ns = |locking, counters| of(locking, counters).ns;
    let irq_exact = ns(Locking::Irq, Counters::Exact);
    let irq = ns(Locking::Irq, Counters::Relaxed);
    let local_exact = ns(Locking::Local, Counters::Exact);
    let local = ns(Locking::Local, Counters::Relaxed);
    assert!(irq_exact > irq && irq > local_exact && local_exact > local && local > 0.0);
    let rt = of(Locking::Rt, Counters::Relaxed);
    assert_eq!((rt.sections, rt.ns, rt.ns_max), (0, 0.0, 0.0));
}
