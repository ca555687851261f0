//! Fallback when a zone has no free block of the type asked for: for every pair of types, with
//! outcomes worked out by hand.
//!
//! A pageblock of 512 frames changes its type if at least 256 of them are free or in use for
//! similar content; movable content must find a free block of order 4 or more for that.
//!
//! Lazy designs leave frames unmerged that are freed one by one, so where the size of a free block
//! decides they behave differently, which the random tests check only by the invariants. Designs
//! that are not Linux's have other rules; those of `freehold` are tested in `freehold_design.rs`.

use crate::common::TestPlatform;
use crate::designs::{fixed, is_lazy};
use crate::tested::{TestDesign, Tested, build_as, range};
use freehold::MigrateType::{self, Movable, Reclaimable, Unmovable};
use freehold::{MemoryRange, Order, Pfn, Request};

const PAIRS: [(MigrateType, MigrateType); 6] = [
    (Unmovable, Movable),
    (Unmovable, Reclaimable),
    (Movable, Unmovable),
    (Movable, Reclaimable),
    (Reclaimable, Unmovable),
    (Reclaimable, Movable),
];

/// Where the pageblocks lie: none has a buddy, so they never merge.
const PAGEBLOCKS: [u64; 3] = [512, 1024, 2560];

/// A machine of some lone pageblocks.
struct Zone<D: TestDesign> {
    machine: Tested<D>,
    /// Claims and steals that a test has accounted for.
    seen: (u64, u64),
}

/// Single frames bypass the per-CPU lists.
fn unlisted<D: TestDesign>(ranges: &[MemoryRange]) -> Tested<D> {
    build_as(ranges, &[0], 0, &fixed(&D::Settings::default(), 1, 1))
}

impl<D: TestDesign> Zone<D> {
    /// One pageblock of each of `types`, entirely free.
    fn new(types: &[MigrateType]) -> Self {
        let ranges = PAGEBLOCKS.map(|start| range(start, 512));
        let mut zone = Zone { machine: unlisted(&ranges[..types.len()]), seen: (0, 0) };
        // All start as movable; an allocation of a whole pageblock sets its type. They are
        // allocated from the lowest, if those of other types are asked for first.
        let mut blocks: Vec<_> = types.iter().map(|&of| (zone.take_order(9, of), of)).collect();
        for (block, _) in blocks.drain(..) {
            zone.machine.free(block, Order::PAGEBLOCK).expect("the pageblock is held");
        }
        zone.seen = zone.counts();
        zone
    }

    /// One pageblock of type `of`, full of such content except for `free` frames from its start.
    fn filled(of: MigrateType, free: impl Iterator<Item = u64>) -> Self {
        let zone = Zone::<D>::new(&[of]);
        for _ in 0..512 {
            zone.take(of);
        }
        zone.free(free);
        assert_eq!(zone.counts(), zone.seen, "its own type needs no fallback");
        zone
    }

    fn counts(&self) -> (u64, u64) {
        let stats = self.machine.zones().next().expect("one zone");
        (stats.claims, stats.steals)
    }

    fn take_order(&self, order: u8, migratetype: MigrateType) -> Pfn {
        let request = Request::new(Order::new(order)).migratetype(migratetype);
        let block = self.machine.alloc(request).expect("memory is free");
        self.machine.validate().expect("the books are right");
        block
    }

    fn take(&self, migratetype: MigrateType) -> u64 {
        self.take_order(0, migratetype).get()
    }

    /// Frees frames of the first pageblock.
    fn free(&self, frames: impl Iterator<Item = u64>) {
        for frame in frames {
            self.machine.free(Pfn::new(PAGEBLOCKS[0] + frame), Order::ZERO).expect("it is held");
        }
    }

    /// Checks how many pageblocks changed their type, and how many chunks were taken from
    /// pageblocks of other types, since the last check.
    #[track_caller]
    fn expect(&mut self, claims: u64, steals: u64) {
        let (before, now) = (self.seen, self.counts());
        assert_eq!((now.0 - before.0, now.1 - before.1), (claims, steals), "(claims, steals)");
        self.seen = now;
    }
}

fn even(frames: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    frames.step_by(2)
}

fn a_free_pageblock_is_claimed<D: TestDesign>() {
    for (request, of) in PAIRS {
        for order in 0..=9 {
            let mut zone = Zone::<D>::new(&[of]);
            zone.take_order(order, request);
            zone.expect(1, 0);
            // It is now of that type, if anything is left of it.
            if order < 9 {
                zone.take(request);
                zone.expect(0, 0);
            }
        }
    }
}

fn a_pageblock_that_is_half_free_is_claimed<D: TestDesign>() {
    if is_lazy(D::NAME) {
        return;
    }
    for (request, of) in PAIRS {
        let mut zone = Zone::<D>::filled(of, 256..512);
        zone.take(request);
        zone.expect(1, 0);
        zone.take(request);
        zone.expect(0, 0);
    }
}

fn a_pageblock_that_is_less_than_half_free_is_stolen_from<D: TestDesign>() {
    if is_lazy(D::NAME) {
        return;
    }
    for (request, of) in PAIRS {
        let mut zone = Zone::<D>::filled(of, 257..512);
        // The smallest chunk is the single frame at 257.
        assert_eq!(zone.take(request), 512 + 257);
        zone.expect(0, 1);
        // The pageblock keeps its type, and so does the rest of it.
        zone.take(request);
        zone.expect(0, 1);
        zone.take(of);
        zone.expect(0, 0);
    }
}

fn movable_content_does_not_claim_a_pageblock_for_the_sake_of_a_small_block<D: TestDesign>() {
    if is_lazy(D::NAME) {
        return;
    }
    for (request, of) in PAIRS {
        // Half of the frames are free, but no two of them are neighbours.
        let mut zone = Zone::<D>::filled(of, even(0..512));
        zone.take(request);
        match request {
            Movable => zone.expect(0, 1),
            _ => zone.expect(1, 0),
        }
    }
    for (order, claims) in [(3, 0), (4, 1)] {
        for of in [Unmovable, Reclaimable] {
            // Half of the frames are free, in blocks of this order.
            let free = (0..512).filter(|frame| frame >> order & 1 == 0);
            let mut zone = Zone::<D>::filled(of, free);
            zone.take(Movable);
            zone.expect(claims, 1 - claims);
        }
    }
}

/// A pageblock of a type with 100 frames of content in 200.
fn with_content<D: TestDesign>(of: MigrateType, content: MigrateType) -> Zone<D> {
    let mut zone = Zone::filled(of, even(0..200));
    for _ in 0..100 {
        zone.take(content);
    }
    zone.expect(0, 100);
    zone
}

/// With 100 frames of such content, 156 free ones make half of the pageblock.
fn half_is_claimed<D: TestDesign>(of: MigrateType, content: MigrateType, request: MigrateType) {
    for (freed, claims) in [(155, 0), (156, 1)] {
        let mut zone = with_content::<D>(of, content);
        zone.free(256..256 + freed);
        zone.take(request);
        zone.expect(claims, 1 - claims);
    }
}

fn movable_content_counts_for_movable_requests<D: TestDesign>() {
    if is_lazy(D::NAME) {
        return;
    }
    for of in [Unmovable, Reclaimable] {
        half_is_claimed::<D>(of, Movable, Movable);
    }
}

fn content_that_cannot_move_counts_for_such_requests_in_a_movable_pageblock<D: TestDesign>() {
    for content in [Unmovable, Reclaimable] {
        for request in [Unmovable, Reclaimable] {
            half_is_claimed::<D>(Movable, content, request);
        }
    }
}

fn unmovable_and_reclaimable_content_are_not_alike_in_each_others_pageblocks<D: TestDesign>() {
    for (request, of) in [(Unmovable, Reclaimable), (Reclaimable, Unmovable)] {
        let mut zone = with_content::<D>(of, request);
        zone.free(256..511);
        zone.take(request);
        zone.expect(0, 1);
    }
}

fn each_type_has_a_first_choice<D: TestDesign>() {
    for (request, first, second) in [
        (Unmovable, Reclaimable, Movable),
        (Movable, Reclaimable, Unmovable),
        (Reclaimable, Unmovable, Movable),
    ] {
        // Both ways round, so that the place does not decide. A movable pageblock is made last,
        // because the others are made of movable ones.
        let mut orders = vec![[first, second]];
        if second != Movable {
            orders.push([second, first]);
        }
        for types in orders {
            let mut zone = Zone::<D>::new(&types);
            let at = types.iter().position(|&of| of == first).expect("one of the two");
            let frame = zone.take(request);
            assert_eq!(frame / 512 * 512, PAGEBLOCKS[at], "{request:?} from {types:?}");
            zone.expect(1, 0);
        }
    }
}

fn a_claim_looks_for_the_largest_block_whatever_its_type<D: TestDesign>() {
    // The reclaimable pageblock would be the first choice, but has only 256 frames free.
    let mut zone = Zone::<D>::new(&[Reclaimable, Movable]);
    let half = zone.take_order(8, Reclaimable);
    assert_eq!(half.get() / 512 * 512, PAGEBLOCKS[0]);
    let frame = zone.take(Unmovable);
    assert_eq!(frame / 512 * 512, PAGEBLOCKS[1]);
    zone.expect(1, 0);
}

fn a_steal_looks_for_the_smallest_block<D: TestDesign>() {
    if is_lazy(D::NAME) {
        return;
    }
    let mut zone = Zone::<D>::filled(Unmovable, (8..16).chain([21]).chain(32..48));
    for frame in [21, 8, 9] {
        assert_eq!(zone.take(Movable), PAGEBLOCKS[0] + frame);
        zone.expect(0, 1);
    }
    // The order-3 block was split: frames 10 and 11 are the smallest block of at least order 1.
    assert_eq!(zone.take_order(1, Movable).get(), PAGEBLOCKS[0] + 10);
    zone.expect(0, 1);
}

fn freeing_gives_a_merged_block_the_type_of_what_was_freed_last<D: TestDesign>() {
    let machine = unlisted::<D>(&[range(1024, 1024)]);
    let take = |of| machine.alloc(Request::new(Order::PAGEBLOCK).migratetype(of)).expect("free");
    let blocks = [take(Movable), take(Unmovable)];
    let claims = || machine.zones().next().expect("one zone").claims;
    let before = claims();
    machine.free(blocks[0], Order::PAGEBLOCK).expect("held");
    machine.free(blocks[1], Order::PAGEBLOCK).expect("held");
    machine.validate().expect("the two pageblocks are one block of one type");
    // Both pageblocks are unmovable now.
    take(Unmovable);
    take(Unmovable);
    assert_eq!(claims(), before);
}

test_designs!(TestPlatform, of Linux: [
    a_free_pageblock_is_claimed,
    a_pageblock_that_is_half_free_is_claimed,
    a_pageblock_that_is_less_than_half_free_is_stolen_from,
    movable_content_does_not_claim_a_pageblock_for_the_sake_of_a_small_block,
    movable_content_counts_for_movable_requests,
    content_that_cannot_move_counts_for_such_requests_in_a_movable_pageblock,
    unmovable_and_reclaimable_content_are_not_alike_in_each_others_pageblocks,
    each_type_has_a_first_choice,
    a_claim_looks_for_the_largest_block_whatever_its_type,
    a_steal_looks_for_the_smallest_block,
    freeing_gives_a_merged_block_the_type_of_what_was_freed_last,
]);
