//! `zone-lock`: the baseline. A buddy system under one lock per zone, with per-CPU lists in front
//! of it, as in Linux.
//!
//! Source: Linux 6.12 `mm/page_alloc.c`, and 4.16 for `pcp=fixed`. All of it is the skeleton's own.
//! Deviations: `docs/designs.md`.

use super::skeleton::{NoneOfItsOwn, Parts, Policy, Skeleton, ZonedSettings};
use freehold::platform::Platform;

/// The baseline design.
pub type ZoneLock<P> = Skeleton<P, Baseline>;

/// The settings of `zone-lock`.
pub type ZoneLockSettings = ZonedSettings<NoneOfItsOwn>;

/// The unmodified skeleton.
#[derive(Debug)]
pub struct Baseline;

impl<P: Platform> Parts<P> for Baseline {
    const NAME: &'static str = "zone-lock";
    type Settings = NoneOfItsOwn;
    type Tables = ();
    type PerCpu = ();
}

impl<P: Platform> Policy<P> for Baseline {}
