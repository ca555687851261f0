//! What a cell does: one run of a workload, as of `freehold run`. The rest of a sweep knows a cell
//! by its name and definition alone, so that cells of other kinds have their place beside this one.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result};
use freehold_sim::Spec;
use serde_json::{Map, Value, json};

use super::name::sha256;
use super::text::{Line, Problem, problem};
use crate::catalog::{WorkloadName, host_settings, name_of, sim_settings};
use crate::designs::SimDesign;
use crate::host::tasks::cpus_max;
use crate::machine::{FRAME_BYTES, HOST, Machine};
use crate::matrix::{HostCells, Matrix, SimCells, check_on_host, tables};
use crate::replay::plan::Plan;
use crate::replay::{events_max, plan_of};
use crate::report::document::{Document, SCHEMA};
use crate::report::progress::Progress;
use crate::settings::Assignments;
use crate::sim::memory::nodes;
use crate::trace::open;

/// A number of CPUs in a file of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cpus {
    /// All that the machine has.
    All,
    Count(u32),
}

/// A recording that is replayed by so many copies of its CPUs.
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) path: PathBuf,
    /// Of the file.
    pub(super) sha256: String,
    pub(super) scale: u32,
    /// How many CPUs were recorded.
    pub(super) cpus: u32,
    /// Read when it is first needed, for the machine of the first cell that needs it.
    pub(super) plans: [OnceLock<Arc<Plan>>; 2],
}

impl Recording {
    /// A recording in a file.
    pub(super) fn open(path: PathBuf, scale: u32) -> Result<Self> {
        let name = || path.display().to_string();
        let cpus = open(&path)?.header().machine.cpus.len() as u32;
        let sha256 = sha256(&fs::read(&path).with_context(name)?);
        Ok(Recording { path, sha256, scale, cpus, plans: Default::default() })
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn plan(&self, machine: &Machine) -> Result<Arc<Plan>> {
        let plan = &self.plans[usize::from(matches!(machine, Machine::Host))];
        if let Some(plan) = plan.get() {
            return Ok(Arc::clone(plan));
        }
        let read = plan_of(&self.path, events_max(machine, self.scale))?;
        Ok(Arc::clone(plan.get_or_init(|| Arc::new(read))))
    }
}

/// One run of a workload.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) workload: WorkloadName,
    /// If the workload is a replay.
    pub(super) recording: Option<Arc<Recording>>,
    pub(super) design: SimDesign,
    pub(super) machine: Arc<Machine>,
    pub(super) cpus: Cpus,
    pub(super) seed: u64,
    /// In the order of their names.
    pub(super) settings: Vec<(String, String)>,
}

/// The lines that a cell's values come from.
pub(super) struct Lines<'a> {
    pub(super) run: Line,
    pub(super) design: Line,
    pub(super) cpus: Line,
    pub(super) settings: &'a [Line],
}

impl Job {
    /// The parts of the name, of which no two different jobs of a file have all in common.
    pub(super) fn name_parts(&self) -> Vec<String> {
        let mut parts = vec![
            name_of(&self.workload),
            name_of(&self.design),
            self.machine_name().to_owned(),
            format!("cpus={}", self.cpus_named()),
            format!("seed={}", self.seed),
        ];
        if let Some(recording) = &self.recording {
            parts.push(format!("trace={}", recording.name()));
            parts.push(format!("scale={}", recording.scale));
        }
        parts.extend(self.settings.iter().map(|(name, value)| format!("{name}={value}")));
        parts
    }

    /// All that determines the result, in one fixed form: the figures of a simulated machine too,
    /// which its name does not tell.
    pub(super) fn definition(&self) -> Value {
        let machine = match &*self.machine {
            Machine::Host => json!(HOST),
            Machine::Sim(spec) => {
                let figures = spec.figures();
                let figures = figures.map(|(key, figure)| (key.to_string(), json!(figure.value)));
                let bytes: Vec<_> = nodes(spec).map(|node| spec.node_bytes(node)).collect();
                let row = |from| nodes(spec).map(|to| spec.distance(from, to)).collect();
                let rows = nodes(spec).map(row);
                let distances: Vec<Vec<_>> = rows.collect();
                json!({
                    "name": spec.name(),
                    "figures": figures.collect::<Map<_, _>>(),
                    "node_bytes": bytes,
                    "distances": distances,
                })
            }
        };
        json!({
            "kind": "run",
            "workload": name_of(&self.workload),
            "design": name_of(&self.design),
            "machine": machine,
            "cpus": self.cpus_named(),
            "seed": self.seed,
            "settings": self.settings,
            "frame_bytes": FRAME_BYTES,
            "recording": self.recording.as_ref().map(|of| json!([of.sha256, of.scale])),
        })
    }

    /// Whether it must run alone, since it measures this machine.
    pub(super) fn runs_alone(&self) -> bool {
        matches!(*self.machine, Machine::Host)
    }

    /// Refuses what could not run; `runs_here` says whether this is the host that it would run on.
    pub(super) fn check(&self, lines: &Lines<'_>, runs_here: bool) -> Result<(), Problem> {
        for (setting, &line) in self.settings.iter().zip(lines.settings) {
            self.check_that_there_is(setting).map_err(|error| problem(line, in_file(&error)))?;
        }
        let checked = match &*self.machine {
            Machine::Sim(spec) => self.on_sim(spec, |_| Ok(())),
            Machine::Host if runs_here => self.on_host(|_| Ok(())),
            Machine::Host => self.check_for_another_host(),
        };
        checked.map_err(|error| {
            let text = format!("{error:#}");
            problem(self.line_of(&text, lines), in_file(&error))
        })
    }

    /// The line of what an error is about, as far as its text says.
    fn line_of(&self, error: &str, lines: &Lines<'_>) -> Line {
        let is_about = |(name, _): &(String, String)| error.contains(&format!("--set {name}"));
        match self.settings.iter().position(is_about) {
            Some(nth) => lines.settings[nth],
            None if error.contains("--machine") => lines.design,
            None if error.contains("--cpus") => lines.cpus,
            None => lines.run,
        }
    }

    fn check_that_there_is(&self, (name, value): &(String, String)) -> Result<()> {
        let of_workload = match *self.machine {
            Machine::Host => host_settings(self.workload),
            Machine::Sim(_) => sim_settings(self.workload),
        };
        let tables = tables(&[self.design], &of_workload);
        Assignments::parse(&[format!("{name}={value}")], &tables).map_err(|error| {
            let (workload, design) = (name_of(&self.workload), name_of(&self.design));
            anyhow::anyhow!("{error} (for {workload} with {design} on {})", self.machine_name())
        })?;
        Ok(())
    }

    fn check_for_another_host(&self) -> Result<()> {
        let count = match self.cpus {
            Cpus::All => cpus_max()?,
            Cpus::Count(count) => count,
        };
        check_on_host(self.workload, self.design, count, &self.assignments()?).map(drop)
    }

    /// How much memory of this machine it takes at most, if it is known.
    pub(super) fn host_bytes(&self) -> Result<u64> {
        match &*self.machine {
            Machine::Host => Ok(0),
            Machine::Sim(spec) => self.on_sim(spec, |cells| Ok(cells.host_bytes())),
        }
    }

    /// Runs it. The result is the document that `freehold run --json` prints.
    pub(super) fn run(&self) -> Result<String> {
        let hidden = Progress::hidden();
        let results = match &*self.machine {
            Machine::Host => self.on_host(|cells| cells.run_showing(&hidden)),
            Machine::Sim(spec) => self.on_sim(spec, |cells| cells.run_showing(&hidden)),
        }?;
        let document = Document { schema: SCHEMA, results };
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    fn on_sim<R>(&self, spec: &Spec, what: impl FnOnce(&SimCells<'_>) -> Result<R>) -> Result<R> {
        self.matrix(|matrix| what(&matrix.on_sim(spec)?))
    }

    fn on_host<R>(&self, what: impl FnOnce(&HostCells<'_>) -> Result<R>) -> Result<R> {
        self.matrix(|matrix| what(&matrix.on_host()?))
    }

    /// The job as a matrix of one cell.
    fn matrix<R>(&self, what: impl FnOnce(&Matrix<'_>) -> Result<R>) -> Result<R> {
        let cpus = match self.cpus {
            Cpus::All => vec![],
            Cpus::Count(count) => vec![count],
        };
        what(&Matrix {
            workload: self.workload,
            designs: &[self.design],
            cpus: &cpus,
            seed: self.seed,
            assignments: &self.assignments()?,
        })
    }

    fn assignments(&self) -> Result<Assignments> {
        let given = Assignments::of(self.settings.iter().cloned());
        match &self.recording {
            Some(recording) => Ok(given.with_recording(recording.plan(&self.machine)?)),
            None => Ok(given),
        }
    }

    fn cpus_named(&self) -> String {
        match (self.cpus, &*self.machine) {
            (Cpus::Count(count), _) => count.to_string(),
            (Cpus::All, Machine::Sim(spec)) => spec.cpus().to_string(),
            // How many depends on where it runs.
            (Cpus::All, Machine::Host) => "all".to_owned(),
        }
    }

    fn machine_name(&self) -> &str {
        match &*self.machine {
            Machine::Host => HOST,
            Machine::Sim(spec) => spec.name(),
        }
    }
}

/// An error about arguments, in the words of a file.
fn in_file(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let text = text.replace("--set ", "set.").replace("--set", "set");
    text.replace("--cpus", "cpus").replace("--machine", "machine")
}
