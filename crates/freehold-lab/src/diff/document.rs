//! Stored documents, read as cells with figures.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::cell::{Cell, Reading, tell_apart};
use crate::catalog::{WorkloadName, figures};
use crate::error::UsageError;
use crate::race::RACE_SCHEMA;
use crate::report::comparison::COMPARE_SCHEMA;
use crate::report::document::{SCHEMA as RUN_SCHEMA, cpus_in_words, threads_in_words};
use crate::report::figure::{Figure, Figures, Worse, text};

/// A document that was read.
#[derive(Default)]
pub(super) struct Document {
    /// The file.
    pub(super) name: String,
    pub(super) schema: String,
    pub(super) cells: Vec<Cell>,
    /// The profiles of the programs that have measured, if it says so.
    pub(super) profiles: Vec<String>,
    /// The yardstick of a race: what an uncontended lock and unlock took there.
    pub(super) lock_pair_ns: Option<f64>,
}

/// The start of a document.
#[derive(Deserialize)]
struct Head {
    schema: String,
}

/// What is read of a race's document.
#[derive(Deserialize)]
struct Race {
    profile: String,
    frames: u64,
    lock_pair_ns: f64,
    results: Vec<RaceRow>,
}

#[derive(Deserialize)]
struct RaceRow {
    bench: String,
    contestant: String,
    threads: usize,
    memory: f64,
    pair_ns: Option<f64>,
    #[serde(default)]
    samples_pair_ns: Vec<f64>,
}

/// What is read of the documents of runs and comparisons.
#[derive(Deserialize)]
struct Runs {
    results: Vec<Value>,
}

/// What is read of each result, besides its figures.
#[derive(Deserialize)]
struct Run {
    workload: String,
    design: String,
    machine: String,
    cpus: u32,
    profile: Option<String>,
    seed: Option<u64>,
    settings: BTreeMap<String, Value>,
    work: Work,
    workload_specific: Map<String, Value>,
    /// Of a simulated machine.
    result_hash: Option<String>,
}

#[derive(Deserialize)]
struct Work {
    unit: String,
}

/// Settings that say how long or how often something is measured on a host.
const HOW_OFTEN: &[&str] = &["samples", "sample_ms", "rounds"];

/// Fields beside a workload's options that its figures depend on.
const MORE_OPTIONS: &[&str] = &["node_bytes", "frame_record_bytes", "step_frames"];

impl Document {
    /// Reads a document. Errors name the file.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| {
            UsageError(format!("{name}: cannot read it: {error}; name a file that --json filled"))
        })?;
        let document = parse(&text).with_context(|| name.clone())?;
        Ok(Document { name, ..document })
    }
}

/// The document with this text, still without a name.
fn parse(text: &str) -> Result<Document> {
    const KNOWN: &str = "this is no document of freehold: store what freehold run, compare or race \
                         prints with --json";
    let Head { schema } = serde_json::from_str(text).context(KNOWN)?;
    let again = || format!("the document is not in the format {schema}: run it again with --json");
    let mut document = match schema.as_str() {
        RUN_SCHEMA | COMPARE_SCHEMA => {
            let Runs { results } = serde_json::from_str(text).with_context(again)?;
            of_runs(&results).with_context(again)?
        }
        RACE_SCHEMA => of_race(serde_json::from_str(text).with_context(again)?),
        _ => bail!(
            "its schema is {schema:?}: give a document of {RUN_SCHEMA}, {COMPARE_SCHEMA} or \
             {RACE_SCHEMA}, made with this version of freehold"
        ),
    };
    document.schema = schema;
    document.check_names()?;
    if document.cells.is_empty() {
        bail!("it has no results: run it again");
    }
    tell_apart(&mut document.cells)?;
    Ok(document)
}

impl Document {
    /// Refuses names that contain terminal control sequences.
    fn check_names(&self) -> Result<()> {
        let of_cell = |cell: &'_ Cell| -> Vec<String> {
            let keys = cell.key.iter().map(|(_, value)| value.clone());
            let settings = cell.settings.iter().flat_map(|(name, value)| [name, value]).cloned();
            let units = cell.readings.iter().map(|reading| reading.unit.clone());
            keys.chain(settings).chain(units).collect()
        };
        let mut names = self.cells.iter().flat_map(of_cell).chain(self.profiles.iter().cloned());
        match names.find(|name| name.contains(char::is_control)) {
            Some(name) => bail!("the name {name:?} has control characters: run it again"),
            None => Ok(()),
        }
    }
}

/// The cells of a race. A contestant that failed has no figure.
fn of_race(race: Race) -> Document {
    let Race { profile, frames, lock_pair_ns, results } = race;
    let cell = |row: RaceRow| {
        let RaceRow { bench, contestant, threads, memory, pair_ns, samples_pair_ns } = row;
        let reading = pair_ns.map(|value| Reading {
            name: "pair_ns",
            unit: "ns".to_owned(),
            worse: Worse::Higher,
            value,
            rounds: samples_pair_ns.into_iter().map(|sample| vec![sample]).collect(),
        });
        Cell {
            title: format!("{bench}, {}, memory {memory}x", threads_in_words(threads)),
            key: vec![
                ("bench", bench),
                ("contestant", contestant.clone()),
                ("threads", threads.to_string()),
                ("memory_ratio", memory.to_string()),
            ],
            settings: BTreeMap::from([("frames".to_owned(), frames.to_string())]),
            contestant,
            simulated: false,
            readings: Vec::from_iter(reading),
        }
    };
    let cells = results.into_iter().map(cell).collect();
    Document {
        cells,
        profiles: vec![profile],
        lock_pair_ns: Some(lock_pair_ns),
        ..Default::default()
    }
}

/// The cells of runs: each result, and each of its parts.
fn of_runs(results: &[Value]) -> Result<Document> {
    let (mut cells, mut profiles) = (Vec::new(), Vec::new());
    for (index, result) in results.iter().enumerate() {
        let run = Run::deserialize(result).with_context(|| format!("results[{index}]"))?;
        if let Some(profile) = run.profile.clone().filter(|profile| !profiles.contains(profile)) {
            profiles.push(profile);
        }
        // A workload that this program does not know has the figures that all have.
        let figures = WorkloadName::from_str(&run.workload, false)
            .map_or(Figures { of_whole: &[], parts: None }, figures);
        cells.push(run.cell(&[], figures.of_whole(), result));
        for part in figures.parts(result) {
            cells.push(run.cell(&part.names, figures.of_part().iter(), part.value));
        }
    }
    Ok(Document { cells, profiles, ..Default::default() })
}

impl Run {
    /// The cell of the result, or of the part of it that has these names.
    fn cell<'f>(
        &self,
        part: &[(&'static str, String)],
        figures: impl Iterator<Item = &'f Figure>,
        value: &Value,
    ) -> Cell {
        let Run { workload, design, machine, cpus, seed, .. } = self;
        let mut key = vec![
            ("workload", workload.clone()),
            ("design", design.clone()),
            ("machine", machine.clone()),
            ("cpus", cpus.to_string()),
        ];
        key.extend(seed.map(|seed| ("seed", seed.to_string())));
        key.extend(part.iter().cloned());
        let mut title = format!("{workload} on {machine}, {}", cpus_in_words(*cpus as usize));
        if let Some(seed) = seed.filter(|seed| *seed != 1) {
            title += &format!(", seed {seed}");
        }
        for (name, own) in part.iter().filter(|(_, own)| !own.is_empty()) {
            title += &format!(", {name} {own}");
        }
        let simulated = self.result_hash.is_some();
        let reading = |figure: &Figure| {
            Some(Reading {
                name: figure.name,
                unit: match figure.name.rsplit_once('_') {
                    Some(("per", "second")) => format!("{}/s", self.work.unit),
                    Some((_, unit)) => unit.to_owned(),
                    None => String::new(),
                },
                worse: figure.worse?,
                value: figure.value(value)?,
                rounds: figure.samples(value),
            })
        };
        Cell {
            key,
            settings: self.all_settings(simulated),
            title,
            contestant: design.clone(),
            simulated,
            readings: figures.filter_map(reading).collect(),
        }
    }

    /// The settings of the design and of the workload.
    fn all_settings(&self, simulated: bool) -> BTreeMap<String, String> {
        let of_design = self.settings.iter();
        let options = self.workload_specific.get("options").and_then(Value::as_object);
        let options = options.into_iter().flatten();
        let counts = |name: &str| simulated || !HOW_OFTEN.contains(&name);
        let more = MORE_OPTIONS.iter().filter_map(|name| {
            Some(((*name).to_owned(), text(self.workload_specific.get(*name)?)))
        });
        let all = of_design.chain(options).filter(|(name, _)| counts(name));
        all.map(|(name, value)| (name.clone(), text(value))).chain(more).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::cell::matched;
    use super::super::change::{Changes, Verdict};
    use super::super::{data, text};
    use super::*;

    fn result() -> Value {
        json!({
            "workload": "bulk", "design": "freehold", "machine": "host", "cpus": 2,
            "profile": "release", "settings": {"pick": "lowest"},
            "work": {"unit": "frames", "count": 1, "seconds": 1.0, "per_second": 7.0},
            "workload_specific": {
                "options": {"rounds": 15, "books": "all"},
                "pair_ns": {"median": 9.5}, "samples_pair_ns": [9.0, 9.5, 10.0],
                "variants": [{"name": "", "steps": [{
                    "step": 8, "single_ns": {"median": 3.0},
                    "samples_single_ns": [[3.0, 2.5], [3.5, 3.0]],
                }]}],
            },
        })
    }

    fn parse_runs(results: &[Value]) -> Result<Document> {
        parse(&json!({"schema": RUN_SCHEMA, "results": results}).to_string())
    }

    #[test]
    fn a_result_and_its_parts_are_cells() {
        let document = parse_runs(&[result()]).unwrap();
        let [whole, step] = &document.cells[..] else { panic!("{:?}", document.cells) };
        assert_eq!(whole.in_words(), "freehold in bulk on host, 2 CPUs");
        assert_eq!(step.in_words(), "freehold in bulk on host, 2 CPUs, step 8");
        let of = |cell: &Cell| -> Vec<_> {
            cell.readings.iter().map(|of| (of.label(), of.value, of.rounds.len())).collect()
        };
        assert_eq!(of(whole), [("frames/s".to_owned(), 7.0, 0), ("pair ns".to_owned(), 9.5, 3)]);
        assert_eq!(of(step), [("single ns".to_owned(), 3.0, 2)]);
        let settings: Vec<_> = whole.settings.keys().collect();
        assert_eq!(settings, ["books", "pick"], "how often it was measured does not matter");
        assert_eq!(document.profiles, ["release"]);
    }

    #[test]
    fn what_is_no_document_is_refused_with_the_remedy() {
        let refused = |text: &str| format!("{:#}", parse(text).err().expect(text));
        for text in ["", "{}", "[1]", "freehold"] {
            let error = refused(text);
            assert!(error.starts_with("this is no document of freehold: store what"), "{error}");
        }
        let other = refused(r#"{"schema": "freehold.race/1", "results": []}"#);
        assert!(other.starts_with("its schema is \"freehold.race/1\": give a document of"));
        let none = parse_runs(&[]).err().unwrap().to_string();
        assert_eq!(none, "it has no results: run it again");
        let error = format!("{:#}", parse_runs(&[json!({"workload": "bulk"})]).err().unwrap());
        assert!(error.contains("run it again with --json: results[0]: missing field"), "{error}");
        let mut result = result();
        result["design"] = json!("a\u{1b}[2Jb");
        let error = parse_runs(&[result]).err().unwrap().to_string();
        assert!(error.contains("control characters"), "{error}");
    }

    /// What is read can be compared, with itself and in both formats.
    fn check(text: &str) {
        match parse(text) {
            Ok(document) => {
                assert!(!document.cells.is_empty());
                let matched = matched(&document.cells, &document.cells).expect("they are alike");
                let changes = Changes::of(&matched, 0.05);
                assert_eq!((changes.only_a.len(), changes.only_b.len()), (0, 0));
                assert_eq!(changes.count(Verdict::Worse), 0, "nothing is worse than itself");
                assert_eq!(changes.count(Verdict::Better), 0);
                let shown = text::lines(&document, &document, &changes, 0.05);
                assert!(!shown.concat().contains('\u{1b}'));
                data::document(&document, &document, &changes, 0.05);
            }
            Err(error) => {
                let message = format!("{error:#}");
                assert!(!message.contains('\u{1b}'), "{message:?}");
            }
        }
    }

    mod fuzz {
        use std::time::Duration;

        use super::*;

        #[test]
        fn any_document_is_compared_or_refused() {
            let check = |bytes: &[u8]| check(&String::from_utf8_lossy(bytes));
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(check);
        }
    }
}
