//! The real allocator under shuttle: more threads and longer programs than loom can explore, under
//! random schedules and under schedules with a few preemptions at random places (PCT).
//!
//! Seeds are fixed, so every run is the same; `FREEHOLD_SEED` and `FREEHOLD_SCHEDULES` choose other
//! seeds and more schedules. A failing schedule is printed, for `shuttle::replay`.

use crate::designs::{fixed, is_lazy, variants};
use crate::machine::Machine;
use crate::shuttle_platform::{ShuttlePlatform, run_on};
use crate::shuttle_runs::explore;
use freehold::designs::{Design, Freehold, FreeholdSettings};
use freehold::platform::Platform;
use freehold::{
    Config, CpuId, Error, FrameCount, MemoryRange, MigrateType, NodeId, Order, Pfn, Request,
    Watermark,
};
use freehold_linux::ZoneLock;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicU64, Ordering::SeqCst};
use shuttle::sync::{Arc, Mutex};
use shuttle::thread;

/// The requirements on a design so that threads can share it, and its settings with them.
trait Testable: Design<ShuttlePlatform, Settings: Send + Sync> + Send + Sync + 'static {}

impl<D: Design<ShuttlePlatform, Settings: Send + Sync> + Send + Sync + 'static> Testable for D {}

fn range(start: u64, frames: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(frames))
}

/// A machine of few frames, and which are allocated as the threads see it.
struct Shared<P: Platform, D: Design<P>> {
    machine: Machine<P, D>,
    /// One bit for each frame.
    held: Vec<AtomicU64>,
    handed_over: Mutex<Vec<(Pfn, Order)>>,
}

impl<P: Platform + Default, D: Design<P>> Shared<P, D> {
    fn new(frames: u64, cpus: usize, settings: &D::Settings) -> Arc<Self> {
        let (ranges, cpus) = ([range(0, frames)], vec![NodeId::new(0); cpus]);
        let config = Config::new(&ranges, &cpus)
            .span((Pfn::new(0), FrameCount::new(1024)))
            .min_free(FrameCount::ZERO);
        Arc::new(Shared {
            machine: Machine::new(P::default(), &config, settings),
            held: (0..frames.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            handed_over: Mutex::new(vec![]),
        })
    }

    /// Notes that a thread allocated or freed a block.
    fn mark(&self, block: Pfn, order: Order, holds: bool) {
        // The blocks of these tests have less than 64 frames, and do not cross a word.
        let bits = ((1 << order.frames().get()) - 1) << (block.get() % 64);
        let held = &self.held[(block.get() / 64) as usize];
        let before = match holds {
            true => held.fetch_or(bits, SeqCst),
            false => held.fetch_and(!bits, SeqCst),
        };
        let expected = if holds { 0 } else { bits };
        assert_eq!(before & bits, expected, "{block}, {order} is in two hands");
    }

    fn free(&self, block: Pfn, order: Order) {
        self.mark(block, order, false);
        self.machine.free(block, order).expect("the block is held");
    }

    /// Checks that nothing is lost, and that all free memory is merged, unless the design is lazy.
    fn check_whole(&self, frames: u64) {
        for (block, order) in self.handed_over.lock().expect("no thread has panicked").drain(..) {
            self.free(block, order);
        }
        self.machine.drain_all();
        let census = self.machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!((census.free.get(), census.managed.get()), (frames, frames));
        let zone = self.machine.zones().next().expect("one zone");
        assert!(is_lazy(D::NAME) || zone.free_blocks[frames.ilog2() as usize] == 1);
        let events = self.machine.events();
        assert_eq!(events.allocated, events.freed);
    }
}

/// One thread's part.
struct Worker<P: Platform, D: Design<P>> {
    shared: Arc<Shared<P, D>>,
    held: Vec<(Pfn, Order)>,
}

impl<P: Platform + Default, D: Design<P>> Worker<P, D> {
    fn request(&self) -> Request {
        let order = thread_rng().gen_range(0..6u8).saturating_sub(2);
        let migratetype = MigrateType::ALL[thread_rng().gen_range(0..3)];
        Request::new(Order::new(order)).migratetype(migratetype).watermark(Watermark::Ignore)
    }

    fn take(&mut self, block: Pfn, order: Order) {
        self.shared.mark(block, order, true);
        self.held.push((block, order));
    }

    fn alloc(&mut self) {
        let request = self.request();
        match self.shared.machine.alloc(request) {
            Ok(block) => self.take(block, request.order()),
            Err(Error::OutOfMemory | Error::BelowWatermark) => {}
            Err(error) => panic!("{error}"),
        }
    }

    fn alloc_many(&mut self) {
        let (request, mut out) = (self.request(), [Pfn::default(); 5]);
        let got = self.shared.machine.alloc_bulk(request, &mut out);
        for &block in &out[..got.expect("the request makes sense")] {
            self.take(block, request.order());
        }
    }

    fn pick(&mut self) -> Option<(Pfn, Order)> {
        let len = self.held.len();
        (len > 0).then(|| self.held.swap_remove(thread_rng().gen_range(0..len)))
    }

    fn free(&mut self) {
        if let Some((block, order)) = self.pick() {
            self.shared.free(block, order);
        }
    }

    fn free_half(&mut self) {
        if let Some((block, order)) = self.pick() {
            let Some(half) = order.get().checked_sub(1).map(Order::new) else {
                return self.held.push((block, order));
            };
            let upper = block.offset(half.frames());
            let (goes, stays) = if thread_rng().r#gen() { (upper, block) } else { (block, upper) };
            self.held.push((stays, half));
            self.shared.free(goes, half);
        }
    }

    fn free_many(&mut self) {
        let Some(&(_, order)) = self.held.first() else { return };
        let (goes, stays) = self.held.drain(..).partition(|&(_, of)| of == order);
        self.held = stays;
        let blocks: Vec<_> = Vec::into_iter(goes).map(|(block, _)| block).collect();
        for &block in &blocks {
            self.shared.mark(block, order, false);
        }
        self.shared.machine.free_bulk(&blocks, order).expect("the blocks are held");
    }

    fn hand_over(&mut self) {
        let mine = self.pick();
        let mut others = self.shared.handed_over.lock().expect("no thread has panicked");
        let theirs = others.pop();
        others.extend(mine);
        self.held.extend(theirs);
    }

    fn run(mut self, cpus: u32, calls: usize) {
        for _ in 0..calls {
            let machine = &self.shared.machine;
            let cpu = thread_rng().gen_range(0..cpus);
            match thread_rng().gen_range(0..20) {
                0..=6 => self.alloc(),
                7 => self.alloc_many(),
                8..=12 => self.free(),
                13..=14 => self.free_half(),
                15 => self.free_many(),
                16 => self.hand_over(),
                17 => machine.drain(CpuId::new(cpu)).expect("the CPU exists"),
                18 => machine.tick(CpuId::new(cpu)).expect("the CPU exists"),
                _ => run_on(cpu),
            }
        }
        while let Some((block, order)) = self.pick() {
            self.shared.free(block, order);
        }
    }
}

/// Lets so many threads work on so many CPUs.
fn work<P: Platform + Default + Send + Sync, D: Design<P> + Send + Sync + 'static>(
    threads: u32,
    cpus: u32,
    frames: u64,
    settings: &D::Settings,
) {
    let shared = Shared::<P, D>::new(frames, cpus as usize, settings);
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                run_on(thread % cpus);
                Worker { shared, held: vec![] }.run(cpus, 8);
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("the worker is well");
    }
    shared.check_whole(frames);
}

fn four_threads_on_two_cpus<D: Testable>() {
    for own in variants::<D::Settings>() {
        explore(40, move || work::<_, D>(4, 2, 16, &fixed(&own, 2, 2)));
    }
}

fn four_threads_on_four_cpus_with_tuned_lists<D: Testable>() {
    for own in variants::<D::Settings>() {
        explore(40, move || work::<_, D>(4, 4, 64, &own));
    }
}

fn eight_threads_on_three_cpus<D: Testable>() {
    for own in variants::<D::Settings>() {
        explore(20, move || work::<_, D>(8, 3, 32, &fixed(&own, 2, 5)));
    }
}

/// Lists that hold a whole pageblock, so that a CPU can own it.
fn five_threads_on_one_pageblock<D: Testable>() {
    for own in variants::<D::Settings>() {
        explore(15, move || work::<_, D>(5, 3, 512, &fixed(&own, 64, 1024)));
    }
}

// A data race or an invariant broken by it, whichever a schedule shows first.
#[test]
#[should_panic]
fn a_lock_taken_in_two_steps_is_caught() {
    type Racy = ShuttlePlatform<false>;
    explore(400, || work::<Racy, ZoneLock<Racy>>(4, 2, 16, &fixed(&Default::default(), 1, 2)));
}

fn of_many_frees_of_one_block_exactly_one_succeeds<D: Testable>() {
    for own in variants::<D::Settings>() {
        explore(40, move || {
            let shared = Shared::<_, D>::new(16, 2, &fixed(&own, 1, 3));
            let order = Order::new(thread_rng().gen_range(0..3));
            let block = shared.machine.alloc(Request::new(order)).expect("memory is free");
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        run_on(thread % 2);
                        match thread {
                            0 => usize::from(shared.machine.free_bulk(&[block], order).is_ok()),
                            _ => usize::from(shared.machine.free(block, order).is_ok()),
                        }
                    })
                })
                .collect();
            let freed: usize = threads.into_iter().map(|it| it.join().expect("well")).sum();
            shared.check_whole(16);
            // Two frees of a single frame may both succeed, if that is detected and counted.
            let late = shared.machine.events().double_frees_late.get() as usize;
            assert_eq!(freed, 1 + late);
            assert!(late == 0 || order == Order::ZERO);
        });
    }
}

fn all_frames_of_a_block_come_back_from_as_many_threads<D: Testable>() {
    for own in variants::<D::Settings>() {
        explore(40, move || {
            let shared = Shared::<_, D>::new(8, 3, &fixed(&own, 1, 2));
            let block = shared.machine.alloc(Request::new(Order::new(3))).expect("memory is free");
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        run_on(thread % 3);
                        let frame = block.offset(FrameCount::new(u64::from(thread)));
                        shared.machine.free(frame, Order::ZERO).expect("the frame is held");
                    })
                })
                .collect();
            for thread in threads {
                thread.join().expect("the thread is well");
            }
            shared.check_whole(8);
        });
    }
}

fn memory_is_added_and_the_books_are_checked_while_others_work<D: Testable>() {
    for own in variants::<D::Settings>() {
        explore(20, move || {
            let shared = Shared::<_, D>::new(16, 2, &fixed(&own, 1, 2));
            let adder = Arc::clone(&shared);
            let adder = thread::spawn(move || {
                for start in [16, 24] {
                    adder.machine.add_memory(range(start, 8)).expect("the memory is new");
                }
            });
            let observer = Arc::clone(&shared);
            let observer = thread::spawn(move || {
                for _ in 0..3 {
                    let machine = &observer.machine;
                    machine.drain_all();
                    let census =
                        machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
                    let places = census.free + census.per_cpu + census.allocated;
                    assert_eq!(places, census.managed);
                    assert_eq!(machine.zones().count(), 1);
                    machine.events();
                }
            });
            let workers: Vec<_> = (0..2)
                .map(|cpu| {
                    let shared = Arc::clone(&shared);
                    thread::spawn(move || {
                        run_on(cpu);
                        Worker { shared, held: vec![] }.run(2, 8);
                    })
                })
                .collect();
            for thread in workers.into_iter().chain([adder, observer]) {
                thread.join().expect("the thread is well");
            }
            shared.check_whole(32);
        });
    }
}

/// No thread frees, and there are as many frames as threads: so each gets one, whichever thread has
/// the only pageblock in hand when another one looks.
#[test]
fn a_frame_for_each_thread() {
    explore(300, || {
        type Design = Freehold<ShuttlePlatform>;
        let shared = Shared::<_, Design>::new(3, 3, &FreeholdSettings::default());
        let threads: Vec<_> = (0..3)
            .map(|cpu| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || {
                    run_on(cpu);
                    let block = shared.machine.alloc(Request::default()).expect("one is free");
                    shared.mark(block, Order::ZERO, true);
                    block
                })
            })
            .collect();
        let blocks = threads.into_iter().map(|thread| thread.join().expect("the thread is well"));
        let blocks: Vec<_> = blocks.collect();
        blocks.into_iter().for_each(|block| shared.free(block, Order::ZERO));
        shared.check_whole(3);
    });
}

test_designs!(ShuttlePlatform: [
    four_threads_on_two_cpus,
    four_threads_on_four_cpus_with_tuned_lists,
    eight_threads_on_three_cpus,
    five_threads_on_one_pageblock,
    of_many_frees_of_one_block_exactly_one_succeeds,
    all_frames_of_a_block_come_back_from_as_many_threads,
    memory_is_added_and_the_books_are_checked_while_others_work,
]);
