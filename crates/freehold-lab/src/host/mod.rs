//! Measuring on the real machine.

use freehold::Design;
use freehold_host::Host;

pub(crate) mod tasks;
pub(crate) mod yardstick;

/// A design that the tasks of a run can share.
pub(crate) trait HostDesign: Design<Host> + Sync {}

impl<D: Design<Host> + Sync> HostDesign for D {}
