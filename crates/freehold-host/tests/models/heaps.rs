//! A page heap that is purged while its frames are used.

use crate::{sound, unordered};

#[test]
fn a_frame_is_allocated_while_a_purge_has_others() {
    sound::scenarios::alloc_beside_a_purge(false);
}

#[test]
fn a_purge_that_is_refused_forgets_nothing() {
    sound::scenarios::alloc_beside_a_purge(true);
}

#[test]
fn a_frame_is_freed_while_its_neighbour_is_purged() {
    sound::scenarios::free_beside_a_purge();
}

#[test]
fn a_frame_that_is_being_purged_is_had_at_its_place() {
    sound::scenarios::place_beside_a_purge();
}

#[test]
fn of_two_purges_one_gives_a_frame_back() {
    sound::scenarios::two_purges();
}

#[test]
fn of_two_calls_one_makes_the_purge_that_is_due() {
    sound::scenarios::two_calls_when_a_purge_is_due();
}

/// The models would notice an allocator that does not order what the heap's words leave to it.
#[test]
#[should_panic]
fn an_allocator_that_orders_nothing_is_caught() {
    unordered::scenarios::alloc_beside_a_purge(false);
}
