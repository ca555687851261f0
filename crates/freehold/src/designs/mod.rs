//! How frames travel between CPUs and zones: one folder per design.
//!
//! A design knows no workload. [`PageAllocator`](crate::PageAllocator) checks a request's node,
//! zone and order, and passes it on with the list of zones to try.

use core::fmt;

use crate::config::Config;
use crate::error::Error;
use crate::memmap::region::{Carver, LayoutBuilder};
use crate::platform::{Pin, Platform};
use crate::topology::Topology;
use crate::units::Order;
use places::Places;
use traits::{Alloc, Bulk, Compact, Free, Freeze, Inspect, Ranges, Upkeep};

pub use freehold::{DoubleFree, Freehold, FreeholdSettings, Lease, ParkedLease, Pick};

pub mod freehold;
#[doc(hidden)]
pub mod hotplug;
#[doc(hidden)]
pub mod places;
#[doc(hidden)]
pub mod traits;

/// A strategy for allocating the frames of a machine: the second type argument of
/// [`PageAllocator`](crate::PageAllocator), which documents what each call means.
///
/// The design of this crate is [`Freehold`]; those after Linux are in the crate `freehold-linux`.
/// The traits that define a design's operations are no public API.
///
/// # Safety
///
/// Frames that a design hands out are memory that was added, and no other caller's until they are
/// freed: whoever lends their content to safe code relies on it. What it carves lives as long as
/// the design.
#[expect(unsafe_code, reason = "a promise about the frames that a design hands out")]
pub unsafe trait Design<P: Platform>:
    Sized
    + 'static
    + Alloc<P>
    + Free<P>
    + Bulk<P>
    + Compact<P>
    + Ranges<P>
    + Places<P>
    + Upkeep<P>
    + Freeze<P>
    + Inspect<P>
{
    /// The name in reports and on the command line.
    const NAME: &'static str;
    /// The largest order that can be requested.
    const ORDER_MAX: Order;
    /// The settings.
    type Settings: Settings;
    /// Where its tables lie.
    #[doc(hidden)]
    type Plan;

    /// Plans the tables.
    ///
    /// # Errors
    ///
    /// [`Error::BadSetting`], or [`Error::SpanTooLarge`] if the tables cannot be addressed.
    #[doc(hidden)]
    fn plan(
        config: &Config<'_>,
        settings: &Self::Settings,
        layout: &mut LayoutBuilder<'_>,
    ) -> Result<Self::Plan, Error>;

    /// Initialises the tables. There is no memory yet.
    #[doc(hidden)]
    fn carve(
        plan: &Self::Plan,
        config: &Config<'_>,
        topology: &Topology,
        settings: &Self::Settings,
        carver: &mut Carver,
    ) -> Self;
}

/// What a design may use during a call: the machine and its topology.
pub struct Context<'a, P: Platform> {
    /// The machine.
    pub platform: &'a P,
    /// Its nodes, zones and CPUs.
    pub topology: &'a Topology,
}

impl<P: Platform> Clone for Context<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for Context<'_, P> {}

impl<'a, P: Platform> Context<'a, P> {
    /// Pins the caller; returns its CPU, folded into the range of existing CPUs.
    pub fn pin(self) -> (usize, Pin<'a, P>) {
        let (cpu, pin) = Pin::new(self.platform);
        (self.topology.fold(cpu), pin)
    }

    /// The CPU that the caller takes itself to run on, folded into the range of existing CPUs.
    pub fn cpu_here(self) -> usize {
        self.topology.fold(self.platform.cpu())
    }
}

/// The settings of a design, by name, for tools that discover them at run time.
pub trait Settings: Default + Clone + fmt::Debug {
    /// All settings.
    const TABLE: &'static [Setting];

    /// Sets one by its name.
    ///
    /// # Errors
    ///
    /// [`SettingError`] if there is no such setting, or the value is not one of its values.
    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError>;

    /// Why these settings contradict each other, naming them; `None` if they do not.
    fn contradiction(&self) -> Option<&'static str> {
        None
    }

    /// Calls `each` with the name and value of every setting that has an effect given the others.
    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display));
}

/// One setting of a design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name, as in `pcp=auto`.
    pub name: &'static str,
    /// The values that it accepts.
    pub values: &'static str,
    /// The value if the user gives none.
    pub default: &'static str,
    /// What it does.
    pub meaning: &'static str,
}

/// Why a setting was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingError {
    /// The design has no setting of this name.
    UnknownName,
    /// The setting has no such value.
    BadValue,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettingError::UnknownName => "the design has no such setting",
            SettingError::BadValue => "the setting has no such value",
        })
    }
}

impl core::error::Error for SettingError {}
