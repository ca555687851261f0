//! What a design has beside the data that all designs of the skeleton have.

use super::settings::OwnSettings;
use crate::buddy::Beside;
use crate::pcp_tuning::PcpMode;
use freehold::Error;
use freehold::config::Config;
use freehold::memmap::index::ZoneIndex;
use freehold::memmap::region::{Carver, LayoutBuilder};
use freehold::platform::Platform;

/// What only one design has: its name, its settings, its data.
pub trait Parts<P: Platform>: Sized + 'static {
    /// The design's name.
    const NAME: &'static str;
    /// Settings that only this design has.
    type Settings: OwnSettings;
    /// Tables that only this design has.
    type Tables: OwnTables<P>;
    /// Its data beside the lists that one CPU has of one zone. Guarded by their lock.
    type PerCpu: Default;
}

/// The tables that only one design has.
pub trait OwnTables<P: Platform>: Sized {
    /// Where they lie.
    type Plan;
    /// A zone's part of them. Guarded by the zone lock.
    type Beside<'a>: Beside<P>
    where
        Self: 'a;

    /// Plans the tables. `mode` is how the per-CPU lists are sized.
    fn plan(
        config: &Config<'_>,
        mode: PcpMode,
        layout: &mut LayoutBuilder,
    ) -> Result<Self::Plan, Error>;

    /// Initialises the tables, in the order in which they were planned.
    fn carve(plan: &Self::Plan, config: &Config<'_>, mode: PcpMode, carver: &mut Carver) -> Self;

    /// A zone's part of the tables.
    fn of_zone<'a>(&'a self, platform: &'a P, zone: ZoneIndex) -> Self::Beside<'a>;
}

/// No tables.
impl<P: Platform> OwnTables<P> for () {
    type Plan = ();
    type Beside<'a> = ();

    fn plan(_: &Config<'_>, _: PcpMode, _: &mut LayoutBuilder) -> Result<(), Error> {
        Ok(())
    }

    fn carve((): &(), _: &Config<'_>, _: PcpMode, _: &mut Carver) {}

    fn of_zone<'a>(&'a self, _: &'a P, _: ZoneIndex) {}
}
