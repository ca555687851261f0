//! What must hold after every run, on whatever machine.

use anyhow::{Context, Result, ensure};
use freehold::FrameCount;
use freehold::lru::{Lru, Owner};
use freehold::platform::Platform;

use crate::frames::Frames;

/// Checks that every one of `managed` frames is back, and that the books are in order.
pub(crate) fn check_all_back(allocator: &dyn Frames, managed: FrameCount) -> Result<()> {
    allocator.drain_all();
    let census = allocator.validate().context("the allocator's books are broken")?;
    ensure!(census.free == managed, "{} of {managed} came back", census.free);
    Ok(())
}

/// Checks that nothing is in use on an LRU, and that its books are in order.
pub(crate) fn check_none_listed<P: Platform, O: Owner>(lru: &Lru<P, O>) -> Result<()> {
    lru.drain_all();
    let census = lru.validate().context("the books of the LRU are broken")?;
    ensure!(census.used.get() == 0, "{} are in use on the LRU, and nobody holds them", census.used);
    Ok(())
}
