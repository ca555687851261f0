//! Owners that know of content that was allocated as unmovable whether it can move.

use std::sync::atomic::Ordering::SeqCst;

use crate::common::TestPlatform;
use crate::owner::{Owner, check_books};
use crate::ranges::{ask, machine};
use crate::tested::{TestDesign, Tested, frames};
use freehold::{Error, Migrate, MigrateError, MigrateType, Order, Pfn, Request};

test_designs!(TestPlatform: [
    compaction_moves_what_the_owner_knows_to_be_movable,
    ranges_and_removal_move_what_the_owner_knows_to_be_movable,
]);

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

const PINNED: Request = Request::new(Order::ZERO).migratetype(MigrateType::Unmovable);

/// What lies at some frames can move, whatever it was allocated as, and nothing else.
struct Knows<'a, F>(&'a Owner, F);

impl<F: Fn(Pfn) -> bool> Migrate for Knows<'_, F> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        if !self.1(from) {
            return Err(MigrateError::Failed);
        }
        self.0.migrate(from, to, order)
    }
    fn knows_content(&self) -> bool {
        true
    }
    fn can_move(&self, block: Pfn, _: Order) -> bool {
        self.1(block)
    }
}

fn compaction_moves_what_the_owner_knows_to_be_movable<D: TestDesign>() {
    const FRAMES: u64 = 5 * PAGEBLOCK;
    let machine = machine::<D>(FRAMES);
    // In Linux's designs, targets are only in pageblocks for movable content.
    let owner = full(&machine, FRAMES, 3 * PAGEBLOCK);
    let pinned: Vec<_> = (0..3 * PAGEBLOCK as usize).filter_map(|slot| owner.block(slot)).collect();
    free_where(&machine, &owner, |pfn| pfn.get() % 2 == 1);
    let pair = Request::new(Order::new(1)).migratetype(MigrateType::Unmovable);
    let held = owner.check();
    assert_eq!(machine.alloc(pair), Err(Error::OutOfMemory));
    // Nothing of the movable content moves here.
    let was_pinned = |pfn: Pfn| pinned.contains(&(pfn, Order::ZERO));
    let nothing = Knows(&owner, |_| false);
    assert_eq!(machine.alloc_compacting_now(pair, &nothing), Err(Error::OutOfMemory));
    let pfn = machine.alloc_compacting_now(pair, &Knows(&owner, was_pinned)).expect("it moves");
    assert_eq!(owner.check(), held);
    check_books(&*machine, held + 2);
    machine.free(pfn, pair.order()).expect("it is held");
    // Not even a whole compaction moves anything else.
    let report = machine.compact(&nothing);
    assert_eq!(report.migrated, frames(0));
    let report = machine.compact(&Knows(&owner, was_pinned));
    assert!(report.migrated > frames(PAGEBLOCK / 4), "{report:?}");
    assert_eq!(owner.check(), held);
    check_books(&*machine, held);
}

fn ranges_and_removal_move_what_the_owner_knows_to_be_movable<D: TestDesign>() {
    const FRAMES: u64 = 8 * PAGEBLOCK;
    let machine = machine::<D>(FRAMES);
    let owner = full(&machine, FRAMES, FRAMES);
    free_where(&machine, &owner, |pfn| pfn.get() >= 4 * PAGEBLOCK && pfn.get() % 8 != 0);
    let held = owner.check();
    let request = ask(700).at(Pfn::new(100));
    assert_eq!(machine.alloc_range(request, &owner), Err(Error::RangeBusy));
    let but_one = Knows(&owner, |pfn: Pfn| pfn.get() != 799);
    assert_eq!(machine.alloc_range(request, &but_one), Err(Error::RangeBusy));
    assert_eq!(owner.moves.load(SeqCst), 0, "that was seen before");
    let all = Knows(&owner, |_| true);
    assert_eq!(machine.alloc_range(request, &all), Ok(Pfn::new(100)));
    assert_eq!(owner.check(), held);
    check_books(&*machine, held + 700);
    machine.free_range(Pfn::new(100), frames(700)).unwrap();
    // A block of a whole pageblock, too.
    let at = Pfn::new(2 * PAGEBLOCK);
    let remove = |owner: &dyn Migrate| machine.remove_memory(at, frames(PAGEBLOCK), owner);
    free_where(&machine, &owner, |pfn| pfn.get() % PAGEBLOCK != 1);
    let slot = (0..owner.slots()).find(|&slot| owner.block(slot).is_none()).expect("one is free");
    let huge = ask(PAGEBLOCK).at(at);
    assert_eq!(machine.alloc_range(huge, &all), Ok(at));
    machine.free_range(at, frames(PAGEBLOCK)).unwrap();
    machine.drain_all();
    let block = PINNED.with_order(Order::PAGEBLOCK);
    // Not one of the others without content.
    let taken: Vec<_> = std::iter::from_fn(|| machine.alloc(block).ok()).collect();
    machine.free(at, block.order()).expect("it was free");
    assert_eq!(owner.alloc(&*machine, slot, block), Ok(at), "the only one without content");
    let others = taken.into_iter().filter(|&pfn| pfn != at);
    others.for_each(|pfn| machine.free(pfn, block.order()).expect("it is held"));
    assert_eq!(remove(&owner), Err(Error::RangeBusy));
    free_where(&machine, &owner, |pfn| pfn.get() / PAGEBLOCK == 5);
    let held = owner.check();
    assert_eq!(remove(&all), Ok(()));
    assert_eq!(owner.check(), held);
    check_books(&*machine, held);
}

/// An owner of all memory: first of content that is allocated as unmovable, a frame a slot.
fn full<D: TestDesign>(machine: &Tested<D>, span: u64, unmovable: u64) -> Owner {
    let owner = Owner::new(span as usize, span);
    for slot in 0..span {
        let request = if slot < unmovable { PINNED } else { Request::default() };
        owner.alloc(machine, slot as usize, request).expect("all memory is free");
    }
    owner
}

fn free_where<D: TestDesign>(machine: &Tested<D>, owner: &Owner, goes: impl Fn(Pfn) -> bool) {
    for slot in 0..owner.slots() {
        if owner.block(slot).is_some_and(|(pfn, _)| goes(pfn)) {
            owner.free(machine, slot);
        }
    }
    machine.drain_all();
}
