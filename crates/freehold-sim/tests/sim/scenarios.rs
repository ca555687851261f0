//! Scenarios whose counts and costs can be worked out by hand, on skylake-2s unless said otherwise:
//! L1 1.1 ns, L2 4.7, LLC 19.5, memory 81.3 and 131.1, a dirty line 53.8 in the socket and 113.9 or
//! 175.7 across, 6.1 for an atomic, a waiter notices after 28.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;

use crate::books::{check_books, near};
use crate::rows::{Rows, skylake};
use freehold::platform::{Platform, RawLock, SharedCell, Word};
use freehold::{FrameCount, NodeId, Pfn};
use freehold_sim::{Home, Key, Machine, Path, Report, Sim, Spec, preset};

const L1: f64 = 1.1;
const LOCAL: f64 = 81.3;
const SAME_LLC: f64 = 53.8;
const RMW: f64 = 6.1;
const NOTICE: f64 = 28.0;

fn tiny(changes: &[(Key, f64)]) -> Spec {
    let mut spec = preset("skylake-2s").unwrap();
    for &(key, value) in changes {
        spec.set(key, value, "a test");
    }
    spec
}

/// How many accesses of all kinds of data a place served.
fn served(report: &Report, place: &str) -> u64 {
    report.data.iter().filter_map(|data| data.served.get(place)).map(|place| place.count).sum()
}

#[test]
fn two_cpus_ping_pong_a_line() {
    const ROUNDS: u64 = 1000;
    let report = Rows::run(1, 0..2, |rows, _, _| {
        for round in 0..ROUNDS {
            rows.get(0).words[0].store(round, Relaxed);
        }
    });
    check_books(&report);
    // The first store fetches the line from memory, every later one from the other core, and the
    // transfers are one after the other.
    assert_eq!(served(&report, "local_dram"), 1);
    assert_eq!(served(&report, "same_llc"), 2 * ROUNDS - 1);
    near(report.elapsed_ns, LOCAL + (2 * ROUNDS - 1) as f64 * SAME_LLC);
}

#[test]
fn a_line_between_sockets_costs_by_its_home() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    machine.home(&rows.region, 0..64, Home::Node(NodeId::new(0)));
    rows.share(&mut machine, [0, 28], move |rows, cpu, handle| {
        handle.idle_ns(if cpu == 0 { 0 } else { 1000 });
        for round in 0..10 {
            rows.get(0).words[0].store(round, Relaxed);
            handle.idle_ns(2000);
        }
    });
    let report = machine.run().unwrap();
    // CPU 28 reads what the writer's node is home to, CPU 0 what its own node is home to.
    let remote = &report.data[0].served["remote_cache"];
    assert_eq!(remote.count, 19);
    near(remote.time_ns, 10.0 * 113.9 + 9.0 * 175.7);
    near(report.time.memory_ns, LOCAL + remote.time_ns);
}

#[test]
fn two_words_in_one_line_are_falsely_shared_and_in_two_lines_are_not() {
    let run = |second_row| {
        Rows::run(2, 0..2, move |rows, cpu, _| {
            let (row, word) = if cpu == 0 { (0, 0) } else { second_row };
            for round in 0..100 {
                rows.get(row).words[word].store(round, Relaxed);
            }
        })
    };
    let shared = run((0, 1));
    assert_eq!(served(&shared, "same_llc"), 199);
    near(shared.elapsed_ns, LOCAL + 199.0 * SAME_LLC);
    let apart = run((1, 0));
    assert_eq!(served(&apart, "same_llc"), 0);
    assert_eq!(served(&apart, "l1"), 198);
    // Two reads of memory at once: the second waits 64 bytes at 74.955 GB/s.
    near(apart.elapsed_ns, LOCAL + 0.854 + 99.0 * L1);
}

#[test]
fn a_queue_of_three_waits_in_order() {
    let report = Rows::run(1, 0..3, |rows, cpu, handle| {
        // They come 200 ns apart, while CPU 0 holds the lock for 1000.
        handle.idle_ns(200 * cpu as u64);
        handle.on_path(Path::Alloc, || rows.get(0).lock.lock());
        handle.compute_ns(1000);
        handle.on_path(Path::Free, || rows.get(0).lock.unlock());
    });
    check_books(&report);
    let lock = report.lock("zone_lock").unwrap();
    assert_eq!((lock.instances, lock.acquisitions, lock.contended), (1, 3, 2));
    // CPU 0 has the lock when it has the line.
    let first = LOCAL + RMW;
    // CPU 1 came at 200 and took the line; CPU 2 came at 400 and took it, and CPU 1, first in the
    // queue, read it back. So CPU 0's release invalidates two copies of the same socket.
    let released = first + 1000.0 + SAME_LLC;
    let second = released + NOTICE + SAME_LLC + RMW;
    // Now CPU 2 is first and read the line after that, so the second release is the same again.
    let released_again = second + 1000.0 + SAME_LLC;
    let third = released_again + NOTICE + SAME_LLC + RMW;
    near(lock.wait_ns, (second - 200.0) + (third - 400.0));
    near(lock.wait_ns_max, third - 400.0);
    near(lock.hold_ns, 3000.0);
    near(lock.hold_ns_max, 1000.0);
    near(report.elapsed_ns, third + 1000.0 + L1);
    near(report.time_share["zone_lock.alloc"], lock.wait_ns / report.time.all_ns);
    near(report.time_share["zone_lock.free"], 0.0);
}

#[test]
fn data_beside_a_contended_lock_are_taken_from_the_holder() {
    let run = |row| {
        Rows::run(2, 0..2, move |rows, cpu, handle| {
            handle.idle_ns(200 * cpu as u64);
            rows.get(0).lock.lock();
            for round in 0..10 {
                handle.compute_ns(500);
                rows.get(row).words[0].store(round, Relaxed);
            }
            rows.get(0).lock.unlock();
        })
    };
    // In the lock's line each store of the first holder invalidates the waiter's copy, or, the
    // first time, fetches the line that the waiter's arrival took.
    assert_eq!(served(&run(0), "upgrade"), 10);
    assert_eq!(served(&run(1), "upgrade"), 0);
}

#[test]
fn try_lock_fails_at_once_while_another_holds() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    let seen = Rc::new(RefCell::new(Vec::new()));
    for cpu in 0..2 {
        let (rows, seen) = (rows.clone(), Rc::clone(&seen));
        machine.spawn(cpu, move |handle| {
            let lock = &rows.get(0).lock;
            if cpu == 0 {
                lock.lock();
                handle.compute_ns(1000);
                lock.unlock();
            } else {
                handle.idle_ns(500);
                seen.borrow_mut().push(lock.try_lock());
                handle.idle_ns(1000);
                seen.borrow_mut().push(lock.try_lock());
                lock.unlock();
            }
        });
    }
    let report = machine.run().unwrap();
    assert_eq!(*seen.borrow(), [false, true]);
    let lock = report.lock("zone_lock").unwrap();
    assert_eq!((lock.acquisitions, lock.contended, lock.try_failed), (2, 0, 1));
    near(lock.wait_ns, 0.0);
}

/// One CPU writes `lines` lines in turn, `rounds` times over; returns where the last round hit.
fn sweep(spec: &Spec, lines: usize, rounds: usize) -> Report {
    let mut machine = Machine::new(spec, 1).unwrap();
    let rows = Rows::new(&mut machine, lines);
    let gate = machine.barrier(1);
    machine.spawn(0, move |handle| {
        for round in 0..rounds {
            if round + 1 == rounds {
                handle.start_measuring(gate);
            }
            for row in 0..lines {
                rows.get(row).words[0].store(round as u64, Relaxed);
            }
        }
    });
    machine.run().unwrap()
}

#[test]
fn a_working_set_is_served_by_the_smallest_cache_that_holds_it() {
    // 16 lines of L1, 64 of L2, 256 of last-level cache.
    let spec = tiny(&[(Key::L1Kib, 1.0), (Key::L2Kib, 4.0), (Key::LlcKib, 16.0)]);
    for (lines, place, ns) in [
        (16, "l1", 1.1),
        (64, "l1", 1.1), // lines that hit push nothing out: the model's known optimism
        (65, "llc", 19.5),
        (320, "llc", 19.5),
        (400, "local_dram", 81.3),
    ] {
        let report = sweep(&spec, lines, 4);
        assert_eq!(served(&report, place), lines as u64, "{lines} lines");
        near(report.time.memory_ns / lines as f64, ns);
    }
    let report = sweep(&spec, 400, 4);
    assert_eq!(report.memory[0].bytes_read, 400 * 64, "each line is read");
    assert_eq!(report.memory[0].bytes_written, 400 * 64, "and the dirty one it pushes out written");
}

#[test]
fn neighbours_push_a_core_s_lines_out_of_the_llc_it_shares() {
    let spec = tiny(&[(Key::L1Kib, 1.0), (Key::L2Kib, 4.0), (Key::LlcKib, 16.0)]);
    let run = |neighbour: usize| {
        let mut machine = Machine::new(&spec, 1).unwrap();
        let rows = Rows::new(&mut machine, 1500);
        let (gate, again) = (machine.barrier(2), machine.barrier(2));
        let other = rows.clone();
        machine.spawn(0, move |handle| {
            // 100 lines: more than the core holds, fewer than the last-level cache.
            (0..100).for_each(|row| rows.get(row).words[0].store(1, Relaxed));
            handle.wait(gate);
            handle.wait(again);
            rows.get(0).words[0].load(Relaxed);
        });
        machine.spawn(neighbour, move |handle| {
            handle.wait(gate);
            (500..1500).for_each(|row| other.get(row).words[0].store(1, Relaxed));
            handle.start_measuring(again);
        });
        machine.run().unwrap()
    };
    assert_eq!(served(&run(1), "local_dram"), 1, "a core of the same socket");
    assert_eq!(served(&run(28), "llc"), 1, "a core of another socket");
}

#[test]
fn clearing_frames_pushes_records_out_of_the_caches() {
    let run = |frames: u64| {
        let mut machine = skylake();
        let rows = Rows::new(&mut machine, 1);
        machine.follow_frames(Pfn::new(0), FrameCount::new(20_000));
        let gate = machine.barrier(1);
        machine.spawn(0, move |handle| {
            rows.get(0).words[0].store(1, Relaxed);
            (0..frames).for_each(|pfn| handle.clear_frame(Pfn::new(pfn), NodeId::new(0)));
            handle.start_measuring(gate);
            rows.get(0).words[0].load(Relaxed);
        });
        machine.run().unwrap()
    };
    // 1 MiB of private cache is 256 frames, 38.5 MiB of last-level cache 9856 more.
    assert_eq!(served(&run(255), "l2"), 1);
    assert_eq!(served(&run(256), "llc"), 1);
    assert_eq!(served(&run(256 + 9855), "llc"), 1);
    assert_eq!(served(&run(256 + 9856), "local_dram"), 1);
}

#[test]
fn siblings_share_a_core_and_slow_each_other() {
    let run = |cpus: [usize; 2]| {
        Rows::run(1, cpus, |rows, _, handle| {
            handle.compute_ns(1000);
            rows.get(0).words[0].store(1, Relaxed);
        })
    };
    // CPU 56 is the sibling of CPU 0: both compute 1.538 times as long, and the second to store
    // finds the line in the core, after it has waited for it to arrive.
    let siblings = run([0, 56]);
    near(siblings.time.compute_ns, 2.0 * 1538.0);
    assert_eq!((served(&siblings, "l1"), served(&siblings, "same_llc")), (1, 0));
    let cores = run([0, 1]);
    near(cores.time.compute_ns, 2000.0);
    assert_eq!((served(&cores, "l1"), served(&cores, "same_llc")), (0, 1));
    // A sibling that waits for a lock or a barrier leaves the core to the other.
    let mut machine = skylake();
    let gate = machine.barrier(2);
    machine.spawn(56, move |handle| handle.wait(gate));
    machine.spawn(0, move |handle| {
        handle.in_order();
        handle.idle_ns(1);
        handle.in_order();
        handle.compute_ns(1000);
        handle.wait(gate);
    });
    near(machine.run().unwrap().time.compute_ns, 1000.0);
}

#[test]
fn the_memory_of_a_node_delivers_only_so_much() {
    // 28 cores clear 100 frames each. 64 lines at 0.854 ns each are 54.656 ns a frame.
    let run = |node: fn(usize) -> u16| {
        let mut machine = skylake();
        for cpu in 0..28 {
            machine.spawn(cpu, move |handle| {
                for frame in 0..100 {
                    let pfn = cpu as u64 * 100 + frame;
                    handle.clear_frame(Pfn::new(pfn), NodeId::new(node(cpu)));
                }
            });
        }
        machine.run().unwrap()
    };
    let one = run(|_| 0);
    near(one.elapsed_ns, 28.0 * 100.0 * 54.656);
    assert_eq!(one.memory[0].bytes_written, 2800 * 4096);
    assert!(one.memory[0].busy > 0.999);
    let both = run(|cpu| (cpu % 2) as u16);
    near(both.elapsed_ns, 14.0 * 100.0 * 54.656);
    assert_eq!(both.frames["local_dram"].count, 1400);
    assert_eq!(both.frames["remote_dram"].count, 1400);
}

#[test]
fn remote_memory_costs_more_than_local() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 256);
    machine.home(&rows.region, 0..64 * 64, Home::Node(NodeId::new(1)));
    machine.home(&rows.region, 64 * 64..256 * 64, Home::Interleave);
    machine.spawn(0, move |_| {
        for row in 0..256 {
            rows.get(row).words[0].load(Relaxed);
        }
    });
    let report = machine.run().unwrap();
    // 64 lines at node 1, then pages of 64 lines at nodes 0, 1 and 0.
    assert_eq!(served(&report, "local_dram"), 128);
    near(report.time.memory_ns, 128.0 * 81.3 + 128.0 * 131.1);
}

#[test]
fn the_longest_stretch_without_interrupts_is_found() {
    let mut machine = skylake();
    machine.spawn(0, |handle| {
        let outer = Sim.irq_save();
        handle.compute_ns(100);
        let inner = Sim.irq_save();
        handle.compute_ns(200);
        Sim.irq_restore(inner);
        handle.compute_ns(300);
        Sim.irq_restore(outer);
        handle.compute_ns(1000);
        handle.on_path(Path::Free, || {
            let state = Sim.irq_save();
            handle.compute_ns(50);
            Sim.irq_restore(state);
        });
    });
    let report = machine.run().unwrap();
    check_books(&report);
    assert_eq!(report.irq_off.sections, 2, "a nested section is part of the outer one");
    // The flag is set at the end of the first 4.7 ns and reset at the start of the last.
    near(report.irq_off.ns_max, 600.0 + 2.0 * 4.7);
    assert_eq!(report.irq_off.ns_max_path, Some("other"));
    let all = 650.0 + 1000.0 + 6.0 * 4.7;
    near(report.time.all_ns, all);
    near(report.irq_off.share, (650.0 + 2.0 * 4.7) / all);
}

#[test]
fn private_cells_are_charged_without_a_turn() {
    let report = Rows::run(2, 0..2, |rows, cpu, _| {
        let local = &rows.get(cpu).local;
        (0..100).for_each(|_| local.set(local.get() + 1));
    });
    // The others are the two ends, in the order of time.
    assert_eq!(report.switches, 4, "each CPU did all its accesses in one go");
    assert_eq!(served(&report, "l1"), 398);
}

#[test]
fn misses_are_told_apart_by_kind_and_by_lock() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 4);
    let records = machine.kind("frame metadata");
    let lists = machine.kind("lists");
    machine.label(&rows.region, 0..128, records);
    machine.label(&rows.region, 128..256, lists);
    assert_eq!(machine.kind("lists"), lists);
    machine.spawn(0, move |_| {
        rows.get(0).lock.lock();
        rows.get(1).words[0].load(Relaxed);
        rows.get(2).words[0].load(Relaxed);
        rows.get(0).lock.unlock();
        rows.get(3).words[0].load(Relaxed);
    });
    let report = machine.run().unwrap();
    let of = |name: &str| {
        let data = report.data.iter().find(|data| data.data == name).unwrap();
        (data.accesses, data.misses, data.misses_under_lock)
    };
    assert_eq!(of("frame metadata"), (3, 2, 1), "the lock's line was not yet under the lock");
    assert_eq!(of("lists"), (2, 2, 1));
    assert_eq!(report.accesses(), 5);
}

#[test]
fn latencies_and_workload_locks_are_reported() {
    let mut machine = skylake();
    let lru = machine.lock("lru_lock", NodeId::new(0));
    for cpu in 0..4 {
        machine.spawn(cpu, move |handle| {
            for _ in 0..100 {
                handle.timed(Path::Alloc, || {
                    handle.lock(lru);
                    handle.charge(Key::AccountingNs);
                    handle.unlock(lru);
                });
                handle.timed(Path::Free, || handle.compute_ns(70));
            }
        });
    }
    let report = machine.run().unwrap();
    check_books(&report);
    assert_eq!(report.latency_ns["free"].p50, 70);
    assert_eq!(report.latency_ns["alloc"].count, 400);
    assert!(report.latency_ns["alloc"].max >= report.latency_ns["alloc"].p999);
    assert!(report.time_share["lru_lock.alloc"] > 0.2);
    assert_eq!(report.lock("lru_lock").unwrap().acquisitions, 400);
}

#[test]
fn a_machine_goes_on_from_run_to_run() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    let mut read = || {
        let rows = rows.clone();
        machine.spawn(0, move |_| _ = rows.get(0).words[0].load(Relaxed));
        let report = machine.run().unwrap();
        (report.elapsed_ns, machine.now_ns())
    };
    assert_eq!(read(), (LOCAL, 81));
    assert_eq!(read(), (L1, 82), "the line is still in the cache");
}
