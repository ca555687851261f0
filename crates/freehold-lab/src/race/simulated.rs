//! `freehold race --machine`: the benches on a simulated machine, where only designs can race.

use anyhow::Result;
use clap::ValueEnum;
use freehold_sim::Spec;

use super::contestant::ContestantChoice;
use crate::catalog::{BenchName, WorkloadName, figures, name_of};
use crate::cli::{Format, RaceArgs};
use crate::designs::{DesignName, SimDesign};
use crate::error::refuse;
use crate::matrix::{Matrix, SimCells, tables};
use crate::report::document::{Document, RunResult, SCHEMA};
use crate::report::figure::text;
use crate::report::out;
use crate::report::result_rows::result_rows;
use crate::report::table::Table;
use crate::settings::Assignments;
use crate::workload::Workload;
use crate::workloads::races::Races;

/// The benches that simulated machines have: those that ask for no clock.
const BENCHES: [BenchName; 6] = [
    BenchName::Pair,
    BenchName::Fill,
    BenchName::Random,
    BenchName::Remote,
    BenchName::Bulk,
    BenchName::Huge,
];

/// A set in half of the memory, as in LLFree's paper.
const MEMORY: f64 = 2.0;

/// Runs all benches and prints the results.
pub(super) fn race(args: &RaceArgs, spec: &Spec) -> Result<()> {
    let designs = designs(args)?;
    let benches = match &args.benches[..] {
        [] => BENCHES.to_vec(),
        given => given.to_vec(),
    };
    if let Some(bench) = benches.iter().find(|bench| !BENCHES.contains(bench)) {
        let there: Vec<_> = BENCHES.iter().map(name_of).collect();
        let (bench, there) = (name_of(bench), there.join(", "));
        return refuse(format!("{bench} does not run on simulated machines: choose of {there}"));
    }
    let cpus = match &args.threads[..] {
        [] => vec![1, spec.cpus() as u32],
        given => given.to_vec(),
    };
    let memory = if args.memory.is_empty() { vec![MEMORY] } else { args.memory.clone() };
    let workload = WorkloadName::Races;
    let of_workload = Races::sim_settings();
    let mut settings = Vec::new();
    for bench in &benches {
        for memory in &memory {
            let mut given = args.settings.clone();
            given.push(format!("bench={}", name_of(bench)));
            given.push(format!("memory_percent={:.0}", memory * 100.0));
            given.extend(args.frames.map(|frames| format!("frames={frames}")));
            let given = Assignments::parse(&given, &tables(&designs, &of_workload))?;
            // One CPU alone has no other to free what it allocates.
            let fewest = if *bench == BenchName::Remote { 2 } else { 1 };
            let cpus: Vec<_> = cpus.iter().copied().filter(|&cpus| cpus >= fewest).collect();
            settings.push((cpus, given));
        }
    }
    let mut cells = Vec::new();
    for (cpus, assignments) in settings.iter().filter(|(cpus, _)| !cpus.is_empty()) {
        let (designs, seed) = (&designs, args.seed);
        cells.push(Matrix { workload, designs, cpus, seed, assignments }.on_sim(spec)?);
    }
    let cells = cells.into_iter().reduce(SimCells::and);
    let results = cells.map_or(Ok(Vec::new()), |cells| cells.run())?;
    let document = Document { schema: SCHEMA, results };
    let results = &document.results;
    let json = || serde_json::to_string_pretty(&document);
    match args.format.format() {
        Format::Json => out!("{}", json()?),
        Format::Csv => result_rows(results, figures(workload), &[])?.print()?,
        Format::Text => print(results, spec)?,
    }
    args.report.of_runs(&format!("Races on {}", spec.name()), results, json()?)
}

/// The designs that were chosen. Other contestants are real programs.
fn designs(args: &RaceArgs) -> Result<Vec<SimDesign>> {
    let mut designs = Vec::new();
    for choice in &args.contestants {
        match choice {
            ContestantChoice::All => designs.extend(DesignName::value_variants()),
            ContestantChoice::Design(design) => designs.push(*design),
            ContestantChoice::Peer(peer) => {
                let peer = name_of(peer);
                return refuse(format!(
                    "{peer} is no design: only designs race on simulated machines"
                ));
            }
        }
    }
    let mut unique = Vec::new();
    for design in designs.into_iter().map(SimDesign::Real) {
        if !unique.contains(&design) {
            unique.push(design);
        }
    }
    Ok(unique)
}

/// A table for each bench and size of memory: a row a number of CPUs, a column a design.
fn print(results: &[RunResult], spec: &Spec) -> Result<()> {
    let option = |result: &RunResult, name: &str| {
        let options = result.workload_specific.get("options");
        options.and_then(|options| options.get(name)).map(text).unwrap_or_default()
    };
    let key = |result: &RunResult| (option(result, "bench"), option(result, "memory_percent"));
    for table in results.chunk_by(|one, other| key(one) == key(other)) {
        let (bench, percent) = key(&table[0]);
        let memory: f64 = percent.parse().unwrap_or_default();
        out!("{bench}, memory {}x: ns a pair on each CPU", memory / 100.0);
        let mut designs: Vec<&str> = Vec::new();
        let mut cpus: Vec<u32> = Vec::new();
        for result in table {
            if !designs.contains(&&*result.design) {
                designs.push(&result.design);
            }
            if !cpus.contains(&result.cpus) {
                cpus.push(result.cpus);
            }
        }
        let headings = ["cpus"].into_iter().chain(designs.iter().copied());
        let mut rows = Table::new(headings).numbers_from(0);
        for cpus in cpus {
            let pair_ns = |design: &&str| {
                let mut all = table.iter();
                let result = all.find(|of| of.cpus == cpus && of.design == **design)?;
                result.workload_specific.get("pair_ns")?.as_f64()
            };
            let cell = |ns: Option<f64>| ns.map_or("-".to_owned(), |ns| format!("{ns:.1}"));
            let row = designs.iter().map(|design| cell(pair_ns(design)));
            rows.row([cpus.to_string()].into_iter().chain(row));
        }
        out!("{rows}\n");
    }
    out!("Simulated on {}: a prediction. A pair is an allocation and a free.", spec.name());
    Ok(())
}
