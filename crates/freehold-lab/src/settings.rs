//! `--set NAME=VALUE`: each setting goes to the design or the workload that has it.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::Result;
use freehold::{Setting, Settings};
use serde_json::Value;

use crate::error::{UsageError, refuse};
use crate::replay::plan::Plan;
use crate::sim::linux::{KERNEL, stands_for};

/// A setting, but for what it means.
pub(crate) struct Unexplained {
    name: &'static str,
    values: &'static str,
    default: &'static str,
}

/// A setting of this name, with these values.
pub(crate) const fn setting(
    name: &'static str,
    values: &'static str,
    default: &'static str,
) -> Unexplained {
    Unexplained { name, values, default }
}

impl Unexplained {
    /// The setting with its meaning.
    pub(crate) const fn means(self, meaning: &'static str) -> Setting {
        let Unexplained { name, values, default } = self;
        Setting { name, values, default, meaning }
    }
}

/// What a command line gives to designs and workloads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assignments {
    /// The assignments, in their order.
    list: Vec<(String, String)>,
    /// The recording, if one is replayed.
    recording: Option<Arc<Plan>>,
}

impl Assignments {
    /// Splits `NAME=VALUE`, and refuses names that none of the tables has.
    pub(crate) fn parse(arguments: &[String], tables: &[&[Setting]]) -> Result<Self> {
        let mut assignments = Vec::new();
        for argument in arguments {
            let Some((name, value)) = argument.split_once('=') else {
                return refuse(format!("--set {argument}: write NAME=VALUE, for example pcp=auto"));
            };
            if !tables.iter().any(|table| find(table, name).is_some()) {
                return refuse(unknown(name, tables));
            }
            assignments.push((name.to_owned(), value.to_owned()));
        }
        // What a version of Linux stands for comes first, so that all else overrides it.
        if let Some((_, version)) = assignments.iter().rev().find(|(name, _)| name == KERNEL.name) {
            let known = stands_for(version)?
                .filter(|(name, _)| tables.iter().any(|table| find(table, name).is_some()))
                .map(|(name, value)| (name.to_owned(), value.to_owned()));
            assignments = known.chain(assignments.clone()).collect();
        }
        Ok(Assignments { list: assignments, recording: None })
    }

    /// Assignments of names to values.
    #[cfg(test)]
    pub(crate) fn of(pairs: impl IntoIterator<Item = (String, String)>) -> Self {
        Assignments { list: pairs.into_iter().collect(), recording: None }
    }

    /// The assignments for one part of a command: those that `tables` contain, and `defaults` for
    /// the rest.
    pub(crate) fn for_part(&self, defaults: &[(&str, &str)], tables: &[&[Setting]]) -> Self {
        let known = |name: &str| tables.iter().any(|table| find(table, name).is_some());
        let defaults = defaults.iter().filter(|(name, _)| !self.has(name));
        let defaults = defaults.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let of_part = self.list.iter().filter(|(name, _)| known(name)).cloned();
        let list = defaults.chain(of_part).collect();
        Assignments { list, recording: self.recording.clone() }
    }

    /// These assignments, for the replay of a recording.
    pub(crate) fn with_recording(self, recording: Arc<Plan>) -> Self {
        Assignments { recording: Some(recording), ..self }
    }

    /// The recording that is replayed.
    pub(crate) fn recording(&self) -> Option<&Arc<Plan>> {
        self.recording.as_ref()
    }

    /// These assignments and one more, which overrides them.
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut all = self.clone();
        all.list.push((name.to_owned(), value.to_owned()));
        all
    }

    /// Whether a setting was given.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.list.iter().any(|(of, _)| of == name)
    }

    /// The last value given for a setting, if any.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.list.iter().rev().find(|(of, _)| of == name).map(|(_, value)| value.as_str())
    }

    /// The values that were given for a setting of a table, or their defaults.
    pub(crate) fn value<'a>(&'a self, table: &'static [Setting], name: &str) -> &'a str {
        let default = || find(table, name).map_or("", |setting| setting.default);
        self.last(name).unwrap_or_else(default)
    }

    /// The value of a setting, parsed by `parse`.
    pub(crate) fn parsed<T>(
        &self,
        table: &'static [Setting],
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T> {
        let value = self.value(table, name);
        parse(value).ok_or_else(|| {
            let values = find(table, name).map_or("", |setting| setting.values);
            UsageError(format!("--set {name}={value}: the value must be {values}")).into()
        })
    }

    /// The value of a setting that is a number within a range.
    pub(crate) fn number(
        &self,
        table: &'static [Setting],
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<usize> {
        self.parsed(table, name, |value| value.parse().ok().filter(|value| range.contains(value)))
    }

    /// The value of a setting that is one of a few words, each with a meaning.
    pub(crate) fn word<T: Copy>(
        &self,
        table: &'static [Setting],
        name: &str,
        words: &[(&str, T)],
    ) -> Result<T> {
        let meaning = |value: &str| words.iter().find(|(word, _)| *word == value);
        self.parsed(table, name, |value| meaning(value).map(|(_, meaning)| *meaning))
    }

    /// The settings of a design: the given ones that it has, the rest by default.
    pub(crate) fn of_design<S: Settings>(&self) -> Result<S> {
        let mut settings = S::default();
        for (name, value) in &self.list {
            if let Some(setting) = find(S::TABLE, name) {
                settings.set(name, value).map_err(|error| {
                    let values = setting.values;
                    UsageError(format!("--set {name}={value}: {error}; it must be {values}"))
                })?;
            }
        }
        match settings.contradiction() {
            Some(contradiction) => Err(UsageError(format!("--set: {contradiction}")).into()),
            None => Ok(settings),
        }
    }
}

impl fmt::Display for Assignments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.list.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&all.join(" "))
    }
}

/// The settings of a design as shown in a report.
pub(crate) fn shown<S: Settings>(settings: &S) -> BTreeMap<String, Value> {
    let mut shown = BTreeMap::new();
    settings.for_each(&mut |name, value| {
        let text = value.to_string();
        let value = text.parse::<u64>().map_or(Value::String(text), Value::from);
        shown.insert(name.to_owned(), value);
    });
    shown
}

fn find<'a>(table: &'a [Setting], name: &str) -> Option<&'a Setting> {
    table.iter().find(|setting| setting.name == name)
}

/// The known name that is most like `name`, if one is alike.
pub(crate) fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    /// How similar two names must be for one to be suggested; clap's own threshold.
    const ALIKE: f64 = 0.7;
    let scored = known.map(|other| (strsim::jaro(name, other), other));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(score, _)| *score > ALIKE).map(|(_, best)| best)
}

fn unknown(name: &str, tables: &[&[Setting]]) -> String {
    let names = tables.iter().flat_map(|table| table.iter()).map(|setting| setting.name);
    match nearest(name, names.clone()) {
        Some(best) => format!("--set {name}: no such setting; did you mean '{best}'?"),
        None => {
            let names: Vec<_> = names.collect();
            format!("--set {name}: no such setting; there are {}", names.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_linux::Pcp;
    use freehold_linux::zone_lock::ZoneLockSettings;

    fn parse(arguments: &[&str]) -> Result<Assignments> {
        let arguments: Vec<_> = arguments.iter().map(ToString::to_string).collect();
        Assignments::parse(&arguments, &[ZoneLockSettings::TABLE])
    }

    #[test]
    fn the_last_assignment_wins() {
        let assignments = parse(&["pcp=auto", "batch=7", "pcp=fixed"]).unwrap();
        let settings: ZoneLockSettings = assignments.of_design().unwrap();
        assert_eq!((settings.pcp, settings.batch), (Pcp::Fixed, 7));
    }

    #[test]
    fn a_part_takes_what_it_knows_before_its_defaults() {
        const OTHER: &[Setting] = &[setting("samples", "1..=9", "5").means("samples taken")];
        let given = ["batch=7", "samples=2"].map(str::to_owned);
        let all = Assignments::parse(&given, &[ZoneLockSettings::TABLE, OTHER]).unwrap();
        let of_design = all.for_part(&[("pcp", "fixed")], &[ZoneLockSettings::TABLE]);
        assert_eq!(of_design.to_string(), "pcp=fixed batch=7");
        let of_other = all.for_part(&[("samples", "3")], &[OTHER]);
        assert_eq!(of_other.to_string(), "samples=2");
    }
}
