//! The page of results of runs: `run`, `compare` and `replay`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use serde_json::Value;

use super::chart::{Line, Series, bars, heat, lines, scatter, shown};
use super::page::{Figure, Section};
use crate::report::document::{RunResult, Simulated, cpus_in_words};
use crate::report::waits::{lock_in_words, waits_by_class};

/// Results of one machine, and how each is named in figures.
struct OnMachine<'a> {
    workload: &'a str,
    machine: &'a str,
    results: Vec<(String, &'a RunResult)>,
}

/// All sections that results have figures for.
pub(crate) fn sections(results: &[RunResult]) -> Result<Vec<Section>> {
    let mut sections = Vec::new();
    for machine in groups(results) {
        let origin = machine.results[0].1.origin();
        let mut figures = Vec::new();
        figures.extend(machine.scaling()?);
        figures.push(machine.rates()?);
        figures.extend(machine.own("Time in the allocator", "allocator_share", 100.0, "%")?);
        figures.extend(machine.time()?);
        figures.extend(machine.misses()?);
        figures.extend(machine.latencies()?);
        figures.extend(machine.holds()?);
        figures.extend(machine.fragmentation()?);
        figures.extend(machine.over_time()?);
        figures.extend(machine.maps()?);
        figures.extend(machine.metadata()?);
        let heading = format!("{} on {} ({origin})", machine.workload, machine.machine);
        sections.push(Section { heading, text: Vec::new(), figures });
    }
    sections.push(settings(results));
    Ok(sections)
}

/// Results of one workload on one machine belong together.
fn groups(results: &[RunResult]) -> Vec<OnMachine<'_>> {
    let mut groups: Vec<OnMachine<'_>> = Vec::new();
    for result in results {
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

    /// A bar for each result that has the figure; none if none has.
    fn simple(
        &self,
        (title, caption, unit): (&str, &str, &str),
        of: impl Fn(&RunResult) -> Option<f64>,
    ) -> Result<Option<Figure>> {
        let with: Vec<_> = self
            .results
            .iter()
            .filter_map(|(name, result)| Some((name.clone(), of(result)?)))
            .collect();
        if with.is_empty() {
            return Ok(None);
        }
        let (labels, values): (Vec<_>, Vec<_>) = with.into_iter().unzip();
        let rows =
            labels.iter().zip(&values).map(|(name, value)| vec![name.clone(), value.to_string()]);
        let rows = rows.collect();
        let series = [Series { name: title.to_owned(), values }];
        Ok(Some(Figure {
            title: title.to_owned(),
            caption: caption.to_owned(),
            svg: bars(&labels, &series, false, unit)?,
            headings: vec!["design".to_owned(), unit.to_owned()],
            rows,
        }))
    }

    /// A figure that the workload has of its own.
    fn own(&self, title: &str, field: &str, scale: f64, unit: &str) -> Result<Option<Figure>> {
        let number =
            |result: &RunResult| Some(result.workload_specific.get(field)?.as_f64()? * scale);
        self.simple((title, "of the time in which CPUs are measured", unit), number)
    }

    fn rates(&self) -> Result<Figure> {
        let unit = &self.results[0].1.work.unit;
        let caption = format!("{unit} per second; longer is better");
        let rate = |result: &RunResult| Some(result.work.per_second);
        let figure = self.simple((&format!("{unit} a second"), &caption, ""), rate)?;
        Ok(figure.expect("every result has a rate"))
    }

    /// Rates by the number of CPUs, if there are several.
    fn scaling(&self) -> Result<Option<Figure>> {
        // A line for each design, and for each of what sets its results apart besides the CPUs.
        let mut designs: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (label, result) in &self.results {
            let name = label.replace(&format!(", {}", result.cpus), "");
            let points = designs.entry(name).or_default();
            points.push((f64::from(result.cpus), result.work.per_second));
        }
        if designs.values().all(|points| points.len() < 2) {
            return Ok(None);
        }
        let mut rows = Vec::new();
        let mut all = Vec::new();
        for (design, mut points) in designs {
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            rows.extend(
                points
                    .iter()
                    .map(|(cpus, rate)| vec![design.clone(), cpus.to_string(), rate.to_string()]),
            );
            all.push(Line { name: design, points });
        }
        // As if every CPU did as much as the best does on the fewest.
        let best = all.iter().filter_map(|line| line.points.first());
        let best = best.map(|(cpus, rate)| rate / cpus).fold(0.0, f64::max);
        let widest =
            all.iter().flat_map(|line| &line.points).map(|point| point.0).fold(0.0, f64::max);
        let name = "ideal".to_owned();
        let ideal = Line { name, points: vec![(0.0, 0.0), (widest, best * widest)] };
        let unit = &self.results[0].1.work.unit;
        let y_name = format!("{unit}/s");
        Ok(Some(Figure {
            title: "Scaling".to_owned(),
            caption: "ideal: every CPU as fast as the fastest alone".to_owned(),
            svg: lines(&all, Some(&ideal), true, ("CPUs", &y_name))?,
            headings: vec!["design".to_owned(), "CPUs".to_owned(), y_name],
            rows,
        }))
    }

    /// Shares of the time, stacked.
    fn stacked(
        &self,
        (title, caption): (&str, &str),
        shares: impl Fn(&RunResult) -> Option<Vec<(String, f64)>>,
    ) -> Result<Option<Figure>> {
        let mut names: Vec<String> = Vec::new();
        let mut with = Vec::new();
        for (label, result) in &self.results {
            let Some(shares) = shares(result) else { continue };
            for (name, share) in &shares {
                if *share >= 0.001 && !names.contains(name) {
                    names.push(name.clone());
                }
            }
            with.push((label.clone(), shares.into_iter().collect::<BTreeMap<_, _>>()));
        }
        if names.is_empty() {
            return Ok(None);
        }
        let labels: Vec<_> = with.iter().map(|(label, _)| label.clone()).collect();
        let value = |name: &String, shares: &BTreeMap<String, f64>| {
            shares.get(name).copied().unwrap_or(0.0) * 100.0
        };
        let series = names.iter().map(|name| Series {
            name: name.clone(),
            values: with.iter().map(|(_, shares)| value(name, shares)).collect(),
        });
        let rows = with.iter().map(|(label, shares)| {
            let cells = names.iter().map(|name| format!("{:.2}", value(name, shares)));
            [label.clone()].into_iter().chain(cells).collect()
        });
        Ok(Some(Figure {
            title: title.to_owned(),
            caption: caption.to_owned(),
            svg: bars(&labels, &series.collect::<Vec<_>>(), true, "%")?,
            headings: ["design".to_owned()].into_iter().chain(names.clone()).collect(),
            rows: rows.collect(),
        }))
    }

    /// Where the time of all CPUs goes.
    fn time(&self) -> Result<Option<Figure>> {
        let title = "Where the time goes";
        self.stacked(
            (title, "share of CPU time outside barriers, waiting by class of lock"),
            |result| {
                let simulated = result.simulated.as_ref()?;
                let time = result.workload_specific.get("time")?;
                let working_ns = result.working_ns()?;
                let part = |field: &str| Some(time.get(field)?.as_f64()? / working_ns);
                let mut shares = vec![
                    ("computation".to_owned(), part("compute_ns")?),
                    ("memory accesses".to_owned(), part("memory_ns")?),
                ];
                let waits = waits_by_class(simulated).into_iter();
                shares.extend(waits.map(|(class, share)| (lock_in_words(class), share)));
                shares.push(("idle".to_owned(), part("idle_ns")?));
                Some(shares)
            },
        )
    }

    /// Where accesses of the allocator's data are served.
    fn misses(&self) -> Result<Option<Figure>> {
        let caption = "time of accesses to the allocator's metadata, as a share of CPU time \
                       outside barriers, by where they are served; without the first-level cache";
        self.stacked(("Misses", caption), |result| {
            let working_ns = result.working_ns()?;
            let mut kinds: BTreeMap<String, f64> = BTreeMap::new();
            for data in result.workload_specific.get("data")?.as_array()? {
                for (kind, served) in data.get("served")?.as_object()? {
                    if kind != "l1" {
                        let time_ns = served.get("time_ns").and_then(Value::as_f64).unwrap_or(0.0);
                        *kinds.entry(kind.replace('_', " ")).or_default() += time_ns / working_ns;
                    }
                }
            }
            Some(kinds.into_iter().collect())
        })
    }

    fn latencies(&self) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for path in ["alloc", "free"] {
            for (name, of) in [("median", 0), ("99th percentile", 1), ("99.9th percentile", 2)] {
                let latency = |result: &RunResult| {
                    let latency = result.simulated.as_ref()?.latency_ns.get(path)?;
                    Some([latency.p50, latency.p99, latency.p999][of] as f64)
                };
                let title = format!("Latency of {path}: {name}");
                figures
                    .extend(self.simple((&title, "ns a call; shorter is better", "ns"), latency)?);
            }
        }
        Ok(figures)
    }

    /// The longest hold of any lock.
    fn holds(&self) -> Result<Option<Figure>> {
        let longest = |simulated: &Simulated| {
            simulated.locks.iter().map(|lock| lock.hold_ns_max).reduce(f64::max)
        };
        let of = |result: &RunResult| longest(result.simulated.as_ref()?);
        self.simple(("Longest hold of a lock", "ns; of any lock of the allocator", "ns"), of)
    }

    /// At the end.
    fn fragmentation(&self) -> Result<Option<Figure>> {
        let caption = "free memory in whole pageblocks at the end, after a drain";
        self.simple(("Free memory in whole pageblocks", caption, "%"), |result| {
            Some(result.fragmentation.as_ref()?.after_drain.pageblock_share() * 100.0)
        })
    }

    /// Free memory over time, as far as a workload looks at it.
    fn over_time(&self) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for (title, field, name) in [
            ("Free pageblocks over time", "free_pageblocks", "free pageblocks"),
            ("Memory unusable for order 3", "unusable_index_order3", "thousandths of free memory"),
        ] {
            let mut all = Vec::new();
            for (label, result) in &self.results {
                let looks = result.workload_specific.get("looks").and_then(Value::as_array);
                let point = |look: &Value| {
                    Some((look.get("recorded_ns")?.as_f64()? / 1e9, look.get(field)?.as_f64()?))
                };
                let points: Vec<_> = looks.into_iter().flatten().filter_map(point).collect();
                if points.len() > 1 {
                    all.push(Line { name: label.clone(), points });
                }
            }
            if all.is_empty() {
                continue;
            }
            let rows = all.iter().flat_map(|line| {
                let row =
                    |(x, y): &(f64, f64)| vec![line.name.clone(), x.to_string(), y.to_string()];
                line.points.iter().map(row)
            });
            figures.push(Figure {
                title: title.to_owned(),
                caption: "at the same places of the recording".to_owned(),
                headings: vec!["design".to_owned(), "s".to_owned(), name.to_owned()],
                rows: rows.collect(),
                svg: lines(&all, None, false, ("recorded time, s", name))?,
            });
        }
        Ok(figures)
    }

    /// Which pageblocks are how full, over time.
    fn maps(&self) -> Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for (label, result) in &self.results {
            let looks = result.workload_specific.get("looks").and_then(Value::as_array);
            let row = |look: &Value| -> Option<Vec<f64>> {
                let shares = look.get("occupancy_percent")?.as_array()?.iter();
                Some(shares.filter_map(Value::as_f64).map(|share| share / 100.0).collect())
            };
            let rows: Vec<_> = looks.into_iter().flatten().filter_map(row).collect();
            if rows.is_empty() {
                continue;
            }
            figures.push(Figure {
                title: format!("Pageblocks of {label}"),
                caption: "a row for each look, the first on top: how full parts of the memory are"
                    .to_owned(),
                svg: heat(&rows, ("lowest frame to highest", "time"))?,
                headings: Vec::new(),
                rows: Vec::new(),
            });
        }
        Ok(figures)
    }

    /// What the rate costs in metadata.
    fn metadata(&self) -> Result<Option<Figure>> {
        let point = |(name, result): &(String, &RunResult)| {
            let bytes = result.workload_specific.get("metadata_bytes")?.as_f64()?;
            Some((name.clone(), bytes, result.work.per_second))
        };
        let points: Vec<_> = self.results.iter().filter_map(point).collect();
        if points.is_empty() {
            return Ok(None);
        }
        let unit = format!("{}/s", self.results[0].1.work.unit);
        let row =
            |(name, x, y): &(String, f64, f64)| vec![name.clone(), shown(*x, "B"), y.to_string()];
        Ok(Some(Figure {
            title: "Rate and metadata".to_owned(),
            caption: "metadata of the whole allocator; up and to the left is better".to_owned(),
            svg: scatter(&points, ("metadata, bytes", &unit))?,
            headings: vec!["design".to_owned(), "metadata".to_owned(), unit],
            rows: points.iter().map(row).collect(),
        }))
    }
}

/// Every setting and seed.
fn settings(results: &[RunResult]) -> Section {
    let mut text = Vec::new();
    for result in results {
        let settings = result.settings.iter().map(|(name, value)| format!("{name}={value}"));
        let options = result.workload_specific.get("options").and_then(Value::as_object);
        let options = options.into_iter().flatten().map(|(name, value)| format!("{name}={value}"));
        let cpus = cpus_in_words(result.cpus as usize);
        let mut line = format!("{} on {} with {cpus}", result.design, result.machine);
        if let Some(seed) = result.seed {
            line += &format!(", seed {seed}");
        }
        if let Some(profile) = &result.profile {
            line += &format!(", profile {profile}");
        }
        let all: Vec<_> = settings.chain(options).map(|text| text.replace('"', "")).collect();
        text.push(format!("{line}: {}", all.join(" ")));
    }
    Section { heading: "Settings".to_owned(), text, figures: Vec::new() }
}
