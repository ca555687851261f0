//! `lazy-merge`: single frames returned to the zone are not merged with their buddies, so that a
//! drain touches no records but those of its own frames. Merging is deferred to compaction, frame
//! by frame, and to a request for more than one frame that finds no block, which merges a pageblock
//! that one can be made of (`skeleton/late.rs`).
//!
//! Source: Aaron Lu, "Eliminate zone->lock contention", v2 2/4 of March 2018 and v4 2/5 of October
//! 2018. Deviations:
//!
//! * There, only compaction merges, so a high order fails although its frames are free (Mel
//!   Gorman's objection); here the allocation searches and merges before it gives up.
//! * There, the zone lock is taken for each frame that is merged; here it is held for several.
//! * `compact-history=on` is the condition that v4 5/5 dropped: merge at once while compaction is
//!   being deferred. The kernel's quirk is kept: a failure alone does not make the condition hold,
//!   only a deferred attempt does.

use core::fmt;

use super::skeleton::{OwnSettings, Parts, Policy, Skeleton, meaning, word};
use freehold::designs::{Setting, SettingError};
use freehold::memmap::index::ZoneIndex;
use freehold::platform::Platform;

/// The design that defers merging.
pub type LazyMerge<P> = Skeleton<P, Lazily>;

/// When merging is deferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lazily {
    /// Whether frames are merged at once while compaction is being deferred.
    pub compact_history: bool,
}

/// The setting that both lazy designs have.
pub(super) const COMPACT_HISTORY: Setting = Setting {
    name: "compact-history",
    values: "off|on",
    default: "off",
    meaning: "merge at once while compaction of the zone is being deferred",
};

/// The names of both values.
const SWITCH: [(&str, bool); 2] = [("off", false), ("on", true)];

impl Lazily {
    /// Whether merging is deferred now. The caller holds the zone lock.
    pub(super) fn now<P: Platform, Y: Policy<P>>(
        self,
        design: &Skeleton<P, Y>,
        zone: ZoneIndex,
    ) -> bool {
        !self.compact_history || design.zone(zone).compact_considered() == 0
    }
}

impl OwnSettings for Lazily {
    const TABLE: &'static [Setting] = &[COMPACT_HISTORY];

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match name {
            "compact-history" => self.compact_history = meaning(&SWITCH, value)?,
            _ => return Err(SettingError::UnknownName),
        }
        Ok(())
    }

    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {
        each("compact-history", &word(&SWITCH, self.compact_history));
    }
}

impl<P: Platform> Parts<P> for Lazily {
    const NAME: &'static str = "lazy-merge";
    type Settings = Lazily;
    type Tables = ();
    type PerCpu = ();
}

impl<P: Platform> Policy<P> for Lazily {
    const MERGES_LATE: bool = true;

    fn puts_off_merging(design: &Skeleton<P, Self>, zone: ZoneIndex) -> bool {
        design.own.now(design, zone)
    }
}
