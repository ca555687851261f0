//! `freehold compare --sensitivity`: which places depend on the figures of the simulated machine,
//! and how far ratios do.

use anyhow::Result;
use freehold_sim::{Key, Spec, Unit};
use serde::Serialize;
use serde_json::{Value, to_value};

use crate::catalog::{brief, goals, name_of, sim_settings};
use crate::cli::{CompareArgs, Format, chosen_designs};
use crate::compare::BASELINE;
use crate::matrix::{Matrix, SimCells, tables};
use crate::report::document::{RunResult, cpus_in_words};
use crate::report::goal::Goal;
use crate::report::out;
use crate::report::table::{Table, WIDTH};
use crate::settings::Assignments;

/// The version of the JSON document.
const SCHEMA: &str = "freehold.sensitivity/1";

/// What cost figures are multiplied by, those of one table of the machine file at a time.
const FACTORS: [f64; 2] = [0.7, 1.3];

/// What the instructions around an access take where they take something (docs/machine.md).
const WORK_NS: f64 = 1.2;

/// A machine that is a little different, or tasks that start otherwise.
struct Condition {
    spec: Spec,
    given: Assignments,
}

/// The places of designs by one goal.
#[derive(Debug, PartialEq, Serialize)]
struct Places {
    figure: &'static str,
    /// The best first, on the machine as it is.
    designs: Vec<Place>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Place {
    design: String,
    /// On the machine as it is.
    value: f64,
    /// The best and the worst place: not the same if another design is ahead in some runs.
    place_first: usize,
    place_last: usize,
    /// Multiples of the baseline's value, by run.
    ratios: Vec<f64>,
}

/// Runs all designs under all conditions, and shows what depends on these.
pub(crate) fn sensitivity(args: &CompareArgs) -> Result<()> {
    let (workload, designs) = (args.workload, chosen_designs(&args.design));
    let tables = tables(&designs, &sim_settings(workload));
    let given = Assignments::parse(&args.settings, &tables)?;
    let brief = if args.whole { &[][..] } else { brief(workload).on_sim };
    let given = given.for_part(brief, &tables);
    let starts = tables.iter().any(|table| table.iter().any(|setting| setting.name == "start"));
    let conditions = conditions(&args.machine, &given, starts && !given.has("start"));
    let mut all = Vec::new();
    for Condition { spec, given } in &conditions {
        let (designs, cpus, seed) = (&designs[..], args.cpus.as_slice(), args.seed);
        all.push(Matrix { workload, designs, cpus, seed, assignments: given }.on_sim(spec)?);
    }
    let Some(cells) = all.into_iter().reduce(SimCells::and) else { return Ok(()) };
    let row = |result: &RunResult| Ok(format!("{:<30} {}", result.machine, result.design));
    let results = cells.run_showing(&cells.progress().with_rows(row))?;

    let baseline = designs.iter().position(|design| *design == BASELINE).unwrap_or(0);
    let goals = goals(workload);
    let places = places(&results, designs.len(), baseline, goals)?;
    let names: Vec<_> = conditions.iter().map(|of| of.spec.name()).collect();
    if args.format.format() == Format::Json {
        let document = serde_json::json!({
            "schema": SCHEMA, "workload": name_of(&workload), "machine": args.machine.name(),
            "cpus": results[0].cpus, "seed": args.seed, "settings": given.to_string(),
            "baseline": name_of(&designs[baseline]), "runs": names, "places": places,
        });
        out!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    for of_goal in &places {
        let goal = goals.iter().find(|goal| goal.figure.name == of_goal.figure);
        let goal = goal.expect("places are by goals");
        out!("{}", table(of_goal, goal, &goal.heading(&results[0]), &names));
        out!("{}", textwrap::fill(&of_goal.in_words(), usize::from(WIDTH)));
    }
    let note = format!(
        "Simulated on {} with {}: predictions. {} runs a design: the machine as it is; its figures \
         in ns or GB/s 30 % lower and higher, those of one table of its file at a time; \
         core.work_ns={WORK_NS}{}. least, most: ratios to {}, run by run. place: a design is \
         ahead of another if it is in all runs. Settings: {given}.",
        args.machine.name(),
        cpus_in_words(results[0].cpus as usize),
        names.len(),
        if starts { "; start=spread" } else { "" },
        name_of(&designs[baseline]),
    );
    out!("{}", textwrap::fill(&note, usize::from(WIDTH)));
    Ok(())
}

/// The machine as it is, then what is changed of it, a little at a time.
fn conditions(machine: &Spec, given: &Assignments, starts: bool) -> Vec<Condition> {
    let is_cost = |key: &Key| matches!(key.unit(), Unit::Ns | Unit::GbPerS);
    let mut sections: Vec<_> = Key::ALL.iter().filter(|key| is_cost(key)).collect();
    sections.dedup_by_key(|key| key.section());
    let of = |what: &str, change: &dyn Fn(Key) -> Option<f64>| {
        let mut spec = machine.clone().renamed(what, machine.summary());
        for &key in Key::ALL {
            if let Some(value) = change(key) {
                let (least, most) = key.range();
                spec.set(key, value.clamp(least, most), "freehold compare --sensitivity");
            }
        }
        Condition { spec, given: given.clone() }
    };
    let mut all = vec![of("as it is", &|_| None)];
    for section in sections.into_iter().map(|key| key.section()) {
        for factor in FACTORS {
            let percent = ((factor - 1.0) * 100.0).round();
            all.push(of(&format!("{section} {percent:+} %"), &|key| {
                let changes = key.section() == section && is_cost(&key);
                changes.then(|| machine.get(key) * factor)
            }));
        }
    }
    all.push(of("core.work_ns", &|key| (key == Key::WorkNs).then_some(WORK_NS)));
    if starts {
        let spread = of("start=spread", &|_| None);
        all.push(Condition { given: given.with("start", "spread"), ..spread });
    }
    all
}

/// The places by each goal for which all results have a value. Results are run by run, those of a
/// run in the order of the designs.
fn places(
    results: &[RunResult],
    designs: usize,
    baseline: usize,
    goals: &[Goal],
) -> Result<Vec<Places>> {
    let values: Vec<Value> = results.iter().map(to_value).collect::<Result<_, _>>()?;
    let of_goal = |goal: &Goal| {
        let all: Option<Vec<f64>> = values.iter().map(|value| goal.figure.value(value)).collect();
        let all = all?;
        let value = |run: usize, design: usize| all[run * designs + design];
        let is_ahead = |one: usize, other: usize| {
            (0..all.len() / designs).all(|run| goal.is_better(value(run, one), value(run, other)))
        };
        let mut places: Vec<_> = (0..designs)
            .map(|own| Place {
                design: results[own].design.clone(),
                value: value(0, own),
                place_first: 1 + (0..designs).filter(|&other| is_ahead(other, own)).count(),
                place_last: designs - (0..designs).filter(|&other| is_ahead(own, other)).count(),
                ratios: (0..all.len() / designs)
                    .map(|run| value(run, own) / value(run, baseline))
                    .collect(),
            })
            .collect();
        places.sort_by(|one, other| match goal.is_better(1.0, 0.0) {
            true => other.value.total_cmp(&one.value),
            false => one.value.total_cmp(&other.value),
        });
        Some(Places { figure: goal.figure.name, designs: places })
    };
    Ok(goals.iter().filter_map(of_goal).collect())
}

impl Places {
    /// Which places hold.
    fn in_words(&self) -> String {
        let named = |holds: bool| {
            let all = self.designs.iter().filter(|of| (of.place_first == of.place_last) == holds);
            all.map(|of| format!("{} ({})", of.design, of.place())).collect::<Vec<_>>().join(", ")
        };
        match (&*named(true), &*named(false)) {
            ("", open) => format!("No place holds in all runs: {open}."),
            (hold, "") => format!("All places hold in all runs: {hold}."),
            (hold, open) => format!("Places that hold in all runs: {hold}; that do not: {open}."),
        }
    }
}

impl Place {
    /// The place, or the first and the last.
    fn place(&self) -> String {
        match (self.place_first, self.place_last) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        }
    }
}

fn table(places: &Places, goal: &Goal, heading: &str, names: &[&str]) -> Table {
    let headings = ["design", heading, "ratio", "least", "in", "most", "in", "place"];
    let mut table = Table::new(headings).numbers_in(1..3);
    for of in &places.designs {
        let ratios = || of.ratios.iter().zip(names);
        let least = ratios().min_by(|one, other| one.0.total_cmp(other.0));
        let most = ratios().max_by(|one, other| one.0.total_cmp(other.0));
        let [(least, in_least), (most, in_most)] =
            [least, most].map(|end| end.expect("there is the machine as it is"));
        let is_same = least == most;
        table.row([
            of.design.clone(),
            goal.shown(of.value),
            format!("{:.2}x", of.ratios[0]),
            format!("{least:.2}x"),
            if is_same { String::new() } else { (*in_least).to_owned() },
            format!("{most:.2}x"),
            if is_same { String::new() } else { (*in_most).to_owned() },
            of.place(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::by_hand::simulated;
    use crate::report::goal::RATE;
    use freehold_sim::preset;

    #[test]
    fn each_table_of_costs_is_changed_alone() {
        let machine = preset("skylake-2s").unwrap();
        let all = conditions(&machine, &Assignments::of([]), true);
        let names: Vec<_> = all.iter().map(|of| of.spec.name()).collect();
        assert_eq!(names[..3], ["as it is", "memory -30 %", "memory +30 %"]);
        assert_eq!(names[names.len() - 2..], ["core.work_ns", "start=spread"]);
        let transfer = all.iter().find(|of| of.spec.name() == "transfer +30 %").unwrap();
        for (key, figure) in transfer.spec.figures() {
            let factor = if key.section() == "transfer" { 1.3 } else { 1.0 };
            assert!((figure.value - machine.get(key) * factor).abs() < 1e-9, "{key}");
        }
        assert!(all.iter().all(|of| of.spec.check().is_ok()));
        assert_eq!(all.last().unwrap().given.last("start"), Some("spread"));
        let fewer = conditions(&machine, &Assignments::of([]), false);
        assert_eq!(fewer.len(), all.len() - 1);
    }

    #[test]
    fn places_hold_if_they_do_in_each_run() {
        let run = |rates: [f64; 3]| {
            let names = ["zone-lock", "cluster", "freehold"];
            names.into_iter().zip(rates).map(|(name, rate)| simulated(name, rate, &[]))
        };
        // Rates of all vary more than their distances, but freehold is ahead each time.
        let runs = [[10.0, 11.0, 20.0], [30.0, 29.0, 45.0]];
        let results: Vec<_> = runs.into_iter().flat_map(run).collect();
        let places = &places(&results, 3, 0, &[RATE]).unwrap()[0];
        let found: Vec<_> = places.designs.iter().map(|of| (&*of.design, &of.ratios[..])).collect();
        assert_eq!(found[0], ("freehold", &[2.0, 1.5][..]));
        assert_eq!(
            places.in_words(),
            "Places that hold in all runs: freehold (1); that do not: cluster (2-3), zone-lock \
             (2-3)."
        );
        let table = table(places, &RATE, "faults/s", &["as it is", "memory +30 %"]).to_string();
        let row = table.lines().find(|line| line.starts_with(" freehold")).unwrap();
        let row: Vec<_> = row.split_whitespace().collect();
        let expected = ["2.00x", "1.50x", "memory", "+30", "%", "2.00x", "as", "it", "is", "1"];
        assert_eq!(row[2..], expected, "{table}");
    }
}
