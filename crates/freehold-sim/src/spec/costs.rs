//! The figures of a machine as the model uses them: whole picoseconds and whole lines.

use freehold::geometry::FRAME_BYTES;

use super::{Key, Spec};

/// Virtual time in picoseconds: whole numbers, so that results are the same on every host. The
/// schedule keeps 50 bits of it, which is almost 19 minutes.
pub(crate) type Picos = u64;

/// Nanoseconds as picoseconds, rounded to the nearest.
pub(crate) fn picos(ns: f64) -> Picos {
    (ns * 1000.0).round() as Picos
}

/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;

/// What a core charges for work inside it. There is one set for a thread that has its core to
/// itself and one for a thread whose sibling is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CoreCosts {
    pub(crate) l1: Picos,
    pub(crate) l2: Picos,
    pub(crate) rmw: Picos,
    /// Computation with each access of data in regions.
    pub(crate) work: Picos,
    pub(crate) irq_flag: Picos,
    pub(crate) clear_cached: Picos,
    /// Factor for computation, in thousandths.
    pub(crate) slowdown: u64,
}

impl CoreCosts {
    /// What `work` takes on this core.
    pub(crate) fn compute(&self, work: Picos) -> Picos {
        work * self.slowdown / 1000
    }
}

/// All prices of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// Prices inside a core: alone, and beside a running sibling.
    pub(crate) core: [CoreCosts; 2],
    pub(crate) llc: Picos,
    pub(crate) dram_local: Picos,
    pub(crate) dram_remote: Picos,
    pub(crate) same_llc: Picos,
    pub(crate) same_socket: Picos,
    pub(crate) remote_home_writer: Picos,
    pub(crate) remote_home_reader: Picos,
    /// How late a spinning waiter notices that its lock is free: half its polling interval.
    pub(crate) notice: Picos,
    /// Clearing a frame that the last-level cache has, and one in memory, as far as the core itself
    /// is not slower.
    pub(crate) clear_llc: Picos,
    pub(crate) clear_local: Picos,
    pub(crate) clear_remote: Picos,
    /// Lines that clearing a frame reads from memory before it writes them.
    pub(crate) clear_reads: u64,
    /// How long the memory of a node is busy with one line.
    pub(crate) line_service: Picos,
    pub(crate) l1_lines: u32,
    pub(crate) l2_lines: u32,
    pub(crate) llc_lines: u32,
}

impl Costs {
    pub(crate) fn new(spec: &Spec) -> Self {
        let ps = |key| picos(spec.get(key));
        let lines = |key| (spec.get(key) * 1024.0 / LINE_BYTES) as u32;
        // The figures are those of a frame of 4 KiB.
        let of_frame = |key| picos(spec.get(key) * FRAME_BYTES as f64 / 4096.0);
        let alone = CoreCosts {
            l1: ps(Key::L1Ns),
            l2: ps(Key::L2Ns),
            rmw: ps(Key::RmwNs),
            work: ps(Key::WorkNs),
            irq_flag: ps(Key::IrqFlagNs),
            clear_cached: of_frame(Key::ClearCachedNs),
            slowdown: 1000,
        };
        // As many lines at a time as from local memory, each for the latency of its place.
        let clear_at = |latency| match spec.get(Key::DramLocalNs) {
            0.0 => of_frame(Key::ClearMemoryNs),
            local => {
                let ns = spec.get(Key::ClearMemoryNs) * spec.get(latency) / local;
                picos(ns * FRAME_BYTES as f64 / 4096.0)
            }
        };
        let slowdown = (spec.get(Key::SmtSlowdown) * 1000.0).round() as u64;
        let slow = |work: Picos| work * slowdown / 1000;
        let beside_sibling = CoreCosts {
            l1: slow(alone.l1),
            l2: slow(alone.l2),
            rmw: slow(alone.rmw),
            work: slow(alone.work),
            irq_flag: slow(alone.irq_flag),
            clear_cached: slow(alone.clear_cached),
            slowdown,
        };
        Costs {
            core: [alone, beside_sibling],
            llc: ps(Key::LlcNs),
            dram_local: ps(Key::DramLocalNs),
            dram_remote: ps(Key::DramRemoteNs),
            same_llc: ps(Key::SameLlcNs),
            same_socket: ps(Key::SameSocketNs),
            remote_home_writer: ps(Key::RemoteHomeWriterNs),
            remote_home_reader: ps(Key::RemoteHomeReaderNs),
            notice: ps(Key::PauseNs) / 2,
            clear_llc: clear_at(Key::LlcNs),
            clear_local: of_frame(Key::ClearMemoryNs),
            clear_remote: clear_at(Key::DramRemoteNs),
            clear_reads: (spec.get(Key::ClearReads) * FRAME_BYTES as f64 / LINE_BYTES).round()
                as u64,
            line_service: (LINE_BYTES * 1000.0 / spec.get(Key::NodeGbPerS)).round() as Picos,
            l1_lines: lines(Key::L1Kib),
            l2_lines: lines(Key::L2Kib),
            llc_lines: lines(Key::LlcKib),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::preset;

    #[test]
    fn figures_become_whole_picoseconds_and_lines() {
        let costs = Costs::new(&preset("skylake-2s").unwrap());
        assert_eq!(costs.core[0].l1, 1_100);
        assert_eq!(costs.core[0].l2, 4_700);
        assert_eq!((costs.dram_local, costs.dram_remote), (81_300, 131_100));
        assert_eq!(costs.same_llc, 53_800);
        assert_eq!((costs.l1_lines, costs.l2_lines, costs.llc_lines), (512, 16_384, 630_784));
        assert_eq!(costs.core[1].compute(1_000), costs.core[1].slowdown);
    }

    #[test]
    fn a_frame_is_cleared_at_the_latency_of_its_place() {
        let costs = |name| Costs::new(&preset(name).unwrap());
        let skylake = costs("skylake-2s");
        // 64 lines, 16 at a time, 19.5 ns each: less than the core takes for lines that it has.
        assert_eq!(skylake.clear_llc, (325_000.0 * 19.5 / 81.3_f64).round() as Picos);
        assert_eq!(skylake.clear_local, 325_000);
        assert_eq!(skylake.clear_remote, (325_000.0 * 131.1 / 81.3_f64).round() as Picos);
        let epyc = costs("epyc-2s");
        assert!(epyc.clear_remote > epyc.clear_local);
        let mut spec = preset("uma-1").unwrap();
        spec.set(Key::DramLocalNs, 0.0, "a test");
        assert_eq!(Costs::new(&spec).clear_remote, 325_000);
    }
}
