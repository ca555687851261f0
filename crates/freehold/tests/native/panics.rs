//! Code of the platform or the caller that panics: initialised values are dropped once, and nothing
//! else is. Panics of the owners of content are tested with the calls to owners.

use std::panic::{AssertUnwindSafe, catch_unwind};

use freehold::designs::Design;
use freehold::{Error, FrameCount, Order, Pfn, Request, ZoneKind};

use crate::common::TestPlatform;
use crate::fragile::{FUSE, Fragile, every_call, survive, with_config};
use crate::machine::Machine;
use crate::tested::{self, TestDesign, range};

test_designs!(Fragile: [
    a_panic_while_an_allocator_is_built_drops_what_was_made,
    a_panic_in_any_call_of_the_platform_is_no_undefined_behaviour,
]);

mod lists {
    use super::{TestPlatform, a_list_that_panics_gets_no_more_blocks_and_none_is_lost};
    test_designs!(TestPlatform: [a_list_that_panics_gets_no_more_blocks_and_none_is_lost]);
}

fn build<D: Design<Fragile>>() -> Machine<Fragile, D> {
    with_config(|config| Machine::new(Fragile, config, &D::Settings::default()))
}

fn a_panic_while_an_allocator_is_built_drops_what_was_made<D: Design<Fragile>>() {
    let calls = survive(u64::MAX, || drop(build::<D>())).expect("nothing panics");
    // The first and the last ones, and some between: there are thousands of frames' words.
    let step = (calls / 700).max(1) as usize;
    every_call(|at| survive(at, || drop(build::<D>())), 300, step);
}

fn a_panic_in_any_call_of_the_platform_is_no_undefined_behaviour<D: Design<Fragile>>() {
    let use_it = || -> Result<(), Error> {
        // Nothing panics during construction.
        let fuse = FUSE.replace(u64::MAX);
        let machine = build::<D>();
        FUSE.set(fuse);
        let kept = machine.alloc(Request::default())?;
        let block = machine.alloc(Request::new(Order::new(2)))?;
        let mut bulk = [Pfn::default(); 8];
        let count =
            machine.alloc_bulk(Request::default().zone_limit(ZoneKind::Normal), &mut bulk)?;
        machine.free_bulk(&bulk[..count], Order::ZERO).map_err(|error| error.error)?;
        machine.free(block, Order::new(2))?;
        machine.drain_all();
        machine.free(kept, Order::ZERO)
    };
    every_call(|at| survive(at, || assert_eq!(use_it(), Ok(()))), 1500, 13);
}

/// A list that takes so many blocks and panics at the next one.
struct Short(Vec<Pfn>, usize);

impl Extend<Pfn> for Short {
    fn extend<I: IntoIterator<Item = Pfn>>(&mut self, blocks: I) {
        for block in blocks {
            assert!(self.0.len() < self.1, "the list panics, as it was told to");
            self.0.push(block);
        }
    }
}

fn a_list_that_panics_gets_no_more_blocks_and_none_is_lost<D: TestDesign>() {
    let machine = tested::build::<D>(&[range(0, 1024)], &[0], 0);
    for room in [0, 1, 63, 64, 99] {
        let mut list = Short(Vec::new(), room);
        let added = catch_unwind(AssertUnwindSafe(|| {
            machine.alloc_onto_list(Request::default(), 100, &mut list)
        }));
        assert!(added.is_err(), "the list has room for {room}");
        assert_eq!(list.0.len(), room);
        machine.free_bulk(&list.0, Order::ZERO).expect("the list has them");
        // Except the block at which the list panicked, which it may have kept.
        let census = machine.validate().expect("the books are in order");
        assert_eq!(census.allocated, FrameCount::new(1), "the list has room for {room}");
        let lost = (0..1024).map(Pfn::new).find(|&pfn| machine.free(pfn, Order::ZERO).is_ok());
        assert!(lost.is_some() && machine.validate().is_ok());
    }
}
