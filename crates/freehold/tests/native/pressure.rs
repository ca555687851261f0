//! Low memory and out of memory: which requests get the last frames, from where, and what is left.

use crate::common::{TestPlatform, run_on};
use crate::designs::{fixed, uses_up_first, variants};
use crate::tested::{TestDesign, Tested, build_as, range};
use freehold::{CpuId, Error, FrameCount, NodeId, Order, Pfn, Request, ZoneStats};

fn zone<D: TestDesign>(machine: &Tested<D>, nth: usize) -> ZoneStats {
    machine.zones().nth(nth).expect("there is such a zone")
}

/// Allocates until that fails.
fn exhaust<D: TestDesign>(machine: &Tested<D>, request: Request) -> (Vec<Pfn>, Error) {
    let mut blocks = vec![];
    loop {
        match machine.alloc(request) {
            Ok(block) => blocks.push(block),
            Err(error) => return (blocks, error),
        }
    }
}

fn free_all<D: TestDesign>(machine: &Tested<D>, blocks: &[Pfn], order: Order) {
    for &block in blocks {
        machine.free(block, order).expect("the block is held");
    }
}

fn lists_of_cpus_may_hold_at_most_one_refill_of_the_reserve<D: TestDesign>() {
    // A refill checks the mark once, as in Linux, and then takes its batch.
    let settings = fixed(&D::Settings::default(), 31, 186);
    let machine = build_as::<D>(&[range(0, 4096)], &[0], 400, &settings);
    exhaust(&machine, Request::default().at_hand());
    assert!(zone(&machine, 0).free.get() <= 400, "what is at hand is not reserved from 500 on");
    while machine.alloc(Request::default()).is_ok() {
        assert!(zone(&machine, 0).free.get() + 30 >= 400);
    }
    let stats = zone(&machine, 0);
    assert!(stats.free.get() <= 400 && stats.per_cpu == FrameCount::ZERO);
}

fn frames_that_other_cpus_keep_are_found<D: TestDesign>() {
    let kinds = |own| [fixed(&own, 64, 1024), own];
    for settings in variants::<D::Settings>().into_iter().flat_map(kinds) {
        for (order, expected) in [(0, 1024), (9, 2), (10, 1)] {
            let machine = build_as::<D>(&[range(0, 1024)], &[0; 4], 0, &settings);
            let order = Order::new(order);
            // Each CPU takes frames, and caches what it can of them when it frees them.
            let parts: Vec<Vec<_>> = (0..4)
                .map(|cpu| {
                    run_on(cpu);
                    (0..200).map(|_| machine.alloc(Request::default()).expect("free")).collect()
                })
                .collect();
            for (cpu, part) in parts.iter().enumerate() {
                run_on(cpu as u32);
                free_all(&machine, part, Order::ZERO);
            }
            assert!(zone(&machine, 0).per_cpu > FrameCount::ZERO);
            run_on(0);
            let request = Request::new(order);
            let (at_hand, _) = exhaust(&machine, request.at_hand());
            let mut some = [Pfn::new(0)];
            assert_eq!(machine.alloc_bulk(request.at_hand(), &mut some), Ok(0));
            let (others, error) = exhaust(&machine, request);
            assert_eq!((at_hand.len() + others.len(), error), (expected, Error::OutOfMemory));
            assert!(order > Order::ZERO || others.len() > 1);
            machine.validate().expect("the books are right");
        }
    }
}

fn quiet_cpus_give_back_what_they_keep_of_other_nodes<D: TestDesign>() {
    if uses_up_first(D::NAME) {
        return; // It caches pageblocks, not frames, and returns the whole one at every tick.
    }
    let ranges = [range(0, 1024), range(1024, 1024).on_node(NodeId::new(1))];
    let machine = build_as::<D>(&ranges, &[0, 1], 0, &fixed(&D::Settings::default(), 8, 64));
    let far = Request::default().node(NodeId::new(1));
    let blocks: Vec<_> = (0..16).map(|_| machine.alloc(far).expect("free")).collect();
    free_all(&machine, &blocks, Order::ZERO);
    assert_eq!(zone(&machine, 1).per_cpu.get(), 16);
    // A batch of eight is returned after every third tick.
    let kept: Vec<_> = (0..6)
        .map(|_| {
            machine.tick(CpuId::new(0)).expect("there is a CPU 0");
            zone(&machine, 1).per_cpu.get()
        })
        .collect();
    assert_eq!(kept, [16, 16, 8, 8, 8, 0]);
}

test_designs!(TestPlatform: [
    lists_of_cpus_may_hold_at_most_one_refill_of_the_reserve,
    frames_that_other_cpus_keep_are_found,
    quiet_cpus_give_back_what_they_keep_of_other_nodes,
]);
