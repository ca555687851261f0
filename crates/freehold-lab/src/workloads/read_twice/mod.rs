//! `read-twice`: what vm-scalability's lru-file-readtwice asks of the LRU lists.
//!
//! Tasks read sparse files that are larger than what their memory groups may cache, two readers a
//! file, block by block. So each block is read twice: the first read brings it in and pushes
//! another out, the second moves it to the active list. There are as many files as CPUs, and each
//! CPU reads two of them in turns, so that the two readers of a file run on different CPUs. Source:
//! teawater/vm-scalability, `case-lru-file-readtwice`, as modified for the lock over LRU lists by
//! group: 104 groups of two readers.

use anyhow::Result;
use bytesize::ByteSize;
use freehold::Setting;
use freehold::lru::{BATCH_MAX, LruLock};
use freehold_sim::Spec;
use serde_json::{Map, json};

use crate::cell::{HostCell, Measured, SimCell};
use crate::machine::{FRAME_BYTES, Machine};
use crate::report::columns::{Column, number, percent, print_columns};
use crate::report::document::RunResult;
use crate::report::progress::Progress;
use crate::report::waits::percent as in_percent;
use crate::settings::Assignments;
use crate::sim::memory;
use crate::task::workload::frames_of;
use crate::workload::{SettingTable, Workload};

mod cache;
mod host;
mod sim;

/// The settings of the workload on every machine.
const SETTINGS: &[Setting] = &[
    Setting {
        name: "file_bytes",
        values: "a size of at least one frame, such as 4MiB",
        default: "4MiB",
        meaning: "size of each file; both of its readers read all of it once",
    },
    Setting {
        name: "share_bytes",
        values: "a size of at least one frame, such as 1MiB",
        default: "1MiB",
        meaning: "what the group of a file may cache",
    },
    Setting {
        name: "lru",
        values: "group|node",
        default: "group",
        meaning: "LRU lists under one lock a group on a node, or one a node",
    },
    Setting {
        name: "lru_batch",
        values: "1..=31",
        default: "31",
        meaning: "frames collected for one hold of the LRU lock (Linux 6.12: 31)",
    },
    Setting {
        name: "groups",
        values: "files|one",
        default: "files",
        meaning: "a memory group for each file, or one for all that may cache as much together",
    },
];

/// What the settings say.
#[derive(Clone, Copy)]
struct Options {
    file_blocks: u64,
    share_frames: u64,
    lock: LruLock,
    lru_batch: u32,
    one_group: bool,
}

impl Options {
    fn parse(given: &Assignments) -> Result<Self> {
        let groups = [("files", false), ("one", true)];
        Ok(Options {
            file_blocks: frames_of(given, SETTINGS, "file_bytes")?,
            share_frames: frames_of(given, SETTINGS, "share_bytes")?,
            lock: given.word(SETTINGS, "lru", &cache::LOCKS)?,
            lru_batch: given.number(SETTINGS, "lru_batch", 1..=BATCH_MAX)? as u32,
            one_group: given.word(SETTINGS, "groups", &groups)?,
        })
    }

    /// Memory for what all files may cache, and as much again, so that it is the groups' limits
    /// that are in the way.
    fn memory_bytes(&self, cpus: usize) -> u64 {
        (2 * self.share_frames * FRAME_BYTES + (4 << 20)) * cpus as u64
    }
}

/// The two files that a CPU reads, of as many as there are CPUs.
fn files_of(cpu: usize, cpus: usize) -> [usize; 2] {
    [cpu, (cpu + cpus.div_ceil(2)) % cpus]
}

/// What a workload's own fields say.
fn fields(
    options: &Options,
    files: usize,
    hits: u64,
    reads: u64,
) -> Map<String, serde_json::Value> {
    Map::from_iter([
        ("files".to_owned(), json!(files)),
        ("hit_share".to_owned(), json!(hits as f64 / reads.max(1) as f64)),
        ("file_bytes".to_owned(), json!(options.file_blocks * FRAME_BYTES)),
        ("share_bytes".to_owned(), json!(options.share_frames * FRAME_BYTES)),
    ])
}

const COLUMNS: &[Column] = &[
    Column { heading: "reads/s", cell: |result| format!("{:.0}", result.work.per_second) },
    Column { heading: "hits", cell: |result| percent(result, "hit_share") },
    Column { heading: "ns/read", cell: |result| number(result, "read_ns", 0) },
    Column {
        heading: "LRU lock",
        cell: |result| {
            let shares = result.simulated.as_ref().map(|simulated| &simulated.time_share);
            let share = shares.map(|of| of.get("lru_lock").copied().unwrap_or_default());
            share.map_or("-".to_owned(), in_percent)
        },
    },
];

/// The workload.
pub(crate) struct ReadTwice;

impl Workload for ReadTwice {
    const HOST_SETTINGS: &'static [SettingTable] = &[("read-twice", SETTINGS)];
    const SIM_SETTINGS: &'static [SettingTable] =
        &[("read-twice", SETTINGS), ("simulated machines", memory::FRAME_SETTINGS)];

    fn steps(_given: &Assignments) -> Result<u64> {
        Ok(1)
    }

    fn run_on_host(cell: &HostCell<'_>, progress: &Progress) -> Result<Measured> {
        let measured = host::run(cell);
        progress.step();
        measured
    }

    fn host_bytes(spec: &Spec, given: &Assignments) -> Result<u64> {
        let options = Options::parse(given)?;
        Ok(sim::plan(spec, given, &options, spec.cpus())?.host_bytes())
    }

    fn run_on_sim(cell: &SimCell<'_>) -> Result<Measured> {
        sim::run(cell)
    }

    fn print(results: &[RunResult], machine: &Machine) -> Result<()> {
        let share = results.first().and_then(|of| of.workload_specific.get("share_bytes"));
        let share = ByteSize(share.and_then(serde_json::Value::as_u64).unwrap_or_default());
        let legend = format!("hits: reads that found their block cached; {share} a file may be.");
        print_columns(results, machine, COLUMNS, &[&legend])
    }
}
