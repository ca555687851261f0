//! The built-in machines, each figure with its public source.
//!
//! `skylake-2s` is the machine on which most of the published work on zone locks was measured. The
//! other Intel servers start from it and replace figures that were published for them; `desktop`
//! and `epyc-2s` are fully described as far as their sources allow. A source that starts with
//! `derived` says how a figure follows from published ones; one that contains `taken from` names
//! the machine whose figure stands in for an unpublished one.

use super::near::nearest;
use super::usual::{SAME_SOCKET, usual};
use super::{Figure, Key, Spec, servers};

/// Intel MLC on the 2n-skx testbed, read from the reports' source.
const CSIT: &str = "Intel MLC v3.5 on FD.io CSIT's 2n-skx testbed (2 x Xeon Platinum 8180, \
    2.5 GHz), docs/report/introduction/test_environment_sut_calib_skx.rst in the history of \
    github.com/FDio/csit; its servers and releases differ by up to 2 ns";
const CSIT_CACHES: &str = "Intel MLC on FD.io CSIT's 2n-skx testbed (2 x Xeon Platinum 8180)";
const ARK_8180: &str = "Intel ARK, Xeon Platinum 8180: 28 cores, 2 threads each, 38.5 MB L3; \
    Intel 64 and IA-32 Architectures Optimization Reference Manual: 32 KiB L1D, 1 MiB L2";
const RMW: &str = "derived: 18 cycles at 2.5 GHz less the L1 access in them; uops.info, \
    CMPXCHG_LOCK_M64_R64: 18-19 cycles for a LOCK CMPXCHG";
const IRQ: &str = "derived: half of local_irq_{save,restore}, 37 cycles or 9.443 ns on an \
    i7-4790K, in the message of Linux commit fbd02630c6e3 (slub: initial bulk free implementation)";
const PAUSE: &str = "derived: 140 cycles at 2.5 GHz; Intel Optimization Reference Manual, section \
    2.6.4 in later editions: PAUSE takes as many as 140 cycles on Skylake";
const SMT: &str = "derived: 2 / 1.3, from gains of up to 30 % on server benchmarks; D. Marr et \
    al., Hyper-Threading Technology Architecture and Microarchitecture, Intel Technology Journal \
    6(1), 2002";
const CLEAR_CACHED: &str = "derived: 4096 bytes at 8 bytes a cycle and 2.5 GHz; message of commit \
    981a7d1a5bf2 (time_bench_memset) in github.com/netoptimizer/prototype-kernel: 32 cycles for \
    256 bytes on Skylake";
const CLEAR_MEMORY: &str = "derived: 64 lines, 16 at a time (the L2's superqueue, Intel \
    Optimization Reference Manual), each for latency.dram_local_ns";
const CLEAR_READS: &str = "Intel Optimization Reference Manual, Enhanced REP MOVSB and STOSB: \
    string stores of a whole page take lines without reading them (the no-RFO protocol)";
const TRAP: &str = "derived: 1050 cycles at 2.5 GHz; L. Torvalds, 30 April 2014, \
    plus.google.com/+LinusTorvalds/posts/YDKRFDwHwr6: 715 cycles for a page fault and 330 for its \
    iret on Haswell, so without page-table isolation";
const FAULT_PATH: &str = "derived: 1050 cycles are 80.7 % of all time there, so 251 cycles are the \
    kernel's path, at 2.5 GHz; L. Torvalds as under workload.trap_ns";
const PAGE_TABLE: &str = "derived: two atomics (page-table lock, map count) and three accesses of \
    the private cache, at this machine's figures; the order of Linux's do_anonymous_page";
const ACCOUNTING: &str = "derived: one atomic and three accesses of the private cache, at this \
    machine's figures; Linux charges a memory group from a per-CPU stock";
const UNMAP: &str = "derived: one atomic and four accesses of the private cache, at this machine's \
    figures; the order of Linux's zap_pte_range";

const CALIBRATED: &str = "fitted, with the other figure of this table, to the one published \
    point of this machine: docs/machine.md, Calibration";
const CALIBRATED_SCALED: &str = "derived: the cycles of skylake-2s at this machine's clock";

/// The clock of skylake-2s, at which its cycles became nanoseconds.
const SKYLAKE_GHZ: f64 = 2.5;

/// The fitted figures of skylake-2s.
const FITTED: [(Key, f64); 2] = [(Key::FaultRestNs, 660.0), (Key::UnmapRestNs, 280.0)];

/// What the page costs are made of: atomics and hits of the private cache.
pub(super) const PAGE_COSTS: [(Key, f64, f64, &str); 3] = [
    (Key::PageTableNs, 2.0, 3.0, PAGE_TABLE),
    (Key::AccountingNs, 1.0, 3.0, ACCOUNTING),
    (Key::UnmapNs, 1.0, 4.0, UNMAP),
];

/// Gives a machine the fitted figures of skylake-2s, at its own clock.
pub(super) fn scale_fitted(spec: &mut Spec, ghz: f64) {
    for (key, value) in FITTED {
        spec.set(key, (value * SKYLAKE_GHZ / ghz).round(), CALIBRATED_SCALED);
    }
}

/// All figures of a machine that has nothing to inherit, but for the fitted ones.
fn machine(name: &str, summary: &str, figures: &[(Key, f64, &'static str)]) -> Spec {
    let fitted = FITTED.map(|(key, value)| (key, value, CALIBRATED));
    let given = |key: Key| {
        let figure = figures.iter().chain(&fitted).find(|(candidate, ..)| *candidate == key);
        figure.map(|&(_, value, source)| Figure { value, source: source.into() })
    };
    let local_ns = given(Key::DramLocalNs).map_or(0.0, |figure| figure.value);
    let figure = |&key: &Key| {
        given(key)
            .or_else(|| usual(key, local_ns))
            .unwrap_or_else(|| panic!("preset {name} has no {key}"))
    };
    Spec {
        name: name.to_owned(),
        summary: summary.to_owned(),
        figures: Key::ALL.iter().map(figure).collect(),
        node_gib: Vec::new(),
        distances: Vec::new(),
    }
}

pub(super) fn skylake_2s() -> Spec {
    machine(
        "skylake-2s",
        "2 sockets of 28 Skylake-SP cores with SMT: 112 CPUs (2 x Xeon Platinum 8180)",
        &[
            (Key::Sockets, 2.0, CSIT),
            (Key::LlcsPerSocket, 1.0, ARK_8180),
            (Key::CoresPerLlc, 28.0, ARK_8180),
            (Key::ThreadsPerCore, 2.0, ARK_8180),
            (
                Key::NodeGib,
                96.0,
                "the 0day kernel test robot's 2-socket Skylake servers have 192 GiB",
            ),
            (
                Key::NodeGbPerS,
                74.955,
                "half of 149911.3 MB/s, reads and writes 1:1 on both sockets; Intel MLC v3.5 \
                    --peak_injection_bandwidth on FD.io CSIT's 2n-skx testbed, same file as the \
                    latencies",
            ),
            (Key::L1Kib, 32.0, ARK_8180),
            (Key::L2Kib, 1024.0, ARK_8180),
            (Key::LlcKib, 39424.0, ARK_8180),
            (Key::L1Ns, 1.1, CSIT_CACHES),
            (Key::L2Ns, 4.7, CSIT_CACHES),
            (Key::LlcNs, 19.5, CSIT_CACHES),
            (Key::DramLocalNs, 81.3, CSIT),
            (Key::DramRemoteNs, 131.1, CSIT),
            (Key::SameLlcNs, 53.8, CSIT),
            (
                Key::SameSocketNs,
                53.8,
                "the same as transfer.same_llc_ns: a socket has one last-level cache",
            ),
            (Key::RemoteHomeWriterNs, 113.9, CSIT),
            (Key::RemoteHomeReaderNs, 175.7, CSIT),
            (Key::RmwNs, 6.1, RMW),
            (Key::IrqFlagNs, 4.7, IRQ),
            (Key::PauseNs, 56.0, PAUSE),
            (Key::SmtSlowdown, 1.538, SMT),
            (Key::ClearCachedNs, 205.0, CLEAR_CACHED),
            (Key::ClearMemoryNs, 325.0, CLEAR_MEMORY),
            (Key::ClearReads, 0.0, CLEAR_READS),
            (Key::TrapNs, 420.0, TRAP),
            (Key::FaultPathNs, 100.0, FAULT_PATH),
            (Key::PageTableNs, 36.0, PAGE_TABLE),
            (Key::AccountingNs, 25.0, ACCOUNTING),
            (Key::UnmapNs, 30.0, UNMAP),
        ],
    )
}

pub(super) fn icelake_2s() -> Spec {
    const KUL: &str = "Intel MLC v3.10 on Ice Lake-SP nodes of KU Leuven's Tier-2 cluster, \
        source/leuven/tier2_hardware/icelake_mlc.txt in github.com/hpcleuven/VscDocumentation";
    const ARK: &str = "Intel ARK, Xeon Gold 5320: 26 cores, 39 MB L3; Intel Optimization Reference \
        Manual: 48 KiB L1D and 1.25 MiB L2 on Ice Lake server";
    let mut spec = skylake_2s().renamed(
        "icelake-2s",
        "2 sockets of 26 Ice Lake-SP cores, SMT off: 52 CPUs (2 x Xeon Gold 5320)",
    );
    for (key, value, source) in [
        (Key::CoresPerLlc, 26.0, ARK),
        (Key::ThreadsPerCore, 1.0, "a choice: SMT off"),
        (Key::NodeGib, 64.0, "a choice: 128 GiB in all"),
        (
            Key::NodeGbPerS,
            145.92,
            "half of 291841.4 MB/s, reads and writes 1:1 on both sockets; Intel MLC v3.10, KU \
                Leuven, same file as the latencies",
        ),
        (Key::L1Kib, 48.0, ARK),
        (Key::L2Kib, 1280.0, ARK),
        (Key::LlcKib, 39936.0, ARK),
        (
            Key::L1Ns,
            1.5,
            "derived: 5 cycles (Intel Optimization Reference Manual, Ice Lake) at 3.4 GHz, the \
                turbo clock of a Xeon Gold 5320 (Intel ARK)",
        ),
        (
            Key::L2Ns,
            4.1,
            "derived: 14 cycles (Intel Optimization Reference Manual, Ice Lake server) at 3.4 GHz",
        ),
        (
            Key::LlcNs,
            21.4,
            "derived: that of skylake-2s, scaled by the ratio of latency.dram_local_ns; no figure \
                for this processor was found",
        ),
        (Key::DramLocalNs, 89.2, KUL),
        (Key::DramSameSocketNs, 98.7, SAME_SOCKET),
        (Key::DramRemoteNs, 142.7, KUL),
        (Key::SameLlcNs, 64.2, KUL),
        (Key::SameSocketNs, 64.2, "the same as transfer.same_llc_ns: one last-level cache"),
        (Key::RemoteHomeWriterNs, 127.1, KUL),
        (Key::RemoteHomeReaderNs, 127.0, KUL),
        (
            Key::RmwNs,
            3.8,
            "derived: 18 cycles at 3.4 GHz less the L1 access in them; source as for skylake-2s",
        ),
        (
            Key::PauseNs,
            41.0,
            "derived: 140 cycles at 3.4 GHz; taken from Skylake, whose PAUSE Ice Lake kept",
        ),
        (Key::ClearCachedNs, 151.0, "derived: 8 bytes a cycle at 3.4 GHz; taken from Skylake"),
        (Key::ClearMemoryNs, 357.0, CLEAR_MEMORY),
        (Key::TrapNs, 309.0, "derived: 1050 cycles at 3.4 GHz; source as for skylake-2s"),
        (Key::FaultPathNs, 74.0, "derived: 251 cycles at 3.4 GHz; source as for skylake-2s"),
        (Key::PageTableNs, 28.0, PAGE_TABLE),
        (Key::AccountingNs, 20.0, ACCOUNTING),
        (Key::UnmapNs, 24.0, UNMAP),
    ] {
        spec.set(key, value, source);
    }
    scale_fitted(&mut spec, 3.4);
    spec
}

fn desktop() -> Spec {
    const ARK: &str = "Intel ARK, Core i7-6700K: 4 cores, 8 threads, 8 MB L3; cpu-z of the same: \
        32 KiB L1D and 256 KiB L2 a core (pastebin.com/tSZrq7eE)";
    const C2C: &str = "median for an i7-6700K in github.com/nviennot/core-to-core-latency";
    const OPT: &str = "derived: cycles of the Intel Optimization Reference Manual for Skylake \
        client (L1 4, L2 12, L3 44) at 4.0 GHz";
    let mut spec = machine(
        "desktop",
        "1 socket of 4 Skylake cores with SMT: 8 CPUs and 4 GiB (Core i7-6700K)",
        &[
            (Key::Sockets, 1.0, ARK),
            (Key::LlcsPerSocket, 1.0, ARK),
            (Key::CoresPerLlc, 4.0, ARK),
            (Key::ThreadsPerCore, 2.0, ARK),
            (Key::NodeGib, 4.0, "a choice: a small machine, on which memory is short"),
            (
                Key::NodeGbPerS,
                34.1,
                "Intel ARK, Core i7-6700K: maximum memory bandwidth of two DDR4-2133 channels",
            ),
            (Key::L1Kib, 32.0, ARK),
            (Key::L2Kib, 256.0, ARK),
            (
                Key::LlcKib,
                8192.0,
                "Intel ARK, Core i7-6700K: 8 MB; the model takes it as a cache of victims, though \
                    it includes the private caches",
            ),
            (Key::L1Ns, 1.0, OPT),
            (Key::L2Ns, 3.0, OPT),
            (Key::LlcNs, 11.0, OPT),
            (
                Key::DramLocalNs,
                61.5,
                "derived: 42 cycles at 4.0 GHz and 51 ns; 7-cpu.com, Intel Skylake (i7-6700)",
            ),
            (Key::DramRemoteNs, 61.5, "the same as local: one node"),
            (Key::SameLlcNs, 20.0, C2C),
            (Key::SameSocketNs, 20.0, "the same as transfer.same_llc_ns: one last-level cache"),
            (Key::RemoteHomeWriterNs, 20.0, "not used: one socket"),
            (Key::RemoteHomeReaderNs, 20.0, "not used: one socket"),
            (
                Key::RmwNs,
                3.5,
                "derived: 18 cycles a LOCK CMPXCHG (uops.info) at 4.0 GHz less an L1 access",
            ),
            (Key::IrqFlagNs, 4.7, IRQ),
            (Key::PauseNs, 35.0, "derived: 140 cycles at 4.0 GHz; source as for skylake-2s"),
            (Key::SmtSlowdown, 1.538, SMT),
            (
                Key::ClearCachedNs,
                128.0,
                "derived: 4096 bytes at 8 bytes a cycle and 4.0 GHz; source as for skylake-2s",
            ),
            (
                Key::ClearMemoryNs,
                246.0,
                "derived: 64 lines, 16 at a time, each for latency.dram_local_ns",
            ),
            (Key::ClearReads, 0.0, CLEAR_READS),
            (Key::TrapNs, 262.0, "derived: 1050 cycles at 4.0 GHz; source as for skylake-2s"),
            (Key::FaultPathNs, 63.0, "derived: 251 cycles at 4.0 GHz; source as for skylake-2s"),
            (Key::PageTableNs, 22.0, PAGE_TABLE),
            (Key::AccountingNs, 15.5, ACCOUNTING),
            (Key::UnmapNs, 18.5, UNMAP),
        ],
    );
    scale_fitted(&mut spec, 4.0);
    spec
}

pub(super) fn epyc_2s() -> Spec {
    const AMD: &str = "AMD, EPYC 7742: 64 cores, 128 threads, 256 MB L3 in 16 core complexes of 4 \
        cores and 16 MB; J. De Gelas and A. Frumusanu, AMD Rome Second Generation EPYC Review, \
        anandtech.com/show/14694: 32 KiB L1, 512 KiB L2";
    const ANANDTECH: &str = "AMD Rome Second Generation EPYC Review, anandtech.com/show/14694, \
        memory latency of the EPYC 7742 (at 3.4 GHz, NPS1)";
    const C2C: &str = "derived: median over pairs of cores in `results/Dual AMD EPYC 7742 64-Core \
        Processor.csv` of github.com/nviennot/core-to-core-latency";
    let mut spec = machine(
        "epyc-2s",
        "2 sockets of 64 Zen 2 cores with SMT in complexes of 4: 256 CPUs (2 x EPYC 7742)",
        &[
            (Key::Sockets, 2.0, AMD),
            (Key::LlcsPerSocket, 16.0, AMD),
            (Key::CoresPerLlc, 4.0, AMD),
            (Key::ThreadsPerCore, 2.0, AMD),
            (Key::NodeGib, 128.0, "a choice: 256 GiB in all, 1 GiB a CPU"),
            (
                Key::NodeGbPerS,
                204.8,
                "AMD, EPYC 7742: eight DDR4-3200 channels a socket, in theory; what mixed reads \
                    and writes reach is not published",
            ),
            (Key::L1Kib, 32.0, AMD),
            (Key::L2Kib, 512.0, AMD),
            (Key::LlcKib, 16384.0, AMD),
            (Key::L1Ns, 1.2, "derived: 4 cycles at 3.4 GHz; anandtech.com/show/14694"),
            (Key::L2Ns, 3.8, "derived: 13 cycles at 3.4 GHz; anandtech.com/show/14694"),
            (Key::LlcNs, 10.27, ANANDTECH),
            (Key::DramLocalNs, 122.0, ANANDTECH),
            (
                Key::DramRemoteNs,
                196.7,
                "derived: local times the ratio of remote to local on skylake-2s; no figure for \
                    this processor was found",
            ),
            (Key::SameLlcNs, 25.3, C2C),
            (
                Key::SameSocketNs,
                132.1,
                "derived: median over the pairs of one socket (the other reads 266.9 there, which \
                    the project calls very odd); same file as transfer.same_llc_ns",
            ),
            (Key::RemoteHomeWriterNs, 266.6, C2C),
            (Key::RemoteHomeReaderNs, 266.6, C2C),
            (
                Key::RmwNs,
                4.1,
                "derived: 18 cycles at 3.4 GHz less the L1 access in them; taken from Skylake",
            ),
            (Key::IrqFlagNs, 4.7, IRQ),
            (
                Key::PauseNs,
                19.0,
                "derived: 65 cycles at 3.4 GHz; A. Fog, Instruction tables, PAUSE on Zen 2",
            ),
            (Key::SmtSlowdown, 1.538, SMT),
            (
                Key::ClearCachedNs,
                151.0,
                "derived: 4096 bytes at 8 bytes a cycle and 3.4 GHz; taken from Skylake",
            ),
            (
                Key::ClearMemoryNs,
                299.0,
                "derived: 4096 bytes at 13.7 GB/s; message of the Linux commit `x86/clear_page: \
                    introduce clear_pages()` (cb431accb36e), AMD Milan, chunks of 4 KB",
            ),
            (
                Key::ClearReads,
                1.0,
                "same commit: Zen elides the reads only for extents larger than the LLC",
            ),
            (Key::TrapNs, 309.0, "derived: 1050 cycles at 3.4 GHz; taken from Haswell"),
            (Key::FaultPathNs, 74.0, "derived: 251 cycles at 3.4 GHz; taken from Haswell"),
            (Key::PageTableNs, 27.0, PAGE_TABLE),
            (Key::AccountingNs, 19.5, ACCOUNTING),
            (Key::UnmapNs, 23.0, UNMAP),
        ],
    );
    scale_fitted(&mut spec, 3.4);
    spec
}

/// `cpus` cores in one socket, without SMT: skylake-2s cut down, for teaching.
fn uma(cpus: usize) -> Spec {
    let mut spec = skylake_2s().renamed(
        &format!("uma-{cpus}"),
        "1 socket without SMT, for teaching: every other figure is that of skylake-2s",
    );
    let chosen = "a choice: the number in the machine's name";
    spec.set(Key::Sockets, 1.0, "a choice: uniform memory");
    spec.set(Key::CoresPerLlc, cpus as f64, chosen);
    spec.set(Key::ThreadsPerCore, 1.0, "a choice: one thread a core");
    spec
}

/// There is no machine of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMachine {
    /// The name that was asked for.
    pub name: String,
    /// The nearest name that exists.
    pub suggestion: Option<&'static str>,
}

impl std::fmt::Display for UnknownMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no machine `{}`", self.name)?;
        match self.suggestion {
            Some(near) => write!(f, ", did you mean `{near}`?"),
            None => write!(f, "; there are {}", preset_names().join(", ")),
        }
    }
}

impl std::error::Error for UnknownMachine {}

/// The names of the machines that come with the tool; `uma-N` stands for any number of CPUs.
pub fn preset_names() -> &'static [&'static str] {
    &[
        "skylake-2s",
        "skylake-2s-104",
        "skylake-4s",
        "icelake-2s",
        "granite-rapids-2s",
        "desktop",
        "epyc-2s",
        "epyc-9654-2s",
        "epyc-9965-2s",
        "altra",
        "graviton-4",
        "power9",
        "uma-N",
    ]
}

/// The machine of this name.
///
/// # Errors
///
/// There is none, or `uma-N` is asked for with an `N` that is not 1 to 1024.
pub fn preset(name: &str) -> Result<Spec, UnknownMachine> {
    match name {
        "skylake-2s" => Ok(skylake_2s()),
        "skylake-2s-104" => Ok(servers::skylake_2s_104()),
        "skylake-4s" => Ok(servers::skylake_4s()),
        "icelake-2s" => Ok(icelake_2s()),
        "granite-rapids-2s" => Ok(servers::granite_rapids_2s()),
        "desktop" => Ok(desktop()),
        "epyc-2s" => Ok(epyc_2s()),
        "epyc-9654-2s" => Ok(servers::epyc_9654_2s()),
        "epyc-9965-2s" => Ok(servers::epyc_9965_2s()),
        "altra" => Ok(servers::altra()),
        "graviton-4" => Ok(servers::graviton_4()),
        "power9" => Ok(servers::power9()),
        _ => name
            .strip_prefix("uma-")
            .and_then(|cpus| cpus.parse().ok())
            .filter(|cpus| (1..=super::CORES_MAX).contains(cpus))
            .map(uma)
            .ok_or_else(|| UnknownMachine {
                name: name.to_owned(),
                suggestion: nearest(name, preset_names().iter().copied()),
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_complete_and_can_be_built() {
        for (name, cpus) in [
            ("skylake-2s", 112),
            ("skylake-2s-104", 104),
            ("skylake-4s", 224),
            ("icelake-2s", 52),
            ("granite-rapids-2s", 512),
            ("desktop", 8),
            ("epyc-2s", 256),
            ("epyc-9654-2s", 384),
            ("epyc-9965-2s", 768),
            ("altra", 80),
            ("graviton-4", 96),
            ("power9", 176),
            ("uma-1", 1),
            ("uma-1024", 1024),
        ] {
            let spec = preset(name).unwrap();
            spec.check().unwrap();
            assert_eq!((spec.name(), spec.cpus()), (name, cpus));
            assert!(spec.figures().all(|(_, figure)| figure.source.len() > 10), "{name}");
        }
    }

    #[test]
    fn unknown_names_get_a_suggestion() {
        assert_eq!(preset("skylake2s").unwrap_err().suggestion, Some("skylake-2s"));
        assert_eq!(preset("vax").unwrap_err().suggestion, None);
        assert!(preset("uma-0").is_err());
        assert!(preset("uma-1025").is_err());
    }
}
