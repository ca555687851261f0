//! The protocols between CPUs under loom: all interleavings with up to three preemptions, fewer
//! for the longer programs, and all values that the memory orderings allow a load to see.
//!
//! All but the first models run the real allocator, on a few frames. The tables still span 1024
//! frames, which loom builds in less than a millisecond.
//!
//! `LOOM_MAX_PREEMPTIONS` explores further.

use crate::designs::fixed;
use crate::designs_loom::{self, check};
use crate::freehold_models::{frame, range};
use crate::loom_platform::{LoomCell, LoomLock, LoomPlatform, run_on};
use crate::loom_runs::explore;
use crate::loom_threads::race;
use crate::machine::Machine;
use freehold::MigrateType::{self, Unmovable};
use freehold::memmap::region::{Carver, LayoutBuilder};
use freehold::memmap::stretches::Stretches;
use freehold::platform::{LockClass, RawLock, SharedCell};
use freehold::{Config, CpuId, Error, FrameCount, Metadata, NodeId, Order, Pfn, Request};
use freehold_linux::ZoneLock;
use loom::sync::Arc;
use loom::thread;
use std::mem::MaybeUninit;

const CPUS: [NodeId; 2] = [NodeId::new(0); 2];

type Shared<const ORDERED: bool, const ATOMIC: bool> = Arc<Baseline<ORDERED, ATOMIC>>;
type Baseline<const ORDERED: bool, const ATOMIC: bool> =
    Machine<LoomPlatform<ORDERED, ATOMIC>, ZoneLock<LoomPlatform<ORDERED, ATOMIC>>>;
type Sound = Shared<true, true>;

/// So many frames and two CPUs, each of which caches fewer than `high` frames.
fn build<const O: bool, const A: bool>(frames: u64, high: u32) -> Shared<O, A> {
    designs_loom::build(frames, CPUS.len(), &fixed(&Default::default(), 1, high))
}

/// Checks that after a drain everything is free, in one block.
fn check_whole<const O: bool, const A: bool>(machine: &Baseline<O, A>, order: usize) {
    machine.drain_all();
    assert_eq!(check(machine).allocated, FrameCount::ZERO);
    let zone = machine.zones().next().expect("one zone");
    assert_eq!((zone.free, zone.free_blocks[order]), (zone.managed, 1));
    let events = machine.events();
    assert_eq!(events.allocated, events.freed);
}

fn add_one_twice<const ORDERED: bool>() {
    explore(3, || {
        let shared = Arc::new((LoomLock::<ORDERED>::new(LockClass::Zone), LoomCell::new(0u32)));
        let add = |shared: &(LoomLock<ORDERED>, LoomCell<u32>)| {
            shared.0.lock();
            shared.1.set(shared.1.get() + 1);
            shared.0.unlock();
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || add(&other));
        add(&shared);
        thread.join().expect("the other thread is well");
        assert_eq!(shared.1.get(), 2);
    });
}

/// What a holder of the lock writes, the next holder reads: the release of `unlock` pairs with the
/// acquire of `lock`, and the exchange admits one at a time.
#[test]
fn a_lock_guards_a_cell() {
    add_one_twice::<true>();
}

/// The check above would notice a lock that orders nothing.
#[test]
#[should_panic(expected = "Causality violation")]
fn a_lock_that_orders_nothing_is_caught() {
    add_one_twice::<false>();
}

fn free_one_block_twice<const O: bool, const A: bool>(order: Order) {
    explore(3, move || {
        let machine = build::<O, A>(2, 2);
        let block = machine.alloc(Request::new(order)).expect("memory is free");
        let free = move |machine: &Machine<_, _>| machine.free(block, order);
        let (mine, other) = race(&machine, free, free);
        let expected = [Ok(()), Err(Error::DoubleFree)];
        assert!([mine, other] == expected || [other, mine] == expected, "{mine:?}, {other:?}");
        check_whole(&machine, 1);
    });
}

/// Of two frees of one frame exactly one succeeds: both try to exchange the one word that says that
/// it is allocated. Exchanges of one word are totally ordered, whatever their memory ordering.
#[test]
fn of_two_frees_of_a_frame_one_succeeds() {
    free_one_block_twice::<true, true>(Order::ZERO);
}

/// The same for a block that the per-CPU lists do not hold.
#[test]
fn of_two_frees_of_a_block_one_succeeds() {
    free_one_block_twice::<true, true>(Order::new(1));
}

/// The models above would notice a claim that is a load and a store.
#[test]
#[should_panic]
fn a_claim_in_two_steps_is_caught() {
    free_one_block_twice::<true, false>(Order::ZERO);
}

/// An erroneous second free comes so late that the frame has been allocated again. It may then free
/// the frame of its new holder, but the lists stay intact: its claim acquires what the last holder
/// of the frame's links released when it marked the frame.
#[test]
fn a_late_double_free_leaves_the_lists_whole() {
    explore(3, || {
        let machine: Sound = build(2, 3);
        let block = machine.alloc(frame()).expect("memory is free");
        let (mine, other) = race(
            &machine,
            |machine| machine.free(block, Order::ZERO).and_then(|()| machine.alloc(frame())),
            move |machine| machine.free(block, Order::ZERO),
        );
        assert!(mine.is_ok() || other.is_ok(), "{mine:?}, {other:?}");
        check(&machine);
    });
}

/// Two parts of one allocation are freed at the same time. Both need to split it: the zone lock
/// makes them do so one after the other, and the second finds its part as a block of its own.
#[test]
fn halves_of_a_block_come_back_together() {
    explore(3, || {
        let machine: Sound = build(2, 2);
        let block = machine.alloc(Request::new(Order::new(1))).expect("memory is free");
        let upper = block.offset(FrameCount::new(1));
        let freed = race(
            &machine,
            |machine| machine.free(block, Order::ZERO),
            move |machine| machine.free(upper, Order::ZERO),
        );
        assert_eq!(freed, (Ok(()), Ok(())));
        check_whole(&machine, 1);
    });
}

/// A half and a quarter of one allocation are freed at the same time; the quarter that is left is
/// still held.
#[test]
fn unequal_parts_of_a_block_leave_the_rest() {
    explore(3, || {
        let machine: Sound = build(4, 1);
        let block = machine.alloc(Request::new(Order::new(2))).expect("memory is free");
        let last = block.offset(FrameCount::new(3));
        let freed = race(
            &machine,
            |machine| machine.free(block, Order::new(1)),
            move |machine| machine.free(last, Order::ZERO),
        );
        assert_eq!(freed, (Ok(()), Ok(())));
        assert_eq!(check(&machine).allocated, FrameCount::new(1));
        let rest = block.offset(FrameCount::new(2));
        machine.free(rest, Order::ZERO).expect("the rest is held");
        check_whole(&machine, 2);
    });
}

/// The whole of an allocation is freed against a part of it: the whole claims the head by exchange,
/// without the zone lock, and the part claims it by exchange as well, so one of them loses.
#[test]
fn a_block_and_a_part_of_it_are_not_both_freed() {
    explore(3, || {
        let machine: Sound = build(2, 2);
        let block = machine.alloc(Request::new(Order::new(1))).expect("memory is free");
        let upper = block.offset(FrameCount::new(1));
        let (whole, part) = race(
            &machine,
            |machine| machine.free(block, Order::new(1)),
            move |machine| machine.free(upper, Order::ZERO),
        );
        match (whole, part) {
            (Ok(()), Err(Error::DoubleFree)) => {}
            (Err(Error::DoubleFree | Error::WrongOrder), Ok(())) => {
                machine.free(block, Order::ZERO).expect("the rest is held");
            }
            outcome => panic!("{outcome:?}"),
        }
        check_whole(&machine, 1);
    });
}

/// A bulk claims blocks one by one while it holds the lock of its CPU's lists; a block that another
/// CPU freed first ends it there.
#[test]
fn a_bulk_meets_a_free_of_one_of_its_blocks() {
    explore(3, || {
        let machine: Sound = build(2, 4);
        let mut blocks = [Pfn::default(); 2];
        assert_eq!(machine.alloc_bulk(frame(), &mut blocks), Ok(2));
        let (bulk, single) = race(
            &machine,
            |machine| machine.free_bulk(&blocks, Order::ZERO),
            move |machine| machine.free(blocks[1], Order::ZERO),
        );
        match bulk {
            Ok(()) => assert_eq!(single, Err(Error::DoubleFree)),
            Err(stopped) => {
                assert_eq!((stopped.freed, stopped.error), (1, Error::DoubleFree));
                assert_eq!(single, Ok(()));
            }
        }
        check_whole(&machine, 1);
    });
}

/// With `high` of one, every free goes on to the zone and is merged there.
fn alloc_and_free_twice<const O: bool>(high: u32, other_cpu: u32) {
    explore(2, move || {
        let machine = build::<O, true>(4, high);
        let work = move |machine: &Baseline<O, true>| {
            let take = || machine.alloc(frame()).expect("there are two frames for each");
            let frames = [take(), take()];
            for frame in frames {
                machine.free(frame, Order::ZERO).expect("it is held");
            }
        };
        race(&machine, work, move |machine| {
            run_on(other_cpu);
            work(machine);
        });
        check_whole(&machine, 2);
    });
}

/// Lists, counters and links are cells: they are accessed only under the lock of the CPU or of the
/// zone. A frame moves between two lists only through the word that holds its state, so its links
/// are written by one CPU after the other.
#[test]
fn two_cpus_allocate_and_free() {
    alloc_and_free_twice::<true>(1, 1);
    alloc_and_free_twice::<true>(3, 1);
}

/// Two threads on one CPU, as on an embedder that cannot pin them: a thread that finds the lock of
/// the lists taken goes to the zone.
#[test]
fn two_threads_share_a_cpu() {
    alloc_and_free_twice::<true>(1, 0);
    alloc_and_free_twice::<true>(3, 0);
}

/// The model above would notice locks that order nothing.
#[test]
#[should_panic(expected = "Causality violation")]
fn allocation_under_locks_that_order_nothing_is_caught() {
    alloc_and_free_twice::<false>(2, 1);
}

/// A CPU's lists are drained by another one while it allocates and frees. It tries their lock and
/// goes to the zone if that is taken, so nothing is lost and no thread waits for a drain to end.
#[test]
fn a_cpu_is_drained_while_it_works() {
    explore(3, || {
        let machine: Sound = build(4, 4);
        let kept = machine.alloc(frame()).expect("memory is free");
        machine.free(kept, Order::ZERO).expect("it is held");
        race(
            &machine,
            |machine| {
                let frame = machine.alloc(frame()).expect("memory is free");
                machine.free(frame, Order::ZERO).expect("it is held");
            },
            |machine| machine.drain(CpuId::new(0)).expect("the CPU exists"),
        );
        check_whole(&machine, 2);
    });
}

/// Three parts of one allocation are freed by three threads, one of which then runs the consistency
/// check, while the fourth part is still held.
#[test]
fn three_threads_free_parts_of_a_block() {
    explore(1, || {
        let machine: Sound = build(4, 2);
        let block = machine.alloc(Request::new(Order::new(2))).expect("memory is free");
        let third = Arc::clone(&machine);
        let thread = thread::spawn(move || {
            run_on(1);
            third.free(block.offset(FrameCount::new(3)), Order::ZERO)
        });
        let freed = race(
            &machine,
            |machine| machine.free(block, Order::ZERO),
            move |machine| machine.free(block.offset(FrameCount::new(1)), Order::ZERO),
        );
        assert_eq!(freed, (Ok(()), Ok(())));
        assert!(check(&machine).allocated.get() <= 2);
        assert_eq!(thread.join().expect("the third thread is well"), Ok(()));
        machine.free(block.offset(FrameCount::new(2)), Order::ZERO).expect("it is held");
        check_whole(&machine, 2);
    });
}

/// Two allocations want the only frame, which CPU 0 caches. At most one gets it. Either may see
/// none, if it looks while the other has it in transit from a list to the zone and back.
#[test]
fn two_cpus_want_the_last_frame() {
    explore(3, || {
        let machine: Sound = build(1, 2);
        let kept = machine.alloc(frame()).expect("memory is free");
        machine.free(kept, Order::ZERO).expect("it is held");
        let take = |machine: &Machine<_, _>| machine.alloc(frame());
        let (mine, other) = race(&machine, take, take);
        let got: Vec<_> = [mine, other].into_iter().flatten().collect();
        assert!(got.len() <= 1, "the frame is in two hands");
        assert_eq!(check(&machine).allocated.get(), got.len() as u64);
        for frame in got {
            machine.free(frame, Order::ZERO).expect("it is held");
        }
        check_whole(&machine, 0);
    });
}

/// A pageblock changes its type while frames of it are freed. The type that a free reads without
/// the zone lock is a hint: it picks a list of the CPU, and is read again under the lock.
#[test]
fn a_pageblock_changes_its_type_under_a_free() {
    explore(3, || {
        let machine: Sound = build(4, 2);
        let frames = [(); 2].map(|()| machine.alloc(frame()).expect("memory is free"));
        let (_, stolen) = race(
            &machine,
            |machine| frames.map(|frame| machine.free(frame, Order::ZERO).expect("it is held")),
            |machine| machine.alloc(frame().migratetype(Unmovable)).expect("memory is free"),
        );
        check(&machine);
        machine.free(stolen, Order::ZERO).expect("it is held");
        check_whole(&machine, 2);
    });
}

/// The first frames of a pageblock, and room for the rest.
fn part_of_a_pageblock() -> Sound {
    let ranges = [range(0, 4)];
    let span = Some((Pfn::new(0), FrameCount::new(1024)));
    let config = Config::new(&ranges, &CPUS).min_free(FrameCount::ZERO).span(span);
    Arc::new(Machine::new(LoomPlatform, &config, &fixed(&Default::default(), 1, 1)))
}

/// Memory is added to a pageblock whose type changes at the same time. Both write the one word that
/// holds zone and type, so both must do it under the zone lock.
#[test]
fn a_pageblock_grows_while_it_changes_its_type() {
    explore(3, || {
        let machine = part_of_a_pageblock();
        // Most of the pageblock is a hole and counts as alike: the request claims it.
        let request = frame().migratetype(MigrateType::Reclaimable);
        let (frame, added) = race(
            &machine,
            |machine| machine.alloc(request).expect("memory is free"),
            |machine| machine.add_memory(range(4, 1)),
        );
        assert_eq!(added, Ok(()));
        check(&machine);
        machine.free(frame, Order::ZERO).expect("it is held");
        check(&machine);
    });
}

/// A consistency check sees memory that is being added either not at all or entirely.
#[test]
fn the_books_are_right_while_memory_is_added() {
    explore(3, || {
        let machine = part_of_a_pageblock();
        let (census, added) = race(&machine, check, |machine| machine.add_memory(range(4, 2)));
        assert_eq!(added, Ok(()));
        assert!([4, 6].contains(&census.managed.get()), "{census:?}");
        assert_eq!(check(&machine).free.get(), 6);
    });
}

/// A frame that is being added cannot be freed: it has not been allocated yet. Above all, the
/// frames of an allocation beside it stay what they are.
#[test]
fn a_frame_that_is_being_added_cannot_be_freed() {
    explore(3, || {
        let machine = part_of_a_pageblock();
        let block = machine.alloc(Request::new(Order::new(2))).expect("memory is free");
        let (freed, added) = race(
            &machine,
            |machine| machine.free(Pfn::new(5), Order::ZERO),
            |machine| machine.add_memory(range(4, 2)),
        );
        assert!(matches!(freed, Err(Error::ForeignFrame | Error::DoubleFree)), "{freed:?}");
        assert_eq!(added, Ok(()));
        machine.free(block, Order::new(2)).expect("all of it is still held");
        assert_eq!(check(&machine).free.get(), 6);
    });
}

/// A far stretch begins and grows while another CPU looks for it: frames are found at their index,
/// or not at all.
#[test]
fn a_stretch_is_found_while_it_begins_and_grows() {
    const FAR: Pfn = Pfn::new(1 << 40);
    let frames = FrameCount::new(1 << 15);
    let behind = FAR.offset(frames);
    explore(3, move || {
        let ranges = [range(0, 1)];
        let config = Config::new(&ranges, &CPUS).room((frames + frames, 1));
        let mut layout = LayoutBuilder::new();
        let plan = Stretches::<LoomPlatform>::plan(&config, &mut layout).expect("it is small");
        let extent = layout.finish();
        let bytes = vec![MaybeUninit::uninit(); extent.size_unaligned()];
        let metadata = Metadata::from_static(Vec::leak(bytes));
        let mut carver = Carver::new(metadata, &extent).expect("it is large enough");
        let stretches = Arc::new(Stretches::carve(&plan, &config, &mut carver));
        let (added, found) = race(
            &stretches,
            |stretches| [FAR, behind].map(|first| stretches.cover(first, frames)),
            move |stretches| [behind, FAR].map(|pfn| stretches.index_of(pfn)),
        );
        let [first, second] = added.map(|place| place.expect("there is room").first);
        assert_eq!(second.0 - first.0, 1 << 15);
        assert!([None, Some(second)].contains(&found[0]), "{found:?}");
        assert!([None, Some(first)].contains(&found[1]), "{found:?}");
        assert!(found[0].is_none() || found[1].is_some(), "{found:?}");
        assert_eq!(stretches.pfn_of(second), behind);
    });
}
