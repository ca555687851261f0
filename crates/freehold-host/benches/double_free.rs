//! The cost of `double_free=exact` on this machine, which always refuses one of two racing frees of
//! one frame.
//!
//! `cargo bench --profile figures -p freehold-host --bench double_free`. Rounds with each setting
//! take turns; the median of each is shown.

use std::error::Error;
use std::thread;
use std::time::Instant;

use freehold::designs::{DoubleFree, FreeholdSettings};
use freehold::{Order, Pfn, Request};
use freehold_host::{Arena, FrameArena};

const BYTES: usize = 64 << 20;
const ROUNDS: usize = 15;

/// So many blocks are held at a time, so many times in a round.
const HELD: usize = 64;
const SETS: usize = 2000;

/// Nanoseconds a block.
type Bench<'a> = &'a dyn Fn(&FrameArena) -> f64;

fn arena(double_free: DoubleFree) -> Result<FrameArena, Box<dyn Error>> {
    let settings = FreeholdSettings { double_free, ..Default::default() };
    Ok(Arena::builder().bytes(BYTES).settings(settings).build_frames()?)
}

/// Allocates and frees a set of blocks, `AT_ONCE` of them at a time.
fn pairs<const AT_ONCE: usize>(arena: &FrameArena, order: Order) {
    for _ in 0..HELD / AT_ONCE {
        hold::<AT_ONCE>(arena, order);
    }
}

fn hold<const AT_ONCE: usize>(arena: &FrameArena, order: Order) {
    let mut held = [Pfn::default(); AT_ONCE];
    for pfn in &mut held {
        *pfn = arena.allocator().alloc(Request::new(order)).expect("memory is free");
    }
    for &pfn in &held {
        arena.allocator().free(pfn, order).expect("it is held");
    }
}

/// The same in calls for whole sets.
fn bulk(arena: &FrameArena) {
    let mut held = [Pfn::default(); HELD];
    arena.allocator().alloc_bulk(Request::default(), &mut held).expect("memory is free");
    arena.allocator().free_bulk(&held, Order::ZERO).expect("they are held");
}

/// The time of a round, in nanoseconds a block.
fn round_ns(act: impl Fn()) -> f64 {
    act();
    let began = Instant::now();
    (0..SETS).for_each(|_| act());
    began.elapsed().as_secs_f64() / (SETS * HELD) as f64 * 1e9
}

/// Nanoseconds a frame that is freed by a thread other than the one that allocates.
fn remote_ns(arena: &FrameArena) -> f64 {
    let (send, receive) = std::sync::mpsc::sync_channel::<Vec<Pfn>>(4);
    thread::scope(|scope| {
        let freeing = scope.spawn(move || {
            let (mut spent, mut frames) = (0.0, 0);
            for set in receive {
                let began = Instant::now();
                for &pfn in &set {
                    arena.allocator().free(pfn, Order::ZERO).expect("it is held");
                }
                (spent, frames) = (spent + began.elapsed().as_secs_f64(), frames + set.len());
            }
            spent / frames as f64 * 1e9
        });
        for _ in 0..SETS / 4 {
            let take = |_| arena.allocator().alloc(Request::default()).expect("memory is free");
            send.send((0..4 * HELD).map(take).collect()).expect("the other thread is well");
        }
        drop(send);
        freeing.join().expect("the other thread is well")
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> Result<(), Box<dyn Error>> {
    let arenas = [arena(DoubleFree::Fast)?, arena(DoubleFree::Exact)?];
    let benches: [(&str, Bench<'_>); 5] = [
        ("single frame, allocated and freed", &|arena| {
            round_ns(|| pairs::<HELD>(arena, Order::ZERO))
        }),
        ("single frame, freed by another CPU", &remote_ns),
        ("single frame, in calls for 64", &|arena| round_ns(|| bulk(arena))),
        ("block of order 3", &|arena| round_ns(|| pairs::<HELD>(arena, Order::new(3)))),
        ("block of order 9", &|arena| round_ns(|| pairs::<16>(arena, Order::PAGEBLOCK))),
    ];
    println!("{:<36} {:>8} {:>8} {:>8}", "ns", "fast", "exact", "more");
    for (name, bench) in benches {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (arena, times) in arenas.iter().zip(&mut times) {
                times.push(bench(arena));
            }
        }
        let [fast, exact] = times.map(median);
        println!("{name:<36} {fast:>8.1} {exact:>8.1} {:>8.1}", exact - fast);
    }
    Ok(())
}
