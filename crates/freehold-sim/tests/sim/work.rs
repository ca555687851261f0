//! What a machine charges for the instructions between accesses, if it charges anything.

use std::sync::atomic::Ordering::Relaxed;

use crate::books::{check_books, near};
use crate::rows::Rows;
use freehold::NodeId;
use freehold::platform::{RawLock, SharedCell, Word};
use freehold_sim::{CpuHandle, Key, Machine, Report, preset};

/// The report of one CPU's work on a row of its own, with so much computation for each access.
fn charged(work_ns: f64, cpus: &[usize], work: fn(&CpuHandle, &Rows)) -> Report {
    let mut spec = preset("skylake-2s").unwrap();
    spec.set(Key::WorkNs, work_ns, "a test");
    let mut machine = Machine::new(&spec, 1).unwrap();
    for &cpu in cpus {
        let rows = Rows::new(&mut machine, 1);
        machine.spawn(cpu, move |handle| work(handle, &rows));
    }
    let report = machine.run().unwrap();
    check_books(&report);
    report
}

/// Six accesses: of a word, of a cell, and of a lock.
fn six(_: &CpuHandle, rows: &Rows) {
    let row = rows.get(0);
    row.words[0].store(1, Relaxed);
    row.words[0].fetch_add(1, Relaxed);
    row.local.set(row.local.get());
    row.lock.lock();
    row.lock.unlock();
}

#[test]
fn each_access_comes_with_computation() {
    let (free, charged_for) = (charged(0.0, &[0], six), charged(2.5, &[0], six));
    near(free.time.compute_ns, 0.0);
    near(charged_for.time.compute_ns, 6.0 * 2.5);
    near(charged_for.time.memory_ns, free.time.memory_ns);
    near(charged_for.elapsed_ns, free.elapsed_ns + 6.0 * 2.5);
    // What is done under the lock takes longer: its own access, but not that of the release.
    let held = |report: &Report| report.lock("zone_lock").unwrap().hold_ns;
    near(held(&charged_for), held(&free) + 2.5);
}

#[test]
fn a_sibling_at_work_slows_it() {
    near(charged(2.5, &[0, 56], six).time.compute_ns, 12.0 * 2.5 * 1.538);
}

#[test]
fn waiters_and_failed_attempts_are_charged_once() {
    let mut spec = preset("skylake-2s").unwrap();
    spec.set(Key::WorkNs, 2.5, "a test");
    let mut machine = Machine::new(&spec, 1).unwrap();
    let rows = Rows::new(&mut machine, 1);
    rows.share(&mut machine, 0..3, move |rows, cpu, handle| {
        handle.idle_ns(100 * cpu as u64);
        if cpu == 2 {
            assert!(!rows.get(0).lock.try_lock());
            return;
        }
        rows.get(0).lock.lock();
        handle.idle_ns(1000);
        rows.get(0).lock.unlock();
    });
    let report = machine.run().unwrap();
    check_books(&report);
    assert_eq!(report.lock("zone_lock").unwrap().contended, 1);
    near(report.time.compute_ns, 5.0 * 2.5);
}

#[test]
fn what_is_no_data_of_an_allocator_is_free_of_it() {
    let mut spec = preset("skylake-2s").unwrap();
    spec.set(Key::WorkNs, 2.5, "a test");
    let mut machine = Machine::new(&spec, 1).unwrap();
    let lock = machine.lock("lru_lock", NodeId::new(0));
    machine.spawn(0, move |handle| {
        handle.lock(lock);
        handle.unlock(lock);
        handle.clear_frame(freehold::Pfn::new(0), NodeId::new(0));
    });
    near(machine.run().unwrap().time.compute_ns, 0.0);
}
