//! The figures of a machine as the model uses them: whole picoseconds and whole lines.

use freehold::geometry::FRAME_BYTES;

use super::{CLASSES, Key, Spec, THREADS_MAX};

/// Virtual time in picoseconds: whole numbers, so that results are the same on every host. The
/// schedule keeps 49 bits of it, which is more than 9 minutes.
pub(crate) type Picos = u64;

/// Nanoseconds as picoseconds, rounded to the nearest.
pub(crate) fn picos(ns: f64) -> Picos {
    (ns * 1000.0).round() as Picos
}

/// Bytes of a cache line.
const LINE_BYTES: f64 = 64.0;

/// What a core charges for work inside it. There is one set for each kind of core and number of
/// its threads that are running.
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
    /// These prices for a thread that takes `slowdown` thousandths of the time.
    fn slowed(&self, slowdown: u64) -> Self {
        let slow = |work: Picos| work * slowdown / 1000;
        CoreCosts {
            l1: slow(self.l1),
            l2: slow(self.l2),
            rmw: slow(self.rmw),
            work: slow(self.work),
            irq_flag: slow(self.irq_flag),
            clear_cached: slow(self.clear_cached),
            slowdown,
        }
    }

    /// What `work` takes on this core.
    pub(crate) fn compute(&self, work: Picos) -> Picos {
        work * self.slowdown / 1000
    }
}

/// What the memory of a node costs a core of some node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryCosts {
    /// A line of it.
    pub(crate) line: Picos,
    /// Clearing a frame of it, as far as the core itself is not slower.
    pub(crate) clear: Picos,
}

/// All prices of a machine.
#[derive(Clone, Debug)]
pub(crate) struct Costs {
    /// Prices inside a core, by its class and by how many siblings of the thread are running.
    pub(crate) core: [[CoreCosts; THREADS_MAX]; CLASSES],
    pub(crate) llc: Picos,
    /// What memory costs, by the node of the core and then by the node of the memory.
    far: Vec<MemoryCosts>,
    nodes: usize,
    /// The socket of each node.
    pub(crate) sockets: Vec<usize>,
    pub(crate) same_llc: Picos,
    pub(crate) same_socket: Picos,
    pub(crate) remote_home_writer: Picos,
    pub(crate) remote_home_reader: Picos,
    /// How late a spinning waiter notices that its lock is free: half its polling interval.
    pub(crate) notice: Picos,
    /// Clearing a frame that the last-level cache has, as far as the core itself is not slower.
    pub(crate) clear_llc: Picos,
    /// Lines that clearing a frame reads from memory before it writes them.
    pub(crate) clear_reads: u64,
    /// How long the memory of each node is busy with one line.
    pub(crate) line_service: Vec<Picos>,
    pub(crate) l1_lines: u32,
    /// By the class of the core.
    pub(crate) l2_lines: [u32; CLASSES],
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
        let local = spec.get(Key::DramLocalNs);
        let clear_at = |latency_ns: f64| {
            if local == 0.0 || latency_ns == local {
                return of_frame(Key::ClearMemoryNs);
            }
            let ns = spec.get(Key::ClearMemoryNs) * latency_ns / local;
            picos(ns * FRAME_BYTES as f64 / 4096.0)
        };
        let far =
            (0..spec.cpu_nodes()).flat_map(|from| (0..spec.nodes()).map(move |to| (from, to)));
        let far = far.map(|(from, to)| spec.memory_ns(from, to));
        let far = far.map(|ns| MemoryCosts { line: picos(ns), clear: clear_at(ns) }).collect();
        let service = |key| (LINE_BYTES * 1000.0 / spec.get(key)).round() as Picos;
        let mut line_service = vec![service(Key::NodeGbPerS); spec.cpu_nodes()];
        line_service.resize(spec.nodes(), service(Key::MemoryOnlyGbPerS));
        let classes = [1.0, spec.get(Key::ESlowdown), spec.get(Key::LpSlowdown)];
        let core = classes.map(|class| {
            let of_threads = |siblings| class * smt_slowdown(spec, siblings + 1) * 1000.0;
            std::array::from_fn(|siblings| alone.slowed(of_threads(siblings).round() as u64))
        });
        Costs {
            core,
            llc: ps(Key::LlcNs),
            far,
            nodes: spec.nodes(),
            sockets: (0..spec.nodes()).map(|node| spec.socket_of(node)).collect(),
            // Without last-level caches, lines between these cores go through the socket.
            same_llc: ps(if spec.get(Key::LlcKib) > 0.0 {
                Key::SameLlcNs
            } else {
                Key::SameSocketNs
            }),
            same_socket: ps(Key::SameSocketNs),
            remote_home_writer: ps(Key::RemoteHomeWriterNs),
            remote_home_reader: ps(Key::RemoteHomeReaderNs),
            notice: ps(Key::PauseNs) / 2,
            clear_llc: clear_at(spec.get(Key::LlcNs)),
            clear_reads: (spec.get(Key::ClearReads) * FRAME_BYTES as f64 / LINE_BYTES).round()
                as u64,
            line_service,
            l1_lines: lines(Key::L1Kib),
            l2_lines: [lines(Key::L2Kib), lines(Key::EL2Kib), lines(Key::EL2Kib)],
            llc_lines: lines(Key::LlcKib),
        }
    }

    /// What memory of the node `to` costs a core of the node `from`.
    #[inline]
    pub(crate) fn memory(&self, from: usize, to: usize) -> MemoryCosts {
        self.far[from * self.nodes + to]
    }
}

/// How much longer a thread's work takes while so many threads of its core are running: the figure
/// for two, once more each time that there are twice as many, and evenly in between.
fn smt_slowdown(spec: &Spec, threads: usize) -> f64 {
    let doubled = spec.get(Key::SmtSlowdown);
    let power = threads.ilog2();
    let least = (0..power).fold(1.0, |slowdown, _| slowdown * doubled);
    let beyond = (threads as f64 / f64::from(1u32 << power)) - 1.0;
    least + least * (doubled - 1.0) * beyond
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::preset;

    #[test]
    fn figures_become_whole_picoseconds_and_lines() {
        let costs = Costs::new(&preset("skylake-2s").unwrap());
        let [p_core, ..] = costs.core;
        assert_eq!((p_core[0].l1, p_core[0].l2), (1_100, 4_700));
        assert_eq!((costs.memory(0, 0).line, costs.memory(0, 1).line), (81_300, 131_100));
        assert_eq!(costs.same_llc, 53_800);
        assert_eq!((costs.l1_lines, costs.l2_lines[0], costs.llc_lines), (512, 16_384, 630_784));
        assert_eq!([0, 1].map(|siblings| p_core[siblings].compute(1_000)), [1_000, 1_538]);
        // 1.538 for two threads, its square for four, and half-way between for three.
        assert_eq!([2, 3, 7].map(|siblings| p_core[siblings].slowdown), [1_952, 2_365, 3_638]);
    }

    #[test]
    fn a_frame_is_cleared_at_the_latency_of_its_place() {
        let costs = |name| Costs::new(&preset(name).unwrap());
        let skylake = costs("skylake-2s");
        // 64 lines, 16 at a time, 19.5 ns each: less than the core takes for lines that it has.
        assert_eq!(skylake.clear_llc, (325_000.0 * 19.5 / 81.3_f64).round() as Picos);
        assert_eq!(skylake.memory(1, 1).clear, 325_000);
        assert_eq!(skylake.memory(1, 0).clear, (325_000.0 * 131.1 / 81.3_f64).round() as Picos);
        let epyc = costs("epyc-2s");
        assert!(epyc.memory(0, 1).clear > epyc.memory(0, 0).clear);
        let mut spec = preset("skylake-2s").unwrap();
        spec.set(Key::DramLocalNs, 0.0, "a test");
        assert_eq!(Costs::new(&spec).memory(0, 1).clear, 325_000);
    }
}
