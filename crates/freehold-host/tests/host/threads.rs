//! Threads that have nothing in common but the allocator.

use freehold::designs::Freehold;
use freehold::{Design, FrameCount, Order};
use freehold_host::{Arena, ArenaBuilder, Host};
use freehold_linux::ZoneLock;

use crate::calls::next_random;

const MIB: usize = 1 << 20;

/// How many of the frames that a thread gets were written last by another one.
fn take_over<D: Design<Host>>(arena: &Arena<D>, seed: u64) -> u64 {
    let (mut random, mut had, mut taken_over) = (seed, Vec::new(), 0);
    for _ in 0..40_000 {
        if had.len() < 3
            && let Ok(mut pages) = arena.allocate(Order::ZERO)
        {
            let last = u64::from_le_bytes(pages[..8].try_into().unwrap());
            taken_over += u64::from(![0, seed].contains(&last));
            pages[..8].copy_from_slice(&seed.to_le_bytes());
            had.push(pages);
        }
        let choice = next_random(&mut random);
        if !had.is_empty() && choice.is_multiple_of(2) {
            let pages = had.swap_remove((choice >> 8) as usize % had.len());
            assert_eq!(pages[..8], seed.to_le_bytes(), "{pages:?}");
        }
    }
    taken_over
}

/// Frames go from thread to thread, and nothing but the allocator orders what these do to them:
/// under ThreadSanitizer, an order that it does not give is a data race.
fn go_from_thread_to_thread<D: Design<Host> + Sync>() {
    let arena = ArenaBuilder::<D>::new().bytes(2 * MIB).nodes(1).min_free(FrameCount::ZERO);
    let arena = arena.build().unwrap();
    let mut all: Vec<_> = std::iter::from_fn(|| arena.allocate(Order::ZERO).ok()).collect();
    // What the threads want more of than there is.
    all.truncate(all.len() - 4);
    let taken_over = std::thread::scope(|scope| {
        let arena = &arena;
        let threads = [1, 2, 3].map(|seed| scope.spawn(move || take_over(arena, seed)));
        threads.map(|thread| thread.join().unwrap())
    });
    assert!(taken_over.iter().sum::<u64>() > 0, "no frame had another user: {taken_over:?}");
}

#[test]
fn frames_go_from_thread_to_thread_by_the_allocator_alone() {
    go_from_thread_to_thread::<Freehold<Host>>();
    go_from_thread_to_thread::<ZoneLock<Host>>();
}
