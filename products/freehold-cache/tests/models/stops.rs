//! Each pair of calls: the first one is stopped before each of its steps, and the second one is
//! made there, to its end if it does not have to wait for the first one.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;

use freehold_host::FrameCount;
use freehold_host::lru::Scope;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use shuttle::thread;

use crate::explore::run;
use crate::world::World;
use crate::{Block, LruPolicy};

/// A call, and how it is called here.
struct Call {
    name: &'static str,
    run: fn(&World),
}

/// On a cache that is full: what is there, and what of it is dirty, is below. Blocks from 8 on were
/// never there.
const CALLS: [Call; 19] = [
    Call { name: "read, there", run: |world| _ = world.read(0, 1) },
    Call { name: "read, not there", run: |world| _ = world.read(0, 9) },
    Call { name: "read, not there, of the other file", run: |world| _ = world.read(1, 9) },
    Call { name: "read, went", run: |world| _ = world.read(0, 0) },
    Call { name: "read, dirty", run: |world| _ = world.read(1, 2) },
    Call { name: "two guards", run: two_guards },
    Call { name: "write, there", run: |world| _ = world.write(0, 1) },
    Call { name: "write, not there", run: |world| _ = world.write(0, 9) },
    Call { name: "write, dirty", run: |world| _ = world.write(1, 2) },
    Call { name: "overwrite, there", run: |world| _ = world.overwrite(0, 1) },
    Call { name: "overwrite, not there", run: |world| _ = world.overwrite(0, 9) },
    Call { name: "prefetch", run: |world| _ = world.files[0].file.prefetch((8..11).map(Block)) },
    Call { name: "sync", run: |world| _ = world.sync(1) },
    Call { name: "write back", run: |world| _ = world.files[1].file.write_back() },
    Call { name: "a limit", run: |world| world.limit(2) },
    Call { name: "a file that comes and goes", run: |world| world.go(world.come(), 1, false) },
    Call { name: "a read that fails", run: failing_read },
    Call { name: "a write back that fails", run: failing_write },
    Call {
        name: "room for all",
        run: |world| (0..28).for_each(|nth| _ = world.read(nth % 2, nth / 2)),
    },
];

fn two_guards(world: &World) {
    let first = world.reads(0, 1);
    let second = world.reads(1, 9);
    drop((first, second));
}

fn failing_read(world: &World) {
    world.files[0].disk.failing_reads.store(1, SeqCst);
    let _failed = world.read(0, 9);
    world.files[0].disk.failing_reads.store(0, SeqCst);
}

fn failing_write(world: &World) {
    world.files[1].disk.failing_writes.store(1, SeqCst);
    let _failed = world.files[1].file.write_back();
    world.files[1].disk.failing_writes.store(0, SeqCst);
}

fn new_world() -> World {
    let world = World::new(LruPolicy::ScanResistant, 0);
    for block in 0..6 {
        world.read(0, block).expect("there is room");
    }
    world.write(0, 3).expect("there is room");
    for block in 0..4 {
        world.write(1, block).expect("there is room");
    }
    assert_eq!([0, 1].map(|of| world.cached(of)), [vec![1, 2, 3, 4, 5], vec![1, 2, 3]]);
    assert_eq!([0, 1].map(|of| world.dirty(of)), [vec![3], vec![2, 3]]);
    world
}

thread_local! {
    /// Before which step the first call is stopped.
    static STOP: Cell<usize> = const { Cell::new(0) };
}

/// Threads, in the order in which they come.
const MAIN: usize = 0;
const BACKGROUND: usize = 1;
const FIRST: usize = 2;
const SECOND: usize = 3;

/// After so many looks in vain, a call is taken to wait for another one.
const LOOKS_MAX: usize = 12;

/// Of a call with many steps, only as many are tried, evenly spread.
const STOPS_MAX: usize = 80;

/// Stops the first call before one step after the other.
struct Stops {
    /// Before which step it is stopped a first time, for the second one to go on until it yields.
    /// Then whenever that one waits, the first one makes one more step.
    earlier: Option<usize>,
    /// How often at most.
    most: usize,
    /// By how much it is stopped later each time.
    stride: usize,
    /// Steps of the first call so far.
    steps: usize,
    /// Looks in vain of the second one.
    looks: usize,
    executions: usize,
    cases: Arc<AtomicU64>,
}

impl Stops {
    fn new(earlier: Option<usize>, most: usize, cases: &Arc<AtomicU64>) -> Self {
        STOP.set(earlier.map_or(0, |step| step + 1));
        let (cases, stride) = (Arc::clone(cases), 1);
        Stops { earlier, most, stride, steps: 0, looks: 0, executions: 0, cases }
    }
}

impl Scheduler for Stops {
    fn new_execution(&mut self) -> Option<Schedule> {
        if self.executions == 1 {
            self.stride = 1 + self.steps / self.most;
        }
        if self.executions > 0 {
            // It ended before it was to be stopped.
            if self.steps < STOP.get() {
                return None;
            }
            if self.earlier.is_some() || self.looks < LOOKS_MAX {
                self.cases.fetch_add(1, SeqCst);
            }
            STOP.set(STOP.get() + self.stride);
        }
        self.executions += 1;
        (self.steps, self.looks) = (0, 0);
        Some(Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let current = current.map(usize::from);
        let can_run = |task: usize| runnable.iter().any(|of| usize::from(of.id()) == task);
        if current == Some(FIRST) {
            self.steps += 1;
        }
        if current == Some(SECOND) && is_yielding {
            self.looks += 1;
        }
        // The one in the background goes on until it waits, once others do.
        if current == Some(BACKGROUND) && !is_yielding && can_run(BACKGROUND) {
            return Some(TaskId::from(BACKGROUND));
        }
        let takes_turns = self.earlier.is_some();
        let looks_on = takes_turns || self.looks < LOOKS_MAX;
        let is_stopped = self.steps >= STOP.get() && looks_on;
        let begins = self.looks == 0 && self.earlier.is_some_and(|step| self.steps >= step);
        let calls = if is_stopped || begins { [SECOND, FIRST] } else { [FIRST, SECOND] };
        // The main thread first: it does nothing while both calls are under way.
        let order = [MAIN, calls[0], calls[1], BACKGROUND];
        // One that waits leaves the CPU to others, but for the second call at its first looks.
        let waits = |task: &usize| {
            is_yielding && current == Some(*task) && (takes_turns || !is_stopped || *task != SECOND)
        };
        let next = order.into_iter().filter(|&task| can_run(task)).find(|task| !waits(task));
        next.or(current.filter(|&task| can_run(task))).map(TaskId::from)
    }

    fn next_u64(&mut self) -> u64 {
        0
    }
}

/// Stops one call before each of its steps, or so many of them, beside another one.
fn stop(first: &'static Call, second: &'static Call, most: usize, cases: &Arc<AtomicU64>) {
    let program = move || {
        let world = Arc::new(new_world());
        let calls = [first, second].map(|call| {
            let world = Arc::clone(&world);
            thread::spawn(move || (call.run)(&world))
        });
        calls.into_iter().for_each(|call| call.join().expect("it does not panic"));
        world.check();
    };
    let done = catch_unwind(AssertUnwindSafe(|| run(Stops::new(None, most, cases), program)));
    if let Err(panic) = done {
        let step = STOP.get();
        eprintln!("{:?}, stopped before step {step}, beside {:?}", first.name, second.name);
        resume_unwind(panic);
    }
}

/// Pairs whose first call is the nth of each so many.
fn stop_every(nth: usize, of: usize) {
    let cases = Arc::new(AtomicU64::new(0));
    for first in CALLS.iter().skip(nth).step_by(of) {
        CALLS.iter().for_each(|second| stop(first, second, STOPS_MAX, &cases));
    }
    println!("{} cases", cases.load(SeqCst));
    assert!(cases.load(SeqCst) > 1000, "calls are stopped");
}

/// Whatever step of it takes the blocks of the file out.
#[test]
fn a_file_is_closed_while_others_need_room() {
    let find = |name| CALLS.iter().find(|call| call.name == name).expect("there is one");
    let [closed, room] = ["a file that comes and goes", "room for all"].map(find);
    let cases = Arc::new(AtomicU64::new(0));
    stop(closed, room, usize::MAX, &cases);
    assert!(cases.load(SeqCst) > 1000, "it is stopped");
}

/// Reclaim is stopped before one step, where a block is written to, and before a later one, where
/// the file of the block is closed.
#[test]
fn a_file_is_closed_while_its_block_is_reclaimed() {
    let program = || {
        let world = Arc::new(World::new(LruPolicy::ScanResistant, 0));
        let (opened, reclaiming) = (world.come(), Arc::clone(&world));
        drop(opened.file.read(Block(0)).expect("there is room"));
        let reclaim = move || {
            let _one = reclaiming.cache.shared.lru.reclaim(Scope::All, FrameCount::new(1));
        };
        let calls = [thread::spawn(reclaim), thread::spawn(move || world.go(opened, 1, false))];
        calls.into_iter().for_each(|call| call.join().expect("it does not panic"));
    };
    let cases = Arc::new(AtomicU64::new(0));
    for step in 0.. {
        run(Stops::new(Some(step), usize::MAX, &cases), program);
        // Reclaim has no such step.
        if STOP.get() == step + 1 {
            break;
        }
    }
    println!("{} cases", cases.load(SeqCst));
    assert!(cases.load(SeqCst) > 100, "it is stopped twice");
}

/// The thread that reads on is stopped before each of its steps, and the file is closed there: what
/// it reads is taken out with the rest, and no more comes.
#[test]
fn a_file_is_closed_while_a_piece_of_it_is_read() {
    let pieces = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&pieces);
    let program = move || {
        // The third thread, as the first call elsewhere.
        let world = Arc::new(World::new(LruPolicy::ScanResistant, 1));
        let closing = Arc::clone(&world);
        let state = thread::spawn(move || {
            let file = closing.come().file;
            // The second block in a row brings one more, whose use asks for the next.
            (0..3).for_each(|block| drop(file.read(Block(block)).expect("there is room")));
            let state = closing.cache.shared.open_files().pop().expect("it is the last one");
            drop(file);
            state
        });
        let state = state.join().expect("it does not panic");
        (0..50).for_each(|_| thread::yield_now());
        assert_eq!(state.cached(), 0, "blocks of a closed file");
        let read_ahead = world.cache.stats().tenants[1].read_ahead;
        seen.fetch_add(read_ahead - 1, SeqCst);
    };
    let cases = Arc::new(AtomicU64::new(0));
    run(Stops::new(None, usize::MAX, &cases), program);
    let [cases, pieces] = [cases, pieces].map(|count| count.load(SeqCst));
    assert!(pieces > 20 && cases > pieces, "of {cases} cases, {pieces} after the piece");
}

#[test]
fn calls_are_stopped_beside_others() {
    stop_every(0, 2);
}

#[test]
fn more_calls_are_stopped_beside_others() {
    stop_every(1, 2);
}
