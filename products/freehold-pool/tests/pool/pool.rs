//! A pool on real memory: what users see, and what they do not.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use fastrand::Rng;
use freehold_pool::{ModuleKey, Pool, PoolBuilder, PoolError, Slot};

const PAGE: usize = 64 << 10;

fn small() -> PoolBuilder {
    let sizes = Pool::builder().slots(24).slot_bytes(8 * PAGE).guard_bytes(PAGE);
    sizes.max_unused_warm_slots(8).cpus(2)
}

/// Ways to set up a pool, each with others of the ways in which slots are reset.
fn variants() -> Vec<(&'static str, Pool)> {
    let build = |builder: PoolBuilder| builder.build().unwrap();
    vec![
        ("as it is", build(small())),
        ("no guard", build(small().guard_bytes(0).batch_slots(8))),
        ("resident", build(small().keep_resident_bytes(2 * PAGE))),
        ("all resident", build(small().keep_resident_bytes(8 * PAGE).batch_slots(4))),
        ("one by one", build(small().batch_slots(1).max_unused_warm_slots(0))),
        ("single calls", build(small().batch_slots(5).single_calls(true).guard_bytes(0))),
        ("crowded", build(small().max_accessible_slots(0).keep_resident_bytes(2 * PAGE))),
        ("many CPUs", build(small().cpus(7).max_unused_warm_slots(3))),
    ]
}

/// The byte with which users of a key fill what they touch.
fn pattern(key: u64) -> u8 {
    key as u8
}

fn assert_all(slot: &Slot<&Pool>, allowed: &[u8], what: &str) {
    let is_allowed = |byte: &u8| allowed.contains(byte);
    let at = slot.bytes().iter().position(|byte| !is_allowed(byte));
    assert_eq!(at.map(|at| (at, slot.bytes()[at])), None, "{what}: {slot:?}");
}

#[test]
fn no_user_sees_what_others_left() {
    for (name, pool) in variants() {
        std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| {
                let pool = &pool;
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(thread);
                    let mut held: Vec<(Slot<&Pool>, u64)> = Vec::new();
                    for round in 0..60 {
                        let number = rng.u64(0..6);
                        // No user of key 0 has one.
                        let key = (number > 0).then(|| ModuleKey::new(number));
                        let mut slot = pool.take(key).unwrap();
                        slot.set_accessible(slot.accessible_bytes().max(PAGE)).unwrap();
                        match slot.is_kept() {
                            true => assert_all(&slot, &[0, pattern(number)], name),
                            false => assert_all(&slot, &[0], name),
                        }
                        slot.set_accessible(rng.usize(1..9) * PAGE).unwrap();
                        match slot.is_kept() {
                            true => assert_all(&slot, &[0, pattern(number)], name),
                            false => assert_all(&slot, &[0], name),
                        }
                        if key.is_some() || round % 2 == 0 {
                            let bytes = slot.bytes_mut();
                            let from = rng.usize(..bytes.len());
                            bytes[from..].fill(if number > 0 { pattern(number) } else { 99 });
                        }
                        if rng.u8(..4) == 0 {
                            slot.set_accessible(rng.usize(0..3) * PAGE).unwrap();
                        }
                        held.push((slot, number));
                        while held.len() > 5 {
                            let (mut slot, _) = held.swap_remove(rng.usize(..held.len()));
                            match rng.u8(..3) {
                                0 => slot.keep(),
                                1 => {
                                    slot.reset().unwrap();
                                    assert_all(&slot, &[0], name);
                                    slot.keep();
                                }
                                _ => drop(slot),
                            }
                        }
                    }
                })
            });
            // ThreadSanitizer does not see that the end of a scope waits for them.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(pool.unused_slots(), 24, "{name}");
    }
}

#[test]
fn a_kept_slot_returns_to_its_key_as_it_was() {
    let pool = small().build().unwrap();
    let (one, other) = (ModuleKey::new(1), ModuleKey::new(2));
    let mut slot = pool.take(one).unwrap();
    assert!(!slot.is_warm());
    slot.grow(3 * PAGE).unwrap();
    slot.bytes_mut().fill(7);
    let index = slot.index();
    slot.keep();
    let stranger = pool.take(other).unwrap();
    assert_ne!(stranger.index(), index);
    assert!(!stranger.is_warm());
    let slot = pool.take(one).unwrap();
    assert_eq!((slot.index(), slot.is_warm(), slot.is_kept()), (index, true, true));
    assert_eq!(slot.bytes(), vec![7; 3 * PAGE]);
    assert_eq!(pool.stats().system_calls, 0);
}

#[test]
fn a_slot_that_is_all_resident_needs_no_system_call() {
    let pool = small().keep_resident_bytes(4 * PAGE).build().unwrap();
    for round in 0..100 {
        let mut slot = pool.take(ModuleKey::new(1)).unwrap();
        assert_eq!((slot.is_warm(), slot.is_kept()), (round > 0, false));
        slot.grow(4 * PAGE).unwrap();
        assert_all(&slot, &[0], "resident");
        slot.bytes_mut().fill(1);
    }
    let stats = pool.stats();
    assert_eq!((stats.system_calls, stats.batches, stats.taken), (0, 0, 100));
}

#[test]
fn slots_are_reset_in_batches_and_warm_for_their_key_after() {
    let pool = small().batch_slots(4).cpus(1).build().unwrap();
    let key = ModuleKey::new(5);
    let slots: Vec<_> = (0..4).map(|_| pool.take(key).unwrap()).collect();
    for mut slot in slots {
        slot.grow(2 * PAGE).unwrap();
        slot.bytes_mut().fill(1);
        assert_eq!(pool.stats().batches, 0);
    }
    let stats = pool.stats();
    assert_eq!((stats.batches, stats.reset_slots), (1, 4));
    assert_eq!((stats.warm_slots, stats.dirty_slots), (4, 0));
    assert_eq!(stats.slots_per_batch(), 4.0);
    assert_eq!(stats.system_calls, 1, "slots side by side are one stretch");
    let slot = pool.take(key).unwrap();
    assert_eq!((slot.is_warm(), slot.is_kept(), slot.accessible_bytes()), (true, false, 2 * PAGE));
    assert_all(&slot, &[0], "warm");
}

#[test]
fn all_slots_can_be_had_and_no_more() {
    for (name, pool) in variants() {
        // Some slots come to be warm, dirty and kept on each CPU.
        std::thread::scope(|scope| {
            let threads = [0, 1, 2, 3].map(|thread| {
                let pool = &pool;
                scope.spawn(move || {
                    for round in 0..20 {
                        let mut slot = pool.take(ModuleKey::new(thread)).unwrap();
                        slot.grow(PAGE).unwrap();
                        slot.bytes_mut()[0] = 1;
                        if round % 3 == 0 {
                            slot.keep();
                        }
                    }
                })
            });
            // ThreadSanitizer does not see that the end of a scope waits for them.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        let taken = AtomicUsize::new(0);
        let held: Vec<Vec<Slot<&Pool>>> = std::thread::scope(|scope| {
            let take_all = || {
                let mut held = Vec::new();
                while taken.fetch_add(1, Relaxed) < 24 {
                    held.push(pool.take(None).expect(name));
                }
                held
            };
            let threads = [scope.spawn(take_all), scope.spawn(take_all), scope.spawn(take_all)];
            threads.map(|thread| thread.join().unwrap()).into()
        });
        assert!(matches!(pool.take(None), Err(PoolError::Exhausted { slots: 24 })), "{name}");
        let mut indexes: Vec<u32> = held.iter().flatten().map(|slot| slot.index().get()).collect();
        indexes.sort_unstable();
        assert_eq!(indexes, (0..24).collect::<Vec<u32>>(), "{name}");
    }
}

/// The access that the kernel has noted for an address, such as `rw-p`.
fn access(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().find(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let at = |text| usize::from_str_radix(text, 16).unwrap();
        (at(start)..at(end)).contains(&address)
    });
    found.unwrap().split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn what_is_not_accessible_faults() {
    let pool = small().build().unwrap();
    let mut slot = pool.take(None).unwrap();
    let start = slot.as_ptr().as_ptr() as usize;
    assert_eq!(access(start), "---p");
    slot.set_accessible(2 * PAGE - 1).unwrap();
    assert_eq!(slot.accessible_bytes(), 2 * PAGE);
    assert_eq!((access(start).as_str(), access(start + 2 * PAGE).as_str()), ("rw-p", "---p"));
    slot.bytes_mut().fill(3);
    slot.set_accessible(PAGE).unwrap();
    assert_eq!(access(start + PAGE), "---p");
    slot.grow(8 * PAGE).unwrap();
    assert_eq!((slot.bytes()[2 * PAGE - 1], slot.bytes()[2 * PAGE]), (3, 0));
    // The guard, and the next slot.
    assert_eq!(access(start + 8 * PAGE), "---p");
    let error = slot.grow(8 * PAGE + 1).unwrap_err();
    assert!(error.to_string().contains("`slot_bytes`"), "{error}");
}

#[test]
fn an_owned_slot_outlives_the_borrow() {
    let pool = Arc::new(small().build().unwrap());
    let mut slot = pool.take_owned(None).unwrap();
    slot.grow(PAGE).unwrap();
    let kept = pool.take_owned(ModuleKey::new(1)).unwrap();
    kept.keep();
    assert_eq!(Arc::strong_count(&pool), 2);
    drop(pool);
    slot.bytes_mut()[0] = 1;
}

#[test]
fn settings_that_cannot_be_met_are_named() {
    for (builder, expected) in [
        (small().slots(0), "slots: 0 is not in 1 to"),
        (small().slot_bytes(0), "slot_bytes: a slot cannot have 0 bytes"),
        (small().slots(1 << 31).slot_bytes(1 << 40), "slots: 2147483648 slots of"),
        (small().batch_slots(0), "batch_slots: 0 is not in 1 to 128"),
        (small().batch_slots(129), "batch_slots: 129 is not"),
        (small().keep_resident_bytes(9 * PAGE), "keep_resident_bytes: 589824 is more than"),
        (small().cpus(0), "cpus: 0 is not in 1 to 65534"),
    ] {
        let message = builder.build().unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
    let error = small().slots(1 << 20).slot_bytes(1 << 40).build().unwrap_err();
    assert!(matches!(error, PoolError::Map { .. }), "{error}");
}

#[test]
fn a_pool_and_its_slots_go_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Pool>();
    is_shared::<Slot<Arc<Pool>>>();
    let text = format!("{:?}", small().build().unwrap());
    assert!(text.contains("taken: 0"), "{text}");
}

#[test]
fn slots_that_come_back_stay_accessible_up_to_a_number() {
    for resident in [0, 2 * PAGE] {
        let pool = small().max_accessible_slots(5).keep_resident_bytes(resident).build().unwrap();
        let take = || {
            let mut slot = pool.take(None).unwrap();
            slot.grow(2 * PAGE).unwrap();
            slot.bytes_mut().fill(7);
            slot
        };
        drop((0..24).map(|_| take()).collect::<Vec<_>>());
        pool.reset_all();
        let all: Vec<_> = (0..24).map(|_| pool.take(None).unwrap()).collect();
        let open: Vec<_> = all.iter().filter(|slot| slot.accessible_bytes() > 0).collect();
        assert_eq!((open.len(), pool.stats().lost_slots), (5, 0));
        open.iter().for_each(|slot| assert_all(slot, &[0], "what stays accessible"));
        drop(all);
        drop((0..24).map(|_| take()).collect::<Vec<_>>());
    }
}
