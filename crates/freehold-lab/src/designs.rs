//! The designs, by the names that they have on the command line.

use std::sync::LazyLock;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use freehold::{Design, Setting, Settings};
use freehold_sim::Sim;
use serde::{Deserialize, Serialize};

/// The designs, by the names that they have everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DesignName {
    /// The baseline: a buddy system under one lock a zone, per-CPU lists in front (Linux 6.12).
    ZoneLock,
    /// Frees merge later: by compaction, or when a high order is wanted (Aaron Lu 2018).
    LazyMerge,
    /// Also refills by whole clusters of free frames (Aaron Lu 2018).
    Cluster,
    /// Per-CPU lists pair buddies before they take the zone lock (Zi Yan 2026).
    MergeAhead,
    /// CPUs own pageblocks, whose frames go home to them (Johannes Weiner 2026).
    BlockOwner,
    /// CPUs reserve trees of 32 pageblocks; counts and bits, no lock (LLFree, USENIX ATC 2023).
    Llfree,
    /// CPUs hold pageblocks whose frames are bits; no lock over a zone (Freehold's own).
    Freehold,
}

/// What can hand out frames on simulated machines: the designs, and what exists only there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SimDesign {
    Real(DesignName),
    /// The decisions of `zone-lock` at no cost.
    FreeLunch,
}

impl ValueEnum for SimDesign {
    fn value_variants<'a>() -> &'a [Self] {
        static ALL: LazyLock<Vec<SimDesign>> = LazyLock::new(|| {
            let real = DesignName::value_variants().iter().copied().map(SimDesign::Real);
            real.chain([SimDesign::FreeLunch]).collect()
        });
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            SimDesign::Real(design) => design.to_possible_value(),
            SimDesign::FreeLunch => Some(PossibleValue::new("free-lunch").help(
                "A reference, on simulated machines only: what zone-lock decides, at no cost",
            )),
        }
    }
}

impl SimDesign {
    /// The design, if it runs on the host too.
    pub(crate) fn real(self) -> Option<DesignName> {
        match self {
            SimDesign::Real(design) => Some(design),
            SimDesign::FreeLunch => None,
        }
    }

    /// Its settings.
    pub(crate) fn settings(self) -> &'static [Setting] {
        self.real().map_or(&[], design_settings)
    }
}

/// The settings of a design.
pub(crate) fn design_settings(design: DesignName) -> &'static [Setting] {
    with_design!(design, Sim, D => <D as Design<Sim>>::Settings::TABLE)
}

/// Runs an expression with `$design` standing for the design type that a name means.
macro_rules! with_design {
    (@match $name:expr, $platform:ty, $design:ident => $body:expr,
        $($variant:ident: $type:ident of $($crate_of:ident)::+),*) => {
        match $name {
            $($crate::designs::DesignName::$variant => {
                type $design = $($crate_of)::+::$type<$platform>;
                $body
            })*
        }
    };
    ($name:expr, $platform:ty, $design:ident => $body:expr) => {
        $crate::designs::with_design!(@match $name, $platform, $design => $body,
            ZoneLock: ZoneLock of freehold_linux,
            LazyMerge: LazyMerge of freehold_linux,
            Cluster: Cluster of freehold_linux,
            MergeAhead: MergeAhead of freehold_linux,
            BlockOwner: BlockOwner of freehold_linux,
            Llfree: Llfree of freehold_llfree,
            Freehold: Freehold of freehold::designs)
    };
}
pub(crate) use with_design;
