//! Many threads on few CPUs, all calls at once: no frame ever has two users, and in the end all
//! memory is merged again.
//!
//! A failing run prints its seed; `FREEHOLD_SEED` makes the threads take the same decisions again,
//! though the scheduler may not. `FREEHOLD_STRESS_TIMES` asks for so many times the calls.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use crate::common::{TestPlatform, run_on};
use crate::designs::{fixed, variants, with};
use crate::naive::Naive;
use crate::random::{Random, Seed};
use crate::seen_mutex::SeenMutex;
use crate::tested::{TestDesign, Tested};
use freehold::designs::Settings;
use freehold::{
    Config, CpuId, Error, FrameCount, MemoryRange, MigrateType, NodeId, Order, Pfn, Request,
    Watermark, ZoneKind,
};

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const SPAN: u64 = 20 * PAGEBLOCK;
const CPUS: [NodeId; 3] = [NodeId::new(0), NodeId::new(1), NodeId::new(0)];

impl Seed {
    fn new() -> Self {
        match std::env::var("FREEHOLD_SEED") {
            Ok(seed) => Seed(seed.parse().expect("FREEHOLD_SEED is a number")),
            Err(_) => Seed(RandomState::new().build_hasher().finish()),
        }
    }

    fn random(&self, stream: u64) -> Random {
        Random(self.0 ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }
}

fn range(start: u64, end: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(start), FrameCount::new(end - start))
}

/// Where the memory of node 0 ends: within a pageblock.
const END: u64 = 8 * PAGEBLOCK + 5 * PAGEBLOCK / 8;

fn ranges() -> [MemoryRange; 3] {
    [
        range(0, 2 * PAGEBLOCK).in_zone(ZoneKind::Dma32),
        range(2 * PAGEBLOCK, END),
        range(10 * PAGEBLOCK, 17 * PAGEBLOCK + PAGEBLOCK / 2).on_node(NodeId::new(1)),
    ]
}

/// Memory added while the others run: the rest of a pageblock that is in use already, and more
/// memory of the other node, piece by piece.
fn additions() -> impl Iterator<Item = MemoryRange> {
    let rest = pieces(END..9 * PAGEBLOCK, 13);
    let more = pieces(17 * PAGEBLOCK + PAGEBLOCK / 2..SPAN, 40);
    rest.chain(more.map(|range| range.on_node(NodeId::new(1))))
}

/// So many pieces of a range, or a few more.
fn pieces(of: Range<u64>, count: u64) -> impl Iterator<Item = MemoryRange> {
    let step = ((of.end - of.start) / count).max(1);
    let end = of.end;
    of.step_by(step as usize).map(move |start| range(start, end.min(start + step)))
}

/// A machine, and which frames are in use as the threads see it.
struct Shared<D: TestDesign + Sync> {
    machine: Tested<D>,
    /// One bit for each frame that a thread holds.
    held: Vec<AtomicU64>,
    /// Blocks on their way from one thread to another.
    handed_over: SeenMutex<Vec<(Pfn, Order)>>,
    allocated: AtomicU64,
    freed: AtomicU64,
}

impl<D: TestDesign + Sync> Shared<D> {
    fn new(settings: &D::Settings) -> Self {
        let ranges = ranges();
        let config = Config::new(&ranges, &CPUS)
            .span((Pfn::new(0), FrameCount::new(SPAN)))
            .min_free(FrameCount::new(200));
        Shared {
            machine: Tested::new(TestPlatform, &config, settings),
            held: (0..SPAN.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            handed_over: SeenMutex::default(),
            allocated: AtomicU64::new(0),
            freed: AtomicU64::new(0),
        }
    }

    /// Notes that a thread allocated or freed a block, frame by frame.
    fn mark(&self, block: Pfn, order: Order, holds: bool) {
        for pfn in block.get()..block.offset(order.frames()).get() {
            let (word, bit) = (&self.held[(pfn / 64) as usize], 1 << (pfn % 64));
            let before =
                if holds { word.fetch_or(bit, SeqCst) } else { word.fetch_and(!bit, SeqCst) };
            assert_eq!(before & bit == 0, holds, "frame {pfn} is in two hands");
        }
        let count = if holds { &self.allocated } else { &self.freed };
        count.fetch_add(order.frames().get(), SeqCst);
    }

    fn free(&self, block: Pfn, order: Order) {
        self.mark(block, order, false);
        self.machine.free(block, order).expect("the block is held");
    }
}

/// One thread's part.
struct Worker<'a, D: TestDesign + Sync> {
    shared: &'a Shared<D>,
    random: Random,
    held: Vec<(Pfn, Order)>,
}

impl<D: TestDesign + Sync> Worker<'_, D> {
    fn request(&mut self) -> Request {
        let order = match self.random.below(20) {
            0..=12 => 0,
            13..=17 => 1 + self.random.below(3),
            18 => 4 + self.random.below(5),
            _ => 9 + self.random.below(2),
        };
        let request = Request::new(Order::new(order as u8))
            .migratetype(MigrateType::ALL[self.random.below(3)]);
        match self.random.below(8) {
            0 => request.node(NodeId::new(self.random.below(2) as u16)),
            1 => request.watermark(Watermark::Ignore),
            2 => request.zone_limit(ZoneKind::Dma32),
            _ => request,
        }
    }

    fn take(&mut self, block: Pfn, order: Order) {
        self.shared.mark(block, order, true);
        self.held.push((block, order));
    }

    fn alloc(&mut self) {
        let request = self.request();
        match self.shared.machine.alloc(request) {
            Ok(block) => self.take(block, request.order()),
            Err(Error::OutOfMemory | Error::BelowWatermark) => self.free_many(),
            Err(error) => panic!("{error}"),
        }
    }

    fn alloc_many(&mut self) {
        let (request, mut out) = (self.request(), [Pfn::default(); 100]);
        let wanted = (self.random.below(out.len()) >> request.order().get()) + 1;
        let got = self.shared.machine.alloc_bulk(request, &mut out[..wanted]);
        for &block in &out[..got.expect("the request makes sense")] {
            self.take(block, request.order());
        }
    }

    fn pick(&mut self) -> Option<(Pfn, Order)> {
        let len = self.held.len();
        (len > 0).then(|| self.held.swap_remove(self.random.below(len)))
    }

    fn free(&mut self) {
        if let Some((block, order)) = self.pick() {
            self.shared.free(block, order);
        }
    }

    /// Frees one frame of a block; the rest stays allocated in pieces.
    fn free_part(&mut self) {
        let Some((mut block, order)) = self.pick() else { return };
        let part = block.offset(FrameCount::new(self.random.next() % order.frames().get()));
        for half in (0..order.get()).rev().map(Order::new) {
            let upper = block.offset(half.frames());
            let (with_part, rest) = if part >= upper { (upper, block) } else { (block, upper) };
            self.held.push((rest, half));
            block = with_part;
        }
        self.shared.free(part, Order::ZERO);
    }

    fn free_many(&mut self) {
        let Some((first, order)) = self.pick() else { return };
        let mut blocks = vec![first];
        self.held.retain(|&(block, of)| {
            let goes = of == order && blocks.len() < 150;
            if goes {
                blocks.push(block);
            }
            !goes
        });
        for &block in &blocks {
            self.shared.mark(block, order, false);
        }
        self.shared.machine.free_bulk(&blocks, order).expect("the blocks are held");
    }

    fn hand_over(&mut self) {
        if let Some(block) = self.pick() {
            self.shared.handed_over.lock().expect("no thread has panicked").push(block);
        }
    }

    fn take_over(&mut self) {
        let block = self.shared.handed_over.lock().expect("no thread has panicked").pop();
        self.held.extend(block);
    }

    fn run(mut self, calls: usize) {
        for _ in 0..calls {
            match self.random.below(100) {
                0..=39 => self.alloc(),
                40..=41 => self.alloc_many(),
                42..=74 => self.free(),
                75..=79 => self.free_part(),
                80..=82 => self.free_many(),
                83..=88 => self.hand_over(),
                89..=94 => self.take_over(),
                95..=98 => run_on(self.random.below(CPUS.len() + 1) as u32),
                _ => {
                    // Never allocated, whatever else happens.
                    let refused = self.shared.machine.free(Pfn::new(SPAN + 1), Order::ZERO);
                    assert_eq!(refused, Err(Error::ForeignFrame));
                }
            }
            if self.held.len() > 800 {
                self.free_many();
            }
        }
        while let Some((block, order)) = self.pick() {
            self.shared.free(block, order);
        }
    }
}

/// Runs consistency checks and disturbs the CPUs until `done`.
fn observe<D: TestDesign + Sync>(shared: &Shared<D>, mut random: Random, done: &AtomicBool) {
    while !done.load(SeqCst) {
        let machine = &shared.machine;
        let cpu = CpuId::new(random.below(CPUS.len()) as u32);
        match random.below(6) {
            0 => machine.drain_all(),
            1 => machine.drain(cpu).expect("the CPU exists"),
            2 => machine.tick(cpu).expect("the CPU exists"),
            3 => assert_eq!(machine.zones().count(), 3),
            4 => assert!(machine.events().freed.get() <= shared.freed.load(SeqCst)),
            _ => {
                let census = machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
                let places = census.free + census.per_cpu + census.allocated;
                assert_eq!(places, census.managed);
            }
        }
        thread::yield_now();
    }
}

/// Checks that nothing is held and everything, including additions, is free and merged.
fn check_whole<D: TestDesign + Sync>(
    shared: &Shared<D>,
    additions: impl Iterator<Item = MemoryRange>,
) {
    let machine = &shared.machine;
    machine.drain_all();
    let census = machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(census.allocated, FrameCount::ZERO);
    let ranges: Vec<_> = ranges().into_iter().chain(additions).collect();
    let model = Naive::new(&Config::new(&ranges, &CPUS));
    assert!(machine.zones().all(|zone| zone.free == zone.managed));
    model.check_merged(machine);
    let (events, freed) = (machine.events(), shared.freed.load(SeqCst));
    assert_eq!(events.allocated.get(), shared.allocated.load(SeqCst));
    assert_eq!((events.freed.get(), events.allocated.get()), (freed, freed));
}

/// Runs so many threads on a machine with each of the design's own settings, as `lists` completes
/// them.
fn stress<D: TestDesign + Sync>(
    threads: u64,
    lists: impl Fn(&D::Settings) -> D::Settings,
    calls: usize,
) {
    let times = std::env::var("FREEHOLD_STRESS_TIMES").ok().and_then(|times| times.parse().ok());
    let calls = calls * times.unwrap_or(1);
    for own in variants() {
        stress_one::<D>(threads, &lists(&own), calls);
    }
}

fn stress_one<D: TestDesign + Sync>(threads: u64, settings: &D::Settings, calls: usize) {
    let seed = Seed::new();
    let shared = Shared::<D>::new(settings);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let observer = scope.spawn(|| observe(&shared, seed.random(threads), &done));
        let adder = scope.spawn(|| {
            for (nth, range) in additions().enumerate() {
                // Throughout the run, as far as the workers get.
                while shared.allocated.load(SeqCst) < nth as u64 * 20_000 && !done.load(SeqCst) {
                    thread::yield_now();
                }
                shared.machine.add_memory(range).expect("the memory is new");
            }
        });
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (shared, random) = (&shared, seed.random(thread));
                scope.spawn(move || {
                    run_on(thread as u32);
                    Worker { shared, random, held: vec![] }.run(calls);
                })
            })
            .collect();
        let mut results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        // The others must end even if a worker failed.
        done.store(true, SeqCst);
        results.extend([observer.join(), adder.join()]);
        assert!(results.iter().all(Result::is_ok), "a thread has panicked");
    });
    for (block, order) in shared.handed_over.lock().expect("no thread has panicked").drain(..) {
        shared.free(block, order);
    }
    check_whole(&shared, additions());
}

fn two_threads<D: TestDesign + Sync>() {
    stress::<D>(2, |own| fixed(own, 31, 186), 125_000);
}

fn three_threads_with_the_shortest_lists<D: TestDesign + Sync>() {
    stress::<D>(3, |own| fixed(own, 1, 1), 50_000);
}

fn three_threads_with_tuned_lists<D: TestDesign + Sync>() {
    stress::<D>(3, D::Settings::clone, 75_000);
}

fn three_threads_with_lists_that_hold_a_pageblock<D: TestDesign + Sync>() {
    stress::<D>(3, |own| fixed(own, 64, 2 * PAGEBLOCK as u32), 50_000);
}

fn more_threads_than_cpus<D: TestDesign + Sync>() {
    stress::<D>(4, D::Settings::clone, 50_000);
}

fn of_two_racing_frees_exactly_one_succeeds<D: TestDesign + Sync>() {
    let settings = D::Settings::default();
    // Only a design with this setting may let both succeed.
    let has_choice = D::Settings::TABLE.iter().any(|setting| setting.name == "double_free");
    race_frees::<D>(&settings, has_choice);
    if has_choice {
        race_frees::<D>(&with(&settings, "double_free", "exact"), false);
    }
}

/// Two threads free the same frames at the same time. Two frees of a single frame may both succeed,
/// if `may_both_pass`.
fn race_frees<D: TestDesign + Sync>(settings: &D::Settings, may_both_pass: bool) {
    const ROUNDS: usize = 5_000;
    let seed = Seed::new();
    let shared = Shared::<D>::new(&fixed(settings, 4, 16));
    let mut random = seed.random(0);
    // If one side panics, the other finds the channel closed, rather than wait forever.
    let (to_free, racing) = mpsc::channel::<(Pfn, Order)>();
    let (answer, freed) = mpsc::channel();
    let ready = AtomicBool::new(false);
    thread::scope(|scope| {
        // One thread frees the whole block, the other a part of it, often the same whole.
        let (machine, ready) = (&shared.machine, &ready);
        scope.spawn(move || {
            run_on(1);
            for (part, order) in racing {
                ready.store(true, SeqCst);
                let freed = machine.free(part, order).map_or(0, |()| order.frames().get());
                answer.send(freed).expect("the other thread waits");
            }
        });
        // Closed when this is left, also by a panic.
        let to_free = to_free;
        let mut late = 0;
        run_on(0);
        for _ in 0..ROUNDS {
            let order = Order::new(random.below(5) as u8);
            let part = match random.below(3) {
                0 => Order::new(random.below(usize::from(order.get()) + 1) as u8),
                _ => order,
            };
            let block = shared.machine.alloc(Request::new(order)).expect("memory is free");
            let parts = 1 << (order.get() - part.get());
            let at = (random.next() % parts) << part.get();
            to_free.send((block.offset(FrameCount::new(at)), part)).expect("the other waits");
            // The two start at the same time.
            while !ready.swap(false, SeqCst) {
                thread::yield_now();
            }
            let whole = shared.machine.free(block, order);
            match (whole, freed.recv().expect("the other thread answers")) {
                (Ok(()), 0) => {}
                // That is detected and counted.
                (Ok(()), 1) if part == Order::ZERO && may_both_pass => {
                    shared.machine.drain_all();
                    late += 1;
                    assert_eq!(shared.machine.events().double_frees_late.get(), late);
                }
                (Err(Error::DoubleFree | Error::WrongOrder), frames) if frames > 0 => {
                    assert_eq!(frames, part.frames().get());
                    // The rest of the part is still ours, frame by frame.
                    for pfn in
                        (0..order.frames().get()).filter(|pfn| !(at..at + frames).contains(pfn))
                    {
                        let pfn = block.offset(FrameCount::new(pfn));
                        shared.machine.free(pfn, Order::ZERO).expect("the rest is held");
                    }
                }
                outcome => panic!("{outcome:?} for {order} and a part of {part}"),
            }
        }
    });
    shared.machine.drain_all();
    let census = shared.machine.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!((census.allocated, census.free), (FrameCount::ZERO, census.managed));
}

test_designs!(TestPlatform: [
    two_threads,
    three_threads_with_the_shortest_lists,
    three_threads_with_tuned_lists,
    three_threads_with_lists_that_hold_a_pageblock,
    more_threads_than_cpus,
    of_two_racing_frees_exactly_one_succeeds,
]);
