//! The names of workloads, benches and peers that a user can choose from, each in one place.

use clap::ValueEnum;

use crate::report::columns::Telling;
use crate::report::figure::Figures;
use crate::report::goal::Goal;
use crate::workload::{Brief, SettingTable, Workload};

/// The workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WorkloadName {
    /// Every task faults in 128 MiB page by page and frees it (will-it-scale page_fault1).
    PageFault,
    /// Allocation and free in bulk against one at a time (page_bench04_bulk).
    Bulk,
    /// Workers free a huge region together, and all tasks exit at once.
    ParallelFree,
    /// Frames are allocated on all CPUs and freed on a few, through rings (jemalloc's purge).
    Purge,
    /// Even CPUs allocate, odd CPUs free, in pairs (page_bench05_cross_cpu).
    CrossCpu,
    /// Jobs like a compiler's: frames of all types, short-lived and long-lived.
    Build,
    /// Huge and small page faults side by side, in memory that was fragmented before.
    ThpMix,
    /// How many huge pages used memory still yields (stress-highalloc).
    HighOrder,
    /// Memory is always full, and whoever allocates has to reclaim.
    Pressure,
    /// Contiguous ranges of 2 MiB and 1 GiB in memory that is half in use.
    Contig,
    /// Files beyond their share of a page cache, two readers each (lru-file-readtwice).
    ReadTwice,
    /// Tenants whose files share a page cache, with noisy neighbours.
    Tenants,
    /// What contestants do: `freehold race --machine`.
    #[value(hide = true)]
    Races,
    /// What a recorded kernel's CPUs did: `freehold replay`.
    #[value(hide = true)]
    Replay,
}

/// The benches of a race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchName {
    /// Allocates a frame and frees it at once.
    Pair,
    /// Single calls, before each of which the CPU's own caches are wiped.
    Cold,
    /// Allocates many frames, then frees them in the same order.
    Fill,
    /// The same, freeing them in random order.
    Random,
    /// One thread allocates frames, another frees them.
    Remote,
    /// As `fill`, 64 frames a call.
    Bulk,
    /// As `fill`, with blocks of order 3: 32 KiB.
    Order3,
    /// As `fill`, with blocks of order 9: 2 MiB.
    Huge,
    /// As `random`, with blocks of the orders and types that the workload `build` requests.
    Mixed,
    /// In memory that is 95 % full, frees a random frame and allocates another.
    Churn,
}

/// The contestants of a race other than the designs as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PeerName {
    /// The design freehold, with a Lease for each thread: it leases its caches and takes no lock.
    #[value(name = "freehold-lease")]
    Lease,
    /// The crate of that name: a buddy system in trees, under a spin lock as in its users' kernels.
    #[value(name = "buddy_system_allocator")]
    BuddySystem,
    /// The crate of that name: a tree of bitmaps, under a spin lock as in its users' kernels.
    BitmapAllocator,
    /// mimalloc, asked for memory of a frame's size and alignment. Needs the feature `mallocs`.
    Mimalloc,
    /// jemalloc, asked for memory of a frame's size and alignment. Needs the feature `mallocs`.
    Jemalloc,
    /// The kernel of this host: mmap, one byte written in each frame, munmap.
    HostKernel,
}

impl PeerName {
    /// Whether this program was built with the peer.
    pub(crate) fn is_built_in(self) -> bool {
        cfg!(feature = "mallocs") || !matches!(self, PeerName::Mimalloc | PeerName::Jemalloc)
    }
}

/// The name and the description of a value on the command line.
pub(crate) fn describe(value: &impl ValueEnum) -> (String, String) {
    let value = value.to_possible_value().expect("no choice is skipped");
    let help = value.get_help().map(ToString::to_string).unwrap_or_default();
    (value.get_name().to_owned(), help)
}

/// Whether a value is not for users to choose.
pub(crate) fn is_hidden(value: &impl ValueEnum) -> bool {
    value.to_possible_value().is_none_or(|value| value.is_hide_set())
}

/// The name of a value on the command line.
pub(crate) fn name_of(value: &impl ValueEnum) -> String {
    describe(value).0
}

/// Runs an expression with `$workload` standing for the workload type that a name means.
macro_rules! with_workload {
    ($name:expr, $workload:ident => $body:expr) => {{
        use $crate::workloads::{
            build::Build, bulk::Bulk, contig::Contig, cross_cpu::CrossCpu,
            high_order::HighOrder, page_fault::PageFault, parallel_free::ParallelFree,
            pressure::Pressure, purge::Purge, races::Races, read_twice::ReadTwice, replay::Replay,
            tenants::Tenants, thp_mix::ThpMix,
        };
        $crate::catalog::with_workload!(@each $name, $workload => $body;
            PageFault, Bulk, ParallelFree, Purge, CrossCpu, Build, ThpMix, HighOrder,
            Pressure, Contig, ReadTwice, Tenants, Races, Replay)
    }};
    (@each $name:expr, $workload:ident => $body:expr; $($type:ident),*) => {
        match $name {
            $($crate::catalog::WorkloadName::$type => {
                type $workload = $type;
                $body
            })*
        }
    };
}
pub(crate) use with_workload;

/// The settings of a workload on the host.
pub(crate) fn host_settings(workload: WorkloadName) -> Vec<SettingTable> {
    with_workload!(workload, W => W::host_settings())
}

/// The settings of a workload on simulated machines.
pub(crate) fn sim_settings(workload: WorkloadName) -> Vec<SettingTable> {
    with_workload!(workload, W => W::sim_settings())
}

/// How a workload is reduced so that comparing all designs is quick.
pub(crate) fn brief(workload: WorkloadName) -> Brief {
    with_workload!(workload, W => W::BRIEF)
}

/// The figures of a workload's results.
pub(crate) fn figures(workload: WorkloadName) -> Figures {
    with_workload!(workload, W => Figures { of_whole: W::FIGURES, parts: W::PARTS })
}

/// What a comparison of the workload ranks by.
pub(crate) fn goals(workload: WorkloadName) -> &'static [Goal] {
    with_workload!(workload, W => W::GOALS)
}

/// The workload's own numbers that a comparison mentions.
pub(crate) fn telling(workload: WorkloadName) -> &'static [Telling] {
    with_workload!(workload, W => W::TELLING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::{DesignName, design_settings};

    /// `--set NAME=VALUE` does not say whose setting it is, so a name must be unique in a run.
    #[test]
    fn no_two_settings_of_a_run_have_one_name() {
        for &workload in WorkloadName::value_variants() {
            for &design in DesignName::value_variants() {
                for of_machine in [host_settings(workload), sim_settings(workload)] {
                    let tables = of_machine.iter().map(|(_, table)| *table);
                    let all = tables.chain([design_settings(design)]).flatten();
                    let mut names: Vec<_> = all.map(|setting| setting.name).collect();
                    let count = names.len();
                    names.sort_unstable();
                    names.dedup();
                    assert_eq!(names.len(), count, "{workload:?} on {design:?}");
                }
            }
        }
    }
}
