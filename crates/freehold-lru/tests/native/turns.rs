//! Who pays when memory is reclaimed: groups bear in proportion to their size, however much is
//! reclaimed at a time.

use crate::common::{TestPlatform, run_on};
use crate::room::Room;
use crate::rooms::{ROOT, count, pfn};
use crate::shelf::Shelf;
use freehold::{Config, MemoryRange, NodeId};
use freehold_lru::{GroupId, Kind, LruSettings, Scope};

type Lru = Room<TestPlatform, Shelf>;

/// An LRU of so many slots and nodes, with groups of these sizes: their frames lie side by side on
/// each node.
fn with_groups(slots: u32, nodes: u16, sizes: &[u64]) -> (Lru, Vec<GroupId>) {
    run_on(0);
    let all = sizes.iter().sum::<u64>();
    let ranges: Vec<_> = (0..nodes)
        .map(|node| {
            let start = pfn(u64::from(node) * all.next_multiple_of(1024));
            MemoryRange::new(start, count(all)).on_node(NodeId::new(node))
        })
        .collect();
    let cpus = [NodeId::new(0)];
    let settings = LruSettings::default().groups(slots);
    let config = Config::new(&ranges, &cpus);
    let lru = Lru::new(TestPlatform, &config, &settings, Shelf::default());
    let make = |_| lru.create_group(ROOT, None).expect("there is a slot");
    let groups: Vec<_> = sizes.iter().map(make).collect();
    for range in &ranges {
        let mut at = range.start;
        for (&group, &size) in groups.iter().zip(sizes) {
            for _ in 0..size {
                lru.add(at, group, Kind::File).expect("it is memory");
                lru.owner().contents().index.insert(at, at.get());
                at += count(1);
            }
        }
    }
    lru.drain_all();
    (lru, groups)
}

fn charged(lru: &Lru, groups: &[GroupId]) -> Vec<u64> {
    lru.drain_all();
    groups.iter().map(|&group| lru.group_stats(group).unwrap().charged.get()).collect()
}

/// Reclaims until a tenth of the frames is gone, and checks what each group has paid.
fn check_shares(slots: u32, nodes: u16, sizes: &[u64], at_a_time: u64) {
    let (lru, groups) = with_groups(slots, nodes, sizes);
    let before = charged(&lru, &groups);
    let all = before.iter().sum::<u64>();
    for _ in 0..all / 10 / at_a_time {
        lru.reclaim(Scope::All, count(at_a_time)).unwrap();
    }
    let after = charged(&lru, &groups);
    let paid: Vec<_> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    let total = paid.iter().sum::<u64>();
    let nodes_paid = |node: u64| {
        let released = lru.owner().contents().released.clone();
        let start = node * (all / u64::from(nodes)).next_multiple_of(1024);
        let of_node = start..start + all / u64::from(nodes);
        released.iter().filter(|pfn| of_node.contains(&pfn.get())).count() as f64
    };
    for (paid, before) in paid.iter().zip(&before) {
        let fair = total as f64 * *before as f64 / all as f64;
        // A tenth, and what is rounded.
        let most = fair / 10.0 + 3.0;
        let off = (*paid as f64 - fair).abs();
        assert!(off <= most, "{paid} of {before}, {fair} is fair: {sizes:?}, {at_a_time} a time");
    }
    for node in 0..u64::from(nodes) {
        let fair = total as f64 / f64::from(nodes);
        let off = (nodes_paid(node) - fair).abs();
        assert!(off <= fair / 10.0 + 100.0, "node {node}: {}", nodes_paid(node));
    }
    lru.check();
}

#[test]
fn equal_groups_pay_alike_wherever_they_are() {
    for at_a_time in [1, 7, 31, 100, 1000] {
        for (slots, nodes) in [(5, 1), (64, 1), (64, 2)] {
            check_shares(slots, nodes, &[8000; 4], at_a_time);
        }
    }
}

#[test]
fn groups_pay_in_proportion_to_their_size() {
    for at_a_time in [1, 31, 200] {
        check_shares(64, 1, &[100, 1000, 3000, 28_000], at_a_time);
        check_shares(16, 1, &[20_000, 1, 5000, 0, 5000, 300], at_a_time);
        check_shares(16, 2, &[12_000, 600, 3000], at_a_time);
    }
}

#[test]
fn many_groups_pay_alike() {
    for (slots, nodes) in [(64, 1), (300, 2)] {
        for at_a_time in [1, 31, 500] {
            check_shares(slots, nodes, &[1000; 63], at_a_time);
        }
    }
    check_shares(1000, 1, &[50; 900], 31);
}

/// The turn of a group that is removed goes to the next one.
#[test]
fn groups_that_come_and_go_take_no_turns_of_others() {
    let (lru, groups) = with_groups(64, 1, &[5000; 4]);
    let before = charged(&lru, &groups);
    for _ in 0..300 {
        // A new group is the first one in a walk.
        let guest = lru.create_group(ROOT, None).unwrap();
        lru.reclaim(Scope::All, count(5)).unwrap();
        lru.remove_group(guest).unwrap();
        lru.reclaim(Scope::All, count(5)).unwrap();
    }
    let after = charged(&lru, &groups);
    for (before, after) in before.iter().zip(&after) {
        assert!((before - after).abs_diff(750) <= 75, "{} of 3000", before - after);
    }
    lru.check();
}

/// A group at its limit reclaims from itself, which takes no turn of others.
#[test]
fn reclaim_within_a_group_takes_no_turns_of_others() {
    let (lru, groups) = with_groups(64, 1, &[5000, 5000, 5000, 5000]);
    let before = charged(&lru, &groups);
    for _ in 0..600 {
        lru.reclaim(Scope::Group(groups[1]), count(1)).unwrap();
        lru.reclaim(Scope::All, count(3)).unwrap();
    }
    let after = charged(&lru, &groups);
    let paid: Vec<_> = before.iter().zip(&after).map(|(before, after)| before - after).collect();
    assert_eq!(paid.iter().sum::<u64>(), 600 * 4);
    for (nth, &paid) in paid.iter().enumerate() {
        let expected = if nth == 1 { 600 + 450 } else { 450 };
        assert!(paid.abs_diff(expected) < 100, "{nth}: {paid}, not {expected}");
    }
}
