//! What must hold after every run, on whatever machine.

use anyhow::{Context, Result, ensure};
use freehold::FrameCount;

use crate::frames::Frames;

/// Checks that every one of `managed` frames is back, and that the books are in order.
pub(crate) fn check_all_back(allocator: &dyn Frames, managed: FrameCount) -> Result<()> {
    allocator.drain_all();
    let census = allocator.validate().context("the allocator's books are broken")?;
    ensure!(census.free == managed, "{} of {managed} came back", census.free);
    Ok(())
}
