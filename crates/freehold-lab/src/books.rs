//! Invariants that must hold after every run, on any machine.

use anyhow::{Context, Result, ensure};
use freehold::FrameCount;
use freehold::platform::Platform;
use freehold_lru::{Lru, Owner};

use crate::frames::Frames;

/// Checks that all `managed` frames are free again, and that all invariants hold.
pub(crate) fn check_all_back(allocator: &dyn Frames, managed: FrameCount) -> Result<()> {
    allocator.drain_all();
    let census = allocator.validate().context("an invariant of the allocator is violated")?;
    ensure!(census.free == managed, "{} of {managed} are free again", census.free);
    Ok(())
}

/// Checks that nothing is in use on an LRU, and that its invariants hold.
pub(crate) fn check_none_listed<P: Platform, O: Owner>(lru: &Lru<P, O>) -> Result<()> {
    lru.drain_all();
    let census = lru.validate().context("an invariant of the LRU is violated")?;
    ensure!(census.used.get() == 0, "{} are in use on the LRU without a user", census.used);
    Ok(())
}
