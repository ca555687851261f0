//! Threads that allocate, write, check, pass on and free, while one of them purges.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use freehold::{FrameCount, Order};
use freehold_host::{Arena, Pages};

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

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
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
