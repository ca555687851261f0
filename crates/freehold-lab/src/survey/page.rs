//! The page of a survey, and its text.

use std::path::Path;

use anyhow::Result;

use super::runs::figure;
use super::{Advantage, CostRow, Survey};
use crate::report::html::chart::{Series, bars};
use crate::report::html::page::{Figure, Page, Section};
use crate::report::out;
use crate::report::table::Table;
use crate::report::words::shown;

/// The machines whose figures stand side by side.
const MACHINES: [&str; 3] = ["measured", "simulated: nearest", "simulated: measured costs"];

/// Prints what matters, and where the rest is.
pub(super) fn print(survey: &Survey, path: &Path) -> Result<()> {
    let mut table = Table::new(["figure", "measured", "min", "max", survey.nearest]);
    table = table.numbers_from(1);
    for row in &survey.costs {
        let [measured, min, max] = numbers(row);
        table.row([row.key.clone(), measured, min, max, shown(row.nearest, row.unit)]);
    }
    out!("{table}\n");
    let headings = ["how many times as fast freehold is as zone-lock", "CPUs"];
    let mut table = Table::new(headings.into_iter().chain(MACHINES)).numbers_from(1);
    for row in &survey.advantages {
        table.row(cells(row));
    }
    out!("{table}\n");
    for line in survey.verdicts().iter().chain(&survey.notes) {
        out!("{line}");
    }
    let [json, toml] = ["json", "toml"].map(|kind| path.with_extension(kind));
    out!("Written: {}, {}, {}", path.display(), json.display(), toml.display());
    Ok(())
}

/// Writes the page.
pub(super) fn write(survey: &Survey, document: String, path: &Path) -> Result<()> {
    let mut lead = vec![format!(
        "freehold survey, measured on {} CPUs. Simulated is a prediction: on {}, the nearest \
         machine that comes with freehold, and on the machine of {}, which has the figures that \
         were measured here.",
        survey.cpus,
        survey.nearest,
        path.with_extension("toml").file_name().unwrap_or_default().to_string_lossy()
    )];
    lead.extend(survey.notes.iter().cloned());
    let mut names: Vec<&str> = survey.measured.iter().map(|row| &*row.name).collect();
    names.sort_unstable();
    names.dedup();
    let sections = vec![
        Section {
            heading: "Who is ahead, and by how much".to_owned(),
            text: survey.verdicts(),
            figures: names.iter().map(|name| advantages(survey, name)).collect(),
        },
        Section {
            heading: "What accesses cost".to_owned(),
            text: Vec::new(),
            figures: survey.costs.iter().map(|row| cost(survey, row)).collect(),
        },
        Section {
            heading: "Races and workloads".to_owned(),
            text: vec!["ns a pair on each CPU; of workloads, pieces of work a second.".to_owned()],
            figures: names.iter().map(|name| rows_of(survey, name)).collect(),
        },
    ];
    let title = "A survey of this machine".to_owned();
    Page { title, lead, sections, document }.write(path, None)
}

fn numbers(row: &CostRow) -> [String; 3] {
    [row.measured.median, row.measured.min, row.measured.max].map(|number| shown(number, row.unit))
}

fn cells(row: &Advantage) -> Vec<String> {
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let named = [row.name.clone(), row.cpus.to_string()];
    named.into_iter().chain(row.ratios().map(ratio)).collect()
}

/// A figure of accesses, beside that of the nearest machine.
fn cost(survey: &Survey, row: &CostRow) -> Figure {
    let labels = ["measured".to_owned(), survey.nearest.to_owned()];
    let values = vec![row.measured.median, row.nearest];
    let [median, min, max] = numbers(row);
    Figure {
        title: row.key.clone(),
        caption: row.meaning.to_owned(),
        svg: bars(&labels, &[Series { name: row.key.clone(), values }], row.unit),
        headings: ["", "median", "min", "max"].map(str::to_owned).to_vec(),
        rows: vec![
            vec!["measured".to_owned(), median, min, max],
            vec![
                survey.nearest.to_owned(),
                shown(row.nearest, row.unit),
                String::new(),
                String::new(),
            ],
        ],
    }
}

/// Ratios of a race or a workload, by CPUs.
fn advantages(survey: &Survey, name: &str) -> Figure {
    let rows: Vec<_> = survey.advantages.iter().filter(|row| row.name == name).collect();
    let (mut labels, mut values) = (Vec::new(), Vec::new());
    for row in &rows {
        for (machine, ratio) in MACHINES.into_iter().zip(row.ratios()) {
            if let Some(ratio) = ratio {
                labels.push(format!("{} CPUs, {machine}", row.cpus));
                values.push(ratio);
            }
        }
    }
    Figure {
        title: name.to_owned(),
        caption: "how many times as fast freehold is as zone-lock".to_owned(),
        svg: bars(&labels, &[Series { name: name.to_owned(), values }], "x"),
        headings: ["", "CPUs"].into_iter().chain(MACHINES).map(str::to_owned).collect(),
        rows: rows.into_iter().map(cells).collect(),
    }
}

/// What was measured and simulated of a race or a workload.
fn rows_of(survey: &Survey, name: &str) -> Figure {
    let kinds =
        [&survey.measured, &survey.simulated_nearest, &survey.simulated_with_measured_costs];
    let (mut labels, mut values, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    for row in survey.measured.iter().filter(|row| row.name == name) {
        labels.push(format!("{}, {} CPUs", row.design, row.cpus));
        values.push(row.figure);
        let number = |number| shown(number, "");
        let figures = kinds
            .map(|kind| figure(kind, name, &row.design, row.cpus).map_or("-".to_owned(), number));
        let named = [row.design.clone(), row.cpus.to_string()];
        rows.push(named.into_iter().chain(figures).collect());
    }
    Figure {
        title: format!("{name}, as measured"),
        caption: String::new(),
        svg: bars(&labels, &[Series { name: name.to_owned(), values }], ""),
        headings: ["", "CPUs"].into_iter().chain(MACHINES).map(str::to_owned).collect(),
        rows,
    }
}
