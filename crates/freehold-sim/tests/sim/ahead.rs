//! CPUs that run ahead of others, since what they touch is theirs alone, and lines on their way.

use std::sync::atomic::Ordering::Relaxed;

use crate::rows::{Rows, skylake};
use freehold::platform::{SharedCell, Word};
use freehold_sim::CpuHandle;

/// How long something takes on a CPU, in picoseconds.
fn took_ps(handle: &CpuHandle, work: impl FnOnce()) -> u64 {
    let began_ps = handle.now_ps();
    work();
    handle.now_ps() - began_ps
}

#[test]
fn a_cpu_far_ahead_does_not_keep_the_memory_busy_for_others() {
    const READERS: usize = 10;
    const READS: usize = 200;
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1 + READERS * READS);
    let own = rows.clone();
    machine.spawn(0, move |handle| {
        handle.compute_ns(1_000_000);
        own.get(0).local.set(1);
        assert_eq!(handle.now_ps(), 1_000_000_000 + 81_300);
    });
    for reader in 0..READERS {
        let rows = rows.clone();
        machine.spawn(1 + reader, move |handle| {
            // A few nanoseconds apart, so that the memory serves one line after the other.
            handle.idle_ns(100 + 5 * reader as u64);
            for read in 0..READS {
                let row = rows.get(1 + reader * READS + read);
                assert_eq!(took_ps(handle, || _ = row.words[0].load(Relaxed)), 81_300);
            }
        });
    }
    machine.run().unwrap();
}

#[test]
fn a_cpu_far_ahead_does_not_hold_up_a_line() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    let other = rows.clone();
    machine.spawn(0, move |handle| {
        handle.compute_ns(1_000_000);
        rows.get(0).local.set(1);
        assert_eq!(handle.now_ps(), 1_000_000_000 + 53_800, "the line is CPU 1's by then");
    });
    machine.spawn(1, move |handle| {
        handle.idle_ns(100);
        let first = took_ps(handle, || other.get(0).words[0].store(1, Relaxed));
        let second = took_ps(handle, || other.get(0).words[0].store(1, Relaxed));
        assert_eq!((first, second), (81_300, 1_100));
    });
    machine.run().unwrap();
}

#[test]
fn a_cpu_far_ahead_shares_no_line_before_its_time() {
    // CPU 1 has the line to itself for as long as CPU 0 has not come.
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    let other = rows.clone();
    machine.spawn(0, move |handle| {
        rows.get(0).local.set(1);
        handle.idle_ns(500);
        handle.compute_ns(1_000_000);
        rows.get(0).local.set(1);
    });
    machine.spawn(1, move |handle| {
        handle.idle_ns(200);
        other.get(0).words[0].load(Relaxed);
        handle.idle_ns(1000);
        // The copy of CPU 0 has to go, and only once.
        let first = took_ps(handle, || other.get(0).words[0].store(1, Relaxed));
        handle.idle_ns(1000);
        let second = took_ps(handle, || other.get(0).words[0].store(2, Relaxed));
        assert_eq!((first, second), (53_800, 1_100));
    });
    machine.run().unwrap();
}

#[test]
fn a_sibling_waits_for_a_copy_that_is_on_its_way_to_their_core() {
    let mut machine = skylake();
    let rows = Rows::new(&mut machine, 1);
    // CPU 56 is the sibling of CPU 0. CPU 5 has the line, and then CPU 0 gets a copy.
    let read = |cpu: usize, at_ns: u64, takes_ps: u64| {
        let rows = rows.clone();
        let work = move |handle: &CpuHandle| {
            handle.idle_ns(at_ns);
            let took = took_ps(handle, || _ = rows.get(0).words[0].load(Relaxed));
            assert_eq!(took, takes_ps, "CPU {cpu} at {at_ns} ns");
        };
        (cpu, work)
    };
    // A hit takes 1.1 ns, and 1.538 times as long beside a sibling at work.
    let reads = [read(5, 0, 81_300), read(0, 1000, 53_800), read(56, 1010, 43_800 + 1_691)];
    for (cpu, work) in reads {
        machine.spawn(cpu, work);
    }
    // The same for one copy more, from the last-level cache: CPU 64 is the sibling of CPU 8.
    let more = [read(6, 3000, 19_500), read(8, 5000, 19_500), read(64, 5010, 9_500 + 1_691)];
    for (cpu, work) in more {
        machine.spawn(cpu, work);
    }
    let again = rows.clone();
    machine.spawn(7, move |handle| {
        handle.idle_ns(2000);
        again.get(0).words[0].load(Relaxed);
        handle.idle_ns(990);
        // A copy on its way to CPU 6 does not hold up one that CPU 7 has.
        assert_eq!(took_ps(handle, || _ = again.get(0).words[0].load(Relaxed)), 1_100);
    });
    machine.run().unwrap();
}
