//! A file of a sweep: its cells, in its order, all of them checked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::job::{Cpus, Job, Lines, Recording};
use super::lists::{At, Lists};
use super::name::{join, sha256, stem};
use super::text::{Entry, Item, Line, Problem, parse, problem, unknown};
use crate::catalog::WorkloadName;
use crate::designs::{DesignName, SimDesign};
use crate::error::UsageError;
use crate::machine::Machine;

/// The most cells of a file: a few lists more would be more than any memory holds.
const CELLS_MAX: usize = 100_000;

/// One point of a campaign.
#[derive(Debug)]
pub(super) struct Cell {
    /// What it is, in words; no other cell of the file has this name.
    pub(super) name: String,
    /// The name as the name of a file, without an extension.
    pub(super) stem: String,
    /// A hash of all that determines the result.
    pub(super) definition: String,
    pub(super) job: Job,
}

/// What a file says.
#[derive(Debug)]
pub(super) struct Campaign {
    pub(super) file: PathBuf,
    pub(super) cells: Vec<Arc<Cell>>,
}

impl Campaign {
    /// Reads a file. `runs_here` says whether cells on the host would run on this one, which then
    /// must have the CPUs.
    ///
    /// # Errors
    ///
    /// A usage error names the file, the line and the key of the first mistake.
    pub(super) fn read(file: &Path, runs_here: bool) -> Result<Self> {
        let shown = file.display();
        let text = std::fs::read_to_string(file)
            .map_err(|error| UsageError(format!("cannot read {shown}: {error}")))?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let cells = understand(&text, folder, runs_here)
            .map_err(|Problem { line, what }| UsageError(format!("{shown}:{line}: {what}")))?;
        // A job of a cluster starts in another folder.
        let file = std::path::absolute(file).with_context(|| shown.to_string())?;
        Ok(Campaign { file, cells })
    }
}

fn understand(text: &str, folder: &Path, runs_here: bool) -> Result<Vec<Arc<Cell>>, Problem> {
    let (mut global, mut runs) = (Lists::default(), None);
    for entry in parse(text)? {
        match entry.key.as_str() {
            "global" => global = Lists::read(entry.table()?, folder)?,
            "run" => runs = Some(entry),
            other => {
                let what = unknown("key", other, &["global", "run"]);
                return Err(problem(entry.line, what));
            }
        }
    }
    let Some(runs) = runs else {
        return Err(problem(1, "there is no [[run]]: add one, if only an empty one"));
    };
    let mut cells = Cells { runs_here, all: Vec::new(), places: HashMap::new() };
    for Item { line, value } in runs.items()? {
        let table = Entry { key: "run".to_owned(), line, value }.table()?;
        cells.add(line, &Lists::read(table, folder)?.or(&global))?;
    }
    Ok(cells.all)
}

/// The cells so far, and the line of the `[[run]]` that each name comes from.
struct Cells {
    runs_here: bool,
    all: Vec<Arc<Cell>>,
    places: HashMap<String, Line>,
}

impl Cells {
    /// Adds all combinations of the values of a `[[run]]`. The last of workload, machine, design,
    /// CPUs, seed and the settings by name changes fastest.
    fn add(&mut self, run: Line, lists: &Lists) -> Result<(), Problem> {
        if lists.workloads.is_empty() {
            return Err(problem(run, "workload is missing: name one here or in [global]"));
        }
        let lists = lists.clone().or(&defaults(run));
        let works = works(&lists)?;
        let of_works = works.iter().map(|work| work.cpus(&lists).len());
        let settings = lists.settings.values().map(Vec::len);
        let others = [lists.machines.len(), lists.designs.len(), lists.seeds.len()];
        let factors = settings.chain(others);
        let more = factors.fold(of_works.sum::<usize>(), usize::saturating_mul);
        if self.all.len().saturating_add(more) > CELLS_MAX {
            let what = format!("there are more than {CELLS_MAX} cells: list fewer values");
            return Err(problem(run, what));
        }
        for work in works {
            let points = with_each(lists.machines.iter().collect(), &lists.designs);
            let points = with_each(with_each(points, work.cpus(&lists)), &lists.seeds);
            for (((machine, design), cpus), seed) in points {
                for settings in combinations(&lists) {
                    let named =
                        |(name, it): &(&str, &At<String>)| ((*name).to_owned(), it.value.clone());
                    let job = Job {
                        workload: work.workload,
                        recording: work.recording.clone(),
                        design: design.value,
                        machine: Arc::clone(&machine.value),
                        cpus: cpus.value,
                        seed: seed.value,
                        settings: settings.iter().map(named).collect(),
                    };
                    let settings: Vec<_> = settings.iter().map(|(_, it)| it.line).collect();
                    let (design, cpus) = (design.line, cpus.line);
                    self.push(job, &Lines { run, design, cpus, settings: &settings })?;
                }
            }
        }
        Ok(())
    }

    fn push(&mut self, job: Job, lines: &Lines<'_>) -> Result<(), Problem> {
        let name = join(&job.name_parts());
        if let Some(first) = self.places.insert(name.clone(), lines.run) {
            let what = match first == lines.run {
                true => format!("two cells of this [[run]] are {name}: take one away"),
                false => format!("{name} is already a cell of the [[run]] in line {first}"),
            };
            return Err(problem(lines.run, what));
        }
        job.check(lines, self.runs_here)?;
        let definition = sha256(job.definition().to_string().as_bytes());
        self.all.push(Arc::new(Cell { stem: stem(&name), name, definition, job }));
        Ok(())
    }
}

/// A workload, and what it replays if it is a replay.
struct Work {
    workload: WorkloadName,
    recording: Option<Arc<Recording>>,
    /// As many CPUs as a replay takes.
    cpus: Vec<At<Cpus>>,
}

impl Work {
    /// On how many CPUs it runs: a replay on as many as were recorded, times the copies.
    fn cpus<'a>(&'a self, lists: &'a Lists) -> &'a [At<Cpus>] {
        if self.recording.is_some() { &self.cpus } else { &lists.cpus }
    }
}

/// The workloads of a `[[run]]`; a replay once for each recording and scale.
fn works(lists: &Lists) -> Result<Vec<Work>, Problem> {
    let mut works = Vec::new();
    for &At { line, value: workload } in &lists.workloads {
        if workload != WorkloadName::Replay {
            works.push(Work { workload, recording: None, cpus: Vec::new() });
            continue;
        }
        if lists.traces.is_empty() {
            return Err(problem(line, "trace is missing: name the recording that is replayed"));
        }
        for At { line, value: path } in &lists.traces {
            for scale in &lists.scales {
                let recording = Recording::open(path.clone(), scale.value);
                let recording =
                    recording.map_err(|error| problem(*line, format!("trace: {error:#}")))?;
                let count = recording.cpus.saturating_mul(scale.value);
                let cpus = vec![At { line: scale.line, value: Cpus::Count(count) }];
                works.push(Work { workload, recording: Some(Arc::new(recording)), cpus });
            }
        }
    }
    Ok(works)
}

/// What `freehold run` takes, too.
fn defaults(line: Line) -> Lists {
    let at = |value| At { line, value };
    Lists {
        designs: vec![At { line, value: SimDesign::Real(DesignName::Freehold) }],
        machines: vec![At { line, value: Arc::new(Machine::Host) }],
        cpus: vec![At { line, value: Cpus::All }],
        seeds: vec![at(1)],
        scales: vec![At { line, value: 1 }],
        ..Lists::default()
    }
}

/// All points so far, each with each of the values.
fn with_each<P: Copy, T>(points: Vec<P>, values: &[At<T>]) -> Vec<(P, &At<T>)> {
    let with_each = |point| values.iter().map(move |value| (point, value));
    points.into_iter().flat_map(with_each).collect()
}

/// All combinations of the values of settings.
fn combinations(lists: &Lists) -> Vec<Vec<(&str, &At<String>)>> {
    let mut all = vec![Vec::new()];
    for (name, values) in &lists.settings {
        let mut longer = Vec::new();
        for others in &all {
            longer.extend(values.iter().map(|it| [&others[..], &[(name.as_str(), it)]].concat()));
        }
        all = longer;
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let cells = understand(text, Path::new(""), false).unwrap();
        cells.iter().map(|cell| cell.name.clone()).collect()
    }

    fn error(text: &str) -> String {
        let Problem { line, what } = understand(text, Path::new("folder"), true).unwrap_err();
        format!("{line}: {what}")
    }

    const SIM: &str = "[global]\nmachine = 'uma-2'\nworkload = 'page-fault'\n";

    #[test]
    fn a_run_is_all_combinations_of_its_lists_in_order() {
        let text = "[global]\nmachine = 'uma-4'\nset.task_bytes = '1MiB'\n[[run]]\n\
                    workload = 'page-fault'\ndesign = ['zone-lock', 'cluster']\n\
                    cpus = [4, 'all']\n";
        let twice = understand(text, Path::new(""), false).unwrap_err();
        assert!(twice.what.starts_with("two cells of this [[run]] are page-fault/zone-lock/uma-4"));
        let text = text.replace("'all'", "2") + "set.pcp = ['fixed', 'auto']\n";
        let of = |design: &str, cpus: u32, pcp: &str| {
            format!("page-fault/{design}/uma-4/cpus={cpus}/seed=1/pcp={pcp}/task_bytes=1MiB")
        };
        let mut expected = Vec::new();
        for design in ["zone-lock", "cluster"] {
            for cpus in [4, 2] {
                expected.extend([of(design, cpus, "fixed"), of(design, cpus, "auto")]);
            }
        }
        assert_eq!(names(&text), expected);
    }

    #[test]
    fn a_run_overrides_global_key_by_key_and_setting_by_setting() {
        let text = format!(
            "{SIM}cpus = 1\nset = {{ task_bytes = '1MiB', node_memory = '64MiB' }}\n\
                            [[run]]\nseed = 7\nset.task_bytes = '2MiB'\n[[run]]\ncpus = 'all'\n"
        );
        let settings = "node_memory=64MiB/task_bytes";
        assert_eq!(
            names(&text),
            [
                format!("page-fault/freehold/uma-2/cpus=1/seed=7/{settings}=2MiB"),
                format!("page-fault/freehold/uma-2/cpus=2/seed=1/{settings}=1MiB"),
            ]
        );
    }

    #[test]
    fn a_definition_is_that_of_the_cell_wherever_it_stands() {
        let cells = |text: &str| understand(text, Path::new(""), false).unwrap();
        let one = cells(&format!("{SIM}[[run]]\nseed = 2\n"));
        let two = cells(&format!("{SIM}[[run]]\nseed = [1, 2]\n"));
        assert_eq!(one[0].definition, two[1].definition);
        assert_ne!(two[0].definition, two[1].definition);
    }

    #[test]
    fn mistakes_are_named_with_their_lines() {
        for (text, expected) in [
            ("[globl]\n", "1: unknown key `globl`, did you mean `global`?"),
            ("[global]\n\nsed = 1\n[[run]]\n", "3: unknown key `sed`, did you mean `seed`?"),
            ("[global]\n", "1: there is no [[run]]: add one, if only an empty one"),
            ("[[run]]\n\n[[run]]\n", "1: workload is missing: name one here or in [global]"),
            ("run = 3\n", "1: run is a number, expected a table"),
            (
                "[[run]]\nworkload = [\n 'bulk',\n 'page-falt',\n]\n",
                "4: unknown workload `page-falt`, did you mean `page-fault`?",
            ),
            (
                "[[run]]\ndesign = 'zone-lok'\n",
                "2: unknown design `zone-lok`, did you mean `zone-lock`?",
            ),
            (
                "[[run]]\ndesign = ['all',\n'cluster']\n",
                "3: design: `cluster` is there twice, first in line 2",
            ),
            ("[[run]]\nseed = [1, 2,\n1]\n", "3: seed: `1` is there twice, first in line 2"),
            ("[[run]]\nseed = 'one'\n", "2: seed is a string, expected a whole number"),
            ("[[run]]\ncpus = 0\n", "2: cpus is 0, expected a whole number from 1 to 4294967295"),
            ("[[run]]\ncpus = 'al'\n", "2: cpus is `al`, expected a whole number or \"all\""),
            ("[[run]]\nset.pcp = true\n", "2: set.pcp is a boolean, expected a string or number"),
            (
                "[[run]]\nmachine = 'm.toml'\n",
                "2: machine: cannot read folder/m.toml: No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(error(text), expected, "{text}");
        }
        let machine = error("[[run]]\nmachine = 'uma2'\n");
        assert!(machine.starts_with("2: machine: there is no machine `uma2`"), "{machine}");
    }

    #[test]
    fn what_a_cell_cannot_run_with_is_named_with_its_line() {
        for (rest, expected) in [
            ("[[run]]\ncpus = [1,\n3]\n", "6: cpus 3: uma-2 has 2 CPUs"),
            (
                "[[run]]\ndesign = ['cluster', 'freehold']\nset.pcp = 'auto'\n",
                "6: set.pcp: no such setting; did you mean 'pick'? (for page-fault with freehold \
                 on uma-2)",
            ),
            (
                "[[run]]\nset.pick = ['lowest',\n'best']\n",
                "6: set.pick=best: the setting has no such value; it must be lowest|random",
            ),
            (
                "[[run]]\nset.task_bytes = 'many'\n",
                "5: set.task_bytes=many: the value must be a size of at least one frame, ",
            ),
            (
                "[[run]]\nmachine = 'host'\ndesign = 'free-lunch'\n",
                "6: free-lunch runs on simulated machines only: name one with machine",
            ),
            ("[[run]]\nmachine = 'host'\ncpus = 99999\n", "6: cpus 99999: this process may use "),
            (
                "[[run]]\nworkload = 'cross-cpu'\n[[run]]\nworkload = 'cross-cpu'\nseed = 1\n",
                "6: cross-cpu/freehold/uma-2/cpus=2/seed=1 is already a cell of the [[run]] in \
                 line 4",
            ),
            ("[[run]]\nworkload = 'bulk'\nset.books = 'some'\n", "6: set.books=some: "),
        ] {
            let error = error(&format!("{SIM}{rest}"));
            assert!(error.starts_with(expected), "{rest}: {error}");
        }
    }

    #[test]
    fn there_are_only_so_many_cells() {
        let values: Vec<_> = (0..100).map(|value| format!("'{value}'")).collect();
        let values = values.join(", ");
        let settings: String =
            ('a'..='z').map(|name| format!("set.{name} = [{values}]\n")).collect();
        let error = error(&format!("{SIM}[[run]]\n{settings}"));
        assert_eq!(error, "4: there are more than 100000 cells: list fewer values");
    }

    #[test]
    fn another_host_may_have_more_cpus() {
        let text = "[[run]]\nworkload = 'bulk'\ncpus = [99999, 'all']\n";
        let all = ["99999", "all"].map(|cpus| format!("bulk/freehold/host/cpus={cpus}/seed=1"));
        assert_eq!(names(text), all);
    }

    fn check(text: &str) {
        match understand(text, Path::new("folder"), false) {
            Ok(cells) => {
                let names: BTreeSet<_> = cells.iter().map(|cell| &cell.name).collect();
                let files: BTreeSet<_> = cells.iter().map(|cell| &cell.stem).collect();
                assert_eq!((names.len(), files.len()), (cells.len(), cells.len()));
                assert!(files.iter().all(|stem| !stem.contains('/') && stem.len() <= 200));
            }
            Err(Problem { line, what }) => {
                assert!((1..=text.lines().count().max(1)).contains(&line), "{line}: {what}");
                assert!(!what.contains('\u{1b}'), "{what:?}");
            }
        }
    }

    mod fuzz {
        use std::time::Duration;

        use super::*;

        #[test]
        fn any_campaign_is_understood_or_refused() {
            let check = |bytes: &[u8]| check(&String::from_utf8_lossy(bytes));
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(check);
        }
    }
}
