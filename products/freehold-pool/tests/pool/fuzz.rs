//! A target for fuzzers: what CPUs do with a pool's slots, and how they take turns, from any bytes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use freehold_pool::slots::{Left, SlotsSettings};
use freehold_sim::{Machine, Schedule, preset};

use crate::common::{Ledger, key, slots};

const CPUS: usize = 3;
const STEPS_MAX: usize = 100;

/// Steps of one CPU, two bytes each: takes for a key, or puts something back.
fn steps(bytes: &[u8], cpu: usize) -> Vec<[u8; 2]> {
    let mine = bytes.chunks_exact(2).skip(cpu).step_by(CPUS);
    mine.take(STEPS_MAX).map(|step| [step[0], step[1]]).collect()
}

fn run(bytes: &[u8]) {
    let [form, seed, ways, rest @ ..] = bytes else { return };
    let settings = SlotsSettings {
        slots: 1 + u32::from(form & 7),
        batch_slots: 1 + usize::from(form >> 3 & 3),
        warm_slots_max: usize::from(form >> 5),
    };
    let machine = Machine::new(&preset("uma-4").expect("a preset"), u64::from(*seed));
    let mut machine = machine.expect("presets are right");
    let switches_per_million = [0, 20_000, 200_000, 700_000][usize::from(ways & 3)];
    machine.set_schedule(Schedule::Random { switches_per_million });
    machine.set_patience(20_000_000);
    let pool = slots(&mut machine, settings, CPUS);
    let ledger = Rc::new(Ledger::new(settings.slots, usize::from(ways >> 2 & 15)));
    // What users have: a CPU may put back what another one took.
    let held = Rc::new(RefCell::new(Vec::new()));
    for cpu in 0..CPUS {
        let (pool, ledger) = (Rc::clone(&pool), Rc::clone(&ledger));
        let (held, steps) = (Rc::clone(&held), steps(rest, cpu));
        machine.spawn(cpu, move |_| {
            for [what, which] in steps {
                if what == u8::MAX {
                    pool.reset_clean(&*ledger);
                    continue;
                }
                let number = u64::from(which % 5);
                let of = key(number).filter(|_| number > 0);
                if what & 1 == 0 {
                    if let Ok(taken) = pool.take(of, &*ledger) {
                        // Content of no key is seen by nothing: 9 stands for it.
                        ledger.take(taken, if number == 0 { 9 } else { number });
                        held.borrow_mut().push((taken.slot, of));
                    }
                    continue;
                }
                let count = held.borrow().len();
                let nth = usize::from(which) % count.max(1);
                let put = (count > 0).then(|| held.borrow_mut().swap_remove(nth));
                if let Some((slot, of)) = put {
                    let left = [Left::Dirty, Left::Kept, Left::Clean][usize::from(what >> 1) % 3];
                    ledger.put(slot, left);
                    pool.put(slot, of, left, &*ledger);
                }
            }
        });
    }
    machine.run().unwrap_or_else(|error| panic!("{error}"));
    let users = held.borrow().len() as u64;
    assert_eq!(pool.unused_slots() + users, u64::from(settings.slots));
    for (slot, of) in held.take() {
        ledger.put(slot, Left::Dirty);
        pool.put(slot, of, Left::Dirty, &*ledger);
    }
    for _ in 0..settings.slots {
        ledger.take(pool.take(None, &*ledger).expect("none is in use"), 9);
    }
    assert!(pool.take(None, &*ledger).is_err());
}

#[test]
fn any_steps_leave_each_slot_to_one_user() {
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(run);
}
