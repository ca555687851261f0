//! Predictions as a table, and as a page of the documentation.

use anyhow::Result;

use super::item::{Figure, Item, Published, Unit, distinct};
use super::verdict::{Closeness, Outcome, ratio};
use crate::report::out;
use crate::report::table::{Table, WIDTH};
use crate::report::words::shown;

/// What the page says before its tables.
const HEAD: &str = include_str!("head.md");

/// Prints a row for each figure, and how close they are.
pub(super) fn print(outcomes: &[(&Item, Vec<Outcome<'_>>)]) -> Result<()> {
    let mut headings = vec!["result", "figure", "published", "predicted", "ratio"];
    let any_as_linux = outcomes.iter().any(|(item, _)| item.linux.is_some());
    if any_as_linux {
        headings.extend(["as Linux", "ratio"]);
    }
    let mut table = Table::new(headings).numbers_from(2);
    for (item, of_item) in outcomes {
        for (nth, outcome) in of_item.iter().enumerate() {
            let figure = outcome.figure;
            let name = if nth == 0 { &item.name } else { "" };
            let mut row =
                vec![name.to_owned(), figure.what.clone(), value(figure, figure.published)];
            row.extend(cells(figure, outcome.predicted));
            if any_as_linux {
                let as_linux = outcome.as_linux.map(|predicted| cells(figure, predicted));
                row.extend(as_linux.unwrap_or_default());
            }
            table.row(row);
        }
    }
    out!("{table}");
    for line in summary(outcomes) {
        out!("{}", textwrap::fill(&line, usize::from(WIDTH)));
    }
    out!("Simulated: predictions. Sources, machines and what is known of differences: --markdown.");
    Ok(())
}

/// A value of a figure.
fn value(figure: &Figure, value: f64) -> String {
    match figure.unit {
        Unit::Share => shown(value * 100.0, "%"),
        Unit::Ratio if value < 0.1 => format!("{value:.4}x"),
        Unit::Ratio => format!("{value:.2}x"),
        Unit::PerSecond => format!("{}/s", shown(value, "")),
        Unit::Ns => shown(value, "ns"),
    }
}

/// A prediction, and its ratio to what was published.
fn cells(figure: &Figure, predicted: f64) -> [String; 2] {
    let ratio = ratio(figure, predicted).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    [value(figure, predicted), ratio]
}

/// How many figures are how close, without what figures of the machine were fitted to. Signs of
/// changes are not counted: not every published one has a run here.
fn summary(outcomes: &[(&Item, Vec<Outcome<'_>>)]) -> Vec<String> {
    let of = |(is_same, as_linux): (bool, bool)| {
        let is_meant = |item: &&&(&Item, Vec<Outcome<'_>>)| {
            !item.0.calibrated && item.0.other_machine.is_none() == is_same
        };
        let all: Vec<_> =
            outcomes.iter().filter(|item| is_meant(&item)).flat_map(|of| &of.1).collect();
        let count = |closeness| all.iter().filter(|of| of.closeness(as_linux) == closeness).count();
        let counts = Closeness::ALL.map(|of| format!("{} {}", count(of), of.in_words()));
        let where_from = if is_same { "machines of this kind" } else { "other machines" };
        let of = if as_linux { "As Linux, of" } else { "Of" };
        let is_there = all.iter().any(|of| !as_linux || of.as_linux.is_some());
        is_there.then(|| {
            format!("{of} {} figures from {where_from}: {}.", all.len(), counts.join(", "))
        })
    };
    let parts = [(true, false), (true, true), (false, false), (false, true)];
    parts.into_iter().filter_map(of).collect()
}

/// The page of the documentation.
pub(super) fn markdown(published: &Published, outcomes: &[(&Item, Vec<Outcome<'_>>)]) -> String {
    let mut lines = vec![HEAD.trim_end().to_owned(), String::new()];
    lines.extend(summary(outcomes).into_iter().map(|line| format!("* {line}")));
    lines.push(String::new());
    for source in &published.sources {
        let of_source: Vec<_> =
            outcomes.iter().filter(|(item, _)| item.source == source.id).collect();
        if of_source.is_empty() {
            continue;
        }
        lines.push(format!("## {}\n", title(&source.text)));
        lines.push(format!("{}.\n", source.text));
        for (item, of_item) in of_source {
            lines.push(format!("### {}\n", item.what));
            lines.push(setup(item));
            let has_before = item.figures.iter().any(|figure| figure.before.is_some());
            let linux = item.linux.as_ref();
            let mut headings = "| figure | published | predicted | ratio |".to_owned();
            headings += &linux.map_or(String::new(), |set| format!(" with `{set}` | ratio |"));
            headings += if has_before { " an earlier version |" } else { "" };
            let columns = headings.matches('|').count() - 1;
            lines.extend([headings, format!("|{}", "---|".repeat(columns))]);
            for outcome in of_item {
                let figure = outcome.figure;
                let mut row = format!("| {} | {} |", figure.what, value(figure, figure.published));
                for predicted in [Some(outcome.predicted), outcome.as_linux].into_iter().flatten() {
                    row += &format!(" {} |", cells(figure, predicted).join(" | "));
                }
                if has_before {
                    let before = figure.before.as_ref().map_or(String::new(), |before| {
                        format!("{}, without {}", value(figure, before.predicted), before.without)
                    });
                    row += &format!(" {before} |");
                }
                lines.push(row);
            }
            lines.push(String::new());
            lines.extend(item.note.iter().map(|note| format!("{note}\n")));
            lines.push("```".to_owned());
            lines.extend(merged(item).into_iter().map(|run| format!("freehold run {run}")));
            lines.push("```\n".to_owned());
        }
    }
    lines.join("\n").trim_end().to_owned()
}

/// The runs of an item, as few commands as run them all: `--cpus` and `--design` take lists.
fn merged(item: &Item) -> Vec<String> {
    let mut runs = distinct(item.runs().map(str::to_owned));
    for option in ["--cpus", "--design"] {
        let mut merged: Vec<(String, Vec<String>)> = Vec::new();
        for run in runs {
            let mut words: Vec<_> = run.split(' ').map(str::to_owned).collect();
            let value = words.iter().position(|word| word == option).map(|at| at + 1);
            let value = value.map(|at| std::mem::replace(&mut words[at], "{}".to_owned()));
            let rest = words.join(" ");
            match merged.iter_mut().find(|(known, _)| *known == rest) {
                Some((_, values)) => values.extend(value),
                None => merged.push((rest, value.into_iter().collect())),
            }
        }
        let with = |(run, values): (String, Vec<_>)| run.replace("{}", &values.join(","));
        runs = merged.into_iter().map(with).collect();
    }
    runs
}

/// What was measured where.
fn setup(item: &Item) -> String {
    let mut text = format!("Measured on {}, Linux {}.", item.machine, item.kernel);
    if item.calibrated {
        text +=
            " *Figures of the simulated machine were fitted to the shares; the rate was not used.*";
    }
    if let Some(other) = &item.other_machine {
        text += &format!(" *Predicted on another machine:* {other}.");
    }
    text + "\n"
}

/// The first words of a source: author and title.
fn title(text: &str) -> String {
    text.split(" (").next().unwrap_or(text).replace('*', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_differ_in_designs_and_cpus_alone_are_one_command() {
        let published = Published::parse(super::super::PUBLISHED).unwrap();
        let item = |name: &str| published.items.iter().find(|item| item.name == name).unwrap();
        let runs = merged(item("scaling"));
        assert_eq!(runs.len(), 3, "{runs:#?}");
        assert!(runs[0].contains("--cpus 112,56,1 --design zone-lock"), "{runs:#?}");
        assert!(runs[2].contains("--cpus 112 --design zone-lock,cluster"), "{runs:#?}");
        assert_eq!(merged(item("llfree-random")).len(), 1);
    }

    #[test]
    fn a_source_is_titled_by_author_and_title() {
        assert_eq!(
            title("A. Lu, *Eliminate zone->lock* (linux-mm, 2018)"),
            "A. Lu, Eliminate zone->lock"
        );
    }
}
