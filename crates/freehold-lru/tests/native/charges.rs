//! What CPUs charge ahead: a small part of a limit, and never in anyone's way.

use crate::common::{TestPlatform, run_on};
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn, room};
use crate::shelf::Shelf;
use freehold::FrameCount;
use freehold_lru::{GroupId, Kind, LruError, LruSettings};

type Lru = Room<TestPlatform, Shelf>;

/// An LRU on a machine of so many CPUs, with more frames than any limit here.
fn with_cpus(cpus: u32) -> Lru {
    room(20_000, cpus as usize, &LruSettings::default(), Shelf::default())
}

/// Adds a frame to the group, which may reclaim others.
fn cache(lru: &Lru, group: GroupId, frame: u64) {
    lru.add_reclaiming(pfn(frame), group, Kind::File).expect("there is room, or content to go");
    lru.owner().contents().index.insert(pfn(frame), frame);
}

fn is_cached(lru: &Lru, frame: u64) -> bool {
    lru.owner().contents().index.contains_key(&pfn(frame))
}

/// Each CPU adds a frame; then the first works alone, with half of the limit.
#[test]
fn idle_cpus_take_nothing_from_a_working_set_of_half_the_limit() {
    for (cpus, limit) in [(1, 100), (4, 100), (8, 100), (16, 500), (64, 1000), (112, 4096)] {
        let lru = with_cpus(cpus);
        let group = lru.create_group(ROOT, Some(count(limit))).unwrap();
        for cpu in 0..cpus {
            run_on(cpu);
            cache(&lru, group, 10_000 + u64::from(cpu));
        }
        run_on(0);
        (0..limit / 2).for_each(|frame| cache(&lru, group, frame));
        assert_eq!(lru.owner().take_released(), [], "{cpus} CPUs, a limit of {limit}");
        assert!((0..limit / 2).all(|frame| is_cached(&lru, frame)));
        lru.check();
    }
}

/// All CPUs work on half of the limit, each with what comes.
#[test]
fn a_working_set_of_all_cpus_stays() {
    for (cpus, limit) in [(2, 100), (16, 100), (64, 500), (112, 2000), (112, 4096)] {
        let lru = with_cpus(cpus);
        let group = lru.create_group(ROOT, Some(count(limit))).unwrap();
        for turn in 0..20 {
            for frame in 0..limit / 2 {
                // Consecutive frames come from distant CPUs, other ones in every turn.
                run_on(((frame + turn) * 7919 % u64::from(cpus)) as u32);
                if !is_cached(&lru, frame) {
                    cache(&lru, group, frame);
                }
            }
        }
        run_on(0);
        assert_eq!(lru.owner().take_released(), [], "{cpus} CPUs, a limit of {limit}");
        lru.check();
    }
}

#[test]
fn a_group_may_have_all_of_its_limit() {
    let lru = with_cpus(8);
    let parent = lru.create_group(ROOT, Some(count(4000))).unwrap();
    let [one, two] = [None, Some(count(3900))].map(|most| lru.create_group(parent, most).unwrap());
    let mut frames = 0..;
    let mut add = |group, cpu| {
        run_on(cpu);
        lru.add(pfn(frames.next().unwrap()), group, Kind::File)
    };
    for cpu in 0..8 {
        add(two, cpu).unwrap();
    }
    run_on(0);
    let ahead = lru.check().stocked.get();
    assert!((8..=2 * 4000 / 32 * 3).contains(&ahead), "{ahead} are charged ahead");
    // What CPUs have charged ahead for its neighbour is no refusal to a group.
    (8..4000).for_each(|_| add(one, 0).unwrap());
    assert_eq!(add(one, 1), Err(LruError::GroupLimit(parent)));
    assert_eq!(add(two, 1), Err(LruError::GroupLimit(parent)));
    assert_eq!(lru.group_stats(parent).unwrap().charged, count(4000));
    assert_eq!(lru.check().stocked, FrameCount::ZERO, "at a limit, none charges ahead");
    // Nor is what comes back kept by the CPU that it comes back to.
    for frame in 0..8 {
        lru.put(pfn(frame)).unwrap();
    }
    lru.drain_all();
    assert_eq!(lru.check().stocked, FrameCount::ZERO);
    assert_eq!(lru.group_stats(two).unwrap().charged, FrameCount::ZERO);
}

#[test]
fn what_is_charged_ahead_is_used_before_anything_goes() {
    let lru = with_cpus(8);
    let parent = lru.create_group(ROOT, Some(count(4000))).unwrap();
    let [one, two] = [(); 2].map(|()| lru.create_group(parent, None).unwrap());
    for cpu in 0..8 {
        run_on(cpu);
        cache(&lru, two, cpu.into());
    }
    run_on(0);
    assert!(lru.check().stocked.get() >= 8);
    (8..4000).for_each(|frame| cache(&lru, one, frame));
    assert_eq!(lru.owner().take_released(), []);
    cache(&lru, one, 4000);
    assert!(!lru.owner().take_released().is_empty(), "now the limit is reached");
}

#[test]
fn what_is_charged_ahead_is_a_small_part_of_a_limit() {
    for (cpus, limit) in [(2, 200), (16, 1000), (64, 4096), (112, 16_000)] {
        let lru = with_cpus(cpus);
        let group = lru.create_group(ROOT, Some(count(limit))).unwrap();
        for cpu in 0..cpus {
            run_on(cpu);
            lru.add(pfn(cpu.into()), group, Kind::File).unwrap();
        }
        run_on(0);
        let ahead = lru.check().stocked.get();
        assert!(ahead > 0 && ahead <= limit / 5, "{ahead} of {limit} for {cpus} CPUs");
    }
}
