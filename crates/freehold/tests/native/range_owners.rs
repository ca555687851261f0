//! Ranges and the owners of content in the way: whatever they do, nothing is lost.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::TestPlatform;
use crate::owner::{Owner, Picky, check_books, settle};
use crate::random::Random;
use crate::ranges::{CPUS, ask, machine, sprinkle};
use crate::tested::{TestDesign, Tested, frames, range};
use freehold::{
    Config, Error, FrameCount, Migrate, MigrateError, MigrateType, Order, Pfn, Request, Watermark,
};

test_designs!(TestPlatform: [
    owners_that_refuse_or_panic_lose_nothing,
    owners_may_call_the_allocator,
    an_owner_may_evict_where_there_is_no_target,
    memory_may_be_added_beside_a_range_under_way,
    a_range_over_pageblocks_of_several_types_is_freed,
]);

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();

fn owners_that_refuse_or_panic_lose_nothing<D: TestDesign>() {
    const FRAMES: u64 = 6 * PAGEBLOCK;
    for every in [1, 2, 5, 100] {
        let machine = machine::<D>(FRAMES);
        let counts = (FRAMES as usize / 3, 2);
        let (owner, stones) = sprinkle(&machine, FRAMES, &mut Random(every), counts);
        let (held, fixed) = (owner.check(), stones.len() as u64);
        let calls = Cell::new(0_u64);
        let refuse = |_: Pfn, _: Pfn, _: Order| {
            calls.set(calls.get() + 1);
            if calls.get().is_multiple_of(every) { Err(MigrateError::Failed) } else { Ok(()) }
        };
        let before = machine.zones().next();
        let got = machine.alloc_range(ask(1024), &Picky(&owner, refuse));
        assert!(got == Err(Error::RangeBusy) || every > 1, "{got:?}");
        assert_eq!(owner.check(), held);
        check_books(&*machine, held + fixed + got.map_or(0, |_| 1024));
        if every == 1 {
            settle(&*machine);
            let zone = machine.zones().next();
            assert_eq!(zone.map(|zone| zone.free), before.map(|zone| zone.free));
        }
        let panics = |_: Pfn, _: Pfn, _: Order| {
            calls.set(calls.get() + 1);
            assert!(!calls.get().is_multiple_of(37), "enough is enough");
            Ok(())
        };
        let alloc = || machine.alloc_range(ask(700), &Picky(&owner, panics));
        let more = catch_unwind(AssertUnwindSafe(alloc)).ok().and_then(Result::ok);
        assert_eq!(owner.check(), held);
        let ranges = got.map_or(0, |_| 1024) + more.map_or(0, |_| 700);
        check_books(&*machine, held + fixed + ranges);
    }
}

fn owners_may_call_the_allocator<D: TestDesign>() {
    const FRAMES: u64 = 8 * PAGEBLOCK;
    let machine = machine::<D>(FRAMES);
    let (owner, _) = sprinkle(&machine, FRAMES, &mut Random(9), (FRAMES as usize / 2, 0));
    let held = owner.check();
    let calls = Cell::new(0_u64);
    let calling = |_: Pfn, _: Pfn, _: Order| {
        let pfn = machine.alloc(Request::default()).expect("memory is free");
        assert!(pfn >= Pfn::new(1500), "not in the range");
        calls.set(calls.get() + 1);
        if calls.get().is_multiple_of(50)
            && let Ok(pfn) = machine.alloc_range(ask(10), &owner)
        {
            assert!(pfn >= Pfn::new(1500), "another range is under way there");
            machine.free_range(pfn, frames(10)).unwrap();
        }
        machine.free(pfn, Order::ZERO).map_err(|_| MigrateError::Failed)
    };
    let request = ask(1500).at(Pfn::new(0));
    let pfn = machine.alloc_range(request, &Picky(&owner, calling)).expect("content moves");
    assert_eq!(owner.check(), held);
    check_books(&*machine, held + 1500);
    machine.free_range(pfn, frames(1500)).unwrap();
    check_books(&*machine, held);
}

/// A range may take pageblocks of several types, and is freed by blocks that are larger.
fn a_range_over_pageblocks_of_several_types_is_freed<D: TestDesign>() {
    const SPAN: u64 = 2 * PAGEBLOCK;
    let machine = machine::<D>(3 * PAGEBLOCK);
    let owner = Owner::new(3 * PAGEBLOCK as usize, 3 * PAGEBLOCK);
    for slot in 0..owner.slots() {
        owner.alloc(&machine, slot, Request::default()).expect("all memory is free");
    }
    let within = |slot: &usize, span: std::ops::Range<u64>| {
        owner.block(*slot).is_some_and(|(pfn, _)| span.contains(&pfn.get()))
    };
    let free_in = |span: std::ops::Range<u64>| {
        (0..owner.slots()).filter(|slot| within(slot, span.clone())).for_each(|slot| {
            owner.free(&machine, slot);
        });
        machine.drain_all();
    };
    // The first pageblock gets another type, the second keeps content that moves.
    free_in(0..PAGEBLOCK);
    let request = Request::default().migratetype(MigrateType::Unmovable);
    let pfn = machine.alloc(request).expect("a pageblock is free");
    machine.free(pfn, Order::ZERO).unwrap();
    free_in(PAGEBLOCK + 100..3 * PAGEBLOCK);
    let range = machine.alloc_range(ask(SPAN).at(Pfn::new(0)), &owner);
    assert_eq!(range, Ok(Pfn::new(0)));
    machine.free_range(Pfn::new(0), frames(SPAN)).unwrap();
    check_books(&*machine, owner.check());
    free_in(0..3 * PAGEBLOCK);
    settle(&*machine);
    check_books(&*machine, 0);
}

/// All memory is in use, and nobody asks such an owner to move anything.
fn an_owner_may_evict_where_there_is_no_target<D: TestDesign>() {
    struct Evicts<'a, D: TestDesign>(&'a Tested<D>, Cell<u64>, u64);
    impl<D: TestDesign> Migrate for Evicts<'_, D> {
        fn migrate(&self, _: Pfn, _: Pfn, _: Order) -> Result<(), MigrateError> {
            Err(MigrateError::Failed)
        }
        fn evict(&self, from: Pfn, order: Order) -> Result<(), MigrateError> {
            if self.1.get() == self.2 {
                return Err(MigrateError::Failed);
            }
            self.1.set(self.1.get() + 1);
            if self.1.get().is_multiple_of(7) {
                return Err(MigrateError::Busy);
            }
            self.0.free(from, order).map_err(|_| MigrateError::Busy)
        }
    }
    const FRAMES: u64 = 4 * PAGEBLOCK;
    let machine = machine::<D>(FRAMES);
    let all = std::iter::from_fn(|| machine.alloc(Request::default()).ok()).count() as u64;
    let stubborn = Evicts(&machine, Cell::new(0), 0);
    let remove = |owner| machine.remove_memory(Pfn::new(510), frames(PAGEBLOCK + 3), owner);
    assert_eq!(remove(&stubborn), Err(Error::OutOfMemory));
    check_books(&*machine, all);
    let evicts = Evicts(&machine, Cell::new(0), u64::MAX);
    assert_eq!(remove(&evicts), Ok(()));
    check_books(&*machine, all - PAGEBLOCK - 3);
    assert!(evicts.1.get() > PAGEBLOCK + 3, "each frame, and some twice");
    // For a range, too, however few are left; and where there is a target, but it does not do.
    let range = ask(300).at(Pfn::new(0));
    assert_eq!(machine.alloc_range(range, &evicts), Err(Error::OutOfMemory));
    assert!(machine.alloc_range(range.watermark(Watermark::Ignore), &evicts).is_ok());
    check_books(&*machine, all - PAGEBLOCK - 3);
    machine.free_range(Pfn::new(0), frames(200)).unwrap();
    let before = evicts.1.get();
    assert!(machine.alloc_range(ask(100).at(Pfn::new(320)), &evicts).is_ok());
    assert!(evicts.1.get() >= before + 100);
    check_books(&*machine, all - PAGEBLOCK - 3 - 200);
}

fn memory_may_be_added_beside_a_range_under_way<D: TestDesign>() {
    let ranges = [range(0, 700)];
    let span = Some((Pfn::new(0), frames(4096)));
    let config = Config::new(&ranges, &CPUS).min_free(FrameCount::ZERO).span(span);
    let machine = Tested::<D>::new(TestPlatform, &config, &D::Settings::default());
    machine.add_memory(range(2048, 1024)).unwrap();
    let owner = Owner::new(600, 4096);
    for slot in 0..600 {
        owner.alloc(&*machine, slot, Request::default()).unwrap();
    }
    let added = Cell::new(false);
    let adding = |_: Pfn, _: Pfn, _: Order| {
        if !added.replace(true) {
            machine.add_memory(range(700, 400)).expect("it is new");
            let isolated: FrameCount = machine.zones().map(|zone| zone.isolated).sum();
            assert!(isolated >= frames(1024 - 700), "{isolated}: new memory is isolated as well");
        }
        Ok(())
    };
    let pfn = machine.alloc_range(ask(650).at(Pfn::new(20)), &Picky(&owner, adding)).unwrap();
    assert!(added.get());
    check_books(&*machine, owner.check() + 650);
    machine.free_range(pfn, frames(650)).unwrap();
    check_books(&*machine, 600);
}
