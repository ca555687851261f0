//! A page heap that is purged while its frames are used.

use crate::sound::scenarios as sound;
use crate::unordered::scenarios as unordered;

#[test]
fn a_frame_is_allocated_while_a_purge_has_others() {
    sound::alloc_beside_a_purge(1);
}

#[test]
fn a_frame_is_allocated_after_a_purge_had_it() {
    sound::alloc_after_a_purge(0);
}

#[test]
fn a_frame_is_allocated_while_a_purge_is_refused() {
    sound::alloc_beside_a_refused_purge(1);
}

#[test]
fn a_frame_is_freed_while_its_neighbour_is_purged() {
    sound::free_beside_a_purge(1);
}

#[test]
fn a_frame_is_allocated_while_it_is_freed() {
    sound::alloc_beside_a_free(1);
}

#[test]
fn a_frame_that_is_being_purged_is_had_at_its_place() {
    sound::place_beside_a_purge(1);
}

#[test]
fn of_two_purges_one_gives_a_frame_back() {
    sound::two_purges(2);
}

#[test]
fn of_two_calls_one_makes_the_purge_that_is_due() {
    sound::two_calls_when_a_purge_is_due(1);
}

#[test]
fn of_two_frees_that_see_a_fall_one_is_told() {
    sound::two_frees_when_use_falls(3);
}

#[test]
fn a_frame_is_allocated_while_an_arena_is_purged() {
    sound::alloc_beside_a_purge_of_the_arena(1);
}

/// The models would notice an allocator that does not order what the heap's words leave to it.
#[test]
#[should_panic]
fn an_allocator_that_orders_nothing_is_caught() {
    unordered::alloc_after_a_purge(0);
}
