//! The policies against naive models and against what is known about them.

use crate::policy::arc::Arc;
use crate::policy::clock::Clock;
use crate::policy::lirs::Lirs;
use crate::policy::lru::Lru;
use crate::policy::ours::Ours;
use crate::policy::s3_fifo::S3Fifo;
use crate::policy::two_q::TwoQ;
use crate::policy::{Policy, opt};
use crate::rng::{Rng, Zipf};
use freehold_lru::LruPolicy;

fn skewed(count: usize, seed: u64) -> Vec<u32> {
    let (zipf, mut rng) = (Zipf::new(60, 0.8), Rng(seed));
    (0..count).map(|_| zipf.draw(&mut rng) as u32).collect()
}

fn hits(policy: &mut dyn Policy, keys: &[u32]) -> Vec<bool> {
    keys.iter().map(|&key| policy.access(key.into())).collect()
}

fn count(hits: &[bool]) -> usize {
    hits.iter().filter(|&&hit| hit).count()
}

fn online(capacity: usize) -> Vec<Box<dyn Policy>> {
    vec![
        Box::new(Lru::new(capacity)),
        Box::new(Clock::new(capacity)),
        Box::new(TwoQ::new(capacity)),
        Box::new(S3Fifo::new(capacity)),
        Box::new(Arc::new(capacity)),
        Box::new(Lirs::new(capacity)),
        Box::new(Ours::new(capacity, LruPolicy::TwoLists)),
        Box::new(Ours::new(capacity, LruPolicy::ScanResistant)),
    ]
}

#[test]
fn lru_hits_iff_the_distance_is_below_the_capacity() {
    let keys = skewed(5000, 1);
    let naive = |at: usize| {
        let before = keys[..at].iter().rposition(|&key| key == keys[at]);
        before.is_some_and(|before| {
            let mut between = keys[before + 1..at].to_vec();
            between.sort_unstable();
            between.dedup();
            between.len() < 16
        })
    };
    let expected: Vec<bool> = (0..keys.len()).map(naive).collect();
    assert_eq!(hits(&mut Lru::new(16), &keys), expected);
}

#[test]
fn clock_is_as_an_array_with_a_hand() {
    let keys = skewed(5000, 2);
    let (mut slots, mut hand) = (Vec::<(u32, bool)>::new(), 0);
    let naive = |&key: &u32| {
        if let Some(slot) = slots.iter_mut().find(|slot| slot.0 == key) {
            slot.1 = true;
            return true;
        }
        if slots.len() < 16 {
            slots.push((key, false));
            return false;
        }
        while std::mem::take(&mut slots[hand].1) {
            hand = (hand + 1) % 16;
        }
        slots[hand] = (key, false);
        hand = (hand + 1) % 16;
        false
    };
    let expected: Vec<bool> = keys.iter().map(naive).collect();
    assert_eq!(hits(&mut Clock::new(16), &keys), expected);
}

#[test]
fn two_q_is_as_three_vectors() {
    let keys = skewed(5000, 3);
    let [mut first, mut out, mut main] = [const { Vec::<u32>::new() }; 3];
    let naive = |&key: &u32| {
        if let Some(at) = main.iter().position(|&other| other == key) {
            main.remove(at);
            main.push(key);
            return true;
        }
        if first.contains(&key) {
            return true;
        }
        let was_out = out.contains(&key);
        out.retain(|&other| other != key);
        if first.len() + main.len() == 16 {
            if first.len() > 4 {
                out.push(first.remove(0));
                let over = out.len().saturating_sub(8);
                out.drain(..over);
            } else {
                main.remove(0);
            }
        }
        if was_out {
            main.push(key)
        } else {
            first.push(key)
        }
        false
    };
    let expected: Vec<bool> = keys.iter().map(naive).collect();
    assert_eq!(hits(&mut TwoQ::new(16), &keys), expected);
}

#[test]
fn opt_is_the_best_of_all_choices() {
    /// The most hits from here, whichever key is evicted.
    fn best(keys: &[u32], cached: &[u32], capacity: usize) -> usize {
        let Some((&key, rest)) = keys.split_first() else { return 0 };
        if cached.contains(&key) {
            return 1 + best(rest, cached, capacity);
        }
        let with = |others: &[u32]| best(rest, &[others, &[key]].concat(), capacity);
        if cached.len() < capacity {
            return with(cached);
        }
        let without = |at: usize| [&cached[..at], &cached[at + 1..]].concat();
        (0..cached.len()).map(|at| with(&without(at))).max().unwrap_or(0)
    }
    for seed in 0..50 {
        let mut rng = Rng(seed);
        let keys: Vec<u32> = (0..14).map(|_| rng.below(6) as u32).collect();
        assert_eq!(count(&opt::hits(&keys, 3)), best(&keys, &[], 3), "{keys:?}");
    }
}

#[test]
fn opt_hits_as_computed_on_a_loop() {
    // Each round but the first misses all but `capacity - 1` of the others.
    let keys: Vec<u32> = (0..110 * 1000).map(|at| at % 110).collect();
    let ratio = count(&opt::hits(&keys, 100)) as f64 / keys.len() as f64;
    assert!((ratio - 99.0 / 109.0).abs() < 0.002, "{ratio}");
}

#[test]
fn none_beats_opt_and_what_fits_stays() {
    for seed in 0..20 {
        let keys = skewed(4000, seed);
        for capacity in [12, 25, 40] {
            let most = count(&opt::hits(&keys, capacity));
            for (nth, mut policy) in online(capacity).into_iter().enumerate() {
                assert!(count(&hits(&mut *policy, &keys)) <= most, "{nth} {capacity} {seed}");
            }
        }
        for (nth, mut policy) in online(60).into_iter().enumerate() {
            let distinct = keys.iter().collect::<std::collections::HashSet<_>>().len();
            assert_eq!(count(&hits(&mut *policy, &keys)), keys.len() - distinct, "{nth}");
        }
    }
}

#[test]
fn known_on_loops() {
    let keys: Vec<u32> = (0..110 * 1000).map(|at| at % 110).collect();
    let ratio = |policy: &mut dyn Policy| count(&hits(policy, &keys)) * 100 / keys.len();
    assert_eq!([ratio(&mut Lru::new(100)), ratio(&mut Clock::new(100))], [0; 2]);
    // As many are hot as fit, less the two frames for the others.
    assert_eq!(ratio(&mut Lirs::new(100)), 89);
}
