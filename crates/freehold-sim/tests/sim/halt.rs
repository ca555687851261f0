//! A CPU stops forever in the middle of a call, and others proceed or wait.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::rows::Rows;
use freehold::platform::{RawLock, Word};
use freehold_sim::{Faults, Halt, Machine, RunError, Sim, Waiting, preset};

const PATIENCE_ACCESSES: u64 = 10_000;

/// CPU 0 is to stop in its call number 1, before the access of this number.
fn machine(step: u64) -> Machine {
    let mut machine = Machine::new(&preset("uma-4").unwrap(), 1).unwrap();
    machine.set_faults(Faults {
        halt: Some(Halt { cpu: 0, call: 1, step, patience_accesses: PATIENCE_ACCESSES }),
        ..Faults::default()
    });
    machine
}

/// Two calls, each of them an addition to a word under a lock: three accesses.
fn add_twice(rows: &Rows) {
    for _ in 0..2 {
        Sim.in_call(|_| {
            rows.get(0).lock.lock();
            rows.get(0).words[0].fetch_add(1, Relaxed);
            rows.get(0).lock.unlock();
        });
    }
}

#[test]
fn it_stops_before_each_step_and_keeps_its_lock() {
    for (step, sum, has_lock) in [(0, 1, false), (1, 1, true), (2, 2, true)] {
        let mut machine = machine(step);
        let rows = Rows::new(&mut machine, 1);
        let inside = rows.clone();
        machine.spawn(0, move |_| add_twice(&inside));
        machine.run().unwrap();
        assert_eq!(rows.get(0).words[0].load(Relaxed), sum, "before step {step}");
        let halted = machine.halted().expect("it has stopped");
        assert_eq!((halted.cpu, halted.locks.is_empty()), (0, !has_lock), "before step {step}");
        assert!(machine.waiting().is_empty());
    }
}

#[test]
fn it_does_not_stop_outside_its_calls() {
    let mut machine = machine(3);
    let rows = Rows::new(&mut machine, 1);
    let inside = rows.clone();
    machine.spawn(0, move |_| {
        add_twice(&inside);
        inside.get(0).words[0].fetch_add(1, Relaxed);
    });
    machine.run().unwrap();
    assert_eq!(machine.halted(), None);
    assert_eq!(rows.get(0).words[0].load(Relaxed), 3);
}

#[test]
fn who_waits_is_named_and_the_others_go_on_in_later_runs() {
    let mut machine = machine(1);
    let rows = Rows::new(&mut machine, 2);
    let ended = Rc::new(Cell::new(0));
    let inside = rows.clone();
    machine.spawn(0, move |_| add_twice(&inside));
    let inside = rows.clone();
    machine.spawn(1, move |handle| {
        handle.idle_ns(1_000_000);
        add_twice(&inside);
    });
    let inside = rows.clone();
    machine.spawn(2, move |handle| {
        handle.idle_ns(1_000_000);
        Sim.in_call(|_| while !inside.get(0).lock.try_lock() {});
    });
    let count = Rc::clone(&ended);
    machine.spawn(3, move |_| count.set(count.get() + 1));
    machine.run().unwrap();
    let waits = |waiting: &Waiting| (waiting.cpu, waiting.lock.as_ref().map(|(_, holder)| *holder));
    let waiting: Vec<_> = machine.waiting().iter().map(waits).collect();
    assert_eq!(waiting, [(1, Some(0)), (2, None)]);

    machine.set_faults(Faults::default());
    let (inside, count) = (rows.clone(), Rc::clone(&ended));
    machine.spawn(3, move |_| {
        Sim.in_call(|cpu| {
            assert_eq!(cpu, 3);
            assert!(!inside.get(0).lock.try_lock(), "it is held still");
        });
        count.set(count.get() + 1);
    });
    machine.run().unwrap();
    assert_eq!((ended.get(), machine.waiting().len()), (2, 2));
    machine.unwind_waiting();
    assert_eq!(Rc::strong_count(&ended), 1);
}

#[test]
fn a_long_call_among_others_that_end_does_not_count_as_waiting() {
    let mut machine = machine(0);
    let rows = Rows::new(&mut machine, 3);
    for cpu in 0..3 {
        let rows = rows.clone();
        // CPU 1 makes one call of as many accesses as CPU 2 in many.
        let (calls, each) = [(2, 1), (1, 3 * PATIENCE_ACCESSES), (30, PATIENCE_ACCESSES / 10)][cpu];
        machine.spawn(cpu, move |_| {
            for _ in 0..calls {
                Sim.in_call(|_| {
                    for _ in 0..each {
                        rows.get(cpu).words[0].fetch_add(1, Relaxed);
                    }
                });
            }
        });
    }
    machine.run().unwrap();
    assert!(machine.halted().is_some());
    assert!(machine.waiting().is_empty(), "{:?}", machine.waiting());
}

#[test]
fn a_planted_call_that_never_ends_counts_as_waiting() {
    let mut machine = machine(0);
    let halt = Some(Halt { cpu: 0, call: 0, step: 0, patience_accesses: PATIENCE_ACCESSES });
    machine.set_faults(Faults { halt, hangs: Some(2), ..Faults::default() });
    let rows = Rows::new(&mut machine, 3);
    rows.share(&mut machine, 0..3, move |rows, cpu, _| {
        Sim.in_call(|_| rows.get(cpu).words[0].fetch_add(1, Relaxed));
        Sim.in_call(|_| rows.get(cpu).words[0].fetch_add(1, Relaxed));
    });
    machine.run().unwrap();
    assert_eq!(machine.waiting(), [Waiting { cpu: 2, lock: None }]);
}

#[test]
fn a_stopped_cpu_is_given_no_more_work() {
    let mut machine = machine(0);
    let rows = Rows::new(&mut machine, 1);
    machine.spawn(0, move |_| add_twice(&rows));
    machine.run().unwrap();
    let again = std::panic::AssertUnwindSafe(|| machine.spawn(0, |_| ()));
    let message = std::panic::catch_unwind(again).unwrap_err();
    assert!(message.downcast_ref::<String>().is_some_and(|text| text.contains("no turn any more")));
    machine.spawn(1, |_| panic!("the others may still fail"));
    assert!(matches!(machine.run(), Err(RunError::Panicked { cpu: 1, .. })));
}
