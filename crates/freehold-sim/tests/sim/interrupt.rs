//! Handlers that interrupt a CPU between two accesses of its work.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::rows::Rows;
use freehold::platform::{Platform, RawLock, Word};
use freehold_sim::{Faults, Machine, RunError, Sim, preset};

const ROUNDS: u64 = 1000;

fn machine(interrupts_per_million: u32) -> Machine {
    let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
    machine.set_faults(Faults { interrupts_per_million, ..Faults::default() });
    machine
}

/// Adds to a word under a lock, with interrupts on or off, on two CPUs; returns how often the
/// handler has run. It adds to the word without the lock.
fn run(interrupts_per_million: u32, irqs_off: bool) -> u64 {
    let mut machine = machine(interrupts_per_million);
    let (rows, runs) = (Rows::new(&mut machine, 2), Rc::new(Cell::new(0)));
    let (inside, counts) = (rows.clone(), Rc::clone(&runs));
    machine.set_handler(move |handle| {
        inside.get(1).words[handle.cpu().index()].fetch_add(1, Relaxed);
        counts.set(counts.get() + 1);
    });
    rows.share(&mut machine, 0..2, move |rows, _, _| {
        let irqs = irqs_off.then(|| Sim.irq_save());
        for _ in 0..ROUNDS {
            rows.get(0).lock.lock();
            rows.get(0).words[0].fetch_add(1, Relaxed);
            rows.get(0).lock.unlock();
        }
        irqs.into_iter().for_each(|irqs| Sim.irq_restore(irqs));
    });
    machine.run().unwrap();
    assert_eq!(rows.get(0).words[0].load(Relaxed), 2 * ROUNDS);
    let of_cpus = [0, 1].map(|cpu| rows.get(1).words[cpu].load(Relaxed));
    assert_eq!(of_cpus.iter().sum::<u64>(), runs.get());
    assert!(of_cpus.iter().all(|&of_cpu| (of_cpu > 0) == (runs.get() > 0)), "{of_cpus:?}");
    runs.get()
}

#[test]
fn handlers_run_between_accesses_as_often_as_is_set() {
    let runs = run(100_000, false);
    // A round has three occasions.
    assert!((450..750).contains(&runs), "{runs} interrupts");
    assert_eq!(run(0, false), 0);
    // Also within a handler interrupts are off, or each would be interrupted without end.
    assert!(run(1_000_000, false) >= 6 * ROUNDS);
}

#[test]
fn with_interrupts_off_no_handler_runs() {
    assert_eq!(run(1_000_000, true), 0);
}

#[test]
fn a_handler_that_waits_for_what_it_has_interrupted_is_a_deadlock() {
    let mut machine = machine(1_000_000);
    let rows = Rows::new(&mut machine, 1);
    let inside = rows.clone();
    machine.set_handler(move |_| {
        inside.get(0).lock.lock();
        inside.get(0).lock.unlock();
    });
    machine.spawn(0, move |_| {
        rows.get(0).lock.lock();
        rows.get(0).words[0].fetch_add(1, Relaxed);
    });
    let error = machine.run().unwrap_err();
    assert!(matches!(error, RunError::Panicked { .. } | RunError::Deadlock { .. }), "{error}");
}

#[test]
fn a_machine_without_a_handler_has_no_interrupts() {
    let mut machine = machine(1_000_000);
    let rows = Rows::new(&mut machine, 1);
    machine.spawn(0, move |_| _ = rows.get(0).words[0].fetch_add(1, Relaxed));
    machine.run().unwrap();
}
