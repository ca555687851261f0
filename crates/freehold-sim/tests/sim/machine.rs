//! Determinism, failures, and how runs end early.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::rows::Rows;
use freehold::platform::{LockClass, Platform, RawLock, Word};
use freehold::{FrameCount, NodeId, Pfn};
use freehold_sim::{
    Departure, Faults, Key, Machine, Path, Report, RunError, Schedule, Sim, SimLock, Stop, Torn,
    preset,
};

/// A mixture of everything that a machine does, on `cpus` CPUs.
fn mixture(machine: &mut Machine, cpus: usize) -> Rc<RefCell<Vec<u64>>> {
    let rows = Rows::new(machine, 64);
    let lru = machine.lock("lru_lock", NodeId::new(0));
    let gate = machine.barrier(cpus);
    machine.follow_frames(Pfn::new(0), FrameCount::new(1 << 16));
    let counts = Rc::new(RefCell::new(vec![0; cpus]));
    for cpu in 0..cpus {
        let (rows, counts) = (rows.clone(), Rc::clone(&counts));
        machine.spawn(cpu, move |handle| {
            for round in 0..50 {
                if round == 10 {
                    handle.start_measuring(gate);
                }
                handle.charge(Key::TrapNs);
                handle.timed(Path::Alloc, || {
                    rows.get(0).lock.lock();
                    let word = &rows.get(1 + round % 8).words[0];
                    word.store(word.load(Relaxed) + 1, Relaxed);
                    rows.get(0).lock.unlock();
                });
                handle.clear_frame(Pfn::new((cpu * 50 + round) as u64), handle.node());
                let word = &rows.get(32 + cpu % 4).words[1];
                while {
                    let old = word.load(Relaxed);
                    word.compare_exchange(old, old + 1, Relaxed, Relaxed).is_err()
                } {}
                handle.timed(Path::Free, || {
                    let irq = Sim.irq_save();
                    if rows.get(9).lock.try_lock() {
                        handle.compute_ns(20);
                        rows.get(9).lock.unlock();
                    }
                    handle.lock(lru);
                    handle.unlock(lru);
                    Sim.irq_restore(irq);
                });
                counts.borrow_mut()[cpu] += 1;
            }
        });
    }
    counts
}

fn run(machine_name: &str, seed: u64, cpus: usize) -> Report {
    let mut machine = Machine::new(&preset(machine_name).unwrap(), seed).unwrap();
    mixture(&mut machine, cpus);
    machine.run().unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for name in ["skylake-2s", "epyc-2s", "desktop"] {
        let bytes = || serde_json::to_string(&run(name, 7, 8)).unwrap();
        let first = bytes();
        assert_eq!(first, bytes());
        // Nor does it matter on which thread of the host it runs, or what runs beside it.
        std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(bytes));
            threads.into_iter().for_each(|thread| assert_eq!(first, thread.join().unwrap()));
        });
    }
}

#[test]
fn another_seed_differs_in_schedule_and_not_in_books() {
    let (one, two) = (run("skylake-2s", 1, 112), run("skylake-2s", 2, 112));
    assert_ne!(one.elapsed_ns, two.elapsed_ns);
    for (a, b) in one.locks.iter().zip(&two.locks) {
        assert_eq!(a.name, b.name);
        assert_eq!(a.acquisitions + a.try_failed, b.acquisitions + b.try_failed);
    }
    assert_eq!(one.latency_ns["alloc"].count, two.latency_ns["alloc"].count);
    assert_eq!(one.frames.values().map(|f| f.count).sum::<u64>(), 112 * 40);
    assert_eq!(one.irq_off.sections, 112 * 40, "counted from the start of measuring");
}

#[test]
fn locks_exclude_under_every_schedule_and_failure() {
    for seed in 0..100 {
        let mut machine = Machine::new(&preset("desktop").unwrap(), seed).unwrap();
        machine.set_schedule(Schedule::Random { switches_per_million: 300_000 });
        machine.set_faults(Faults::swarm(seed, 8, 100_000));
        let rows = Rows::new(&mut machine, 4);
        let inside = Rc::new(Cell::new(0));
        let entered = Rc::new(Cell::new(0));
        for cpu in 0..8 {
            let (rows, inside, entered) = (rows.clone(), Rc::clone(&inside), Rc::clone(&entered));
            machine.spawn(cpu, move |handle| {
                for round in 0..40 {
                    if handle.is_leaving() {
                        return;
                    }
                    if round == 30 {
                        handle.stop_faults();
                    }
                    let lock = &rows.get(0).lock;
                    if round % 3 == 0 {
                        if !lock.try_lock() {
                            continue;
                        }
                    } else {
                        lock.lock();
                    }
                    assert_eq!(inside.replace(1), 0, "two CPUs hold the lock");
                    let word = &rows.get(1).words[0];
                    word.store(word.load(Relaxed) + 1, Relaxed);
                    entered.set(entered.get() + 1);
                    inside.set(0);
                    lock.unlock();
                }
            });
        }
        let report = machine.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(report.schedule, "random");
        assert_eq!(rows.get(1).words[0].load(Relaxed), entered.get(), "seed {seed}");
        assert_eq!(report.lock("zone_lock").unwrap().acquisitions, entered.get());
    }
}

/// A counter that is read and written without a lock: a planted race.
fn loses_an_update(schedule: Schedule, seed: u64) -> bool {
    let mut machine = Machine::new(&preset("uma-2").unwrap(), seed).unwrap();
    machine.set_schedule(schedule);
    let rows = Rows::new(&mut machine, 1);
    rows.share(&mut machine, 0..2, move |rows, _, _| {
        let word = &rows.get(0).words[0];
        word.store(word.load(Relaxed) + 1, Relaxed);
    });
    machine.run().unwrap();
    rows.get(0).words[0].load(Relaxed) != 2
}

#[test]
fn a_random_schedule_finds_a_planted_race_and_also_runs_without_it() {
    let schedule = Schedule::Random { switches_per_million: 500_000 };
    let found = (0..100).filter(|&seed| loses_an_update(schedule, seed)).count();
    assert!((10..90).contains(&found), "{found} of 100");
    let again = (0..100).filter(|&seed| loses_an_update(schedule, seed)).count();
    assert_eq!(found, again, "a seed replays");
}

#[test]
fn a_stopped_holder_keeps_the_others_waiting() {
    let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
    machine.set_faults(Faults {
        holder_stopped: Some(Stop { per_million: 1_000_000, ns_max: 100_000 }),
        ..Faults::default()
    });
    let rows = Rows::new(&mut machine, 1);
    rows.share(&mut machine, 0..2, move |rows, _, _| {
        for _ in 0..10 {
            rows.get(0).lock.lock();
            rows.get(0).lock.unlock();
        }
    });
    let report = machine.run().unwrap();
    let lock = report.lock("zone_lock").unwrap();
    assert!(lock.hold_ns_max > 10_000.0, "{}", lock.hold_ns_max);
    assert!(lock.hold_ns >= report.time.stopped_ns);
    assert!(lock.wait_ns > 0.5 * report.time.stopped_ns);
}

#[test]
fn a_cpu_leaves_at_its_time_and_the_others_go_on() {
    let mut machine = Machine::new(&preset("uma-4").unwrap(), 1).unwrap();
    machine.set_faults(Faults {
        departures: vec![Departure { cpu: 2, at_ns: 500 }],
        ..Faults::default()
    });
    let rounds = Rc::new(RefCell::new([0; 4]));
    for cpu in 0..4 {
        let rounds = Rc::clone(&rounds);
        machine.spawn(cpu, move |handle| {
            for _ in 0..10 {
                if handle.is_leaving() {
                    return;
                }
                handle.compute_ns(100);
                rounds.borrow_mut()[cpu] += 1;
            }
        });
    }
    machine.run().unwrap();
    assert_eq!(*rounds.borrow(), [10, 10, 5, 10]);
}

#[test]
fn a_torn_compare_exchange_loses_updates() {
    let lost = |torn| {
        let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
        machine.set_schedule(Schedule::Random { switches_per_million: 300_000 });
        machine.set_faults(Faults { torn, ..Faults::default() });
        let rows = Rows::new(&mut machine, 1);
        rows.share(&mut machine, 0..2, move |rows, _, _| {
            let word = &rows.get(0).words[0];
            for _ in 0..100 {
                let mut held = word.load(Relaxed);
                while let Err(now) = word.compare_exchange(held, held + 1, Relaxed, Relaxed) {
                    held = now;
                }
            }
        });
        machine.run().unwrap();
        200 - rows.get(0).words[0].load(Relaxed)
    };
    let bytes = size_of::<u64>();
    assert_eq!(lost(None), 0);
    assert!(lost(Some(Torn { bytes, data: None })) > 0);
    assert!(lost(Some(Torn { bytes, data: Some("other") })) > 0);
    assert_eq!(lost(Some(Torn { bytes, data: Some("lru_frames") })), 0);
    assert_eq!(lost(Some(Torn { bytes: bytes / 2, data: None })), 0);
}

#[test]
fn the_hint_of_the_cpu_may_be_wrong() {
    let mut machine = Machine::new(&preset("uma-4").unwrap(), 1).unwrap();
    machine.set_faults(Faults { cpu_hint_wrong_per_million: 500_000, ..Faults::default() });
    machine.spawn(1, |handle| {
        let right = (0..1000).filter(|_| Sim.cpu() == handle.cpu()).count();
        assert!((500..750).contains(&right), "{right}: half, and a quarter of the rest by chance");
        handle.stop_faults();
        assert!((0..1000).all(|_| Sim.pin().cpu == handle.cpu()));
    });
    machine.run().unwrap();
}

#[test]
fn a_lock_that_a_preemptible_caller_takes_ends_the_run() {
    let run = |work: fn(&SimLock)| {
        let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
        machine.require_pins();
        let lock = SimLock::new(LockClass::Zone);
        machine.spawn(0, move |_| work(&lock));
        machine.run().map(drop).map_err(|error| error.to_string())
    };
    let refused = run(|lock| lock.lock()).unwrap_err();
    assert!(refused.contains("zone_lock is taken by a caller that is not pinned"), "{refused}");
    assert!(run(|lock| assert!(lock.try_lock())).is_err());
    let pinned = run(|lock| {
        let (outer, inner) = (Sim.pin(), Sim.pin());
        Sim.unpin(inner.state);
        lock.lock();
        lock.unlock();
        Sim.unpin(outer.state);
        let irq = Sim.irq_save();
        lock.lock();
        lock.unlock();
        Sim.irq_restore(irq);
    });
    assert_eq!(pinned, Ok(()));
    let crossed = run(|_| {
        let (outer, _inner) = (Sim.pin(), Sim.pin());
        Sim.unpin(outer.state);
    });
    assert!(crossed.unwrap_err().contains("the last pin ends first"));
}

#[test]
fn a_deadlock_names_the_locks_their_holders_and_the_waiters() {
    let mut machine = Machine::new(&preset("uma-4").unwrap(), 42).unwrap();
    let (a, b) = (machine.lock("lock_a", NodeId::new(0)), machine.lock("lock_b", NodeId::new(0)));
    let gate = machine.barrier(2);
    for (cpu, first, second) in [(0, a, b), (1, b, a)] {
        machine.spawn(cpu, move |handle| {
            handle.lock(first);
            handle.compute_ns(1000);
            handle.lock(second);
        });
    }
    machine.spawn(3, move |handle| handle.wait(gate));
    let error = machine.run().unwrap_err();
    let RunError::Deadlock { seed: 42, waits, .. } = &error else { panic!("{error}") };
    assert_eq!(
        waits,
        "lock_a 0 is held by CPU 0 and waited for by CPU 1; \
         lock_b 0 is held by CPU 1 and waited for by CPU 0; \
         barrier 0 of 2 has only CPU 3"
    );
}

/// Drops a lock guard on unwinding, as an allocator does.
struct Guard(Rows);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.get(0).lock.unlock();
    }
}

#[test]
fn a_panic_names_the_cpu_the_time_and_the_seed_and_frees_the_thread() {
    let mut machine = Machine::new(&preset("uma-4").unwrap(), 9).unwrap();
    let rows = Rows::new(&mut machine, 1);
    let alive = Rc::new(());
    for cpu in 0..4 {
        let (rows, alive) = (rows.clone(), Rc::clone(&alive));
        machine.spawn(cpu, move |handle| {
            let _alive = alive;
            handle.compute_ns(cpu as u64);
            rows.get(0).lock.lock();
            let _guard = Guard(rows);
            handle.compute_ns(1000);
            handle.in_order();
            assert!(cpu != 1, "frame {cpu} is free already");
        });
    }
    let error = machine.run().unwrap_err();
    let RunError::Panicked { cpu: 1, seed: 9, message, .. } = &error else { panic!("{error}") };
    assert_eq!(message, "frame 1 is free already");
    assert!(error.to_string().starts_with("CPU 1 panicked at "), "{error}");
    assert_eq!(Rc::strong_count(&alive), 1, "the work of all CPUs was dropped");
    // The thread can run another machine.
    run("uma-4", 1, 4);
}

#[test]
fn misuse_of_locks_is_refused() {
    let fails = |work: fn(&Rows)| {
        let mut machine = Machine::new(&preset("uma-1").unwrap(), 1).unwrap();
        let rows = Rows::new(&mut machine, 1);
        machine.spawn(0, move |_| work(&rows));
        machine.run().unwrap_err().to_string()
    };
    let error = fails(|rows| {
        rows.get(0).lock.lock();
        rows.get(0).lock.lock();
    });
    assert!(error.contains("CPU 0 waits for zone_lock 0, which it holds itself"), "{error}");
    let error = fails(|rows| rows.get(0).lock.unlock());
    assert!(error.contains("CPU 0 releases zone_lock 0, which it does not hold"), "{error}");
}

#[test]
fn a_machine_inside_a_machine_is_refused() {
    let mut machine = Machine::new(&preset("uma-1").unwrap(), 1).unwrap();
    machine.spawn(0, |_| {
        run("uma-1", 1, 1);
    });
    let error = machine.run().unwrap_err().to_string();
    assert!(error.contains("a machine cannot run inside another one"), "{error}");
}

#[test]
fn all_cpus_of_the_largest_machines_run() {
    for (name, cpus) in [("epyc-2s", 256), ("skylake-4s", 224)] {
        let report = run(name, 3, cpus);
        assert_eq!(report.cpus, cpus);
        assert_eq!(report.latency_ns["alloc"].count, 40 * cpus as u64);
    }
}

#[test]
fn work_that_never_ends_is_given_up() {
    let mut machine = Machine::new(&preset("uma-4").unwrap(), 1).unwrap();
    machine.set_patience(50_000);
    let rows = Rows::new(&mut machine, 1);
    rows.share(&mut machine, 0..2, move |rows, _, _| {
        rows.get(0).lock.lock();
        let _guard = Guard(rows.clone());
        // The first one holds the lock forever, the other one waits for it.
        loop {
            rows.get(0).words[0].fetch_add(1, Relaxed);
        }
    });
    let error = machine.run().unwrap_err();
    let RunError::Panicked { message, .. } = &error else { panic!("{error}") };
    assert!(message.contains("still at work after 50000 accesses"), "{error}");
}

/// Beyond its end, times would be compared wrongly, and one CPU would run alone.
#[test]
fn virtual_time_ends_with_an_error() {
    let run = |seconds: u64| {
        let mut machine = Machine::new(&preset("uma-2").unwrap(), 1).unwrap();
        let rows = Rows::new(&mut machine, 1);
        for _ in 0..2 {
            let rows = rows.clone();
            let cpu = usize::from(machine.now_ns() > 0);
            machine.spawn(cpu, move |handle| {
                handle.compute_ns(seconds * 1_000_000_000);
                rows.get(0).words[0].store(1, Relaxed);
            });
            machine.run()?;
        }
        Ok::<_, RunError>(())
    };
    run(250).unwrap();
    let error = run(300).unwrap_err();
    let RunError::Panicked { message, .. } = &error else { panic!("{error}") };
    assert_eq!(message, "virtual time ends after 562 s: give the machine less work");
}
