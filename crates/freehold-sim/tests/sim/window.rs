//! What is in the books when the accounted time has an end, and waiting at barriers.

use std::sync::atomic::Ordering::Relaxed;

use crate::books::{check_books, near};
use crate::rows::{Rows, skylake};
use freehold::platform::{Platform, RawLock, Word};
use freehold::{FrameCount, NodeId, Pfn};
use freehold_sim::{CpuHandle, Key, Machine, Path, Report, Schedule, Sim, preset};

/// One CPU measures `window_ns`, and does `work` then.
fn one_cpu(window_ns: u64, work: impl Fn(&CpuHandle, &Rows) + 'static) -> Report {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 8);
    let gate = machine.barrier(1);
    machine.spawn(0, move |handle| {
        handle.compute_ns(777);
        handle.start_measuring_for(gate, window_ns);
        work(handle, &rows);
    });
    let report = machine.run().unwrap();
    check_books(&report);
    report
}

#[test]
fn time_past_the_end_is_in_no_book() {
    let report = one_cpu(1000, |handle, _| {
        handle.on_path(Path::Alloc, || handle.compute_ns(900));
        handle.on_path(Path::Free, || handle.compute_ns(300));
        handle.idle_ns(5000);
    });
    near(report.time.compute_ns, 1000.0);
    near(report.time.idle_ns, 0.0);
    near(report.paths["free"]["compute_ns"], 100.0);
    near(report.elapsed_ns, 1000.0);
    near(report.overrun_ns_max, 5200.0);
    let whole = one_cpu(10_000, |handle, _| handle.compute_ns(1200));
    near(whole.time.all_ns, 1200.0);
    near(whole.elapsed_ns, 1200.0);
    near(whole.overrun_ns_max, 0.0);
}

#[test]
fn calls_and_accesses_count_if_they_began_in_time() {
    let report = one_cpu(1000, |handle, rows| {
        handle.timed(Path::Alloc, || handle.compute_ns(900));
        // 81.3 ns of memory each: the second one begins in time and ends after it.
        rows.get(0).words[0].load(Relaxed);
        rows.get(1).words[0].load(Relaxed);
        rows.get(2).words[0].load(Relaxed);
        handle.timed(Path::Alloc, || handle.compute_ns(900));
        handle.clear_frame(Pfn::new(0), NodeId::new(0));
    });
    assert_eq!(report.latency_ns["alloc"].count, 1);
    let memory = &report.data[0].served["local_dram"];
    assert_eq!((memory.count, report.memory[0].bytes_read), (2, 2 * 64));
    near(memory.time_ns, 100.0);
    near(report.time.memory_ns, 100.0);
    assert!(report.frames.values().all(|frames| frames.count == 0), "{:?}", report.frames);
    let late = one_cpu(1000, |handle, _| {
        handle.compute_ns(999);
        handle.timed(Path::Free, || handle.compute_ns(500));
    });
    let free = &late.latency_ns["free"];
    assert_eq!((free.count, free.max), (1, 500), "a call that began in time counts whole");
}

#[test]
fn holds_and_sections_without_interrupts_end_with_the_window() {
    let report = one_cpu(1000, |handle, rows| {
        handle.compute_ns(500);
        let irqs = Sim.irq_save();
        rows.get(0).lock.lock();
        handle.compute_ns(2000);
        rows.get(0).lock.unlock();
        assert!(rows.get(0).lock.try_lock());
        rows.get(0).lock.unlock();
        Sim.irq_restore(irqs);
        let irqs = Sim.irq_save();
        Sim.irq_restore(irqs);
    });
    let lock = report.lock("zone_lock").unwrap();
    assert_eq!(lock.acquisitions, 1);
    // The flag takes 4.7 ns, the lock 87.4.
    near(lock.hold_ns, 500.0 - 4.7 - 87.4);
    near(lock.hold_ns_max, lock.hold_ns);
    assert_eq!(report.irq_off.sections, 1);
    near(report.irq_off.ns_max, 500.0 - 4.7);
    near(report.irq_off.share, (500.0 - 4.7) / 1000.0);
}

#[test]
fn a_wait_that_spans_the_end_counts_up_to_the_end() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    let (gate, after) = (machine.barrier(3), machine.barrier(3));
    rows.share(&mut machine, 0..3, move |rows, cpu, handle| {
        handle.start_measuring_for(gate, 1000);
        handle.compute_ns(cpu as u64 * 600);
        rows.get(0).lock.lock();
        handle.compute_ns(3000);
        rows.get(0).lock.unlock();
        handle.wait(after);
    });
    let report = machine.run().unwrap();
    check_books(&report);
    let lock = report.lock("zone_lock").unwrap();
    // CPU 1 waits from 600 on, CPU 2 comes after the end.
    assert_eq!((lock.acquisitions, lock.contended), (2, 1));
    near(lock.wait_ns, 400.0);
    near(lock.wait_ns_max, 400.0);
    near(report.time_share["zone_lock"], 400.0 / 3000.0);
    near(report.time.all_ns, 3000.0);
    near(report.time.barrier_ns, 0.0);
    assert!(report.overrun_ns_max > 8000.0, "{}", report.overrun_ns_max);
}

#[test]
fn waiting_at_a_barrier_is_of_its_own_kind_and_in_no_share() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    let gate = machine.barrier(2);
    rows.share(&mut machine, 0..2, move |rows, cpu, handle| {
        handle.compute_ns(1000 * cpu as u64);
        let irqs = Sim.irq_save();
        rows.get(0).lock.lock();
        rows.get(0).lock.unlock();
        Sim.irq_restore(irqs);
        handle.idle_ns(100);
        handle.on_path(Path::Free, || handle.wait(gate));
    });
    let report = machine.run().unwrap();
    check_books(&report);
    // CPU 1 takes the lock's line from CPU 0, which had it from memory.
    near(report.time.barrier_ns, 1000.0 - (81.3 - 53.8));
    near(report.paths["free"]["barrier_ns"], report.time.barrier_ns);
    near(report.time.idle_ns, 200.0);
    let off = report.irq_off.share * (report.time.all_ns - report.time.barrier_ns);
    near(off, 81.3 + 53.8 + 2.0 * (6.1 + 1.1));
}

/// CPUs that contend for all kinds of things, for a window that ends in the middle.
fn mixture(machine: &mut Machine, cpus: usize, window_ns: u64) {
    let rows = Rows::new(machine, 16);
    let lru = machine.lock("lru_lock", NodeId::new(0));
    let (begin, end) = (machine.barrier(cpus), machine.barrier(cpus));
    machine.follow_frames(Pfn::new(0), FrameCount::new(1 << 10));
    rows.share(machine, 0..cpus, move |rows, cpu, handle| {
        handle.charge(Key::TrapNs);
        handle.start_measuring_for(begin, window_ns);
        let end_ns = handle.now_ns() + window_ns;
        for round in 0.. {
            if handle.now_ns() >= end_ns {
                break;
            }
            handle.timed(Path::Alloc, || {
                rows.get(0).lock.lock();
                let word = &rows.get(1 + round % 8).words[0];
                word.store(word.load(Relaxed) + 1, Relaxed);
                rows.get(0).lock.unlock();
            });
            handle.clear_frame(Pfn::new((cpu * 50 + round) as u64), handle.node());
            handle.timed(Path::Free, || {
                let irqs = Sim.irq_save();
                handle.lock(lru);
                handle.compute_ns(300);
                handle.unlock(lru);
                Sim.irq_restore(irqs);
            });
            handle.idle_ns(10 * cpu as u64);
        }
        handle.wait(end);
    });
}

#[test]
fn parts_add_up_to_the_window_wherever_it_ends() {
    for seed in 0..40 {
        let mut machine = Machine::new(&preset("skylake-2s").unwrap(), seed).unwrap();
        if seed % 4 == 3 {
            machine.set_schedule(Schedule::Random { switches_per_million: 300_000 });
        }
        let (cpus, window_ns) = (2 + seed as usize % 7, 1000 + 377 * seed);
        mixture(&mut machine, cpus, window_ns);
        let report = machine.run().unwrap();
        check_books(&report);
        near(report.time.all_ns, (cpus as u64 * window_ns) as f64);
        near(report.elapsed_ns, window_ns as f64);
        near(report.time.barrier_ns, 0.0);
        assert!(report.overrun_ns_max > 0.0);
        let lock = report.lock("lru_lock").unwrap();
        assert!(lock.contended <= lock.acquisitions);
        assert!(lock.hold_ns <= window_ns as f64, "one CPU holds it at a time");
        assert!(report.irq_off.share <= 1.0);
    }
}

#[test]
fn a_later_run_has_books_of_its_own() {
    let mut machine = skylake();
    let gate = machine.barrier(1);
    machine.spawn(0, move |handle| {
        handle.start_measuring_for(gate, 100);
        handle.compute_ns(500);
    });
    near(machine.run().unwrap().time.all_ns, 100.0);
    machine.spawn(0, |handle| handle.compute_ns(5000));
    let report = machine.run().unwrap();
    near(report.time.all_ns, 5000.0);
    near(report.overrun_ns_max, 0.0);
}
