//! What the designs do without the zone lock, under loom: queues of frames on their way home, owners
//! that change meanwhile, and clusters that are cut off while others walk the frames.
//!
//! As in `seam_loom.rs`, all interleavings with a few preemptions, and all values that the memory
//! orderings allow a load to see; `LOOM_MAX_PREEMPTIONS` looks further.

#[path = "common/loom_platform.rs"]
mod loom_platform;
#[path = "common/machine.rs"]
mod machine;

use freehold::MigrateType::Unmovable;
use freehold::designs::block_owner::{OwnerOptions, Remote};
use freehold::designs::cluster::ClusterOptions;
use freehold::designs::{BlockOwner, Cluster, Design, MergeAhead, Pcp, ZonedSettings};
use freehold::{
    Census, Config, CpuId, Error, FrameCount, MemoryRange, NodeId, Order, Pfn, Request,
};
use loom::sync::Arc;
use loom::thread;
use loom_platform::{LoomPlatform, run_on};
use machine::Machine;

type Sound = LoomPlatform<true, true>;

/// Explores `model` with up to so many preemptions.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(model);
}

/// So many frames from the first on, and so many CPUs.
fn build<D: Design<Sound>>(
    frames: u64,
    cpus: usize,
    settings: &D::Settings,
) -> Arc<Machine<Sound, D>> {
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
    let cpus = vec![NodeId::new(0); cpus];
    let config = Config { min_free: Some(FrameCount::ZERO), ..Config::new(&ranges, &cpus) };
    Arc::new(Machine::new(LoomPlatform, &config, settings))
}

/// Runs `other` on another CPU.
fn on_cpu<D: Design<Sound> + Send + Sync + 'static, R: 'static>(
    machine: &Arc<Machine<Sound, D>>,
    cpu: u32,
    other: impl FnOnce(&Machine<Sound, D>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let machine = Arc::clone(machine);
    thread::spawn(move || {
        run_on(cpu);
        other(&machine)
    })
}

fn check<D: Design<Sound>>(machine: &Machine<Sound, D>) -> Census {
    machine.validate().unwrap_or_else(|violation| panic!("{violation}"))
}

/// Checks that after a drain nothing is held and nothing is lost.
fn check_whole<D: Design<Sound>>(machine: &Machine<Sound, D>) {
    machine.drain_all();
    let census = check(machine);
    assert_eq!((census.free, census.per_cpu), (census.managed, FrameCount::ZERO));
    let events = machine.events();
    assert_eq!(events.allocated, events.freed);
}

fn frame() -> Request {
    Request::new(Order::ZERO)
}

fn free<D: Design<Sound>>(machine: &Machine<Sound, D>, frame: Pfn) {
    machine.free(frame, Order::ZERO).expect("it is held");
}

/// One pageblock, which CPU 0 comes to own, and so many frames of it in a user's hands.
fn owned<const FRAMES: usize>(
    cpus: usize,
    remote: Remote,
) -> (Arc<Machine<Sound, BlockOwner<Sound>>>, [Pfn; FRAMES]) {
    let own = OwnerOptions { remote };
    let settings = ZonedSettings { pcp: Pcp::Fixed, batch: 512, high: 1024, own };
    let machine = build::<BlockOwner<Sound>>(512, cpus, &settings);
    let frames = [(); FRAMES].map(|()| machine.alloc(frame()).expect("memory is free"));
    (machine, frames)
}

const QUEUE: Remote = Remote::Queue;

/// A push publishes the link and the mark of its frame with a release, which the taking of the
/// whole chain acquires: the owner finds frames that are whole, or finds them later.
#[test]
fn a_frame_is_queued_while_the_owner_absorbs() {
    explore(2, || {
        let (machine, [frame]) = owned(2, QUEUE);
        let other = on_cpu(&machine, 1, move |machine| free(machine, frame));
        machine.drain(CpuId::new(0)).expect("the CPU exists");
        other.join().expect("well");
        check_whole(&machine);
    });
}

/// Two pushes and a taking: a push that fails looks again, and a push on top of another one
/// continues its release, so that the whole chain is visible to whoever takes it.
#[test]
fn two_cpus_queue_frames_while_the_owner_absorbs() {
    explore(1, || {
        let (machine, [first, second]) = owned(3, QUEUE);
        let one = on_cpu(&machine, 1, move |machine| free(machine, first));
        let two = on_cpu(&machine, 2, move |machine| free(machine, second));
        machine.tick(CpuId::new(0)).expect("the CPU exists");
        one.join().expect("well");
        two.join().expect("well");
        check_whole(&machine);
    });
}

/// A third CPU drains the owner's lists, and with them its queue, while frames still come: each is
/// either taken along or stays for the next.
#[test]
fn a_queue_is_drained_by_another_cpu() {
    explore(1, || {
        let (machine, [first, second]) = owned(3, QUEUE);
        let one = on_cpu(&machine, 1, move |machine| {
            free(machine, first);
            free(machine, second);
        });
        let two = on_cpu(&machine, 2, |machine| machine.drain_all());
        one.join().expect("well");
        two.join().expect("well");
        check_whole(&machine);
    });
}

/// The queue is walked under the owner's lock while others push to it: by reports and by the check
/// of the books, which read the chain with an acquire.
#[test]
fn a_queue_is_counted_while_it_grows() {
    explore(1, || {
        let (machine, [frame]) = owned(2, QUEUE);
        let other = on_cpu(&machine, 1, move |machine| free(machine, frame));
        let census = check(&machine);
        assert_eq!(census.free + census.per_cpu + census.allocated, census.managed);
        assert!(machine.events().freed.get() <= 1);
        other.join().expect("well");
        assert_eq!(machine.zones().map(|zone| zone.per_cpu).sum::<FrameCount>().get(), 512);
        check_whole(&machine);
    });
}

/// A frame on a queue is free: the second of two frees of it is an error, whoever is first.
#[test]
fn of_two_frees_of_an_owned_frame_one_succeeds() {
    for remote in [QUEUE, Remote::TryLock] {
        explore(2, move || {
            let (machine, [frame]) = owned(3, remote);
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
}

/// The owner's ownership ends, by going offline, while a free that saw it is on its way: the frame
/// comes to the former owner's lists or queue, where a later drain finds it, as an ordinary one.
#[test]
fn an_owner_goes_offline_while_a_frame_comes_home() {
    for remote in [QUEUE, Remote::TryLock] {
        explore(2, move || {
            let (machine, [frame]) = owned(2, remote);
            let other = on_cpu(&machine, 1, move |machine| free(machine, frame));
            machine.offline_cpu(CpuId::new(0)).expect("the CPU exists");
            other.join().expect("well");
            check_whole(&machine);
        });
    }
}

/// The zone completes the block, which ends its ownership, while another CPU frees the last frame
/// but one; and a third CPU may take the whole block and own it next.
#[test]
fn a_block_changes_its_owner_while_a_frame_comes_home() {
    for remote in [QUEUE, Remote::TryLock] {
        explore(1, move || {
            let (machine, [first, second]) = owned(3, remote);
            let one = on_cpu(&machine, 1, move |machine| free(machine, first));
            let two = on_cpu(&machine, 2, |machine| {
                machine.alloc(frame()).map(|frame| free(machine, frame))
            });
            free(&machine, second);
            machine.drain(CpuId::new(0)).expect("the CPU exists");
            one.join().expect("well");
            let _ = two.join().expect("well");
            check_whole(&machine);
        });
    }
}

/// The block is claimed for another type, which ends its ownership, while a frame of it comes home.
#[test]
fn a_block_is_claimed_while_a_frame_comes_home() {
    for remote in [QUEUE, Remote::TryLock] {
        explore(1, move || {
            let (machine, [frame]) = owned(2, remote);
            // What the owner has not handed out goes to the zone, where the other type finds it.
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
}

/// Frames of one pageblock, single and unmerged in the zone, in clusters of up to two, and so many
/// of them in a user's hands.
fn clustered<const HELD: usize>(frames: u64) -> (Arc<Machine<Sound, Cluster<Sound>>>, [Pfn; HELD]) {
    let own = ClusterOptions::default();
    let settings = ZonedSettings { pcp: Pcp::Fixed, batch: 2, high: 2, own };
    let machine = build::<Cluster<Sound>>(frames, 2, &settings);
    let all: Vec<_> = (0..frames).map(|_| machine.alloc(frame()).expect("free")).collect();
    let (held, back) = all.split_at(HELD);
    back.iter().for_each(|&frame| free(&machine, frame));
    machine.drain_all();
    (machine, held.try_into().expect("as many as asked for"))
}

/// A refill cuts off a cluster and marks its frames after it has dropped the zone lock. A walk over
/// the frames forbids new ones and waits for those under way: the end of a refill releases its
/// marks, which the wait acquires, so the walk sees no frame that looks free and is not.
#[test]
fn a_walk_waits_for_a_refill_in_progress() {
    explore(2, || {
        let (machine, []) = clustered::<0>(4);
        let other = on_cpu(&machine, 1, |machine| machine.alloc(frame()).expect("memory is free"));
        let census = check(&machine);
        assert_eq!((census.free + census.per_cpu + census.allocated).get(), 4);
        free(&machine, other.join().expect("well"));
        check_whole(&machine);
    });
}

/// Two walks and a refill: the refill may only cut clusters once the last walk has ended.
#[test]
fn two_walks_and_a_refill() {
    explore(1, || {
        let (machine, []) = clustered::<0>(4);
        let walk = on_cpu(&machine, 1, |machine| check(machine));
        let other = on_cpu(&machine, 0, |machine| machine.alloc(frame()).expect("memory is free"));
        check(&machine);
        walk.join().expect("well");
        free(&machine, other.join().expect("well"));
        check_whole(&machine);
    });
}

/// A block is freed to the zone while a refill has the neighbouring frames on their way: what merges
/// first waits until no mark is stale. Here the walk of a check makes that frees merge at once.
#[test]
fn a_merge_waits_for_a_refill_in_progress() {
    explore(1, || {
        let (machine, [held]) = clustered::<1>(4);
        let refill = on_cpu(&machine, 1, |machine| machine.alloc(frame()).expect("free"));
        let walk = on_cpu(&machine, 1, |machine| check(machine));
        free(&machine, held);
        machine.drain(CpuId::new(0)).expect("the CPU exists");
        walk.join().expect("well");
        free(&machine, refill.join().expect("well"));
        check_whole(&machine);
    });
}

/// A request for another type takes over the pageblock, and with it all that looks free there, while
/// a refill has frames of it on their way: it waits for the refill with the zone lock held, which
/// the refill does not need any more.
#[test]
fn a_conversion_waits_for_a_refill_in_progress() {
    explore(2, || {
        let (machine, []) = clustered::<0>(4);
        let refill = on_cpu(&machine, 1, |machine| machine.alloc(frame()));
        let other = machine.alloc(frame().migratetype(Unmovable));
        for block in [refill.join().expect("well"), other].into_iter().flatten() {
            free(&machine, block);
        }
        check_whole(&machine);
    });
}

/// A drain of one type looks at the types of its frames before it locks the zone; if the pageblock
/// changes its type meanwhile, it sees the count of changes move and goes the ordinary way.
#[test]
fn a_drain_as_a_cluster_meets_a_conversion() {
    explore(2, || {
        let (machine, held) = clustered::<2>(4);
        let other = on_cpu(&machine, 1, |machine| machine.alloc(frame().migratetype(Unmovable)));
        held.iter().for_each(|&frame| free(&machine, frame));
        if let Ok(frame) = other.join().expect("well") {
            free(&machine, frame);
        }
        check_whole(&machine);
    });
}

/// A CPU merges its own frames without the zone lock, while the buddy of one of them is on another
/// CPU's list or on its way there: it recognises its own by their marks and touches no others.
#[test]
fn frames_are_merged_ahead_beside_those_of_another_cpu() {
    explore(1, || {
        let settings = ZonedSettings { pcp: Pcp::Fixed, batch: 2, high: 2, ..Default::default() };
        let machine = build::<MergeAhead<Sound>>(4, 2, &settings);
        let frames = [(); 4].map(|()| machine.alloc(frame()).expect("memory is free"));
        let other = on_cpu(&machine, 1, move |machine| {
            free(machine, frames[1]);
            free(machine, frames[3]);
        });
        free(&machine, frames[0]);
        free(&machine, frames[2]);
        other.join().expect("well");
        check_whole(&machine);
        assert_eq!(machine.zones().next().expect("one zone").free_blocks[2], 1);
    });
}
