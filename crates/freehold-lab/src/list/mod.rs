//! `freehold list`.

use anyhow::Result;
use clap::ValueEnum;
use freehold::Setting;
use serde::Serialize;

use crate::catalog::{
    BenchName, PeerName, WorkloadName, describe, host_settings, is_hidden, name_of, sim_settings,
};
use crate::cli::{Format, ListArgs, ListWhat};
use crate::designs::{DesignName, SimDesign, design_settings};
use crate::report::out;
use rows::{print_json, print_rows};

#[derive(Serialize)]
struct Named {
    name: String,
    description: String,
}

#[derive(Serialize)]
struct ListedSetting {
    name: &'static str,
    of: String,
    values: &'static str,
    default: &'static str,
    description: &'static str,
}

mod machines;
mod rows;

/// Prints one of the lists.
pub(crate) fn list(args: &ListArgs) -> Result<()> {
    let format = args.format.format();
    match args.what {
        ListWhat::Workloads => print_named::<WorkloadName>(format),
        ListWhat::Designs => print_named::<SimDesign>(format),
        ListWhat::Machines => machines::print(format, args.details),
        ListWhat::Settings => print_settings(format),
        ListWhat::Benches => print_named::<BenchName>(format),
        ListWhat::Peers => {
            print_named::<PeerName>(format)?;
            if format == Format::Text {
                out!("Every design races, too, and so does any library that --peer names.");
                out!("The feature mallocs: cargo run --release --features mallocs -- race");
            }
            Ok(())
        }
    }
}

impl ListedSetting {
    /// Whether this is the same setting of another owner.
    fn is_like(&self, other: &Self) -> bool {
        let key = |row: &Self| (row.name, row.values, row.default, row.description);
        key(self) == key(other)
    }
}

fn print_named<V: ValueEnum>(format: Format) -> Result<()> {
    let choices = V::value_variants().iter().filter(|choice| !is_hidden(*choice));
    let rows: Vec<Named> =
        choices.map(describe).map(|(name, description)| Named { name, description }).collect();
    if format == Format::Json {
        return print_json(&rows);
    }
    let rows = rows.into_iter().map(|row| [row.name, row.description]);
    print_rows(format, ["name", "description"], rows)
}

fn print_settings(format: Format) -> Result<()> {
    let of_designs = DesignName::value_variants()
        .iter()
        .map(|design| (name_of(design), design_settings(*design)));
    let mut rows: Vec<ListedSetting> =
        of_designs.flat_map(|(of, table)| listed(of, table)).collect();
    for &workload in WorkloadName::value_variants() {
        for (of, table) in host_settings(workload).into_iter().chain(sim_settings(workload)) {
            // Tables shared by both kinds of machines or several workloads are listed once.
            if !rows.iter().any(|row| row.of == of) {
                rows.extend(listed(of.to_owned(), table));
            }
        }
    }
    if format == Format::Json {
        return print_json(&rows);
    }
    // A row for each owner is more than people want to read, but what programs look for.
    let rows = if format == Format::Csv { rows } else { shared(rows) };
    let rows = rows.into_iter().map(|row| {
        let ListedSetting { name, of, values, default, description } = row;
        [name.to_owned(), of, values.to_owned(), default.to_owned(), description.to_owned()]
    });
    print_rows(format, ["name", "of", "values", "default", "description"], rows)
}

/// Settings that several designs share are one row.
fn shared(rows: Vec<ListedSetting>) -> Vec<ListedSetting> {
    let mut shared: Vec<ListedSetting> = Vec::new();
    for row in rows {
        match shared.iter_mut().find(|other| other.is_like(&row)) {
            Some(other) => other.of += &format!(", {}", row.of),
            None => shared.push(row),
        }
    }
    let every: Vec<_> = DesignName::value_variants().iter().map(name_of).collect();
    let every = every.join(", ");
    for row in shared.iter_mut().filter(|row| row.of == every) {
        row.of = "every design".to_owned();
    }
    shared
}

fn listed(of: String, table: &'static [Setting]) -> impl Iterator<Item = ListedSetting> {
    table.iter().map(move |setting| ListedSetting {
        name: setting.name,
        of: of.clone(),
        values: setting.values,
        default: setting.default,
        description: setting.meaning,
    })
}
