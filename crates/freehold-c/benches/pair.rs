//! What `pair.c` measures, in Rust: an allocation and free of a frame, by its number.

use std::time::Instant;

use freehold::{Error, Order, Request};
use freehold_host::{Arena, FrameArena, Leases};

/// The nanoseconds of the fastest of ten rounds.
fn best(arena: &FrameArena, pairs: usize) -> Result<f64, Error> {
    let mut best = f64::INFINITY;
    for _ in 0..10 {
        let start = Instant::now();
        for _ in 0..pairs / 10 {
            let frame = arena.alloc(Request::default())?;
            arena.free(std::hint::black_box(frame), Order::ZERO)?;
        }
        best = best.min(start.elapsed().as_nanos() as f64 / (pairs / 10) as f64);
    }
    Ok(best)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // `cargo bench` adds an argument of its own.
    let mut arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let millions: usize = arguments.next().map_or(Ok(1), |text| text.parse())?;
    for (name, leases) in [("arena", Leases::Off), ("automatic leases", Leases::Auto)] {
        let arena = Arena::builder().bytes(64 << 20).leases(leases).build_frames()?;
        println!("{name:17} {:5.1} ns", best(&arena, millions * 1_000_000)?);
    }
    Ok(())
}
