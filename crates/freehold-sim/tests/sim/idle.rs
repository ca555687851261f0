//! CPUs that idle: they leave the core to their sibling, and come back.
//!
//! On skylake-2s CPU 56 is the sibling of CPU 0, and both compute 1.538 times as long while both
//! are at work.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::books::{check_books, near};
use crate::rows::Rows;
use freehold::platform::{RawLock, Word};
use freehold_sim::{CpuHandle, Faults, Halt, Machine, Report, Schedule, Sim, preset};

const SLOW: f64 = 1.538;

fn skylake(seed: u64) -> Machine {
    Machine::new(&preset("skylake-2s").unwrap(), seed).unwrap()
}

/// Computes in steps of 100 ns, each in turn; returns how long each of them took.
fn steps(handle: &CpuHandle, count: usize) -> Vec<f64> {
    let step = |_| {
        handle.in_order();
        let began_ps = handle.now_ps();
        handle.compute_ns(100);
        (handle.now_ps() - began_ps) as f64 / 1000.0
    };
    (0..count).map(step).collect()
}

/// What CPU 56 does while CPU 0 computes in steps; returns how long these took.
fn beside(sibling: impl Fn(&CpuHandle) + 'static, count: usize) -> (Vec<f64>, Report) {
    let mut machine = skylake(1);
    let took = Rc::new(Cell::new(Vec::new()));
    let mine = Rc::clone(&took);
    machine.spawn(0, move |handle| mine.set(steps(handle, count)));
    machine.spawn(56, move |handle| sibling(handle));
    let report = machine.run().unwrap();
    check_books(&report);
    (took.take(), report)
}

#[test]
fn the_sibling_of_an_idle_cpu_has_the_core_to_itself() {
    let (took, report) = beside(
        |handle| {
            handle.in_order();
            handle.compute_ns(450);
            handle.idle_ns(2000);
            handle.compute_ns(10_000);
        },
        40,
    );
    // CPU 56 is at work until 450 × 1.538 ns, and again 2000 later.
    let (left, back) = (692.1, 2692.1);
    let mut at = 0.0;
    for &ns in &took {
        let expected = if at < left || at > back { 100.0 * SLOW } else { 100.0 };
        near(ns, expected);
        at += ns;
    }
    assert_eq!(took.iter().filter(|&&ns| ns == 100.0).count(), 20, "{took:?}");
    near(report.time.idle_ns, 2000.0);
}

#[test]
fn a_cpu_that_waits_in_pauses_slows_its_sibling_only_when_it_looks() {
    let pauses = |handle: &CpuHandle| (0..100).for_each(|_| handle.idle_ns(500));
    let (took, _) = beside(pauses, 400);
    // A step that begins at the same time as a pause may be slow; none is for longer.
    let slow = took.iter().filter(|&&ns| ns > 100.0).count();
    assert!(slow <= 1, "{slow} slow steps");
}

#[test]
fn idling_takes_as_long_as_asked_and_is_ordered() {
    let mut machine = skylake(1);
    let rows = Rows::new(&mut machine, 1);
    for cpu in 0..4_u64 {
        let rows = rows.clone();
        machine.spawn(cpu as usize, move |handle| {
            for round in 0..100 {
                let began_ps = handle.now_ps();
                handle.idle_ns(1000 + cpu);
                assert_eq!(handle.now_ps() - began_ps, (1000 + cpu) * 1000);
                // Others that were to look before have looked.
                let seen = rows.get(0).words[0].load(Relaxed);
                assert!(seen >= 4 * round, "CPU {cpu} is early in round {round}: {seen}");
                rows.get(0).words[0].fetch_add(1, Relaxed);
                handle.compute_ns(200);
            }
        });
    }
    let report = machine.run().unwrap();
    check_books(&report);
    near(report.time.idle_ns, (4 * 1000 + 1 + 2 + 3) as f64 * 100.0);
}

#[test]
fn no_idle_cpu_is_lost_under_any_schedule() {
    for seed in 0..50 {
        let mut machine = skylake(seed);
        machine.set_schedule(Schedule::Random { switches_per_million: 20_000 * seed as u32 });
        machine.set_faults(Faults { departures: Vec::new(), ..Faults::swarm(seed, 4, 10_000) });
        let rows = Rows::new(&mut machine, 1);
        let gate = machine.barrier(4);
        rows.share(&mut machine, [0, 1, 56, 57], move |rows, _, handle| {
            for _ in 0..50 {
                handle.idle_ns(300);
                rows.get(0).lock.lock();
                rows.get(0).words[0].fetch_add(1, Relaxed);
                handle.idle_ns(10);
                rows.get(0).lock.unlock();
            }
            handle.wait(gate);
            handle.idle_ns(0);
            assert_eq!(rows.get(0).words[0].load(Relaxed), 200);
        });
        let report = machine.run().unwrap();
        assert_eq!(report.cpus, 4);
        near(report.time.idle_ns, 4.0 * 50.0 * 310.0);
        // Every thread is back on its core, or has left it: the next run finds it so.
        machine.set_schedule(Schedule::ByTime);
        machine.set_faults(Faults::default());
        machine.spawn(0, |handle| handle.compute_ns(100));
        near(machine.run().unwrap().time.compute_ns, 100.0);
    }
}

#[test]
fn an_idle_holder_is_no_deadlock_and_a_finished_one_is() {
    let run = |unlocks: bool| {
        let mut machine = skylake(1);
        let rows = Rows::new(&mut machine, 1);
        let other = rows.clone();
        machine.spawn(0, move |handle| {
            rows.get(0).lock.lock();
            handle.idle_ns(1_000_000);
            if unlocks {
                rows.get(0).lock.unlock();
            }
        });
        machine.spawn(56, move |handle| {
            handle.idle_ns(1000);
            other.get(0).lock.lock();
            other.get(0).lock.unlock();
        });
        machine.run()
    };
    let report = run(true).unwrap();
    check_books(&report);
    assert!(report.lock("zone_lock").unwrap().wait_ns > 999_000.0 - 100.0);
    let error = run(false).unwrap_err().to_string();
    let expected = "zone_lock 0 is held by CPU 0, which is done and waited for by CPU 56";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn idle_cpus_outlive_one_that_stops_forever() {
    let mut machine = skylake(1);
    let halt = Halt { cpu: 0, call: 0, step: 1, patience_accesses: 1000 };
    machine.set_faults(Faults { halt: Some(halt), ..Faults::default() });
    let rows = Rows::new(&mut machine, 2);
    let took = Rc::new(Cell::new(Vec::new()));
    for cpu in [0, 56] {
        let (rows, took) = (rows.clone(), Rc::clone(&took));
        machine.spawn(cpu, move |handle| {
            Sim.in_call(|cpu| {
                rows.get(cpu % 2).words[0].store(1, Relaxed);
                handle.idle_ns(500);
                rows.get(cpu % 2).words[0].store(2, Relaxed);
            });
            took.set(steps(handle, 10));
        });
    }
    machine.run().unwrap();
    assert_eq!(machine.halted().map(|halted| halted.cpu), Some(0));
    assert!(machine.waiting().is_empty());
    assert_eq!(took.take(), [100.0; 10], "the one that stopped has left the core");
}

#[test]
fn idling_past_the_end_of_time_is_an_error() {
    for ns in [2_000_000_000_000, u64::MAX] {
        let mut machine = skylake(1);
        machine.spawn(0, move |handle| handle.idle_ns(ns));
        machine.spawn(1, |handle| handle.idle_ns(1000));
        let error = machine.run().unwrap_err().to_string();
        assert!(error.contains("virtual time ends after 562 s"), "{error}");
    }
}
