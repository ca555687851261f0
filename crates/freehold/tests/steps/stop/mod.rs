//! A call is stopped before each of its steps, forever as far as others can tell, and other calls
//! do what they are entitled to: see `docs/progress.md`.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use freehold::designs::{Design, Freehold};
use freehold::{
    Config, CpuId, Error, FrameCount, MemoryRange, Migrate, MigrateError, NodeId, Order,
    PageAllocator, Pfn, RangeRequest, Request,
};
use freehold_llfree::Llfree;

use crate::machine::Machine;
use crate::random::Random;
use crate::steps::{
    Kind, StepPlatform, irqs_are_off, locks_held, run_on, stop_at, unless_it_waits,
};

mod freehold_only;
mod tally;

use tally::Tally;

test_designs!(StepPlatform: [
    another_cpu_is_served_wherever_a_call_stops,
    an_interrupt_handler_is_served_wherever_it_interrupts,
]);

const CPUS: usize = 3;
const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
/// Memory at first, and what can be added.
const FRAMES: u64 = 4 * PAGEBLOCK;
const ADDED: u64 = PAGEBLOCK;
const SEEDS: u64 = 6;

/// A call that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Alloc(Order),
    Free(Order),
    /// Frees a pageblock of a block of two, the other one of which is freed at the stop.
    FreePart,
    AllocBulk,
    FreeBulk,
    Drain,
    DrainAll,
    Tick,
    Offline,
    AllocRange,
    Compact,
    AddMemory,
    RemoveMemory,
    /// Takes a lease, allocates and frees with it, and ends it.
    Lease,
}

const OPS: [Op; 16] = [
    Op::Alloc(Order::ZERO),
    Op::Alloc(Order::new(3)),
    Op::Alloc(Order::PAGEBLOCK),
    Op::Alloc(Order::BUDDY_MAX),
    Op::Free(Order::ZERO),
    Op::Free(Order::new(3)),
    Op::Free(Order::PAGEBLOCK),
    Op::FreePart,
    Op::AllocBulk,
    Op::FreeBulk,
    Op::Drain,
    Op::DrainAll,
    Op::Tick,
    Op::Offline,
    Op::AllocRange,
    Op::Compact,
];

/// The call made at the stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    /// Allocates a frame.
    Alloc,
    /// Frees a frame of the pageblock that the stopped call works on, and allocates one.
    FreeAndAlloc,
    /// Frees a block, or the other part of one.
    Free,
    Drain,
}

const PROBES: [Probe; 4] = [Probe::Alloc, Probe::FreeAndAlloc, Probe::Free, Probe::Drain];

/// An allocator, and what its users hold.
struct State<D: Design<StepPlatform>> {
    frames: Machine<StepPlatform, D>,
    held: RefCell<Vec<(Pfn, Order)>>,
    total: Cell<u64>,
    /// How many blocks have been allocated.
    got: Cell<u64>,
}

impl<D: Design<StepPlatform>> State<D> {
    /// An allocator without any call so far.
    fn empty() -> Self {
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(FRAMES))];
        let cpus = [NodeId::new(0); CPUS];
        let span = Some((Pfn::new(0), FrameCount::new(FRAMES + ADDED)));
        let config = Config::new(&ranges, &cpus).min_free(FrameCount::ZERO).span(span);
        let frames = Machine::new(StepPlatform, &config, &D::Settings::default());
        let held = RefCell::default();
        State { frames, held, total: Cell::new(FRAMES), got: Cell::new(0) }
    }

    /// Some calls at random; then all memory is taken, and `spare` single frames are freed.
    fn new(random: &mut Random, spare: usize) -> Rc<Self> {
        let state = Self::empty();
        state.take(Order::BUDDY_MAX);
        for _ in 0..random.below(150) {
            run_on(random.below(CPUS) as u32);
            match random.below(3) {
                0 => state.give(random, |_| true),
                _ => state.take(Order::new([0, 0, 0, 1, 3, 6, 9][random.below(7)])),
            }
        }
        state.take(Order::PAGEBLOCK);
        state.take(Order::new(3));
        run_on(0);
        while let Ok(pfn) = state.frames.alloc(Request::default()) {
            run_on(random.below(CPUS) as u32);
            state.held.borrow_mut().push((pfn, Order::ZERO));
        }
        for _ in 0..spare {
            run_on(random.below(CPUS) as u32);
            state.give(random, |order| order == Order::ZERO);
        }
        Rc::new(state)
    }

    fn take(&self, order: Order) {
        if let Ok(pfn) = self.frames.alloc(Request::new(order)) {
            self.held.borrow_mut().push((pfn, order));
            self.got.update(|got| got + 1);
        }
    }

    /// Frees a random block among those with such an order.
    fn give(&self, random: &mut Random, is_wanted: impl Fn(Order) -> bool) {
        if let Some((pfn, order)) = self.pick(random, |_, order| is_wanted(order)) {
            self.frames.free(pfn, order).unwrap();
        }
    }

    /// Takes a random such block from what users hold.
    fn pick(
        &self,
        random: &mut Random,
        is_wanted: impl Fn(Pfn, Order) -> bool,
    ) -> Option<(Pfn, Order)> {
        let mut held = self.held.borrow_mut();
        let fit: Vec<_> = (0..held.len())
            .filter(|&at| {
                let (pfn, order) = held[at];
                is_wanted(pfn, order)
            })
            .collect();
        let at = *fit.get(random.below(fit.len().max(1)))?;
        Some(held.swap_remove(at))
    }

    fn held_frames(&self) -> u64 {
        self.held.borrow().iter().map(|(_, order)| order.frames().get()).sum()
    }

    /// Whether the stopped call has something that others may have to wait for.
    fn may_be_waited_for(&self) -> bool {
        let allocator: &dyn Any = &*self.frames;
        let freehold =
            allocator.downcast_ref::<PageAllocator<StepPlatform, Freehold<StepPlatform>>>();
        let llfree = allocator.downcast_ref::<PageAllocator<StepPlatform, Llfree<StepPlatform>>>();
        locks_held() > 0
            || irqs_are_off()
            || freehold.is_some_and(|allocator| !allocator.is_quiet())
            || llfree.is_some_and(|allocator| !allocator.design().is_quiet())
    }
}

/// The targets of the stopped call: blocks taken from what users hold.
#[derive(Clone, Default)]
struct Victims(Vec<(Pfn, Order)>);

impl Victims {
    fn frames(&self) -> u64 {
        self.0.iter().map(|(_, order)| order.frames().get()).sum()
    }
}

/// Picks the targets of a call, if there are any.
fn choose<D: Design<StepPlatform>>(
    state: &State<D>,
    op: Op,
    random: &mut Random,
) -> Option<Victims> {
    let of_order = |wanted: Order, random: &mut Random| {
        state.pick(random, |_, order| order == wanted).map(|block| vec![block])
    };
    match op {
        Op::Free(order) => of_order(order, random),
        Op::FreePart => of_order(Order::BUDDY_MAX, random),
        Op::FreeBulk => Some(
            (0..5).filter_map(|_| state.pick(random, |_, order| order == Order::ZERO)).collect(),
        ),
        _ => Some(Vec::new()),
    }
    .map(Victims)
}

/// Makes the call; users hold what it allocates from then on.
fn perform<D: Design<StepPlatform>>(state: &State<D>, op: Op, victims: &Victims, cpu: CpuId) {
    let State { frames, held, total, .. } = state;
    match op {
        Op::Alloc(order) => state.take(order),
        Op::Free(_) => {
            for &(pfn, order) in &victims.0 {
                frames.free(pfn, order).unwrap();
            }
        }
        Op::FreePart => frames.free(victims.0[0].0, Order::PAGEBLOCK).unwrap(),
        Op::AllocBulk => {
            let mut out = [Pfn::new(0); 5];
            let count = frames.alloc_bulk(Request::default(), &mut out).unwrap();
            state.got.update(|got| got + count as u64);
            held.borrow_mut().extend(out[..count].iter().map(|&pfn| (pfn, Order::ZERO)));
        }
        Op::FreeBulk => {
            let blocks: Vec<_> = victims.0.iter().map(|&(pfn, _)| pfn).collect();
            frames.free_bulk(&blocks, Order::ZERO).unwrap();
        }
        Op::Drain => frames.drain(cpu).unwrap(),
        Op::DrainAll => frames.drain_all(),
        Op::Tick => frames.tick(cpu).unwrap(),
        Op::Offline => frames.offline_cpu(cpu).unwrap(),
        Op::AllocRange => {
            let request = RangeRequest::new(FrameCount::new(2)).at(Pfn::new(PAGEBLOCK));
            if let Ok(first) = frames.alloc_range(request, state) {
                let both = [first, first.offset(FrameCount::new(1))];
                held.borrow_mut().extend(both.map(|pfn| (pfn, Order::ZERO)));
            }
        }
        Op::Compact => {
            frames.compact(state);
        }
        Op::AddMemory => {
            let range = MemoryRange::new(Pfn::new(FRAMES), FrameCount::new(ADDED));
            frames.add_memory(range).unwrap();
            total.set(FRAMES + ADDED);
        }
        Op::RemoveMemory => {
            let (first, count) = (Pfn::new(PAGEBLOCK), FrameCount::new(2));
            if frames.remove_memory(first, count, state).is_ok() {
                total.update(|total| total - count.get());
            }
        }
        Op::Lease => unreachable!("only one design has leases"),
    }
}

/// The users, which move what they hold.
impl<D: Design<StepPlatform>> Migrate for State<D> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        let mut held = self.held.borrow_mut();
        let block = held.iter_mut().find(|block| **block == (from, order));
        block.ok_or(MigrateError::Failed)?.0 = to;
        Ok(())
    }
}

/// How many free frames a call may have in hand, or take.
fn taken_by(op: Op) -> u64 {
    match op {
        Op::Alloc(order) => order.frames().get(),
        Op::AllocBulk => 5,
        // Frames in pageblocks that are being emptied are promised to no allocation.
        Op::AllocRange | Op::Compact | Op::RemoveMemory => FRAMES,
        // Nor are those that the owner of a lease has.
        Op::Lease => FRAMES,
        _ => 0,
    }
}

/// How many single frames a call wants.
fn wanted_by(op: Op) -> u64 {
    match op {
        Op::Alloc(Order::ZERO) => 1,
        Op::AllocBulk => 5,
        _ => 0,
    }
}

/// Allocates a frame, by a bulk of one first if so wanted, which does not say why it fails.
fn alloc_one<D: Design<StepPlatform>>(
    frames: &PageAllocator<StepPlatform, D>,
    request: Request,
    in_bulk: bool,
) -> Result<Pfn, Error> {
    let mut out = [Pfn::default()];
    match in_bulk && frames.alloc_bulk(request, &mut out)? == 1 {
        true => Ok(out[0]),
        false => frames.alloc(request),
    }
}

/// Probes an allocator while a stopped call, which began with so many free frames, is under way.
fn probe<D: Design<StepPlatform>>(
    state: &State<D>,
    (op, probe, kind): (Op, Probe, Kind),
    victims: &Victims,
    (cpu, stopped): (u32, u32),
    free: u64,
    random: &mut Random,
) -> Tally {
    let mut tally = Tally::default();
    let may_wait = state.may_be_waited_for();
    let is_handler = kind == Kind::Interrupt;
    run_on(if is_handler { stopped } else { cpu });
    let mut free = free.saturating_sub(taken_by(op));
    if matches!(probe, Probe::Free | Probe::FreeAndAlloc) {
        let near = |pfn: Pfn| match victims.0.first() {
            Some((victim, _)) if probe == Probe::FreeAndAlloc => {
                pfn.get() / PAGEBLOCK == victim.get() / PAGEBLOCK
            }
            _ => true,
        };
        let part = (op == Op::FreePart && probe == Probe::Free)
            .then(|| (victims.0[0].0.offset(Order::PAGEBLOCK.frames()), Order::PAGEBLOCK));
        let wanted = |pfn, order| near(pfn) && (probe == Probe::Free || order == Order::ZERO);
        let Some((pfn, order)) = part.or_else(|| state.pick(random, wanted)) else {
            return tally;
        };
        match unless_it_waits(|| state.frames.free(pfn, order)) {
            Some(result) => {
                assert_eq!(result, Ok(()), "{pfn} of order {order}");
                tally.served += 1;
                // What is freed in a pageblock that is being emptied stays there.
                let stays = taken_by(op) == FRAMES;
                free += if stays { 0 } else { order.frames().get() };
            }
            None => {
                assert!(!is_handler && may_wait, "a free waits forever");
                (tally.waits, tally.unwound) = (1, 1);
                return tally;
            }
        }
    }
    match probe {
        Probe::Alloc | Probe::FreeAndAlloc => {
            // A handler does not wait, and another CPU need not.
            let nowait = is_handler || random.below(2) == 0;
            let request = if nowait { Request::default().nowait() } else { Request::default() };
            let in_bulk = random.below(2) == 0;
            match unless_it_waits(|| alloc_one(&state.frames, request, in_bulk)) {
                Some(Ok(pfn)) => {
                    tally.served += 1;
                    state.held.borrow_mut().push((pfn, Order::ZERO));
                }
                Some(Err(Error::WouldWait)) => {
                    assert!(nowait && may_wait, "there was nothing to wait for");
                    tally.waits += 1;
                }
                Some(Err(error)) => {
                    assert_eq!(free, 0, "{error}, though so many frames are free");
                    tally.short += 1;
                }
                None => {
                    // The others wait for a zone lock, whose holder no handler can interrupt.
                    let may = !nowait || !is_handler && D::NAME != "freehold";
                    assert!(may && may_wait, "an allocation waits forever");
                    (tally.waits, tally.unwound) = (1, 1);
                }
            }
        }
        Probe::Drain if !is_handler => {
            match unless_it_waits(|| state.frames.drain(CpuId::new(cpu))) {
                Some(result) => {
                    assert_eq!(result, Ok(()));
                    tally.served += 1;
                }
                None => {
                    assert!(may_wait, "a drain waits forever");
                    (tally.waits, tally.unwound) = (1, 1);
                }
            }
        }
        Probe::Drain | Probe::Free => {}
    }
    if free > 0 && probe != Probe::Drain {
        tally.though_free = tally.waits;
    }
    tally
}

/// Stops one call before each of its steps, with one probe.
fn explore<D: Design<StepPlatform>>(
    seed: u64,
    (op, of, kind): (Op, Probe, Kind),
    perform: fn(&State<D>, Op, &Victims, CpuId),
) -> (u64, Tally) {
    let (mut total, mut stops, mut step) = (Tally::default(), 0, 0);
    loop {
        let mut random = Random(seed);
        let spare = random.below(4);
        let state = State::<D>::new(&mut random, spare);
        let (cpu, stopped) = (random.below(CPUS) as u32, random.below(CPUS) as u32);
        let Some(victims) = choose(&state, op, &mut random) else {
            return (stops, total);
        };
        let free = state.total.get() - state.held_frames() - victims.frames();
        state.got.set(0);
        let tally = Rc::new(Cell::new(Tally::default()));
        let meanwhile = {
            let (state, victims, tally) = (Rc::clone(&state), victims.clone(), Rc::clone(&tally));
            let mut random = Random(seed ^ step);
            move || {
                tally.set(probe(
                    &state,
                    (op, of, kind),
                    &victims,
                    (cpu, stopped),
                    free,
                    &mut random,
                ))
            }
        };
        run_on(stopped);
        let at = std::panic::AssertUnwindSafe(|| {
            let call = || perform(&state, op, &victims, CpuId::new(random.below(CPUS) as u32));
            stop_at(step, kind, meanwhile, call).1
        });
        let was_stopped = std::panic::catch_unwind(at).unwrap_or_else(|panic| {
            eprintln!("{}: seed {seed}, {op:?} stopped before step {step}, {of:?}", D::NAME);
            std::panic::resume_unwind(panic)
        });
        if !was_stopped {
            return (stops, total);
        }
        // The walks of the other designs over all frames have thousands of similar steps.
        (stops, step) = (stops + 1, step + 1 + step / 50);
        total += tally.get();
        if tally.get().unwound > 0 {
            // What it had in hand is lost with it.
            continue;
        }
        // The stopped call takes part of it as well, all but the frame that the probe may take.
        // With the other designs, a probe that drains may move the rest to where it has looked.
        let got = wanted_by(op).min(free.saturating_sub(1));
        let is_short = state.got.get() < got && D::NAME == "freehold";
        assert!(!is_short, "seed {seed}, {op:?}, {step}, {of:?}: fewer than {got}");
        let part = if op == Op::FreePart { PAGEBLOCK } else { 0 };
        let other = if op == Op::FreePart && of == Probe::Free { PAGEBLOCK } else { 0 };
        let used = state.held_frames() + part - other;
        let census = state.frames.validate().unwrap_or_else(|violation| {
            panic!("{}: seed {seed}, {op:?}, step {step}, {of:?}: {violation}", D::NAME)
        });
        let found = census.allocated.get();
        assert_eq!(
            found,
            used,
            "{}: seed {seed}, {op:?}, {step}, {of:?} {kind:?} {:?}",
            D::NAME,
            tally.get()
        );
    }
}

fn explore_all<D: Design<StepPlatform>>(kind: Kind) {
    let mut all = Tally::default();
    for op in OPS.into_iter().chain([Op::AddMemory, Op::RemoveMemory]) {
        let (mut steps, mut of_op) = (0, Tally::default());
        for of in PROBES {
            // Most of what the others do is under locks, where there is little to distinguish.
            for seed in 0..if D::NAME == "freehold" { SEEDS } else { 2 } {
                let (count, tally) = explore::<D>(seed, (op, of, kind), perform);
                steps += count;
                of_op += tally;
            }
        }
        println!("{:<12} {op:<20?} {steps:>6} stops: {of_op:?}", D::NAME);
        all += of_op;
    }
    assert!(all.served > 1000 && all.short > 0 && all.waits > 0, "{all:?}");
}

fn another_cpu_is_served_wherever_a_call_stops<D: Design<StepPlatform>>() {
    explore_all::<D>(Kind::Stop);
}

fn an_interrupt_handler_is_served_wherever_it_interrupts<D: Design<StepPlatform>>() {
    explore_all::<D>(Kind::Interrupt);
}
