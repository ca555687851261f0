//! The results of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::access::Served;
use crate::account::{ClassBooks, Path, Spent, Tally};
use crate::parts::Status;
use crate::schedule::Schedule;
use crate::spec::Picos;
use crate::state::State;

/// Where the time of all CPUs went, in nanoseconds. The parts add up to the whole.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimeReport {
    /// All time of all CPUs from the start of measuring to the end of their work, or of the window
    /// ([`CpuHandle::start_measuring_for`](crate::CpuHandle::start_measuring_for)).
    pub all_ns: f64,
    /// Work that touches no modelled memory, including the interrupt flag.
    pub compute_ns: f64,
    /// Accesses of memory, hits as well as misses, and the contents of frames.
    pub memory_ns: f64,
    /// Waiting for locks.
    pub lock_wait_ns: f64,
    /// Idle on request.
    pub idle_ns: f64,
    /// Waiting at barriers. No share counts it: a CPU that is done and waits for the others says
    /// nothing about what they do.
    pub barrier_ns: f64,
    /// Stopped by an injected failure.
    pub stopped_ns: f64,
}

/// All locks of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LockReport {
    /// The name of the class, such as `zone_lock`.
    pub name: String,
    /// Locks of the class that the machine encountered.
    pub instances: u64,
    /// How often one was taken.
    pub acquisitions: u64,
    /// How many of these had to wait.
    pub contended: u64,
    /// Attempts that did not wait and failed.
    pub try_failed: u64,
    /// All waiting, in nanoseconds: of waits that span the end of the window, what comes before it.
    pub wait_ns: f64,
    /// The longest wait, as far as it is within the window.
    pub wait_ns_max: f64,
    /// All holding.
    pub hold_ns: f64,
    /// The longest hold, as far as it is within the window.
    pub hold_ns_max: f64,
}

/// Interrupts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IrqReport {
    /// Sections with interrupts off; nested ones are one.
    pub sections: u64,
    /// Their share of CPU time outside barriers.
    pub share: f64,
    /// The longest, in nanoseconds.
    pub ns_max: f64,
    /// What the CPU was doing when the longest ended.
    pub ns_max_path: Option<&'static str>,
}

/// Latencies of one kind of call, in nanoseconds. Percentiles are exact to three digits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyReport {
    /// Calls that were timed.
    pub count: u64,
    /// The mean.
    pub mean: f64,
    /// Half of the calls took at most this.
    pub p50: u64,
    /// 99 % took at most this.
    pub p99: u64,
    /// 99.9 % took at most this.
    pub p999: u64,
    /// The longest.
    pub max: u64,
}

/// Accesses that one place served.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServedReport {
    /// How many.
    pub count: u64,
    /// How many of these while the CPU held a lock.
    pub under_lock: u64,
    /// The time that all of them took, in nanoseconds.
    pub time_ns: f64,
    /// The time of those while the CPU held a lock.
    pub time_under_lock_ns: f64,
}

/// Accesses of one kind of data.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataReport {
    /// The name of the kind.
    pub data: String,
    /// All accesses.
    pub accesses: u64,
    /// Those that the core's own cache did not serve.
    pub misses: u64,
    /// Those of them while the CPU held a lock.
    pub misses_under_lock: u64,
    /// By the place that served them: `l1`, `l2`, `upgrade` (other copies had to be invalidated),
    /// `llc`, `same_llc` (another core under it), `same_socket`, `remote_cache`, `local_dram`,
    /// `remote_dram`. Places that served nothing are omitted.
    pub served: BTreeMap<&'static str, ServedReport>,
}

/// The memory of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MemoryReport {
    /// The node.
    pub node: usize,
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// The share of elapsed time for which the memory was busy with them.
    pub busy: f64,
}

/// The results of a run. Serializes to the same bytes for the same machine, work and seed.
///
/// Everything here is simulated: a prediction, which depends on the figures of the machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The name of the machine.
    pub machine: String,
    /// The seed.
    pub seed: u64,
    /// `by-time` or `random`.
    pub schedule: &'static str,
    /// CPUs that had work.
    pub cpus: usize,
    /// Virtual time from the start of measuring to the end of the last CPU, or of the window, in
    /// nanoseconds.
    pub elapsed_ns: f64,
    /// How long after the end of the window the last CPU ended, in nanoseconds; 0 without a window.
    pub overrun_ns_max: f64,
    /// Where the time went.
    pub time: TimeReport,
    /// Waiting as a share of CPU time outside barriers: by class of lock, as `zone_lock`, and by
    /// class and path, as `zone_lock.alloc`.
    pub time_share: BTreeMap<String, f64>,
    /// Where the time of each path went, in nanoseconds.
    pub paths: BTreeMap<&'static str, BTreeMap<&'static str, f64>>,
    /// Locks by class, in the order of their names.
    pub locks: Vec<LockReport>,
    /// Interrupts.
    pub irq_off: IrqReport,
    /// Latencies of `alloc` and `free`, where any were timed.
    pub latency_ns: BTreeMap<&'static str, LatencyReport>,
    /// Accesses by kind of data, in the order in which the kinds were named.
    pub data: Vec<DataReport>,
    /// Frames cleared and touched, by where their contents were.
    pub frames: BTreeMap<&'static str, ServedReport>,
    /// Memory by node.
    pub memory: Vec<MemoryReport>,
    /// Accesses of memory outside every region, which cost a hit.
    pub accesses_outside: u64,
    /// How often the host switched from one virtual CPU to another.
    pub switches: u64,
}

fn ns(time: Picos) -> f64 {
    time as f64 / 1000.0
}

fn ratio(part: Picos, whole: Picos) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Report {
    pub(crate) fn new(state: &State) -> Self {
        let books = &state.books;
        let worked = || state.cpus.iter().filter(|cpu| cpu.status == Status::Finished);
        let window = books.window;
        let accounted = || worked().map(|cpu| window.part(window.from, cpu.now));
        let all: Picos = accounted().sum();
        let elapsed = accounted().max().unwrap_or_default();
        let overrun = worked().map(|cpu| window.overrun(cpu.now)).max().unwrap_or_default();
        let spent = |what: Spent| books.spent.iter().map(|path| path[what as usize]).sum();
        let shared = all.saturating_sub(spent(Spent::Barrier));
        let mut classes: Vec<&ClassBooks> = books.classes.iter().collect();
        classes.sort_by_key(|class| class.name);
        Report {
            machine: state.spec.name().to_owned(),
            seed: state.seed,
            schedule: match state.queue.schedule() {
                Schedule::ByTime => "by-time",
                Schedule::Random { .. } => "random",
            },
            cpus: worked().count(),
            elapsed_ns: ns(elapsed),
            overrun_ns_max: ns(overrun),
            time: TimeReport {
                all_ns: ns(all),
                compute_ns: ns(spent(Spent::Compute)),
                memory_ns: ns(spent(Spent::Memory)),
                lock_wait_ns: ns(spent(Spent::LockWait)),
                idle_ns: ns(spent(Spent::Idle)),
                barrier_ns: ns(spent(Spent::Barrier)),
                stopped_ns: ns(spent(Spent::Stopped)),
            },
            time_share: time_share(&classes, shared),
            paths: paths(state),
            locks: classes.iter().map(|class| lock(class)).collect(),
            irq_off: IrqReport {
                sections: books.irq.sections,
                share: ratio(books.irq.off, shared),
                ns_max: ns(books.irq.longest),
                ns_max_path: books.irq.longest_path.map(Path::name),
            },
            latency_ns: latencies(state),
            data: data(state),
            frames: served(
                Served::ALL.map(|place| [books.frames[place as usize], Tally::default()]),
            ),
            memory: memory(state, elapsed),
            accesses_outside: books.outside,
            switches: books.switches,
        }
    }

    /// All accesses of modelled lines: a measure of the simulator's work.
    pub fn accesses(&self) -> u64 {
        self.data.iter().map(|data| data.accesses).sum::<u64>() + self.accesses_outside
    }

    /// The locks of this class, if the machine encountered any.
    pub fn lock(&self, name: &str) -> Option<&LockReport> {
        self.locks.iter().find(|lock| lock.name == name)
    }
}

fn time_share(classes: &[&ClassBooks], whole: Picos) -> BTreeMap<String, f64> {
    let mut shares = BTreeMap::new();
    for class in classes {
        shares.insert(class.name.to_owned(), ratio(class.waits.iter().sum(), whole));
        for path in Path::ALL {
            let share = ratio(class.waits[path as usize], whole);
            shares.insert(format!("{}.{}", class.name, path.name()), share);
        }
    }
    shares
}

fn paths(state: &State) -> BTreeMap<&'static str, BTreeMap<&'static str, f64>> {
    const NAMES: [&str; Spent::COUNT] =
        ["compute_ns", "memory_ns", "lock_wait_ns", "idle_ns", "barrier_ns", "stopped_ns"];
    Path::ALL
        .into_iter()
        .map(|path| {
            let spent = state.books.spent[path as usize];
            (path.name(), NAMES.into_iter().zip(spent.map(ns)).collect())
        })
        .collect()
}

fn lock(class: &ClassBooks) -> LockReport {
    LockReport {
        name: class.name.to_owned(),
        instances: class.instances,
        acquisitions: class.acquisitions,
        contended: class.contended,
        try_failed: class.try_failed,
        wait_ns: ns(class.waits.iter().sum()),
        wait_ns_max: ns(class.wait_max),
        hold_ns: ns(class.hold),
        hold_ns_max: ns(class.hold_max),
    }
}

fn latencies(state: &State) -> BTreeMap<&'static str, LatencyReport> {
    [Path::Alloc, Path::Free]
        .into_iter()
        .map(|path| (path.name(), &state.books.latencies[path as usize]))
        .filter(|(_, histogram)| !histogram.is_empty())
        .map(|(name, histogram)| {
            let report = LatencyReport {
                count: histogram.len(),
                mean: histogram.mean(),
                p50: histogram.value_at_quantile(0.5),
                p99: histogram.value_at_quantile(0.99),
                p999: histogram.value_at_quantile(0.999),
                max: histogram.max(),
            };
            (name, report)
        })
        .collect()
}

fn served(tallies: [[Tally; 2]; Served::ALL.len()]) -> BTreeMap<&'static str, ServedReport> {
    Served::ALL
        .into_iter()
        .map(|place| (place, tallies[place as usize]))
        .filter(|(_, [free, locked])| free.count + locked.count > 0)
        .map(|(place, [free, locked])| {
            let report = ServedReport {
                count: free.count + locked.count,
                under_lock: locked.count,
                time_ns: ns(free.time + locked.time),
                time_under_lock_ns: ns(locked.time),
            };
            (place.name(), report)
        })
        .collect()
}

fn data(state: &State) -> Vec<DataReport> {
    let kinds = state.kinds.iter().zip(&state.books.data);
    kinds
        .map(|(name, books)| {
            let served = served(*books);
            let misses = || {
                Served::ALL
                    .into_iter()
                    .filter(|place| place.is_miss())
                    .filter_map(|place| served.get(place.name()))
            };
            DataReport {
                data: name.clone(),
                accesses: served.values().map(|place| place.count).sum(),
                misses: misses().map(|place| place.count).sum(),
                misses_under_lock: misses().map(|place| place.under_lock).sum(),
                served,
            }
        })
        .filter(|data| data.accesses > 0)
        .collect()
}

fn memory(state: &State, elapsed: Picos) -> Vec<MemoryReport> {
    let service = &state.hierarchy.costs.line_service;
    let traffic = state.hierarchy.memory.traffic();
    traffic
        .enumerate()
        .map(|(node, (read, written))| MemoryReport {
            node,
            bytes_read: read * 64,
            bytes_written: written * 64,
            busy: ratio((read + written) * service[node], elapsed).min(1.0),
        })
        .collect()
}
