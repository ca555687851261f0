//! Signal handlers that allocate and free, whatever call they have interrupted.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use freehold::{FrameCount, Order, Pfn, Request};
use freehold_host::{Arena, FrameArena};

use crate::calls::next_random;
use crate::common::in_child;

const MIB: usize = 1 << 20;

/// How long the test runs.
const TIME: Duration = Duration::from_millis(1500);

/// Threads that are interrupted.
const THREADS: usize = 2;

static ARENA: OnceLock<FrameArena> = OnceLock::new();

/// How often the handler has run, got a frame, and been refused one.
static RUNS: AtomicU64 = AtomicU64::new(0);
static TAKEN: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

/// An error that a handler must not get.
static WRONG: AtomicBool = AtomicBool::new(false);

/// A frame that a thread leaves for a handler to free, plus one; or 0.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// A handler's request: never to wait for the call that it interrupted.
fn request(order: Order) -> Request {
    Request::new(order).nowait()
}

extern "C" fn on_signal(_signal: libc::c_int) {
    // The allocator itself: an arena's own calls might get this thread a lease, which allocates.
    let Some(frames) = ARENA.get().map(FrameArena::allocator) else { return };
    let run = RUNS.fetch_add(1, Relaxed);
    let order = Order::new([0, 0, 3, 9][run as usize % 4]);
    match frames.alloc(request(order)) {
        Ok(pfn) => {
            TAKEN.fetch_add(1, Relaxed);
            WRONG.fetch_or(frames.free(pfn, order).is_err(), Relaxed);
        }
        Err(_) => {
            REFUSED.fetch_add(1, Relaxed);
        }
    }
    if let Some(pfn) = LEFT.swap(0, Relaxed).checked_sub(1) {
        WRONG.fetch_or(frames.free(Pfn::new(pfn), Order::ZERO).is_err(), Relaxed);
    }
}

/// Allocates and frees until it is told to stop.
fn work(arena: &FrameArena, seed: u64, stop: &AtomicBool) {
    let (mut random, mut own) = (seed, Vec::with_capacity(1000));
    let frames = arena.allocator();
    while !stop.load(Relaxed) {
        let choice = next_random(&mut random);
        let order = Order::new([0, 0, 0, 1, 4, 9][(choice >> 32) as usize % 6]);
        if choice & 1 == 0 && own.len() < 20 {
            own.push((frames.alloc(Request::new(order)).expect("there is plenty"), order));
        } else if !own.is_empty() {
            let (pfn, order) = own.swap_remove((choice >> 8) as usize % own.len());
            let left = match order {
                Order::ZERO => LEFT.compare_exchange(0, pfn.get() + 1, Relaxed, Relaxed).is_ok(),
                _ => false,
            };
            if !left {
                frames.free(pfn, order).expect("it is ours");
            }
        }
    }
    own.drain(..).for_each(|(pfn, order)| frames.free(pfn, order).expect("it is ours"));
}

#[test]
fn handlers_allocate_and_free_whatever_they_interrupt() {
    // In a child, which ends if a handler waits for the call that it interrupted.
    let ended = in_child(|| {
        let arena = Arena::builder().bytes(256 * MIB).cpus(2).nodes(1).build_frames();
        let arena = ARENA.get_or_init(|| arena.expect("256 MiB"));
        // SAFETY: All of it zero is a valid action, with an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        // SAFETY: The handler does only what the library allows in handlers.
        let set = unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        let (stop, begun) = (AtomicBool::new(false), Instant::now());
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (to_test, id) = std::sync::mpsc::channel();
                    let stop = &stop;
                    scope.spawn(move || {
                        // SAFETY: Takes nothing.
                        to_test.send(unsafe { libc::pthread_self() }).expect("it is waited for");
                        work(arena, thread as u64 + 1, stop);
                    });
                    id.recv().expect("the thread has begun")
                })
                .collect();
            while begun.elapsed() < TIME {
                for &thread in &threads {
                    // SAFETY: The threads run until they are told to stop.
                    unsafe { libc::pthread_kill(thread, libc::SIGUSR1) };
                }
                thread::sleep(Duration::from_micros(50));
            }
            stop.store(true, Relaxed);
        });
        if let Some(pfn) = LEFT.load(Relaxed).checked_sub(1) {
            arena.allocator().free(Pfn::new(pfn), Order::ZERO).expect("it was left");
        }
        let (runs, taken) = (RUNS.load(Relaxed), TAKEN.load(Relaxed));
        assert!(!WRONG.load(Relaxed), "a handler was refused a free");
        assert!(runs > 1000, "{runs} signals");
        assert!(taken > runs / 2, "{taken} of {runs}, {} refused", REFUSED.load(Relaxed));
        arena.allocator().drain_all();
        let census = arena.allocator().validate().expect("the books are in order");
        assert_eq!(census.allocated, FrameCount::ZERO);
    });
    assert_eq!(ended, Ok(()));
}
