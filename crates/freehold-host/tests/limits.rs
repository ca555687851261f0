//! Limits that a machine sets to a process: memory and CPUs of control groups, CPUs taken away from
//! threads, address space. Each in a child process. A program of its own, since a child begins with
//! the address space that other tests have mapped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use freehold::{FrameCount, Order, Pfn, Request, Watermark};
use freehold_host::{Arena, FrameArena, HostError, Leases};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::{CpuSet, Pid, gettid, sched_setaffinity};

use cgroup::Cgroup;
use common::in_child;

#[path = "common/cgroup.rs"]
mod cgroup;
mod common;

const MIB: usize = 1 << 20;

/// Of the group in which children are.
const LIMIT_MIB: usize = 64;

/// Frames of 48 MiB: less than the limit, and twice as much is more.
const FRAMES: u64 = 48 << 8;

fn arena() -> FrameArena {
    let builder = Arena::builder().bytes(256 * MIB).cpus(2).nodes(1);
    builder.min_free(FrameCount::ZERO).build_frames().expect("256 MiB of addresses")
}

fn limited() -> Option<Cgroup> {
    let group = Cgroup::new("memory")?;
    let limit = (LIMIT_MIB * MIB).to_string();
    let set = group.set(("memory.limit_in_bytes", "memory.max"), &limit);
    // Not all have swap to limit.
    let _swap = group.set(("memory.swappiness", "memory.swap.max"), "0");
    set.map_err(|why| eprintln!("SKIPPED: no limit: {why}")).ok().map(|()| group)
}

/// Ten times almost as much as the limit, each time in other frames: what was freed and purged
/// counts no more.
#[test]
fn memory_that_was_purged_does_not_count_against_a_limit() {
    let Some(group) = limited() else { return };
    let ended = in_child(|| {
        group.enter();
        let frames = arena();
        for _ in 0..10 {
            let taken: Vec<_> =
                (0..FRAMES).map(|_| frames.alloc(Request::default()).expect("free")).collect();
            taken.iter().for_each(|&pfn| frames.store_byte(pfn, 1));
            // Some stay, so that the next ones are others.
            taken.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).expect("ours"));
            assert!(frames.purge().expect("private memory").get() >= FRAMES);
        }
    });
    assert_eq!(ended, Ok(()));
}

/// What a user sees who has more than the limit in use: an error that a prefault returns, if the
/// kernel has one for it, or the end of the process by SIGKILL. No call of an arena can tell.
#[test]
fn more_than_the_limit_ends_the_process() {
    let Some(group) = limited() else { return };
    let ended = in_child(|| {
        group.enter();
        let frames = arena();
        let populated = frames.prefault(Pfn::new(0), FrameCount::new(2 * FRAMES), 1);
        assert!(matches!(populated, Err(HostError::Advise { .. })), "{populated:?}");
    });
    let killed = Err(format!("the child died of signal {}", libc::SIGKILL));
    assert!(ended.is_ok() || ended == killed, "{ended:?}");
    let ended = in_child(|| {
        group.enter();
        let frames = arena();
        (0..2 * FRAMES).for_each(|nth| frames.store_byte(Pfn::new(nth), 1));
    });
    assert_eq!(ended, killed);
}

#[test]
fn without_address_space_an_arena_says_so() {
    let ended = in_child(|| {
        let limit = Rlimit { current: Some(1 << 30), maximum: Some(1 << 30) };
        setrlimit(Resource::As, limit).expect("lower than before");
        let error = Arena::builder().bytes(2 << 30).cpus(2).nodes(1).build_frames();
        let message = error.expect_err("more than the limit").to_string();
        assert!(message.contains("`ulimit -v`"), "{message}");
        drop(arena());
    });
    assert_eq!(ended, Ok(()));
}

/// Threads that allocate and free while their CPUs change.
fn work_while(change: impl FnOnce(&[Pid])) {
    const THREADS: usize = 6;
    let builder = Arena::builder().bytes(64 * MIB).cpus(2).nodes(1).leases(Leases::Auto);
    let arena = builder.build_frames().expect("64 MiB");
    let (stop, pairs) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let (to_test, id) = std::sync::mpsc::channel();
                let (arena, stop, pairs) = (&arena, &stop, &pairs);
                scope.spawn(move || {
                    to_test.send(gettid()).expect("it is waited for");
                    while !stop.load(Relaxed) {
                        let orders = [0, 3, 0, 9].map(Order::new);
                        let taken = orders.map(|order| arena.alloc(Request::new(order)));
                        for (taken, order) in taken.into_iter().zip(orders) {
                            arena.free(taken.expect("there is plenty"), order).expect("ours");
                        }
                        pairs.fetch_add(1, Relaxed);
                    }
                });
                id.recv().expect("the thread has begun")
            })
            .collect();
        change(&threads);
        stop.store(true, Relaxed);
    });
    assert!(pairs.load(Relaxed) > 1000);
    arena.allocator().drain_all();
    let request = Request::default().watermark(Watermark::Ignore);
    let all = std::iter::from_fn(|| arena.alloc(request).ok()).count();
    assert_eq!(all as u64, arena.total_frames().get(), "nothing is lost");
}

fn two_cpus() -> Option<[u32; 2]> {
    let allowed = freehold_host::allowed_cpus().expect("the kernel says so");
    let cpus = [allowed.first()?.get(), allowed.get(1).map_or_else(skip, |cpu| Some(cpu.get()))?];
    Some(cpus)
}

fn skip() -> Option<u32> {
    eprintln!("SKIPPED: only one CPU");
    None
}

#[test]
fn cpus_are_taken_from_threads_in_the_middle() {
    let Some(cpus) = two_cpus() else { return };
    let ended = in_child(|| {
        work_while(|threads| {
            for round in 0..100 {
                for (nth, &thread) in threads.iter().enumerate() {
                    let mut set = CpuSet::new();
                    set.set(cpus[(round + nth * (round % 3)) % 2] as usize);
                    sched_setaffinity(Some(thread), &set).expect("a CPU that it may have");
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
    });
    assert_eq!(ended, Ok(()));
}

#[test]
fn cpus_are_taken_from_the_group_in_the_middle() {
    let (Some(cpus), Some(group)) = (two_cpus(), Cgroup::new("cpuset")) else { return };
    let names = ("cpuset.cpus", "cpuset.cpus");
    let _memory = group.set(("cpuset.mems", "cpuset.mems"), "0");
    let set = |cpus: String| group.set(names, &cpus);
    if let Err(why) = set(format!("{},{}", cpus[0], cpus[1])) {
        eprintln!("SKIPPED: no CPUs of a group: {why}");
        return;
    }
    let ended = in_child(|| {
        group.enter();
        work_while(|_| {
            for round in 0..40 {
                set(cpus[round % 2].to_string()).expect("one of its CPUs");
                thread::sleep(Duration::from_millis(10));
            }
        });
    });
    assert_eq!(ended, Ok(()));
}
