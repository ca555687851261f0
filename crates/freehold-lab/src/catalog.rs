//! The names that a user can choose from, each in one place.

use clap::ValueEnum;
use freehold::{Design, Setting, Settings};
use freehold_sim::Sim;

use crate::sim;
use crate::workloads::{bulk, page_fault};

/// The designs, by the names that they have everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
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
}

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadName {
    /// Every task faults in 128 MiB page by page and gives it back (will-it-scale page_fault1).
    PageFault,
    /// Allocation and free in bulk against one at a time (page_bench04_bulk).
    Bulk,
}

/// The name and the description that the command line shows of a value.
pub(crate) fn describe(value: &impl ValueEnum) -> (String, String) {
    let value = value.to_possible_value().expect("no choice is hidden");
    let help = value.get_help().map(ToString::to_string).unwrap_or_default();
    (value.get_name().to_owned(), help)
}

/// The name of a value on the command line.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    describe(value).0
}

/// Settings and what they belong to.
pub(crate) type SettingTable = (&'static str, &'static [Setting]);

/// The settings of a workload on the host.
pub(crate) fn host_settings(workload: WorkloadName) -> &'static [SettingTable] {
    match workload {
        WorkloadName::PageFault => &[
            ("page-fault", page_fault::SETTINGS),
            ("page-fault, host", page_fault::host::SETTINGS),
        ],
        WorkloadName::Bulk => &[("bulk", bulk::SETTINGS)],
    }
}

/// The settings of a workload on simulated machines; `None` if it runs on the host only.
pub(crate) fn sim_settings(workload: WorkloadName) -> Option<&'static [SettingTable]> {
    match workload {
        WorkloadName::PageFault => Some(&[
            ("page-fault", page_fault::SETTINGS),
            ("page-fault, simulated", page_fault::sim::SETTINGS),
            ("simulated machines", sim::memory::SETTINGS),
        ]),
        WorkloadName::Bulk => None,
    }
}

/// What `freehold compare` sets unless the user does, on the host and on simulated machines.
pub(crate) struct Brief {
    pub(crate) on_host: &'static [(&'static str, &'static str)],
    pub(crate) on_sim: &'static [(&'static str, &'static str)],
}

/// How a workload is cut down so that all designs can be compared while one waits.
pub(crate) fn brief(workload: WorkloadName) -> Brief {
    match workload {
        WorkloadName::PageFault => {
            Brief { on_host: page_fault::BRIEF_ON_HOST, on_sim: page_fault::BRIEF_ON_SIM }
        }
        WorkloadName::Bulk => Brief { on_host: &[], on_sim: &[] },
    }
}

/// The settings of a design.
pub(crate) fn design_settings(design: DesignName) -> &'static [Setting] {
    with_design!(design, Sim, D => <D as Design<Sim>>::Settings::TABLE)
}

/// Runs an expression with `$design` standing for the design type that a name means.
macro_rules! with_design {
    (@match $name:expr, $platform:ty, $design:ident => $body:expr, $($variant:ident: $type:ident),*) => {
        match $name {
            $($crate::catalog::DesignName::$variant => {
                type $design = freehold::designs::$type<$platform>;
                $body
            })*
        }
    };
    ($name:expr, $platform:ty, $design:ident => $body:expr) => {
        $crate::catalog::with_design!(@match $name, $platform, $design => $body,
            ZoneLock: ZoneLock,
            LazyMerge: LazyMerge,
            Cluster: Cluster,
            MergeAhead: MergeAhead,
            BlockOwner: BlockOwner)
    };
}
pub(crate) use with_design;
