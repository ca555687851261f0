//! `zone-lock`: the baseline. A buddy system under one lock per zone, with per-CPU lists in front
//! of it, as in Linux.
//!
//! Source: Linux 6.12 `mm/page_alloc.c`, and 4.16 for `pcp=fixed`. All of it is the skeleton's own.
//! Deviations: `docs/designs.md`.

use super::skeleton::{NoneOfItsOwn, Policy, Skeleton, ZonedSettings};
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::ZoneIndex;
use freehold::memmap::region::{Carver, LayoutBuilder};
use freehold::platform::Platform;

/// The baseline design.
pub type ZoneLock<P> = Skeleton<P, Baseline>;

/// The settings of `zone-lock`.
pub type ZoneLockSettings = ZonedSettings<NoneOfItsOwn>;

/// The unmodified skeleton.
#[derive(Debug)]
pub struct Baseline;

impl<P: Platform> Policy<P> for Baseline {
    const NAME: &'static str = "zone-lock";
    type Own = NoneOfItsOwn;
    type Plan = ();
    type PerCpu = ();
    type Beside<'a> = ();

    fn plan(
        _config: &Config<'_>,
        _settings: &ZoneLockSettings,
        _layout: &mut LayoutBuilder,
    ) -> Result<(), Error> {
        Ok(())
    }

    fn carve(
        _plan: &(),
        _config: &Config<'_>,
        _settings: &ZoneLockSettings,
        _carver: &mut Carver,
    ) -> Self {
        Baseline
    }

    fn per_cpu() {}

    fn beside<'a>(_design: &'a Skeleton<P, Self>, _platform: &'a P, _zone: ZoneIndex) {}
}
