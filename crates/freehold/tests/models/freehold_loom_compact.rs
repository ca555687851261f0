//! Compaction of the design `freehold` beside users of the content that it moves, and of the memory
//! that it moves it to, under loom: all interleavings with a few preemptions, and all values that
//! the memory orderings allow a load to see; `LOOM_MAX_PREEMPTIONS` explores further.
//!
//! What a frame contains is a cell, so that loom panics if two users of a frame are not ordered.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::platform::SharedCell;
use freehold::{Error, Migrate, MigrateError, Order, Pfn, Request};
use loom::sync::{Arc, Mutex};

use crate::freehold_models::{
    BLOCK, Frames, Sound, build_of, check_held, explore, frame, free, join, on_cpu_with, range,
    take,
};
use crate::loom_platform::LoomCell;

/// The user of some frames, whose content may be moved as long as it has not taken it away.
struct User {
    /// Where each content lies.
    at: Mutex<Vec<Option<Pfn>>>,
    /// What the frames of the two pageblocks contain, so many each.
    cells: [Vec<LoomCell<u32>>; 2],
    /// How often content has moved: a count outside the model.
    moves: AtomicU64,
}

impl User {
    fn new(frames: u64, at: impl IntoIterator<Item = u64>) -> Arc<Self> {
        let cells = [(); 2].map(|()| (0..frames).map(|_| LoomCell::new(0)).collect());
        let at = at.into_iter().map(|frame| Some(Pfn::new(frame))).collect();
        Arc::new(User { at: Mutex::new(at), cells, moves: AtomicU64::new(0) })
    }

    /// Uses a frame: reads and writes it.
    fn touch(&self, frame: Pfn) {
        let frame = frame.get();
        let cell = &self.cells[(frame / BLOCK) as usize][(frame % BLOCK) as usize];
        cell.set(cell.get() + 1);
    }

    /// Takes the first content away, and frees its frame, wherever that is.
    fn free_first(&self, machine: &Frames<Sound>) {
        let at = self.at.lock().expect("no thread panicked")[0].take();
        let at = at.expect("it is taken once");
        self.touch(at);
        free(machine, at.get());
    }
}

impl Migrate for User {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        assert_eq!(order, Order::ZERO);
        let mut all = self.at.lock().expect("no thread panicked");
        let at = all.iter_mut().find(|at| **at == Some(from)).ok_or(MigrateError::Busy)?;
        self.touch(from);
        self.touch(to);
        *at = Some(to);
        self.moves.fetch_add(1, Relaxed);
        Ok(())
    }
}

/// Two pageblocks of so many frames each, for two CPUs, of which these frames are in use.
fn build(frames: u64, used: &[u64]) -> (Arc<Frames<Sound>>, Arc<User>) {
    let machine = build_of(&[range(0, frames), range(BLOCK, frames)], 2, 0);
    take(&machine, 2 * frames);
    let all = (0..frames).chain(BLOCK..BLOCK + frames);
    let others = all.filter(|frame| !used.contains(frame)).map(Pfn::new);
    machine.free_bulk(&others.collect::<Vec<_>>(), Order::ZERO).expect("they are held");
    machine.drain_all();
    (machine, User::new(frames, used.iter().copied()))
}

/// Explores a model, and checks that content has moved in some executions.
fn explore_moves(model: impl Fn() -> Arc<User> + Send + Sync + 'static) {
    let sum = std::sync::Arc::new(AtomicU64::new(0));
    let moves = std::sync::Arc::clone(&sum);
    explore(1, move || {
        moves.fetch_add(model().moves.load(Relaxed), Relaxed);
    });
    assert!(sum.load(Relaxed) > 0, "nothing has ever moved");
}

#[test]
fn content_is_freed_while_it_is_compacted() {
    explore_moves(|| {
        let (machine, user) = build(4, &[1]);
        let other = on_cpu_with(&machine, 1, &user, |machine, user| user.free_first(machine));
        machine.compact(&*user);
        join(other);
        check_held(&machine, 0);
        user
    });
}

/// A frame is freed in the pageblock to which content is moved.
#[test]
fn a_frame_is_freed_where_content_is_compacted_to() {
    explore_moves(|| {
        let (machine, user) = build(2, &[1, BLOCK]);
        let content = user.at.lock().expect("no thread panicked").pop().flatten();
        let freed = content.expect("there are two");
        let other = on_cpu_with(&machine, 1, &user, move |machine, user| {
            user.touch(freed);
            free(machine, freed.get());
        });
        machine.compact(&*user);
        join(other);
        check_held(&machine, 1);
        user
    });
}

/// An allocation takes frames of the pageblock to which a compaction moves content meanwhile.
#[test]
fn a_frame_is_allocated_where_content_is_compacted_to() {
    explore_moves(|| {
        let (machine, user) = build(2, &[0, 1]);
        let other = on_cpu_with(&machine, 1, &user, |machine, user| _ = machine.compact(user));
        // It fails if the compaction has taken both frames, and not given back others by then.
        let got = machine.alloc(frame());
        got.iter().for_each(|&got| user.touch(got));
        join(other);
        let at = user.at.lock().expect("no thread panicked").clone();
        assert!(at.iter().all(|at| *at != got.ok()), "a frame with content is allocated: {got:?}");
        at.into_iter().for_each(|at| user.touch(at.expect("it stays")));
        check_held(&machine, 2 + u64::from(got.is_ok()));
        user
    });
}

/// A block is made for a request by moving content, while that is freed: the request gets a block
/// in any case, and no other one.
#[test]
fn content_is_freed_while_a_block_is_made_of_its_place() {
    explore_moves(|| {
        let (machine, user) = build(8, &[1, 5, BLOCK + 1, BLOCK + 5]);
        let large = Request::new(Order::new(2));
        assert_eq!(machine.alloc(large), Err(Error::OutOfMemory));
        let other = on_cpu_with(&machine, 1, &user, |machine, user| user.free_first(machine));
        let made = machine.alloc_compacting(large, &*user).expect("content can be moved");
        (0..4).for_each(|nth| user.touch(Pfn::new(made.get() + nth)));
        join(other);
        check_held(&machine, 3 + 4);
        user
    });
}
