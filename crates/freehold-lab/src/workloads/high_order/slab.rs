//! Slabs: blocks shared by many small objects, so that a block is free again only when all of its
//! objects are. As SLUB's: each CPU takes objects from a slab of its own until that is used up,
//! then from one that others have left partly used, and only then from a new one.
//!
//! Sizes are those of `slabtop` on a machine with ext4 (out13.com, *slabtop: kernel slab cache
//! information in real time*): 30 inodes in 32 KiB, 21 directory entries in 4 KiB, 28 nodes of the
//! page cache's index in 16 KiB. If a block of that order is not to be had at once, SLUB takes one
//! of the smallest order that holds an object (`allocate_slab`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use freehold::Order;

use crate::task::Block;

/// The objects of which a cached file has one each.
pub(super) const SHAPES: [Shape; 3] =
    [Shape::new(30, 3, 3), Shape::new(21, 0, 21), Shape::new(28, 2, 7)];

/// So many partly used slabs are kept even if they have become empty (SLUB's `MIN_PARTIAL`).
const PARTIAL_KEPT: usize = 5;

/// How objects of one kind lie in their slabs.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    objects: u16,
    pub(super) order: Order,
    /// How many fit a single frame.
    in_frame: u16,
}

impl Shape {
    const fn new(objects: u16, order: u8, in_frame: u16) -> Self {
        Shape { objects, order: Order::new(order), in_frame }
    }
}

/// An object: the number of its slab.
pub(super) type Object = u32;

/// The slabs of one kind of objects.
pub(super) struct Slabs {
    shape: Shape,
    state: Mutex<State>,
}

struct State {
    slabs: Vec<Slab>,
    /// Numbers of slabs that are no more.
    unused: Vec<Object>,
    /// Slabs with room that no CPU has.
    partial: Vec<Object>,
    /// The slab of each task's CPU.
    of_task: Vec<Option<Object>>,
}

struct Slab {
    block: Option<Block>,
    room: u16,
    used: u16,
}

impl Slabs {
    pub(super) fn new(shape: Shape, tasks: usize) -> Self {
        let of_task = vec![None; tasks];
        let state = State { slabs: Vec::new(), unused: Vec::new(), partial: Vec::new(), of_task };
        Slabs { shape, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object from a slab that there is; none if a new slab is needed.
    pub(super) fn take(&self, task: usize) -> Option<Object> {
        let state = &mut *self.state();
        let slab = state.of_task[task].or_else(|| state.partial.pop())?;
        state.take_from(task, slab);
        Some(slab)
    }

    /// An object from a new slab in this block.
    pub(super) fn take_from_new(&self, task: usize, block: Block) -> Object {
        let state = &mut *self.state();
        let whole = block.order == self.shape.order;
        let room = if whole { self.shape.objects } else { self.shape.in_frame };
        let slab = Slab { block: Some(block), room, used: 0 };
        let number = match state.unused.pop() {
            Some(number) => {
                state.slabs[number as usize] = slab;
                number
            }
            None => {
                state.slabs.push(slab);
                state.slabs.len() as Object - 1
            }
        };
        state.take_from(task, number);
        number
    }

    /// Gives an object back. Returns the block of its slab, if that was its last.
    pub(super) fn give(&self, object: Object) -> Option<Block> {
        let state = &mut *self.state();
        let slab = &mut state.slabs[object as usize];
        let was_full = slab.used == slab.room;
        slab.used -= 1;
        let is_empty = slab.used == 0;
        if state.of_task.contains(&Some(object)) {
            return None;
        }
        if was_full {
            state.partial.push(object);
        }
        if !is_empty || state.partial.len() <= PARTIAL_KEPT {
            return None;
        }
        state.partial.retain(|&other| other != object);
        state.unused.push(object);
        state.slabs[object as usize].block.take()
    }

    /// The blocks of all slabs, which are no more.
    pub(super) fn take_all(&self) -> Vec<Block> {
        let state = &mut *self.state();
        state.slabs.iter_mut().filter_map(|slab| slab.block.take()).collect()
    }

    /// The order of a slab.
    pub(super) fn order(&self) -> Order {
        self.shape.order
    }

    /// How many frames the slabs have.
    pub(super) fn frames(&self) -> u64 {
        let state = self.state();
        state
            .slabs
            .iter()
            .filter_map(|slab| slab.block)
            .map(|block| block.order.frames().get())
            .sum()
    }
}

impl State {
    /// Takes an object from a slab with room, which becomes that of the task's CPU while it has
    /// some.
    fn take_from(&mut self, task: usize, number: Object) {
        let slab = &mut self.slabs[number as usize];
        slab.used += 1;
        self.of_task[task] = (slab.used < slab.room).then_some(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold::Pfn;

    fn block(pfn: u64, order: u8) -> Block {
        Block { pfn: Pfn::new(pfn), order: Order::new(order) }
    }

    #[test]
    fn a_slab_is_free_when_its_last_object_is() {
        let slabs = Slabs::new(Shape::new(2, 1, 1), 1);
        let mut objects = Vec::new();
        for pfn in 0..20 {
            assert_eq!(slabs.take(0), None, "all slabs are full");
            let object = slabs.take_from_new(0, block(2 * pfn, 1));
            objects.push((object, slabs.take(0)));
        }
        assert_eq!(slabs.frames(), 40);
        assert!(objects.iter().all(|&(one, other)| other == Some(one)));
        // One object of each: none is free.
        assert!(objects.iter().all(|&(object, _)| slabs.give(object).is_none()));
        let freed: Vec<_> = objects.iter().filter_map(|&(object, _)| slabs.give(object)).collect();
        assert_eq!(freed.len(), 20 - PARTIAL_KEPT, "but for those that are kept");
        assert_eq!(slabs.frames(), 2 * PARTIAL_KEPT as u64);
        assert!(slabs.take(0).is_some(), "and used again");
        assert_eq!(slabs.take_all().len(), PARTIAL_KEPT);
    }

    #[test]
    fn a_slab_of_one_frame_has_room_for_fewer() {
        let slabs = Slabs::new(SHAPES[0], 2);
        let object = slabs.take_from_new(1, block(8, 0));
        assert_eq!(
            (slabs.take(1), slabs.take(1), slabs.take(1)),
            (Some(object), Some(object), None)
        );
        assert_eq!(slabs.take(0), None, "each CPU has its own");
    }
}
