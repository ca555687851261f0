//! Sets up arenas for 1 TiB that have no memory yet, or all of it, and prints what that costs:
//! `cargo bench -p freehold-host --bench tebibyte`.

use std::error::Error;
use std::fs;
use std::time::Instant;

use freehold_host::designs::Freehold;
use freehold_host::{ArenaBuilder, Design, Host};
use freehold_linux::ZoneLock;

fn main() -> Result<(), Box<dyn Error>> {
    const TIB: usize = 1 << 40;
    println!(
        "{:<28} {:>12} {:>14} {:>12}",
        "measured on this host", "metadata", "touched", "set up in"
    );
    set_up::<Freehold<Host>>("freehold, 2 MiB of 1 TiB", 2 << 20, TIB)?;
    set_up::<Freehold<Host>>("freehold, 1 TiB", TIB, TIB)?;
    set_up::<ZoneLock<Host>>("zone-lock, 2 MiB of 1 TiB", 2 << 20, TIB)?;
    Ok(())
}

fn set_up<D: Design<Host> + 'static>(
    name: &str,
    bytes: usize,
    capacity: usize,
) -> Result<(), Box<dyn Error>> {
    let (before, start) = (resident_bytes()?, Instant::now());
    let arena = ArenaBuilder::<D>::new().bytes(bytes).capacity_bytes(capacity).build()?;
    let time_ms = start.elapsed().as_secs_f64() * 1e3;
    let touched_kib = resident_bytes()?.saturating_sub(before) >> 10;
    let metadata_mib = arena.metadata_bytes() >> 20;
    println!("{name:<28} {metadata_mib:>8} MiB {touched_kib:>10} KiB {time_ms:>9.1} ms");
    Ok(())
}

/// The process's resident memory.
fn resident_bytes() -> Result<usize, Box<dyn Error>> {
    let pages = fs::read_to_string("/proc/self/statm")?;
    let resident = pages.split(' ').nth(1).ok_or("no resident pages")?;
    Ok(resident.parse::<usize>()? << 12)
}
