//! What the designs do without the zone lock, under loom: owners that change while frames return to
//! them, and clusters that are cut off while other threads walk the frames.
//!
//! As in `seam_loom.rs`, all interleavings with a few preemptions, and all values that the memory
//! orderings allow a load to see; `LOOM_MAX_PREEMPTIONS` explores further.
//!
//! Of several loads before a write, loom remembers only the last, and so would miss that the write
//! could have come before the others. Therefore the writing thread is the one that runs first.

use crate::freehold_models::frame;
use crate::loom_platform::{LoomPlatform, run_on};
use crate::loom_runs::explore;
use crate::loom_threads::on_cpu;
use crate::machine::Machine;
use freehold::MigrateType::Unmovable;
use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::{
    Census, Config, CpuId, Error, FrameCount, Immovable, MemoryRange, NodeId, Order, Pfn,
    RangeRequest, Request,
};
use freehold_linux::cluster::ClusterOptions;
use freehold_linux::{BlockOwner, Cluster, LazyMerge, MergeAhead, OwnSettings, Pcp, ZonedSettings};
use loom::sync::Arc;

type Sound = LoomPlatform;
/// A platform where a compare-exchange may be a load and a store, or words may order nothing.
type Broken<const ATOMIC: bool, const ACQUIRES: bool> = LoomPlatform<true, ATOMIC, ACQUIRES>;

/// So many frames from the first on, and so many CPUs.
pub(crate) fn build<P: Platform + Default, D: Design<P>>(
    frames: u64,
    cpus: usize,
    settings: &D::Settings,
) -> Arc<Machine<P, D>> {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
    let cpus = vec![NodeId::new(0); cpus];
    let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO);
    Arc::new(Machine::new(P::default(), &config, settings))
}

pub(crate) fn check<P: Platform, D: Design<P>>(machine: &Machine<P, D>) -> Census {
    machine.validate().unwrap_or_else(|violation| panic!("{violation}"))
}

/// Checks that after a drain nothing is held and nothing is lost.
pub(crate) fn check_whole<P: Platform, D: Design<P>>(machine: &Machine<P, D>) {
    machine.drain_all();
    let census = check(machine);
    assert_eq!((census.free, census.per_cpu), (census.managed, FrameCount::ZERO));
    let events = machine.events();
    assert_eq!(events.allocated, events.freed);
}

fn free<P: Platform, D: Design<P>>(machine: &Machine<P, D>, frame: Pfn) {
    machine.free(frame, Order::ZERO).expect("it is held");
}

/// One pageblock, which CPU 0 comes to own, and so many allocated frames of it.
fn owned<P: Platform + Default, const FRAMES: usize>(
    cpus: usize,
) -> (Arc<Machine<P, BlockOwner<P>>>, [Pfn; FRAMES]) {
    let settings = ZonedSettings { pcp: Pcp::Fixed, batch: 512, high: 1024, ..Default::default() };
    let machine = build::<P, BlockOwner<P>>(512, cpus, &settings);
    let mut frames = [Pfn::default(); FRAMES];
    assert_eq!(machine.alloc_bulk(frame(), &mut frames), Ok(FRAMES));
    (machine, frames)
}

/// A frame on its owner's lists is free: the second of two frees of it is an error, whichever is
/// first.
#[test]
fn of_two_frees_of_an_owned_frame_one_succeeds() {
    explore(3, move || {
        let (machine, [frame]) = owned::<Sound, _>(3);
        let other = on_cpu(&machine, 1, move |machine| machine.free(frame, Order::ZERO));
        let mine = machine.free(frame, Order::ZERO);
        let other = other.join().expect("well");
        let expected = [Ok(()), Err(Error::DoubleFree)];
        assert!([mine, other] == expected || [other, mine] == expected, "{mine:?}, {other:?}");
        let refused = machine.free(frame, Order::ZERO);
        assert_eq!(refused, Err(Error::DoubleFree));
        check_whole(&machine);
    });
}

/// Ownership ends, by going offline, while a free that saw the owner is on its way: the frame
/// reaches the former owner's lists as an ordinary one, where a later drain finds it.
#[test]
fn an_owner_goes_offline_while_a_frame_comes_home() {
    explore(1, move || {
        let (machine, [frame]) = owned::<Sound, _>(2);
        let owner = on_cpu(&machine, 0, |machine| machine.offline_cpu(CpuId::new(0)));
        run_on(1);
        free(&machine, frame);
        owner.join().expect("well").expect("the CPU exists");
        check_whole(&machine);
    });
}

/// The zone completes the block, which ends its ownership, while another CPU frees the last frame
/// but one; and a third CPU may take the whole block and own it next.
#[test]
fn a_block_changes_its_owner_while_a_frame_comes_home() {
    explore(1, move || {
        let (machine, [first, second]) = owned::<Sound, _>(3);
        let one = on_cpu(&machine, 1, move |machine| free(machine, first));
        let two =
            on_cpu(&machine, 2, |machine| machine.alloc(frame()).map(|frame| free(machine, frame)));
        free(&machine, second);
        machine.drain(CpuId::new(0)).expect("the CPU exists");
        one.join().expect("well");
        let _ = two.join().expect("well");
        check_whole(&machine);
    });
}

/// The block is claimed for another type, which ends its ownership, while a frame of it returns.
#[test]
fn a_block_is_claimed_while_a_frame_comes_home() {
    explore(3, move || {
        let (machine, [frame]) = owned::<Sound, _>(2);
        // What the owner has not allocated goes to the zone, where the other type finds it.
        machine.drain(CpuId::new(0)).expect("the CPU exists");
        let other = on_cpu(&machine, 1, move |machine| {
            machine.alloc(Request::new(Order::new(8)).migratetype(Unmovable))
        });
        free(&machine, frame);
        let block = other.join().expect("well").expect("memory is free");
        machine.free(block, Order::new(8)).expect("it is held");
        check_whole(&machine);
    });
}

/// Frames of one pageblock, single and unmerged in the zone, in clusters of up to two, and so many
/// of them allocated.
fn clustered<P: Platform + Default, const HELD: usize>(
    frames: u64,
) -> (Arc<Machine<P, Cluster<P>>>, [Pfn; HELD]) {
    let own = ClusterOptions::default();
    let settings = ZonedSettings { pcp: Pcp::Fixed, batch: 2, high: 2, own, ..Default::default() };
    let machine = build::<P, Cluster<P>>(frames, 2, &settings);
    let all: Vec<_> = (0..frames).map(|_| machine.alloc(frame()).expect("free")).collect();
    let (held, back) = all.split_at(HELD);
    back.iter().for_each(|&frame| free(&machine, frame));
    machine.drain_all();
    (machine, held.try_into().expect("as many as asked for"))
}

/// A refill cuts off a cluster and marks its frames after it has dropped the zone lock. A walk over
/// the frames forbids new ones and waits for those under way, so that it sees no frame that looks
/// free and is not. The consistency check after it takes the locks of all lists, which alone would
/// suffice.
#[test]
fn a_walk_waits_for_a_refill_in_progress() {
    explore(3, || {
        let (machine, []) = clustered::<Sound, 0>(4);
        let walk = on_cpu(&machine, 1, |machine| {
            let census = check(machine);
            assert_eq!((census.free + census.per_cpu + census.allocated).get(), 4);
        });
        let block = machine.alloc(frame()).expect("memory is free");
        walk.join().expect("well");
        free(&machine, block);
        check_whole(&machine);
    });
}

/// Takes two frames side by side, if it can, and gives them back.
fn borrow_range<P: Platform, D: Design<P>>(machine: &Machine<P, D>) {
    let two = FrameCount::new(2);
    if let Ok(first) = machine.alloc_range(RangeRequest::new(two), &Immovable) {
        machine.free_range(first, two).expect("it was taken");
    }
}

/// The walk of a range takes free frames off the zone's lists: none that a refill has in transit,
/// which are on no list any more.
#[test]
fn a_range_waits_for_a_refill_in_progress() {
    explore(2, || {
        let (machine, []) = clustered::<Sound, 0>(4);
        let range = on_cpu(&machine, 1, borrow_range);
        let block = machine.alloc(frame());
        range.join().expect("well");
        block.into_iter().for_each(|frame| free(&machine, frame));
        check_whole(&machine);
    });
}

/// A compaction looks for what it can move, and for free frames to move it to, among those that a
/// refill has in transit.
#[test]
fn a_compaction_waits_for_a_refill_in_progress() {
    explore(2, || {
        let (machine, [held]) = clustered::<Sound, 1>(4);
        let compaction = on_cpu(&machine, 1, |machine| {
            // The content is in use for as long as it takes.
            machine.compact(&Immovable);
        });
        let block = machine.alloc(frame());
        compaction.join().expect("well");
        block.into_iter().for_each(|frame| free(&machine, frame));
        free(&machine, held);
        check_whole(&machine);
    });
}

/// Two walks and a refill: the refill may only cut clusters once the last walk has ended.
#[test]
fn two_walks_and_a_refill() {
    explore(1, || {
        let (machine, []) = clustered::<Sound, 0>(4);
        let walk = on_cpu(&machine, 1, check);
        let other = on_cpu(&machine, 0, |machine| machine.alloc(frame()).expect("memory is free"));
        check(&machine);
        walk.join().expect("well");
        free(&machine, other.join().expect("well"));
        check_whole(&machine);
    });
}

/// A block is freed to the zone while a refill has the neighbouring frames in transit: a merge
/// first waits until no mark is stale. Here the walk of a check makes frees merge at once.
#[test]
fn a_merge_waits_for_a_refill_in_progress() {
    explore(1, || {
        let (machine, [held]) = clustered::<Sound, 1>(4);
        let walk = on_cpu(&machine, 1, check);
        let merge = on_cpu(&machine, 1, move |machine| {
            free(machine, held);
            machine.drain(CpuId::new(1)).expect("the CPU exists");
        });
        let block = machine.alloc(frame()).expect("memory is free");
        walk.join().expect("well");
        merge.join().expect("well");
        free(&machine, block);
        check_whole(&machine);
    });
}

fn refill_against_a_conversion<const ATOMIC: bool, const ACQUIRES: bool>() {
    explore(3, || {
        let (machine, []) = clustered::<Broken<ATOMIC, ACQUIRES>, 0>(4);
        let claim = on_cpu(&machine, 1, |machine| machine.alloc(frame().migratetype(Unmovable)));
        let block = machine.alloc(frame());
        for block in [claim.join().expect("well"), block].into_iter().flatten() {
            free(&machine, block);
        }
        check_whole(&machine);
    });
}

/// A request for another type takes over the pageblock, and with it all that looks free there,
/// while a refill has frames of it in transit. It waits for the refill with the zone lock held,
/// which the refill no longer needs. The end of a refill releases its marks, and the wait acquires
/// them.
#[test]
fn a_conversion_waits_for_a_refill_in_progress() {
    refill_against_a_conversion::<true, true>();
}

/// The model above would notice a wait that orders nothing.
#[test]
#[should_panic]
fn a_wait_that_orders_nothing_is_caught() {
    refill_against_a_conversion::<true, false>();
}

/// A drain of one type reads the types of its frames before it locks the zone. If the pageblock
/// changes its type meanwhile, it sees the count of changes move and takes the ordinary path.
#[test]
fn a_drain_as_a_cluster_meets_a_conversion() {
    explore(2, || {
        let (machine, held) = clustered::<Sound, 2>(4);
        let other = on_cpu(&machine, 1, |machine| machine.alloc(frame().migratetype(Unmovable)));
        held.iter().for_each(|&frame| free(&machine, frame));
        if let Ok(frame) = other.join().expect("well") {
            free(&machine, frame);
        }
        check_whole(&machine);
    });
}

/// Two requests for as many pairs as four frames make that were left unmerged: each gets one. The
/// second passes by the pageblock that the first is merging, and comes back to what that left. In
/// `cluster`, whose walks bound how old the marks are that a request may see, and with it how many
/// mixtures of them there are to explore.
#[test]
fn two_requests_merge_late() {
    explore(1, || {
        let (machine, []) = clustered::<Sound, 0>(4);
        let pair = Request::new(Order::new(1));
        let other = on_cpu(&machine, 1, move |machine| machine.alloc(pair));
        let mine = machine.alloc(pair);
        let other = other.join().expect("well");
        for block in [mine, other] {
            machine.free(block.expect("there are two pairs"), Order::new(1)).expect("it is held");
        }
        check_whole(&machine);
    });
}

/// A frame is left unmerged while its pageblock is being merged, perhaps after the merge has looked
/// there: then the pageblock does not count as merged, and a later request finds the pair.
#[test]
fn a_frame_is_left_unmerged_behind_a_merge() {
    explore(2, || {
        let settings = ZonedSettings { pcp: Pcp::Fixed, batch: 2, high: 2, ..Default::default() };
        let machine = build::<Sound, LazyMerge<Sound>>(4, 2, &settings);
        let all: Vec<_> = (0..4).map(|_| machine.alloc(frame()).expect("free")).collect();
        let (held, kept) = (all[1], all[3]);
        [all[0], all[2]].into_iter().for_each(|frame| free(&machine, frame));
        machine.drain_all();
        let pair = Request::new(Order::new(1));
        let other = on_cpu(&machine, 1, move |machine| {
            free(machine, held);
            machine.drain(CpuId::new(1)).expect("the CPU exists");
        });
        let early = machine.alloc(pair);
        other.join().expect("well");
        let block = early.or_else(|_| machine.alloc(pair)).expect("the pair is free");
        machine.free(block, Order::new(1)).expect("it is held");
        free(&machine, kept);
        check_whole(&machine);
    });
}

/// A frame is freed a second time while its CPU merges it without the zone lock: it is not taken
/// for a part of the block before it. In the machine, frames 0 to 3 are allocated.
fn a_frame_is_freed_again_while_it_is_merged<D>(machine: fn() -> Arc<Machine<Sound, D>>)
where
    D: Design<Sound> + Send + Sync + 'static,
{
    explore(2, move || {
        let machine = machine();
        free(&machine, Pfn::new(2));
        free(&machine, Pfn::new(3));
        let other = on_cpu(&machine, 1, |machine| machine.free(Pfn::new(3), Order::ZERO));
        machine.drain(CpuId::new(0)).expect("the CPU exists");
        assert_eq!(other.join().expect("well"), Err(Error::DoubleFree));
        free(&machine, Pfn::new(0));
        free(&machine, Pfn::new(1));
        check_whole(&machine);
    });
}

/// Four frames, all allocated, and lists that hold more than that.
fn four_of<D, O: OwnSettings>() -> Arc<Machine<Sound, D>>
where
    D: Design<Sound, Settings = ZonedSettings<O>>,
{
    let settings = ZonedSettings { pcp: Pcp::Fixed, batch: 4, high: 8, ..Default::default() };
    let machine = build::<Sound, D>(4, 2, &settings);
    assert_eq!(machine.alloc_bulk(frame(), &mut [Pfn::default(); 4]), Ok(4));
    machine
}

#[test]
fn a_frame_is_freed_again_while_it_is_merged_ahead() {
    a_frame_is_freed_again_while_it_is_merged(four_of::<MergeAhead<Sound>, _>);
}

#[test]
fn a_frame_is_freed_again_while_its_owner_merges_it() {
    a_frame_is_freed_again_while_it_is_merged(|| owned::<Sound, 4>(2).0);
}

/// A CPU merges its own frames without the zone lock, while the buddy of one of them is on another
/// CPU's list or on its way there: it recognises its own by their marks and accesses no others.
/// In the machine, all four frames are allocated.
fn frames_are_merged_beside_those_of_another_cpu<D>(machine: fn() -> Arc<Machine<Sound, D>>)
where
    D: Design<Sound> + Send + Sync + 'static,
{
    explore(2, move || {
        let machine = machine();
        free(&machine, Pfn::new(0));
        free(&machine, Pfn::new(2));
        let merge = on_cpu(&machine, 0, |machine| machine.drain(CpuId::new(0)));
        run_on(1);
        free(&machine, Pfn::new(1));
        merge.join().expect("well").expect("the CPU exists");
        free(&machine, Pfn::new(3));
        check_whole(&machine);
        assert_eq!(machine.zones().next().expect("one zone").free_blocks[2], 1);
    });
}

#[test]
fn frames_are_merged_ahead_beside_those_of_another_cpu() {
    frames_are_merged_beside_those_of_another_cpu(four_of::<MergeAhead<Sound>, _>);
}

/// They are of no whole pageblock, so that no CPU owns them.
#[test]
fn owned_frames_are_told_apart_from_those_of_another_cpu() {
    frames_are_merged_beside_those_of_another_cpu(four_of::<BlockOwner<Sound>, _>);
}
