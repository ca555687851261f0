//! Threads that allocate, write, check, pass on and free, while one of them purges; and threads
//! that have nothing in common but the allocator.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use freehold::designs::Freehold;
use freehold::{Design, FrameCount, Order};
use freehold_host::{Arena, ArenaBuilder, Host, Pages};
use freehold_linux::ZoneLock;

use crate::calls::next_random;

const MIB: usize = 1 << 20;
const ROUNDS: u32 = 1_000_000;

/// The content of a block while it is owned: its owner's mark at both ends and in the middle.
fn mark(pages: &mut Pages<'_>, value: u64) {
    let middle = pages.len() / 2;
    let end = pages.len() - 8;
    for at in [0, middle, end] {
        pages[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
}

fn check(pages: &Pages<'_>, value: u64) {
    for at in [0, pages.len() / 2, pages.len() - 8] {
        assert_eq!(pages[at..at + 8], value.to_le_bytes(), "{pages:?} at byte {at}");
    }
}

/// How many of the largest blocks are free. All of them are, if every frame was freed.
fn largest_blocks(arena: &Arena) -> u64 {
    arena.drain();
    let census = arena.validate().unwrap();
    assert_eq!((census.free, census.allocated), (census.managed, FrameCount::ZERO));
    arena.zones().map(|zone| zone.free_blocks[Order::BUDDY_MAX.index()]).sum()
}

type Owned<'a> = (Pages<'a>, u64);

/// Allocates and frees at random, passes blocks on to `to`, and frees those that `from` passes on.
fn run<'a>(arena: &'a Arena, seed: u64, to: SyncSender<Owned<'a>>, from: Receiver<Owned<'a>>) {
    let mut random = seed;
    let mut own: Vec<(Pages<'_>, u64)> = Vec::new();
    for round in 0..ROUNDS {
        let choice = next_random(&mut random);
        if own.len() < 100 {
            // While the other thread purges there may be nothing left; that is no failure.
            if let Ok(mut pages) = arena.allocate(Order::new((choice >> 8) as u8 % 5)) {
                let value = seed ^ u64::from(round);
                mark(&mut pages, value);
                own.push((pages, value));
            }
        }
        if !own.is_empty() && choice.is_multiple_of(3) {
            let (pages, value) = own.swap_remove((choice >> 16) as usize % own.len());
            check(&pages, value);
            // A full channel returns the block, and it is freed here after all.
            drop(to.try_send((pages, value)));
        }
        while let Ok((pages, value)) = from.try_recv() {
            check(&pages, value);
        }
        if choice.is_multiple_of(4096) {
            arena.purge().unwrap();
        }
    }
    own.iter().for_each(|(pages, value)| check(pages, *value));
}

#[test]
fn nobody_writes_into_the_blocks_of_others() {
    let arena = Arena::builder().bytes(64 * MIB).nodes(1).build().unwrap();
    let largest_before = largest_blocks(&arena);
    let (to_second, from_first) = sync_channel(64);
    let (to_first, from_second) = sync_channel(64);

    std::thread::scope(|scope| {
        let arena = &arena;
        scope.spawn(move || run(arena, 0x9e37_79b9_7f4a_7c15, to_second, from_second));
        scope.spawn(move || run(arena, 0xd1b5_4a32_d192_ed03, to_first, from_first));
    });
    assert_eq!(largest_blocks(&arena), largest_before, "every frame is back and merged");
}

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
