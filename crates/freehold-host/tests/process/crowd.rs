//! More threads than CPUs: blocks that threads hand to each other, threads that end with a lease by
//! the hundred, and signals in every kind of call.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{FrameCount, Immovable, Order, Pfn, RangeRequest, Request, Watermark};
use freehold_host::{Arena, ArenaBuilder, FrameArena, Leases, Pages};

use crate::calls::next_random;
use crate::common::in_child;

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
/// them or leaves them to the next.
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
                    if place.len() < 20 && choice & 1 << 20 == 0 {
                        drop(place);
                        let order = Order::new([0, 0, 0, 1, 3][(choice >> 32) as usize % 5]);
                        let mut pages = arena.allocate(order).expect("there is plenty");
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

static ARENA: OnceLock<FrameArena> = OnceLock::new();
static RUNS: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicBool = AtomicBool::new(false);

extern "C" fn on_signal(_signal: libc::c_int) {
    let Some(frames) = ARENA.get().map(FrameArena::allocator) else { return };
    RUNS.fetch_add(1, Relaxed);
    let order = Order::new([0, 3, 9][RUNS.load(Relaxed) as usize % 3]);
    if let Ok(pfn) = frames.alloc(Request::new(order).nowait()) {
        WRONG.fetch_or(frames.free(pfn, order).is_err(), Relaxed);
    }
}

/// A call of an arena, by number. What is refused for want of memory is no error: the handler has
/// some of it at times.
fn call(arena: &FrameArena, nth: u64) {
    let (two, at) = (FrameCount::new(1024), Pfn::new(nth % 8 * 1024));
    match nth % 10 {
        0 => _ = arena.purge().expect("private memory"),
        1 => {
            let request = RangeRequest::new(two);
            if let Ok(first) = arena.allocator().alloc_range(request, &Immovable) {
                arena.allocator().free_range(first, two).expect("it is ours");
            }
        }
        2 => arena.prefault(at, FrameCount::new(16), 2).expect("there is memory"),
        3 => arena.allocator().drain_all(),
        4 => _ = arena.allocator().compact(&Immovable),
        5 => {
            if arena.shrink(2 * MIB, &Immovable).is_ok() {
                assert_eq!(arena.grow(2 * MIB).expect("there is capacity").len(), 1);
            }
        }
        6 => drop(builder().lock(false).build_frames().expect("64 MiB more")),
        7 => _ = arena.discard_lazily(at, FrameCount::new(16)),
        8 => {
            drop(builder().backing(freehold_host::Backing::Memfd).build_frames().expect("as well"))
        }
        _ => {
            let taken: Vec<_> =
                (0..100).filter_map(|_| arena.alloc(Request::default()).ok()).collect();
            taken.iter().for_each(|&pfn| arena.free(pfn, Order::ZERO).expect("it is ours"));
        }
    }
}

#[test]
fn signals_come_in_every_kind_of_call() {
    const TIME: Duration = Duration::from_millis(1500);
    // In a child, which ends if a handler waits for the call that it interrupted.
    let ended = in_child(|| {
        let arena = ARENA.get_or_init(|| builder().build_frames().expect("64 MiB"));
        // SAFETY: All of it zero is a valid action, with an empty mask. Without SA_RESTART, system
        // calls are interrupted.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        // SAFETY: The handler does only what the library allows in handlers.
        let set = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        // SAFETY: Takes nothing.
        let this = unsafe { libc::pthread_self() };
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                while !stop.load(Relaxed) {
                    // SAFETY: The thread waits for this one.
                    unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                    thread::sleep(Duration::from_micros(100));
                }
            });
            let begun = Instant::now();
            (0..).take_while(|_| begun.elapsed() < TIME).for_each(|nth| call(arena, nth));
            stop.store(true, Relaxed);
            worker.join().expect("no panic");
        });
        assert!(!WRONG.load(Relaxed), "a handler was refused a free");
        assert!(RUNS.load(Relaxed) > 200, "{RUNS:?} signals");
        arena.allocator().drain_all();
        let census = arena.allocator().validate().expect("the books are in order");
        assert_eq!(census.allocated, FrameCount::ZERO);
    });
    assert_eq!(ended, Ok(()));
}
