//! Free page reporting: which pageblocks are reported, how often, and what they are meanwhile.

use std::collections::BTreeSet;

use crate::common::TestPlatform;
use crate::tested::{Tested, build, range};
use freehold::designs::Freehold;
use freehold::{Order, Pfn, Request};

const PAGEBLOCK: u64 = Order::PAGEBLOCK.frames().get();
const PAGEBLOCKS: u64 = 40;
const BATCH: usize = 32;

type Guest = Tested<Freehold<TestPlatform>>;

fn guest(min_free: u64) -> Guest {
    build(&[range(PAGEBLOCK, PAGEBLOCKS * PAGEBLOCK)], &[0, 0], min_free)
}

/// Reports until nothing is left to report.
fn report_all(guest: &Guest) -> BTreeSet<Pfn> {
    let mut all = BTreeSet::new();
    while guest.report_free(|pageblocks| {
        assert!(pageblocks.iter().all(|&first| !guest.is_free(first)), "others could have it");
        assert!(pageblocks.iter().all(|&first| all.insert(first)), "reported twice");
        true
    }) > 0
    {}
    guest.validate().expect("sound");
    all
}

#[test]
fn each_whole_pageblock_is_reported_once_until_it_is_used() {
    let guest = guest(0);
    let held = guest.alloc(Request::default()).expect("all is free");
    assert_eq!(guest.report_free(|pageblocks| pageblocks.len() == BATCH), BATCH);
    let rest = report_all(&guest);
    assert_eq!(rest.len() as u64, PAGEBLOCKS - BATCH as u64 - 1, "one is the CPU's");
    assert!(report_all(&guest).is_empty());
    // As one block, frame by frame, and as part of a larger block.
    let huge = guest.alloc(Request::new(Order::PAGEBLOCK)).expect("it is free");
    guest.free(huge, Order::PAGEBLOCK).expect("it is held");
    guest.free(held, Order::ZERO).expect("it is held");
    let larger = guest.alloc(Request::new(Order::new(11))).expect("they are free");
    guest.free(larger, Order::new(11)).expect("it is held");
    guest.drain_all();
    let again = report_all(&guest);
    assert!(again.contains(&larger) && again.contains(&huge), "{again:?}");
    // With the one frame's, and at most eight that were acquired as spares at once.
    assert!((5..=1 + 8 + 4).contains(&again.len()), "{again:?}");
}

#[test]
fn what_could_not_be_reported_is_tried_again() {
    let guest = guest(0);
    assert_eq!(guest.report_free(|_| false), 0);
    guest.validate().expect("sound");
    assert_eq!(report_all(&guest).len() as u64, PAGEBLOCKS);
    let all: Vec<_> =
        std::iter::from_fn(|| guest.alloc(Request::new(Order::PAGEBLOCK)).ok()).collect();
    assert_eq!(all.len() as u64, PAGEBLOCKS, "they are free all the same");
}

/// Nothing is reported of what the reserve needs.
#[test]
fn reporting_stays_above_the_low_watermark() {
    let guest = guest(8 * PAGEBLOCK);
    let mut left = u64::MAX;
    let many = guest.report_free(|_| {
        left = guest.levels().map(|zone| zone.free.get()).sum();
        true
    });
    assert!(many > 0 && left >= 8 * PAGEBLOCK, "{many} pageblocks, {left} frames left");
    guest.validate().expect("sound");
}
