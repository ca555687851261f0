//! The cost of an allocation that fails, while idle threads have leases.
//!
//! `cargo bench -p freehold-host --bench failing`

use std::error::Error;
use std::time::Instant;

use freehold::{CpuId, Order, Request};
use freehold_host::Arena;

const BYTES: usize = 64 << 20;
const CPUS: usize = 64;
const LEASES: [u32; 4] = [0, 1, 8, 63];
const ROUNDS: usize = 1001;

/// The median time of failing allocations, in microseconds, and the longest.
fn failing_us(frames: &freehold_host::FrameArena) -> (f64, f64) {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            frames.allocator().alloc(Request::default()).expect_err("all frames are taken");
            began.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    times.sort_by(f64::total_cmp);
    (times[ROUNDS / 2], times[ROUNDS - 1])
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{CPUS} CPUs, {} MiB; median (longest) of {ROUNDS} failing allocations", BYTES >> 20);
    for leases in LEASES {
        let frames = Arena::builder().bytes(BYTES).cpus(CPUS).nodes(1).build_frames()?;
        let allocator = frames.allocator();
        let held: Result<Vec<_>, _> =
            (1..=leases).map(|cpu| allocator.lease(CpuId::new(cpu))).collect();
        let held = held?;
        // A frame each, so that their caches have been used; then all that is left.
        let used: Result<Vec<_>, _> =
            held.iter().map(|lease| lease.alloc(Request::default())).collect();
        let used = used?;
        let rest: Vec<_> =
            std::iter::from_fn(|| allocator.alloc(Request::default()).ok()).collect();
        let (median, longest) = failing_us(&frames);
        println!("{leases:>3} idle leases: {median:.2} us ({longest:.0} us)");
        for pfn in rest.into_iter().chain(used) {
            allocator.free(pfn, Order::ZERO)?;
        }
    }
    Ok(())
}
