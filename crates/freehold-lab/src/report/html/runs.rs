//! The page of results of runs: `run`, `compare` and `replay`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use clap::ValueEnum;
use serde_json::Value;

use super::chart::{Line, Series, bars, lines};
use super::page::{Figure, Section};
use crate::catalog::{WorkloadName, goals};
use crate::report::document::RunResult;
use crate::report::goal::{Goal, RATE};
use crate::report::waits::{lock_in_words, waits_by_class};

/// Results of one machine, and how each is named in figures.
struct OnMachine<'a> {
    workload: &'a str,
    machine: &'a str,
    results: Vec<(String, &'a RunResult)>,
}

/// All sections that results have figures for.
pub(crate) fn sections(results: &[&RunResult]) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for machine in groups(results) {
        let origin = machine.results[0].1.origin();
        let goals = machine.goals()?;
        let mut figures: Vec<_> = goals.iter().filter_map(|goal| machine.scaling(goal)).collect();
        figures.extend(goals.into_iter().map(|goal| machine.by_goal(goal)));
        figures.extend(machine.time());
        let heading = format!("{} on {} ({origin})", machine.workload, machine.machine);
        sections.push(Section { heading, text: Vec::new(), figures });
    }
    sections.push(settings(results));
    Ok(sections)
}

/// Results of one workload on one machine belong together.
fn groups<'a>(results: &[&'a RunResult]) -> Vec<OnMachine<'a>> {
    let mut groups: Vec<OnMachine<'a>> = Vec::new();
    for &result in results {
        let (workload, machine) = (&result.workload[..], &result.machine[..]);
        let known = groups.iter_mut().find(|of| (of.workload, of.machine) == (workload, machine));
        let own = (result.design.clone(), result);
        match known {
            Some(group) => group.results.push(own),
            None => groups.push(OnMachine { workload, machine, results: vec![own] }),
        }
    }
    groups.iter_mut().for_each(OnMachine::tell_apart);
    groups
}

/// What can set two results of one design apart.
fn attributes(result: &RunResult) -> BTreeMap<String, String> {
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let options = result.workload_specific.get("options").and_then(Value::as_object);
    let settings = result.settings.iter().chain(options.into_iter().flatten());
    let settings = settings.map(|(name, value)| (name.clone(), plain(value)));
    let seed = result.seed.map(|seed| ("seed".to_owned(), seed.to_string()));
    let cpus = ("cpus".to_owned(), result.cpus.to_string());
    settings.chain(seed).chain([cpus]).collect()
}

impl OnMachine<'_> {
    /// Names results by what sets those of one design apart.
    fn tell_apart(&mut self) {
        let all: Vec<_> =
            self.results.iter().map(|(_, result)| (&result.design, attributes(result))).collect();
        let differs = |name: &String| {
            all.iter().any(|(design, one)| {
                let same = all.iter().filter(|(other, _)| other == design);
                same.clone().any(|(_, other)| other.get(name) != one.get(name))
            })
        };
        let names: BTreeSet<_> = all.iter().flat_map(|(_, of)| of.keys().cloned()).collect();
        let telling: Vec<_> = names.into_iter().filter(|name| differs(name)).collect();
        for ((label, _), (_, of)) in self.results.iter_mut().zip(&all) {
            for name in &telling {
                match of.get(name) {
                    Some(count) if name == "cpus" => *label += &format!(", {count}"),
                    Some(value) => *label += &format!(" {name}={value}"),
                    None => {}
                }
            }
        }
    }

    /// What users want of the workload, as far as all results have it, with its heading and its
    /// values. Of a workload that this program does not know, that is the rate.
    fn goals(&self) -> Result<Vec<(String, Goal, Vec<f64>)>> {
        let known = WorkloadName::from_str(self.workload, false).map_or(&[RATE][..], goals);
        let results: Result<Vec<_>, _> =
            self.results.iter().map(|(_, result)| serde_json::to_value(result)).collect();
        let results = results?;
        let with_values = known.iter().filter_map(|goal| {
            let values = results.iter().map(|result| goal.figure.value(result));
            Some((goal.heading(self.results[0].1), *goal, values.collect::<Option<_>>()?))
        });
        Ok(with_values.collect())
    }

    /// A bar for each result.
    fn by_goal(&self, (title, goal, values): (String, Goal, Vec<f64>)) -> Figure {
        let is_better = if goal.is_better(1.0, 0.0) { "longer" } else { "shorter" };
        let labels: Vec<_> = self.results.iter().map(|(label, _)| label.clone()).collect();
        let row = |(label, value): (&String, &f64)| vec![label.clone(), value.to_string()];
        let rows = labels.iter().zip(&values).map(row).collect();
        let series = [Series { name: String::new(), values }];
        Figure {
            caption: format!("{is_better} is better"),
            svg: bars(&labels, &series, goal.unit()),
            headings: vec!["design".to_owned(), title.clone()],
            rows,
            title,
        }
    }

    /// Rates by the number of CPUs, if there are several: a line for each design, and for each of
    /// what sets its results apart besides the CPUs.
    fn scaling(&self, (rate, goal, values): &(String, Goal, Vec<f64>)) -> Option<Figure> {
        let mut designs: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for ((label, result), value) in self.results.iter().zip(values) {
            let name = label.replace(&format!(", {}", result.cpus), "");
            designs.entry(name).or_default().push((f64::from(result.cpus), *value));
        }
        if !goal.is_rate() || designs.values().all(|points| points.len() == 1) {
            return None;
        }
        let (mut rows, mut all) = (Vec::new(), Vec::new());
        for (name, mut points) in designs {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            let row =
                |(cpus, rate): &(f64, f64)| vec![name.clone(), cpus.to_string(), rate.to_string()];
            rows.extend(points.iter().map(row));
            all.push(Line { name, points });
        }
        // As if every CPU did as much as the best does on the fewest.
        let best = all.iter().map(|line| line.points[0].1 / line.points[0].0).fold(0.0, f64::max);
        let widest = self.results.iter().map(|(_, result)| f64::from(result.cpus));
        let widest = widest.fold(0.0, f64::max);
        let points = vec![(0.0, 0.0), (widest, best * widest)];
        let ideal = Line { name: "ideal".to_owned(), points };
        Some(Figure {
            title: format!("Scaling: {rate}"),
            caption: "ideal: every CPU as fast as the fastest alone".to_owned(),
            svg: lines(&all, &ideal, ("CPUs", rate)),
            headings: vec!["design".to_owned(), "CPUs".to_owned(), rate.clone()],
            rows,
        })
    }

    /// Where the time of all CPUs goes, of results that have it.
    fn time(&self) -> Option<Figure> {
        let with: Vec<_> = self
            .results
            .iter()
            .filter_map(|(label, result)| Some((label.clone(), times(result)?)))
            .collect();
        let mut names: Vec<&str> = Vec::new();
        for (name, percent) in with.iter().flat_map(|(_, times)| times) {
            if *percent >= 0.1 && !names.contains(&&**name) {
                names.push(name);
            }
        }
        if names.is_empty() {
            return None;
        }
        let value = |times: &[(String, f64)], name: &str| {
            times.iter().find(|(own, _)| own == name).map_or(0.0, |(_, percent)| *percent)
        };
        let series = names.iter().map(|name| Series {
            name: (*name).to_owned(),
            values: with.iter().map(|(_, times)| value(times, name)).collect(),
        });
        let labels: Vec<_> = with.iter().map(|(label, _)| label.clone()).collect();
        let rows = with.iter().map(|(label, times)| {
            let cells = names.iter().map(|name| format!("{:.2}", value(times, name)));
            [label.clone()].into_iter().chain(cells).collect()
        });
        Some(Figure {
            title: "Where the time goes".to_owned(),
            caption: "share of CPU time outside barriers, waiting by class of lock".to_owned(),
            svg: bars(&labels, &series.collect::<Vec<_>>(), "%"),
            headings: ["design"].iter().chain(&names).map(|name| (*name).to_owned()).collect(),
            rows: rows.collect(),
        })
    }
}

/// What the CPUs of a simulated machine do, in percent of their time.
fn times(result: &RunResult) -> Option<Vec<(String, f64)>> {
    let (simulated, working_ns) = (result.simulated.as_ref()?, result.working_ns()?);
    let time = result.workload_specific.get("time")?;
    let part = |field: &str| Some(time.get(field)?.as_f64()? / working_ns * 100.0);
    let mut times = vec![
        ("computation".to_owned(), part("compute_ns")?),
        ("memory accesses".to_owned(), part("memory_ns")?),
    ];
    let waits = waits_by_class(simulated).into_iter();
    times.extend(waits.map(|(class, share)| (lock_in_words(class), share * 100.0)));
    times.push(("idle".to_owned(), part("idle_ns")?));
    Some(times)
}

/// Every setting and seed.
fn settings(results: &[&RunResult]) -> Section {
    let line = |result: &&RunResult| {
        let of = attributes(result).into_iter();
        let all: Vec<_> = of.map(|(name, value)| format!("{name}={value}")).collect();
        let profile = result.profile.as_ref();
        let profile = profile.map_or(String::new(), |profile| format!(", profile {profile}"));
        format!("{} on {}{profile}: {}", result.design, result.machine, all.join(" "))
    };
    let text = results.iter().map(line).collect();
    Section { heading: "Settings".to_owned(), text, figures: Vec::new() }
}
