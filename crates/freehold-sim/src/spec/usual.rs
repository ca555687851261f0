//! Figures that most machines have alike, so that neither presets nor files need to give them.

use super::{Figure, Key};

const E_L2: &str = "derived: 2 MiB for four E cores; util-linux, tests/expected/lscpu: 18 MiB of \
    L2 in 9 parts on a Core Ultra 9 185H";
const E_CORE: &str = "derived: 1 / 0.64; The Intel 12th Gen Core i9-12900K Review, \
    anandtech.com/show/17047: an E core has up to 64 % of a P core in SPEC CPU 2017";
const LP_CORE: &str = "derived: that of an E core times 3.8 / 2.5 GHz; Intel ARK, Core Ultra 9 \
    185H: turbo clocks of E cores and low-power ones";
const SAME_SOCKET: &str = "derived: local times 125 / 113; \
    anandtech.com/show/14694, EPYC 7742: 113 ns with NPS4, and 122 with NPS1, the mean of a near \
    quarter and three others";
const MEMORY_ONLY: &str = "derived: the middle of 140 to 410 ns; J. Liu et al., Dissecting CXL \
    Memory Performance at Scale, arXiv 2409.14317: four CXL devices, abstract";
const MEMORY_ONLY_GB: &str = "derived: 32 GT/s in 8 lanes, each way; a CXL device on PCIe 5.0 x8";

/// What most machines have, or what a machine is taken to have if it is extended: the figures that
/// no machine need give. `local_ns` is the latency of its local memory.
pub(super) fn usual(key: Key, local_ns: f64) -> Option<Figure> {
    let (value, source) = match key {
        Key::WorkNs => (0.0, "a choice: docs/machine.md, Instructions"),
        Key::NodesPerSocket => (1.0, "a choice: one node a socket, the default of firmware"),
        Key::ECores | Key::LpCores => (0.0, "none: all cores are alike"),
        Key::EL2Kib => (512.0, E_L2),
        Key::ESlowdown => (1.56, E_CORE),
        Key::LpSlowdown => (2.37, LP_CORE),
        Key::DramSameSocketNs => ((local_ns * 1250.0 / 113.0).round() / 10.0, SAME_SOCKET),
        Key::MemoryOnlyNs => (275.0, MEMORY_ONLY),
        Key::MemoryOnlyGbPerS => (31.5, MEMORY_ONLY_GB),
        _ => return None,
    };
    Some(Figure { value, source: source.into() })
}
