//! The protocol by which slots change hands, under random schedules by seed. Reset takes long here,
//! so that other CPUs look for slots meanwhile. `POOL_SEEDS` sets how many seeds are tried.

use std::cell::Cell;
use std::rc::Rc;

use fastrand::Rng;
use freehold_pool::slots::{Left, SlotsSettings};
use freehold_sim::{Machine, Schedule, preset};

use crate::common::{Ledger, key, slots};

/// So few that nearly always some CPU looks for the last one.
const SETTINGS: SlotsSettings = SlotsSettings { slots: 6, batch_slots: 2, warm_slots_max: 3 };

fn seeds() -> u64 {
    std::env::var("POOL_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(100)
}

fn machine(seed: u64) -> Machine {
    let mut machine = Machine::new(&preset("skylake-2s").unwrap(), seed).unwrap();
    let switches_per_million = [20_000, 200_000, 700_000][seed as usize % 3];
    machine.set_schedule(Schedule::Random { switches_per_million });
    machine.set_patience(20_000_000);
    machine
}

fn left(rng: &mut Rng) -> Left {
    [Left::Dirty, Left::Kept, Left::Clean][rng.usize(..3)]
}

/// Four CPUs want all slots but none more: no call may fail, wherever the slots are. No user sees
/// what one with another key has left, and no slot has two users.
#[test]
fn as_many_takes_as_slots_succeed_however_they_interleave() {
    for seed in 0..seeds() {
        as_many_takes_as_slots_succeed(seed, SETTINGS, left);
    }
}

/// The same, where warm slots make room for others all the time.
#[test]
fn slots_that_make_room_are_not_missed() {
    let settings = SlotsSettings { slots: 3, batch_slots: 2, warm_slots_max: 4 };
    for seed in 0..seeds() * 2 {
        as_many_takes_as_slots_succeed(seed, settings, |_| Left::Clean);
    }
}

fn as_many_takes_as_slots_succeed(seed: u64, settings: SlotsSettings, left: fn(&mut Rng) -> Left) {
    const CPUS: usize = 4;
    let mut machine = machine(seed);
    let pool = slots(&mut machine, settings, CPUS);
    let ledger = Rc::new(Ledger::new(settings.slots, 20));
    // How many slots the CPUs may have together: a user leaves when its slot is back.
    let permits = Rc::new(Cell::new(settings.slots));
    for cpu in 0..CPUS {
        let (pool, ledger) = (Rc::clone(&pool), Rc::clone(&ledger));
        let permits = Rc::clone(&permits);
        machine.spawn(cpu, move |_| {
            let mut rng = Rng::with_seed(seed * 100 + cpu as u64);
            let mut held = Vec::new();
            for _ in 0..60 {
                let wanted = rng.usize(0..6);
                while held.len() < wanted && permits.get() > 0 {
                    permits.set(permits.get() - 1);
                    let number = rng.u64(1..5);
                    let taken = pool.take(key(number), &*ledger);
                    let taken = taken.unwrap_or_else(|_| panic!("exhausted, seed {seed}"));
                    ledger.take(taken, number);
                    held.push((taken.slot, number));
                }
                while held.len() > wanted / 2 {
                    let (slot, number) = held.swap_remove(rng.usize(..held.len()));
                    let left = left(&mut rng);
                    ledger.put(slot, left);
                    pool.put(slot, key(number), left, &*ledger);
                    permits.set(permits.get() + 1);
                }
            }
            for (slot, number) in held {
                ledger.put(slot, Left::Dirty);
                pool.put(slot, key(number), Left::Dirty, &*ledger);
                permits.set(permits.get() + 1);
            }
        });
    }
    machine.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    assert_eq!(pool.unused_slots(), u64::from(settings.slots), "seed {seed}");
}

/// All CPUs want more than there is: calls fail, but each slot that comes back is found.
#[test]
fn what_is_exhausted_recovers() {
    const CPUS: usize = 3;
    for seed in 0..seeds() / 3 {
        let mut machine = machine(seed);
        let pool = slots(&mut machine, SETTINGS, CPUS);
        let ledger = Rc::new(Ledger::new(SETTINGS.slots, 5));
        let failed = Rc::new(Cell::new(0));
        for cpu in 0..CPUS {
            let (pool, ledger) = (Rc::clone(&pool), Rc::clone(&ledger));
            let failed = Rc::clone(&failed);
            machine.spawn(cpu, move |_| {
                let mut rng = Rng::with_seed(seed * 100 + cpu as u64);
                for _ in 0..20 {
                    let mut held = Vec::new();
                    for _ in 0..8 {
                        match pool.take(key(cpu as u64 + 1), &*ledger) {
                            Ok(taken) => {
                                ledger.take(taken, cpu as u64 + 1);
                                held.push(taken.slot);
                            }
                            Err(_) => failed.set(failed.get() + 1),
                        }
                    }
                    for slot in held {
                        let left = left(&mut rng);
                        ledger.put(slot, left);
                        pool.put(slot, key(cpu as u64 + 1), left, &*ledger);
                    }
                }
            });
        }
        machine.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(pool.unused_slots(), u64::from(SETTINGS.slots), "seed {seed}");
        let all: Vec<_> = (0..SETTINGS.slots).map(|_| pool.take(None, &*ledger)).collect();
        assert!(all.iter().all(Result::is_ok), "seed {seed}");
        assert!(pool.take(None, &*ledger).is_err());
    }
}
