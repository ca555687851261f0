//! How long interrupts are off, by design and by what protects its lists: a refill or a drain holds
//! them up for one batch, however many frames it moves.

use std::rc::Rc;

use freehold::designs::{
    BlockOwner, Cluster, Counters, LazyMerge, Locking, MergeAhead, OwnSettings, Pcp, ZonedSettings,
};
use freehold::{
    Config, Design, FrameCount, MemoryRange, NodeId, Order, Pfn, Request, designs::ZoneLock,
};
use freehold_sim::{Machine, Path, Sim, SimFrames, preset};

/// What one CPU of a machine of 1 GiB has cost.
struct IrqOff {
    sections: u64,
    /// Of the one CPU's time.
    ns: f64,
    ns_max: f64,
}

/// Allocates so many frames one by one and frees them in an order that merges late; then drains.
fn run<D, O>(frames: usize, locking: Locking, counters: Counters) -> IrqOff
where
    O: OwnSettings,
    D: Design<Sim, Settings = ZonedSettings<O>> + 'static,
{
    let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
    let memory = [MemoryRange::new(Pfn::new(0), FrameCount::new(1 << 18))];
    let cpus = [NodeId::new(0); 2];
    let config = Config { frame_bytes: 64, ..Config::new(&memory, &cpus) };
    let settings = ZonedSettings { pcp: Pcp::Auto, locking, counters, ..Default::default() };
    let allocator = Rc::new(SimFrames::<D>::new(&mut machine, Sim, &config, &settings).unwrap());
    let checked = Rc::clone(&allocator);
    machine.spawn(0, move |handle| {
        let mut held: Vec<_> = (0..frames)
            .map(|_| handle.on_path(Path::Alloc, || allocator.alloc(Request::default())).unwrap())
            .collect();
        // Far from each other, as after a while of use.
        held.sort_unstable_by_key(|pfn| pfn.get().wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for pfn in held {
            handle.on_path(Path::Free, || allocator.free(pfn, Order::ZERO)).unwrap();
        }
        handle.on_path(Path::Free, || allocator.drain_all());
    });
    let report = machine.run().unwrap();
    let off = report.irq_off;
    assert_eq!(checked.validate().unwrap().free, FrameCount::new(1 << 18));
    IrqOff { sections: off.sections, ns: off.share * report.time.all_ns, ns_max: off.ns_max }
}

/// A batch of a zone of 1 GiB and more.
const BATCH_FRAMES: f64 = 63.0;

/// The bound: what one frame of a batch may take that finds all its records in memory and merges
/// as often as there are orders now and then.
const FRAME_NS_MAX: f64 = 250.0;

fn stays_within_the_bound<D, O>(locking: Locking)
where
    O: OwnSettings,
    D: Design<Sim, Settings = ZonedSettings<O>> + 'static,
{
    for frames in [500, 30_000, 120_000] {
        let off = run::<D, O>(frames, locking, Counters::Relaxed);
        assert!(off.sections > 0);
        let bound = BATCH_FRAMES * FRAME_NS_MAX;
        assert!(off.ns_max <= bound, "{frames} frames, {locking:?}: {} ns", off.ns_max);
    }
}

#[test]
fn a_refill_or_a_drain_disables_interrupts_for_one_batch() {
    for locking in [Locking::Irq, Locking::Local] {
        stays_within_the_bound::<ZoneLock<Sim>, _>(locking);
        stays_within_the_bound::<LazyMerge<Sim>, _>(locking);
        stays_within_the_bound::<Cluster<Sim>, _>(locking);
        stays_within_the_bound::<MergeAhead<Sim>, _>(locking);
        stays_within_the_bound::<BlockOwner<Sim>, _>(locking);
    }
}

#[test]
fn each_protection_disables_interrupts_less_than_the_one_before() {
    let of = |locking, counters| run::<ZoneLock<Sim>, _>(4000, locking, counters);
    let ns = |locking, counters| of(locking, counters).ns;
    let irq_exact = ns(Locking::Irq, Counters::Exact);
    let irq = ns(Locking::Irq, Counters::Relaxed);
    let local_exact = ns(Locking::Local, Counters::Exact);
    let local = ns(Locking::Local, Counters::Relaxed);
    assert!(irq_exact > irq && irq > local_exact && local_exact > local && local > 0.0);
    let rt = of(Locking::Rt, Counters::Relaxed);
    assert_eq!((rt.sections, rt.ns, rt.ns_max), (0, 0.0, 0.0));
}
