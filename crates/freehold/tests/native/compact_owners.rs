//! Compaction, whatever the owners of the content do while they are asked to move it.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::TestPlatform;
use crate::owner::{Owner, Picky, check_books, settle};
use crate::random::Random;
use crate::scattered::{PAGEBLOCK, SPAN, machine, scatter};
use crate::tested::{TestDesign, Tested};
use freehold::designs::Freehold;
use freehold::{FrameCount, Migrate, MigrateError, MigrateType, Order, Pfn, RangeRequest, Request};

test_designs!(TestPlatform: [
    owners_may_call_the_allocator,
    owners_may_free_the_target_before_they_answer,
    owners_may_free_the_source_themselves,
    what_the_owner_moved_may_be_another_block_by_then,
    an_owner_that_does_not_tell_the_truth_harms_no_one_else,
    what_an_owner_frees_meanwhile_serves_the_request,
    a_panic_loses_nothing,
]);

fn owners_may_call_the_allocator<D: TestDesign>() {
    let machine = machine::<D>(0);
    let owner = scatter(&machine, &mut Random(11), &[0, 1], 50);
    let held = owner.check();
    let kept = RefCell::new(Vec::new());
    let calling = |_: Pfn, to: Pfn, order: Order| {
        let kind = MigrateType::ALL[kept.borrow().len() % 3];
        let pfn = machine.alloc(Request::default().migratetype(kind)).expect("half is free");
        assert!(pfn < to || pfn >= to.offset(order.frames()), "the target has no other user");
        kept.borrow_mut().push(pfn);
        if kept.borrow().len() > 50 {
            machine.free(kept.borrow_mut().swap_remove(20), Order::ZERO).expect("it is held");
        }
        if kept.borrow().len() == 50 {
            machine.drain_all();
        }
        Ok(())
    };
    machine.compact(&Picky(&owner, calling));
    assert_eq!(owner.check(), held);
    check_books(&*machine, held + kept.borrow().len() as u64);
    assert_eq!(kept.borrow().len(), 50);
}

/// An owner that frees the target as soon as it has it.
fn owners_may_free_the_target_before_they_answer<D: TestDesign>() {
    let machine = machine::<D>(0);
    let owner = scatter(&machine, &mut Random(12), &[0, 3], 50);
    struct Frees<'a, D: TestDesign>(&'a Owner, &'a Tested<D>, Cell<u64>);
    impl<D: TestDesign> Migrate for Frees<'_, D> {
        fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
            self.0.migrate(from, to, order)?;
            self.2.set(self.2.get() + 1);
            if self.2.get().is_multiple_of(5) {
                let slot =
                    (0..self.0.slots()).find(|&slot| self.0.block(slot) == Some((to, order)));
                self.0.free(self.1, slot.expect("it has just moved"));
            }
            Ok(())
        }
    }
    let frees = Frees(&owner, &machine, Cell::new(0));
    machine.compact(&frees);
    assert!(frees.2.get() > 100);
    check_books(&*machine, owner.check());
}

/// An owner that frees what its content has left: at once, or only when all has moved.
fn owners_may_free_the_source_themselves<D: TestDesign>() {
    struct Leaves<'a, D: TestDesign> {
        owner: &'a Owner,
        machine: &'a Tested<D>,
        at_once: bool,
        left: RefCell<Vec<(Pfn, Order)>>,
    }
    impl<D: TestDesign> Leaves<'_, D> {
        fn free_all(&self) -> usize {
            let left = self.left.take();
            for &(pfn, order) in &left {
                self.machine.free(pfn, order).expect("the allocator has not freed it");
            }
            left.len()
        }
    }
    impl<D: TestDesign> Migrate for Leaves<'_, D> {
        fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
            self.owner.migrate(from, to, order)?;
            self.left.borrow_mut().push((from, order));
            if self.at_once {
                self.free_all();
            }
            Ok(())
        }
        fn frees_source(&self) -> bool {
            true
        }
    }
    for at_once in [true, false] {
        let machine = machine::<D>(0);
        let owner = scatter(&machine, &mut Random(15), &[0, 3], 30);
        let held = owner.check();
        let left = RefCell::default();
        let leaves = Leaves { owner: &owner, machine: &machine, at_once, left };
        let report = machine.compact(&leaves);
        assert!(report.migrated.get() > 1000 && report.failed == 0, "{report:?}");
        assert_eq!(leaves.free_all() == 0, at_once);
        assert_eq!(owner.check(), held);
        settle(&*machine);
        check_books(&*machine, held);
        // As much as without: of the free memory, at most the frames of one pageblock in eight.
        let whole = machine.zones().map(|zone| zone.free_blocks[9] + 2 * zone.free_blocks[10]);
        assert!(whole.sum::<u64>() * PAGEBLOCK >= (SPAN - held) * 7 / 8);
        let range = RangeRequest::new(FrameCount::new(SPAN / 3)).at(Pfn::new(0));
        let got = machine.alloc_range(range, &leaves);
        assert!(got.is_ok() || !at_once, "{got:?}");
        leaves.free_all();
        check_books(&*machine, held + got.map_or(0, |_| SPAN / 3));
    }
}

/// The block that was found has been freed, and its frame allocated again for content of another
/// type, when its owner comes to move it.
fn what_the_owner_moved_may_be_another_block_by_then<D: TestDesign>() {
    /// How often that happened, and how often the frame could not be allocated again.
    struct Changes<'a, D: TestDesign>(&'a Tested<D>, Cell<[u64; 2]>);
    impl<D: TestDesign> Migrate for Changes<'_, D> {
        fn migrate(&self, from: Pfn, _: Pfn, order: Order) -> Result<(), MigrateError> {
            let (machine, [changed, gone]) = (self.0, self.1.get());
            if changed + gone == 3 {
                return Err(MigrateError::Busy);
            }
            machine.free(from, order).expect("it is held");
            machine.drain_all();
            let request = Request::new(order).migratetype(MigrateType::Unmovable);
            let free: Vec<_> = std::iter::from_fn(|| machine.alloc(request).ok()).collect();
            for &other in free.iter().filter(|&&pfn| pfn != from) {
                machine.free(other, order).expect("it is held");
            }
            machine.drain_all();
            if free.contains(&from) {
                self.1.set([changed + 1, gone]);
                return Ok(());
            }
            self.1.set([changed, gone + 1]);
            Err(MigrateError::Busy)
        }
    }
    let machine = machine::<D>(0);
    let blocks: Vec<_> = (0..SPAN).map(|_| machine.alloc(Request::default()).unwrap()).collect();
    blocks.iter().skip(SPAN as usize / 2).step_by(2).for_each(|&pfn| {
        machine.free(pfn, Order::ZERO).expect("it is held");
    });
    machine.drain_all();
    let changes = Changes(&machine, Cell::default());
    let report = machine.compact(&changes);
    let [changed, gone] = changes.1.get();
    // In these, a frame of a pageblock that is being emptied is not allocated.
    let isolates = ["freehold", "llfree"].contains(&D::NAME);
    assert!(changed == 3 || isolates && gone > 0, "{changed}, {gone}");
    assert_eq!(report.failed, 0, "{report:?}");
    settle(&*machine);
    check_books(&*machine, SPAN * 3 / 4 - gone);
}

/// Nothing moves, but the first block that is to move has its owner free a pageblock elsewhere.
fn what_an_owner_frees_meanwhile_serves_the_request<D: TestDesign>() {
    struct Frees<'a, D: TestDesign>(&'a Tested<D>, Cell<u64>);
    impl<D: TestDesign> Migrate for Frees<'_, D> {
        fn migrate(&self, _: Pfn, _: Pfn, _: Order) -> Result<(), MigrateError> {
            if self.1.replace(self.1.get() + 1) == 0 {
                for frame in 5 * PAGEBLOCK..6 * PAGEBLOCK {
                    self.0.free(Pfn::new(frame), Order::ZERO).expect("it is held");
                }
                self.0.drain_all();
            }
            Err(MigrateError::Busy)
        }
    }
    let machine = machine::<D>(0);
    for _ in 0..SPAN {
        machine.alloc(Request::default()).expect("there is memory");
    }
    for frame in (SPAN / 2..SPAN).step_by(2) {
        machine.free(Pfn::new(frame), Order::ZERO).expect("it is held");
    }
    machine.drain_all();
    let frees = Frees(&machine, Cell::new(0));
    let got = machine.alloc_compacting(Request::new(Order::PAGEBLOCK), &frees);
    assert_eq!(got, Ok(Pfn::new(5 * PAGEBLOCK)));
    let asked = frees.1.get();
    // This one merges what was freed only when it comes to it.
    let pageblocks = if D::NAME == "lazy-merge" { 5 } else { 1 };
    assert!((1..=pageblocks * PAGEBLOCK).contains(&asked), "it goes no further: {asked} blocks");
    assert_eq!(machine.events().compactions, 1);
    check_books(&*machine, SPAN * 3 / 4);
}

fn an_owner_that_does_not_tell_the_truth_harms_no_one_else<D: TestDesign>() {
    let machine = machine::<D>(0);
    let owner = scatter(&machine, &mut Random(13), &[0], 50);
    let held = owner.check();
    let stolen = RefCell::new(Vec::new());
    // Returns that nothing has moved, yet frees the target.
    let liar = |_: Pfn, to: Pfn, order: Order| {
        if stolen.borrow().len() < 10 {
            machine.free(to, order).expect("it is allocated");
            stolen.borrow_mut().push(to);
            return Err(MigrateError::Failed);
        }
        Ok(())
    };
    machine.compact(&Picky(&owner, liar));
    assert_eq!(owner.check(), held);
    check_books(&*machine, held);
    // Returns that it has moved, but had freed the source.
    struct Frees<'a, D: TestDesign>(&'a Tested<D>, RefCell<Vec<Pfn>>);
    impl<D: TestDesign> Migrate for Frees<'_, D> {
        fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
            if self.1.borrow().len() == 5 {
                return Err(MigrateError::Busy);
            }
            self.0.free(from, order).expect("it is allocated");
            self.1.borrow_mut().push(to);
            Ok(())
        }
    }
    let machine = self::machine::<D>(0);
    let blocks: Vec<_> = (0..2000).map(|_| machine.alloc(Request::default()).unwrap()).collect();
    for pfn in blocks.iter().step_by(2) {
        machine.free(*pfn, Order::ZERO).unwrap();
    }
    machine.drain_all();
    let frees = Frees(&machine, RefCell::default());
    let report = machine.compact(&frees);
    assert_eq!((report.failed, report.migrated), (5, FrameCount::ZERO));
    check_books(&*machine, 1000);
}

fn a_panic_loses_nothing<D: TestDesign>() {
    for after in [0, 1, 31, 32, 100, 511] {
        let machine = machine::<D>(0);
        let owner = scatter(&machine, &mut Random(after), &[0, 1], 50);
        let held = owner.check();
        let left = Cell::new(after);
        let panics = |_: Pfn, _: Pfn, _: Order| {
            assert!(left.get() > 0, "enough is enough");
            left.set(left.get() - 1);
            Ok(())
        };
        let compact = || machine.compact(&Picky(&owner, panics));
        catch_unwind(AssertUnwindSafe(compact)).expect_err("it panicked");
        assert_eq!(owner.check(), held);
        check_books(&*machine, held);
        let request = Request::new(Order::PAGEBLOCK);
        left.set(after);
        let alloc = || machine.alloc_compacting(request, &Picky(&owner, panics));
        let got = catch_unwind(AssertUnwindSafe(alloc)).ok().and_then(Result::ok);
        assert_eq!(owner.check(), held);
        check_books(&*machine, held + got.map_or(0, |_| PAGEBLOCK));
    }
}

/// What has least to move, and that alone.
#[test]
fn few_move_for_a_small_block() {
    let machine = machine::<Freehold<TestPlatform>>(0);
    let owner = scatter(&machine, &mut Random(15), &[0], 85);
    let request = Request::new(Order::new(2)).migratetype(MigrateType::Unmovable);
    for _ in 0..64 {
        machine.alloc_compacting_now(request, &owner).expect("content moves");
    }
    let moved = machine.events().migrated.get();
    assert!((32..=128).contains(&moved), "{moved} moved");
}
