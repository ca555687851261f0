//! The torture, with threads as CPUs, on every design.

use std::sync::atomic::AtomicU64;

use freehold::designs::{Design, Freehold};
use freehold_conformance::{Tally, Torture, Worker};

use crate::machine::{Platform, machine, run_on};

test_designs!(Platform: [threads_share_memory, memory_is_short]);

/// Two CPUs, each with a thread and a handler, which runs between the thread's steps.
fn run<D: Design<Platform> + Sync>(frames: u64, slots: usize) -> Tally {
    const CPUS: u32 = 2;
    let (allocator, memory) = machine::<D>(CPUS as usize, frames);
    let slots: Vec<_> = (0..slots).map(|_| AtomicU64::new(0)).collect();
    let torture = Torture::new(&allocator, &memory, &slots);
    let free = torture.prepare().expect("an idle allocator");
    assert_eq!(free.get(), frames);
    let work = |cpu: u32| {
        run_on(cpu);
        let (mut thread, mut handler) =
            (Worker::new(u64::from(cpu)), Worker::new(u64::from(CPUS + cpu)));
        for step in 0..10_000 {
            torture.step(&mut thread);
            if step % 4 == 0 {
                torture.interrupt(&mut handler);
            }
        }
        [thread, handler]
    };
    let work = &work;
    let mut workers: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CPUS).map(|cpu| scope.spawn(move || work(cpu))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    let done = torture.finish(&mut workers, free);
    let (tally, census) = done.unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!((census.allocated.get(), census.managed.get()), (0, frames));
    assert!(tally.allocated > 10_000, "{tally:?}");
    tally
}

fn threads_share_memory<D: Design<Platform> + Sync>() {
    let tally = run::<D>(65_536, 64);
    assert_eq!(tally.out_of_memory + tally.below_watermark, 0, "{tally:?}");
}

fn memory_is_short<D: Design<Platform> + Sync>() {
    let tally = run::<D>(2048, 512);
    assert!(tally.out_of_memory + tally.below_watermark > 100, "{tally:?}");
}

#[test]
fn a_seed_decides() {
    let once = || {
        let (allocator, memory) = machine::<Freehold<Platform>>(1, 4096);
        let slots = [const { AtomicU64::new(0) }; 100];
        let torture = Torture::new(&allocator, &memory, &slots);
        let free = torture.prepare().expect("an idle allocator");
        let mut worker = Worker::new(7);
        (0..5000).for_each(|_| torture.step(&mut worker));
        torture.finish(&mut [worker], free).expect("no error")
    };
    assert_eq!(once(), once());
}
