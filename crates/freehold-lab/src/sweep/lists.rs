//! The values that `[global]` and a `[[run]]` list, each with its line.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;

use super::job::Cpus;
use super::text::{Entry, Item, Line, Problem, Value, problem, unknown};
use crate::catalog::{WorkloadName, name_of};
use crate::cli::{DesignChoice, chosen_designs};
use crate::designs::SimDesign;
use crate::machine::Machine;

/// The keys of `[global]` and `[[run]]`.
pub(super) const KEYS: [&str; 8] =
    ["workload", "design", "machine", "cpus", "seed", "set", "trace", "scale"];

/// A value and its line.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) line: Line,
    pub(super) value: T,
}

/// Lists of values; one that is empty was not given.
#[derive(Clone, Debug, Default)]
pub(super) struct Lists {
    pub(super) workloads: Vec<At<WorkloadName>>,
    pub(super) designs: Vec<At<SimDesign>>,
    pub(super) machines: Vec<At<Arc<Machine>>>,
    pub(super) cpus: Vec<At<Cpus>>,
    pub(super) seeds: Vec<At<u64>>,
    pub(super) settings: BTreeMap<String, Vec<At<String>>>,
    /// Recordings, for replays.
    pub(super) traces: Vec<At<PathBuf>>,
    /// By how many copies of their CPUs.
    pub(super) scales: Vec<At<u32>>,
}

impl Lists {
    /// Reads a table. Paths in it are relative to `folder`.
    pub(super) fn read(entries: Vec<Entry>, folder: &Path) -> Result<Self, Problem> {
        let mut lists = Lists::default();
        for entry in entries {
            let (key, line) = (entry.key.clone(), entry.line);
            match key.as_str() {
                "workload" => lists.workloads = list(entry, workload)?,
                "design" => lists.designs = designs(entry)?,
                "machine" => lists.machines = list(entry, |item| machine(item, folder))?,
                "cpus" => lists.cpus = list(entry, cpus)?,
                "seed" => lists.seeds = list(entry, |item| item.whole("seed", 0, u64::MAX))?,
                "trace" => {
                    let path = |item: &Item| Ok(folder.join(item.text("trace")?));
                    lists.traces = list(entry, path)?;
                }
                "scale" => {
                    let scale = |item: &Item| Ok(item.whole("scale", 1, 65_534)? as u32);
                    lists.scales = list(entry, scale)?;
                }
                "set" => {
                    for setting in entry.table()? {
                        let name = setting.key.clone();
                        lists.settings.insert(name.clone(), list(setting, |it| text(it, &name))?);
                    }
                }
                _ => return Err(problem(line, unknown("key", &key, &KEYS))),
            }
        }
        Ok(lists)
    }

    /// These values, and those of `defaults` for what is not given; each setting by itself.
    pub(super) fn or(mut self, defaults: &Lists) -> Self {
        fn fill<T: Clone>(own: &mut Vec<T>, defaults: &[T]) {
            if own.is_empty() {
                own.extend_from_slice(defaults);
            }
        }
        fill(&mut self.workloads, &defaults.workloads);
        fill(&mut self.designs, &defaults.designs);
        fill(&mut self.machines, &defaults.machines);
        fill(&mut self.cpus, &defaults.cpus);
        fill(&mut self.seeds, &defaults.seeds);
        fill(&mut self.traces, &defaults.traces);
        fill(&mut self.scales, &defaults.scales);
        for (name, values) in &defaults.settings {
            self.settings.entry(name.clone()).or_insert_with(|| values.clone());
        }
        self
    }
}

/// The values of a list. One that is there twice would be two cells of one name.
fn list<T>(
    entry: Entry,
    parse: impl Fn(&Item) -> Result<T, Problem>,
) -> Result<Vec<At<T>>, Problem> {
    let key = entry.key.clone();
    let mut values: Vec<At<T>> = Vec::new();
    let mut written: Vec<(String, Line)> = Vec::new();
    for item in entry.items()? {
        values.push(At { line: item.line, value: parse(&item)? });
        let text = match item.value {
            Value::Text(text) | Value::Number(text) => text,
            other => other.type_name(),
        };
        if let Some((_, first)) = written.iter().find(|(other, _)| *other == text) {
            let twice = format!("{key}: `{text}` is there twice, first in line {first}");
            return Err(problem(item.line, twice));
        }
        written.push((text, item.line));
    }
    Ok(values)
}

fn workload(item: &Item) -> Result<WorkloadName, Problem> {
    named(item, "workload")
}

/// The designs; `all` stands for every one but those that only simulated machines have.
fn designs(entry: Entry) -> Result<Vec<At<SimDesign>>, Problem> {
    let choices = list(entry, |item| named::<DesignChoice>(item, "design"))?;
    let mut designs: Vec<At<SimDesign>> = Vec::new();
    for At { line, value } in choices {
        for design in chosen_designs(&[value]) {
            if let Some(first) = designs.iter().find(|first| first.value == design) {
                let name = name_of(&design);
                let twice =
                    format!("design: `{name}` is there twice, first in line {}", first.line);
                return Err(problem(line, twice));
            }
            designs.push(At { line, value: design });
        }
    }
    Ok(designs)
}

/// A choice by its name, as on the command line.
fn named<T: ValueEnum>(item: &Item, key: &str) -> Result<T, Problem> {
    let name = item.text(key)?;
    T::from_str(name, false).map_err(|_| {
        let known: Vec<_> = T::value_variants().iter().map(name_of).collect();
        let known: Vec<_> = known.iter().map(String::as_str).collect();
        problem(item.line, unknown(key, name, &known))
    })
}

fn machine(item: &Item, folder: &Path) -> Result<Arc<Machine>, Problem> {
    let machine = Machine::parse_beside(folder, item.text("machine")?);
    machine.map(Arc::new).map_err(|what| problem(item.line, format!("machine: {what}")))
}

fn cpus(item: &Item) -> Result<Cpus, Problem> {
    match &item.value {
        Value::Text(all) if all == "all" => Ok(Cpus::All),
        Value::Text(other) => {
            let what = format!("cpus is `{other}`, expected a whole number or \"all\"");
            Err(problem(item.line, what))
        }
        _ => Ok(Cpus::Count(item.whole("cpus", 1, u64::from(u32::MAX))? as u32)),
    }
}

/// The value of a setting: a number as it is written, or a word.
fn text(item: &Item, name: &str) -> Result<String, Problem> {
    match &item.value {
        Value::Text(text) | Value::Number(text) => Ok(text.clone()),
        other => {
            let what = format!("set.{name} is {}, expected a string or number", other.type_name());
            Err(problem(item.line, what))
        }
    }
}
