//! `freehold list machines`, with every figure and its source on demand.

use anyhow::Result;
use freehold_sim::{Key, Spec, preset, preset_names};
use serde::Serialize;

use super::rows::{print_json, print_rows};
use crate::cli::Format;
use crate::machine::HOST;
use crate::report::out;
use crate::report::table::Table;

#[derive(Serialize)]
struct ListedMachine {
    name: String,
    description: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    figures: Vec<ListedFigure>,
}

#[derive(Serialize)]
struct ListedFigure {
    name: String,
    value: f64,
    unit: &'static str,
    meaning: &'static str,
    source: String,
}

/// Prints the machines, or all their figures.
pub(super) fn print(format: Format, details: bool) -> Result<()> {
    let mut machines = vec![ListedMachine {
        name: HOST.to_owned(),
        description: "this machine, with real memory".to_owned(),
        figures: Vec::new(),
    }];
    for name in preset_names() {
        // `uma-N` stands for any number; four CPUs serve as the example.
        let spec = preset(&name.replace("-N", "-4"))?;
        let figures = if details { figures_of(&spec) } else { Vec::new() };
        let description = spec.summary().to_owned();
        machines.push(ListedMachine { name: (*name).to_owned(), description, figures });
    }
    if format == Format::Json {
        return print_json(&machines);
    }
    if format == Format::Csv && details {
        return print_figures(&machines);
    }
    let rows = machines.iter().map(|machine| [machine.name.clone(), machine.description.clone()]);
    print_rows(format, ["name", "description"], rows)?;
    if format == Format::Csv {
        return Ok(());
    }
    out!("All but the host are simulated. A .toml file describes further ones.");
    for machine in machines.iter().filter(|machine| !machine.figures.is_empty()) {
        out!("\n{}: {}\n", machine.name, machine.description);
        let mut table = Table::new(["figure", "value", "meaning and source"]);
        for figure in &machine.figures {
            let ListedFigure { name, value, unit, meaning, source } = figure;
            table.row([name.clone(), format!("{value} {unit}"), format!("{meaning}\n{source}")]);
        }
        out!("{table}");
    }
    Ok(())
}

/// Prints all figures of all machines as one CSV table.
fn print_figures(machines: &[ListedMachine]) -> Result<()> {
    let rows = machines.iter().flat_map(|machine| {
        machine.figures.iter().map(|figure| {
            let ListedFigure { name, value, unit, meaning, source } = figure;
            let (unit, meaning) = ((*unit).to_owned(), (*meaning).to_owned());
            let (name, source) = (name.clone(), source.clone());
            [machine.name.clone(), name, value.to_string(), unit, meaning, source]
        })
    });
    let headings = ["machine", "figure", "value", "unit", "meaning", "source"];
    print_rows(Format::Csv, headings, rows)
}

fn figures_of(spec: &Spec) -> Vec<ListedFigure> {
    let figures = spec.figures();
    figures
        .map(|(key, figure): (Key, _)| ListedFigure {
            name: key.to_string(),
            value: figure.value,
            unit: key.unit().name(),
            meaning: key.meaning(),
            source: figure.source.to_string(),
        })
        .collect()
}
