//! Further built-in machines, each an older one with what is published of it. Figures without a
//! source of their own are the older machine's, and say so: `taken from`.

use super::presets::{PAGE_COSTS, epyc_2s, icelake_2s, scale_fitted, skylake_2s};
use super::usual::usual;
use super::{Key, Spec};

const CYCLES: &str = "derived: cycles of skylake-2s at this machine's clock, and its own caches";

/// `base` as another machine with the given figures, at `ghz`.
fn from_base(
    base: Spec,
    (name, summary): (&str, &str),
    ghz: f64,
    given: &[(Key, f64, &'static str)],
) -> Spec {
    let origin = base.name.clone();
    let mut spec = base.renamed(name, summary);
    for figure in &mut spec.figures {
        figure.source = format!("taken from {origin}: {}", figure.source).into();
    }
    for &(key, value, source) in given {
        spec.set(key, value, source);
    }
    let round = |ns: f64| (ns * 10.0).round() / 10.0;
    let rmw = round(18.0 / ghz - spec.get(Key::L1Ns));
    spec.set(Key::RmwNs, rmw, CYCLES);
    spec.set(Key::TrapNs, round(1050.0 / ghz), CYCLES);
    spec.set(Key::FaultPathNs, round(251.0 / ghz), CYCLES);
    spec.set(Key::ClearCachedNs, round(512.0 / ghz), CYCLES);
    let l2 = spec.get(Key::L2Ns);
    for (key, atomics, hits, source) in PAGE_COSTS {
        spec.set(key, round(atomics * (rmw + l2) + hits * l2), source);
    }
    let local_ns = spec.get(Key::DramLocalNs);
    for &key in Key::ALL {
        if let Some(figure) = usual(key, local_ns)
            && given.iter().all(|(other, ..)| *other != key)
        {
            spec.figures[key as usize] = figure;
        }
    }
    scale_fitted(&mut spec, ghz);
    spec
}

pub(super) fn skylake_2s_104() -> Spec {
    const ARK: &str = "Intel ARK, Xeon Platinum 8170: 26 cores, 2 threads each, 35.75 MB L3; the \
        other figures are taken from skylake-2s";
    let mut spec = skylake_2s().renamed(
        "skylake-2s-104",
        "2 sockets of 26 Skylake-SP cores with SMT: 104 CPUs (2 x Xeon Platinum 8170)",
    );
    spec.set(Key::CoresPerLlc, 26.0, ARK);
    spec.set(Key::LlcKib, 36608.0, ARK);
    spec
}

pub(super) fn skylake_4s() -> Spec {
    let mut spec = skylake_2s().renamed(
        "skylake-4s",
        "4 sockets of 28 Skylake-SP cores with SMT: 224 CPUs (4 x Xeon Platinum 8180)",
    );
    spec.set(
        Key::Sockets,
        4.0,
        "Intel ARK, Xeon Platinum 8180: up to 8 sockets, three UPI links, so that every two of \
            four sockets are linked directly; the other figures are taken from skylake-2s",
    );
    spec
}

const ZEN_4: &str = "derived: cycles at 3.7 GHz: L1 4 (LLVM, X86ScheduleZnver4.td, after AMD's \
    Software Optimization Guide 57647), L2 14, L3 50 on average; no public text of the last two \
    was found";
const GENOA_C2C: &str = "median of the pairs in github.com/nviennot/core-to-core-latency, issue \
    132: 2 x EPYC 9274F, of the same generation";

pub(super) fn epyc_9654_2s() -> Spec {
    const AMD: &str = "AMD, EPYC 9654: 96 cores, 192 threads, 384 MB L3 in 12 core complexes of 8 \
        cores and 32 MB; techradar.com: up to 3.7 GHz; tomshardware.com, Bergamo and Zen 4c \
        Detailed: 32 KiB L1D and 1 MiB L2 a core";
    let name = "2 sockets of 96 Zen 4 cores with SMT in complexes of 8: 384 CPUs (2 x EPYC 9654)";
    from_base(
        epyc_2s(),
        ("epyc-9654-2s", name),
        3.7,
        &[
            (Key::LlcsPerSocket, 12.0, AMD),
            (Key::CoresPerLlc, 8.0, AMD),
            (Key::NodeGib, 384.0, "a choice: 12 modules of 32 GiB a socket"),
            (Key::NodeGbPerS, 460.8, "AMD, EPYC 9004: 12 DDR5-4800 channels a socket, in theory"),
            (Key::L2Kib, 1024.0, AMD),
            (Key::LlcKib, 32768.0, AMD),
            (Key::L1Ns, 1.1, ZEN_4),
            (Key::L2Ns, 3.8, ZEN_4),
            (Key::LlcNs, 13.5, ZEN_4),
            (Key::SameLlcNs, 23.0, GENOA_C2C),
            (Key::SameSocketNs, 100.0, GENOA_C2C),
            (Key::RemoteHomeWriterNs, 197.0, GENOA_C2C),
            (Key::RemoteHomeReaderNs, 197.0, GENOA_C2C),
        ],
    )
}

pub(super) fn epyc_9965_2s() -> Spec {
    const CORES: &str = "hyper.ai, 16-Core Zen 5c CCD: an EPYC 9965 has 192 cores in 12 core \
        complexes of 16 and 32 MB; no public text of its clock was found: that of an EPYC 9654";
    const L1: &str = "derived: 80 KiB of L1 a core (videocardz.com and svethardware.cz, Zen 5), of \
        which 32 are for instructions";
    const CHIPS: &str = "derived: NPS0 has over 220 ns, some 90 ns more than NPS1; Chips and \
        Cheese, Evaluating Uniform Memory Access Mode on AMD's Turin (EPYC 9575F and 9355P)";
    let name = "2 sockets of 192 Zen 5c cores with SMT, 16 a complex: 768 CPUs (2 x EPYC 9965)";
    from_base(
        epyc_9654_2s(),
        ("epyc-9965-2s", name),
        3.7,
        &[
            (Key::CoresPerLlc, 16.0, CORES),
            (Key::NodeGib, 768.0, "a choice: 12 modules of 64 GiB a socket"),
            (Key::NodeGbPerS, 614.4, "AMD, EPYC 9005: 12 DDR5-6400 channels a socket, in theory"),
            (Key::L1Kib, 48.0, L1),
            (Key::DramLocalNs, 130.0, CHIPS),
            (Key::DramRemoteNs, 209.6, BY_RATIO),
        ],
    )
}

pub(super) fn granite_rapids_2s() -> Spec {
    const TPU: &str = "techpowerup.com/326957, Xeon 6980P: 128 cores, 2 threads each, 48 KiB L1D \
        and 2 MiB L2 a core; hardwareluxx.de/artikel/64561: 504 MB L3, up to 3.9 GHz";
    const CYCLES: &str = "derived: cycles at 3.9 GHz: L1 5 (Chips and Cheese, Going Armchair \
        Quarterback on Golden Cove's Caches), L2 15, one more than on icelake-2s for its size; no \
        public text of the latter was found";
    let name = "2 sockets of 128 Redwood Cove cores with SMT: 512 CPUs (2 x Xeon 6980P)";
    from_base(
        icelake_2s(),
        ("granite-rapids-2s", name),
        3.9,
        &[
            (Key::CoresPerLlc, 128.0, TPU),
            (Key::ThreadsPerCore, 2.0, TPU),
            (Key::NodeGib, 768.0, "a choice: 12 modules of 64 GiB a socket"),
            (
                Key::NodeGbPerS,
                691.6,
                "Chips and Cheese, A Look into Intel Xeon 6's Memory Subsystem: 691.62 GB/s of a \
                Xeon 6985P-C, reads",
            ),
            (Key::L2Kib, 2048.0, TPU),
            (Key::LlcKib, 516096.0, TPU),
            (Key::L1Ns, 1.3, CYCLES),
            (Key::L2Ns, 3.8, CYCLES),
        ],
    )
}

const N1: &str = "derived: cycles at 3.3 GHz; anandtech.com/show/15578, Neoverse N1: L1 4, L2 11";
const BY_RATIO: &str = "derived: local times the ratio of remote to local on skylake-2s; no figure \
    for this processor was found";

pub(super) fn graviton_4() -> Spec {
    const CHIPS: &str = "Chips and Cheese, Arm's Neoverse V2, in AWS's Graviton 4 (2024): 96 cores \
        on one mesh with 36 MB of L3, 2.8 GHz, lines between cores in 30 to 60 ns";
    const ARM: &str = "Arm, Learning Paths, Memory subsystem \
        (learn.arm.com/learning-paths/servers-and-cloud-computing/memory-subsystem): Arm's System \
        Characterization Tool on a c8g.16xlarge, 64 of the cores";
    let name = "1 socket of 96 Neoverse V2 cores: 96 CPUs (AWS Graviton4)";
    from_base(
        altra(),
        ("graviton-4", name),
        2.8,
        &[
            (Key::CoresPerLlc, 96.0, CHIPS),
            (Key::NodeGib, 768.0, "Chips and Cheese, as for the cores: 1536 GB in two sockets"),
            (Key::NodeGbPerS, 410.4, ARM),
            (Key::L1Kib, 64.0, ARM),
            (Key::L2Kib, 2048.0, ARM),
            (Key::LlcKib, 36864.0, CHIPS),
            (Key::L1Ns, 1.4, ARM),
            (Key::L2Ns, 4.0, ARM),
            (Key::LlcNs, 21.8, ARM),
            (Key::DramLocalNs, 115.2, ARM),
            (Key::DramRemoteNs, 185.8, BY_RATIO),
            (
                Key::ClearMemoryNs,
                460.8,
                "derived: 64 lines, 16 at a time, for latency.dram_local_ns",
            ),
            (Key::SameLlcNs, 45.0, CHIPS),
            (Key::SameSocketNs, 45.0, "the same as transfer.same_llc_ns: one last-level cache"),
            (
                Key::RemoteHomeWriterNs,
                138.6,
                "Chips and Cheese, as for the cores, of a machine with two sockets",
            ),
            (Key::RemoteHomeReaderNs, 138.6, "as transfer.remote_home_writer_ns"),
        ],
    )
}

pub(super) fn altra() -> Spec {
    const ANANDTECH: &str = "The Ampere Altra Review, anandtech.com/show/16315: 80 Neoverse N1 \
        cores at 3.3 GHz, 64 KiB L1 and 1 MiB L2 each, 32 MB of system-level cache";
    const GRAVITON_2: &str = "anandtech.com/show/15578: 81 ns on Graviton2, with the same cores \
        and mesh";
    let name = "1 socket of 80 Neoverse N1 cores: 80 CPUs (Ampere Altra Q80-33)";
    from_base(
        skylake_2s(),
        ("altra", name),
        3.3,
        &[
            (Key::Sockets, 1.0, "a choice: one of up to two"),
            (Key::CoresPerLlc, 80.0, ANANDTECH),
            (Key::ThreadsPerCore, 1.0, "Neoverse N1 has no SMT"),
            (Key::NodeGib, 256.0, "a choice: 8 modules of 32 GiB"),
            (
                Key::NodeGbPerS,
                204.8,
                "AnandTech, as for the cores: 8 DDR4-3200 channels, in theory",
            ),
            (Key::L1Kib, 64.0, ANANDTECH),
            (Key::L2Kib, 1024.0, ANANDTECH),
            (Key::LlcKib, 32768.0, ANANDTECH),
            (Key::L1Ns, 1.2, N1),
            (Key::L2Ns, 3.3, N1),
            (Key::DramLocalNs, 81.0, GRAVITON_2),
            (Key::DramRemoteNs, 130.6, BY_RATIO),
            (
                Key::SameLlcNs,
                47.0,
                "github.com/nviennot/core-to-core-latency, README.md: 47 ns on Graviton2, with \
                the same cores and mesh",
            ),
            (Key::SameSocketNs, 47.0, "the same as transfer.same_llc_ns: one last-level cache"),
            (
                Key::ClearMemoryNs,
                324.0,
                "derived: 64 lines, 16 at a time, for latency.dram_local_ns",
            ),
        ],
    )
}

pub(super) fn power9() -> Spec {
    const RAPTOR: &str = "wiki.raptorcs.com/wiki/POWER9: up to 24 SMT4 cores, in pairs that share \
        512 KiB of L2 and 10 MB of L3; the model takes half of the L2 for each core";
    const SUMMIT: &str =
        "IBM Power System AC922 (8335-GTX), as in Summit: 2 x 22 cores of 4 threads";
    const POWER8: &str = "anandtech.com/show/10435, measured with lmbench on POWER8: L1 3 cycles, \
        L2 13, L3 8 ns, other cores' L3 55 ns, memory 89 to 91 ns";
    let name = "2 sockets of 22 SMT4 cores in pairs: 176 CPUs (POWER9, AC922); lines of 64 bytes";
    from_base(
        skylake_2s(),
        ("power9", name),
        3.8,
        &[
            (Key::LlcsPerSocket, 11.0, RAPTOR),
            (Key::CoresPerLlc, 2.0, RAPTOR),
            (Key::ThreadsPerCore, 4.0, SUMMIT),
            (Key::NodeGib, 256.0, "Summit: 512 GB of DDR4 in two sockets"),
            (
                Key::NodeGbPerS,
                170.0,
                "derived: 8 DDR4-2666 channels a socket, 21.3 GB/s each in theory; no public text \
                of IBM's figure was found",
            ),
            (Key::L1Kib, 32.0, "lscpu of an AC922: 32K; Qian Cai, linux-kernel, 27 May 2020"),
            (Key::L2Kib, 256.0, RAPTOR),
            (Key::LlcKib, 10240.0, RAPTOR),
            (Key::L1Ns, 0.8, POWER8),
            (Key::L2Ns, 3.4, POWER8),
            (Key::LlcNs, 8.0, POWER8),
            (Key::SameLlcNs, 8.0, "as latency.llc_ns: the pair shares its L2 and L3"),
            (Key::SameSocketNs, 55.0, POWER8),
            (Key::DramLocalNs, 90.0, POWER8),
            (Key::DramRemoteNs, 145.1, BY_RATIO),
            (
                Key::SmtSlowdown,
                1.25,
                "derived: 1 / 0.8; anandtech.com/show/10435: with two threads each runs at about \
                80 % (POWER8)",
            ),
            (
                Key::ClearMemoryNs,
                360.0,
                "derived: 64 lines, 16 at a time, for latency.dram_local_ns",
            ),
        ],
    )
}
