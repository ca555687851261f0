//! Records are dropped exactly once each, and only those that were initialised.

extern crate std;

use core::cell::{Cell, RefCell};
use core::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::memmap::region::{Carver, LayoutBuilder, Metadata, SectionKind};

/// Carves the tables of a plan out of a buffer full of garbage.
fn carver(builder: LayoutBuilder<'_>) -> Carver {
    let layout = builder.finish();
    let garbage = vec![MaybeUninit::new(0xa5_u8); layout.size_unaligned()];
    Carver::new(Metadata::from_static(garbage.leak()), &layout).unwrap()
}

fn builder() -> LayoutBuilder<'static> {
    LayoutBuilder::new()
}

/// A record that logs its number when it is dropped.
struct Noted {
    number: usize,
    dropped: Rc<RefCell<Vec<usize>>>,
}

impl Drop for Noted {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(self.number);
    }
}

#[test]
fn records_are_initialised_in_place_and_dropped() {
    let counted = Rc::new(());
    let mut builder = builder();
    let plan = builder.strided_table::<(usize, Rc<()>)>(SectionKind::Blocks, 5, 64).unwrap();
    let table = carver(builder).strided_table(plan, |index| (index, counted.clone()));
    assert_eq!(table.get(4).0, 4);
    assert_eq!((0..table.len()).map(|index| table.get(index).0).sum::<usize>(), 10);
    assert_eq!(Rc::strong_count(&counted), 6);
    drop(table);
    assert_eq!(Rc::strong_count(&counted), 1);
}

#[test]
fn a_panic_drops_the_records_made_before_it_and_no_others() {
    const RECORDS: usize = 5;
    // Tables of both strides; in the last round nothing panics.
    for (stride, panics_at) in [size_of::<Noted>(), 128]
        .into_iter()
        .flat_map(|stride| (0..=RECORDS).map(move |at| (stride, at)))
    {
        let dropped = Rc::new(RefCell::new(Vec::new()));
        let mut builder = builder();
        let plan = builder.strided_table(SectionKind::Blocks, RECORDS, stride).unwrap();
        let mut carver = carver(builder);
        let init = |number| {
            assert!(number != panics_at, "as it was told to");
            Noted { number, dropped: dropped.clone() }
        };
        let made = catch_unwind(AssertUnwindSafe(|| match stride {
            128 => drop(carver.strided_table(plan, init)),
            _ => drop(carver.table(plan, init)),
        }));
        assert_eq!(made.is_ok(), panics_at == RECORDS);
        assert_eq!(*dropped.borrow(), (0..panics_at).collect::<Vec<_>>());
    }
}

#[test]
fn twins_drop_the_records_of_both_tables() {
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let mut builder = builder();
    let plans = [3, 3].map(|len| builder.table(SectionKind::Blocks, len).unwrap());
    let mut carver = carver(builder);
    let [first, second] =
        plans.map(|plan| carver.table(plan, |number| Noted { number, dropped: dropped.clone() }));
    let twins = Twins::new(first, second);
    assert_eq!((twins.len(), twins.first().get(1).number, twins.second(2).number), (3, 1, 2));
    drop(twins);
    let mut dropped = dropped.take();
    dropped.sort_unstable();
    assert_eq!(dropped, [0, 0, 1, 1, 2, 2]);
}

#[test]
fn tables_that_cannot_be_twins_are_dropped() {
    let dropped = Rc::new(RefCell::new(Vec::new()));
    let mut builder = builder();
    let plans = [2, 1].map(|len| builder.table(SectionKind::Blocks, len).unwrap());
    let mut carver = carver(builder);
    let [first, second] =
        plans.map(|plan| carver.table(plan, |number| Noted { number, dropped: dropped.clone() }));
    let twins = catch_unwind(AssertUnwindSafe(|| Twins::new(first, second)));
    assert!(twins.is_err());
    assert_eq!(dropped.borrow().len(), 3);
}

#[test]
fn a_panic_in_a_drop_leaks_the_rest_of_the_table() {
    struct Fuse(Rc<Cell<u32>>);
    impl Drop for Fuse {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
            assert!(self.0.get() != 2, "the second drop panics");
        }
    }
    let drops = Rc::new(Cell::new(0));
    let mut builder = builder();
    let plan = builder.table(SectionKind::Blocks, 4).unwrap();
    let table = carver(builder).table(plan, |_| Fuse(drops.clone()));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(table))).is_err());
    assert_eq!(drops.get(), 2);
}

#[test]
fn a_table_is_filled_through_a_slice() {
    let mut builder = builder();
    let plan = builder.table(SectionKind::Topology, 3).unwrap();
    let mut table = carver(builder).table(plan, |_| 0_u16);
    table.as_mut_slice()[1..].copy_from_slice(&[5, 7]);
    assert_eq!(table.iter().copied().collect::<Vec<_>>(), [0, 5, 7]);
    assert_eq!((table.slice(1, 2), table.try_get(3)), (&[5, 7][..], None));
}
