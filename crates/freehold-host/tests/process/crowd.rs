//! More threads than CPUs: blocks that threads hand to each other, and threads that end with a
//! lease by the hundred.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{FrameCount, Order, Request, Watermark};
use freehold_host::{Arena, ArenaBuilder, Leases, Pages};

use crate::calls::next_random;

const MIB: usize = 1 << 20;

fn builder() -> ArenaBuilder {
    Arena::builder().bytes(64 * MIB).cpus(2).nodes(1).leases(Leases::Auto)
}

/// Writes who has a block into each of its pages.
fn stamp(pages: &mut Pages<'_>, by: u64) {
    pages.chunks_mut(4096).for_each(|page| page[..8].copy_from_slice(&by.to_le_bytes()));
}

fn check(pages: &Pages<'_>, by: u64) {
    assert!(pages.chunks(4096).all(|page| page[..8] == by.to_le_bytes()), "{pages:?} of {by}");
}

/// Each thread takes blocks from a place where others leave them, checks their stamps, and frees
/// them or leaves them to the next. Now and then one purges what is free.
#[test]
fn sixty_four_threads_hand_blocks_to_each_other() {
    const THREADS: u64 = 64;
    const ROUNDS: u64 = 2000;
    let arena = builder().build().expect("64 MiB");
    let places: [Mutex<Vec<(Pages<'_>, u64)>>; 16] = Default::default();
    let handed = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 1..=THREADS {
            let (arena, places, handed) = (&arena, &places, &handed);
            scope.spawn(move || {
                let mut random = thread;
                for round in 0..ROUNDS {
                    let choice = next_random(&mut random);
                    let mut place = places[choice as usize % 16].lock().expect("no panic");
                    let by = thread << 32 | round;
                    if choice.is_multiple_of(4096) {
                        arena.purge().expect("private memory");
                    }
                    if place.len() < 20 && choice & 1 << 20 == 0 {
                        drop(place);
                        let order = Order::new([0, 0, 0, 1, 3][(choice >> 32) as usize % 5]);
                        // A purge has all that is free for a moment.
                        let Ok(mut pages) = arena.allocate(order) else { continue };
                        stamp(&mut pages, by);
                        let place = &places[(choice >> 8) as usize % 16];
                        place.lock().expect("no panic").push((pages, by));
                    } else if let Some((pages, before)) = place.pop() {
                        drop(place);
                        check(&pages, before);
                        handed.fetch_add(u64::from(before >> 32 != thread), Relaxed);
                    }
                }
            });
        }
    });
    assert!(handed.load(Relaxed) > 10 * THREADS, "{handed:?} blocks of others");
    places
        .map(|place| place.into_inner().expect("no panic"))
        .into_iter()
        .flatten()
        .for_each(|(pages, by)| check(&pages, by));
    arena.drain();
    let census = arena.validate().expect("the books are in order");
    assert_eq!((census.free, census.allocated), (census.managed, FrameCount::ZERO));
}

/// Each thread calls until it has a lease, if there is one, leaves blocks behind, and ends.
#[test]
fn threads_end_with_a_lease_by_the_hundred() {
    const THREADS: u64 = 400;
    const AT_ONCE: u64 = 8;
    let arena = builder().build_frames().expect("64 MiB");
    let left = Mutex::new(Vec::new());
    let leases = arena.spare_leases();
    for wave in 0..THREADS / AT_ONCE {
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| {
                    for _ in 0..1500 {
                        let pfn = arena.alloc(Request::default()).expect("there is plenty");
                        arena.free(pfn, Order::ZERO).expect("it is ours");
                    }
                    let mut left = left.lock().expect("no panic");
                    (0..8).for_each(|_| left.push(arena.alloc(Request::default()).expect("some")));
                    // Those of others, in whose caches they are.
                    let more = left.len().saturating_sub(200);
                    left.drain(..more).for_each(|pfn| arena.free(pfn, Order::ZERO).expect("left"));
                });
            }
            if wave % 8 == 0 {
                arena.allocator().drain_all();
            }
        });
    }
    // Threads return their leases a little after all else has ended.
    let begun = Instant::now();
    while arena.spare_leases() < leases {
        assert!(begun.elapsed() < Duration::from_secs(10), "a lease has gone with its thread");
        thread::yield_now();
    }
    for pfn in left.into_inner().expect("no panic") {
        arena.free(pfn, Order::ZERO).expect("it was left");
    }
    let request = Request::default().watermark(Watermark::Ignore);
    let all = std::iter::from_fn(|| arena.alloc(request).ok()).count();
    assert_eq!(all as u64, arena.total_frames().get(), "nothing is lost");
}
