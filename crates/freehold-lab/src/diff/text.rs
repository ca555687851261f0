//! Changes as a table, and below it what there is to know about it.

use std::collections::BTreeSet;

use super::cell::Reading;
use super::change::{Chance, Change, Changes, Lone, Verdict};
use super::document::Document;
use super::interval::{CONFIDENCE, ROUNDS_MIN};
use crate::report::figure::Worse;
use crate::report::table::{Table, WIDTH};
use crate::report::waits::percent;

/// A longer name is cut, so that a row is a line.
const NAME_MAX: usize = 22;

/// The lines of the whole report.
pub(super) fn lines(a: &Document, b: &Document, changes: &Changes<'_>, share: f64) -> Vec<String> {
    let mut lines = vec![filled(&format!("A: {}. B: {}.", a.name, b.name))];
    if !changes.all.is_empty() {
        lines.extend(rows(&changes.all));
        lines.extend(legend(&changes.all, share).iter().map(|line| filled(line)));
    }
    lines.extend(yardstick(a, b).iter().map(|line| filled(line)));
    for (of, other, lone) in [(a, b, &changes.only_a), (b, a, &changes.only_b)] {
        let line = |lone: &Lone<'_>| format!("Only in {}: {}", of.name, lone_in_words(lone, other));
        lines.extend(lone.iter().map(|lone| filled(&line(lone))));
    }
    lines.push(filled(&summary(changes)));
    lines
}

fn filled(line: &str) -> String {
    textwrap::fill(line, usize::from(WIDTH))
}

/// The lines of the table: those of contestants below the title of what they took part in.
fn rows(changes: &[Change<'_>]) -> Vec<String> {
    let mut titles: Vec<&str> = Vec::new();
    for change in changes {
        if !titles.contains(&&*change.cell.title) {
            titles.push(&change.cell.title);
        }
    }
    let of = |title| changes.iter().filter(move |change| change.cell.title == title);
    let text = table(titles.iter().copied().flat_map(of)).to_string();
    let mut lines = text.lines().map(str::to_owned);
    let mut all: Vec<_> = lines.by_ref().take(2).collect();
    for title in titles {
        all.push(filled(title));
        all.extend(lines.by_ref().take(of(title).count()));
    }
    all
}

fn table<'c>(changes: impl Iterator<Item = &'c Change<'c>>) -> Table {
    let interval = format!("{:.0} % interval", CONFIDENCE * 100.0);
    let mut table = Table::new(["", "figure", "A", "B", "B/A", &interval, ""]).numbers_from(2);
    let mut last = None;
    for change in changes {
        let cell: *const _ = change.cell;
        // Once for all figures of a cell.
        let name = if last.replace(cell) == Some(cell) { "" } else { &change.cell.contestant };
        table.row([
            format!("  {}", cut(name)),
            change.a.label(),
            number(change.a.value),
            number(change.b.value),
            ratio(change.ratio),
            match change.chance {
                Chance::None => "exact".to_owned(),
                Chance::Within(of) => format!("{}..{}", ratio(of.low), ratio(of.high)),
                Chance::Unknown => "-".to_owned(),
            },
            match change.verdict {
                Verdict::Worse => "worse",
                Verdict::Better => "better",
                Verdict::Same => "",
                Verdict::Unknown => "?",
            }
            .to_owned(),
        ]);
    }
    table
}

fn cut(name: &str) -> String {
    if name.chars().count() <= NAME_MAX {
        return name.to_owned();
    }
    name.chars().take(NAME_MAX - 1).chain(['…']).collect()
}

/// A figure with three digits, or more if it is large.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        ..0.001 => format!("{value:.1e}"),
        ..1.0 => format!("{value:.3}"),
        ..9.995 => format!("{value:.2}"),
        ..99.95 => format!("{value:.1}"),
        ..1e10 => format!("{value:.0}"),
        _ => format!("{value:.3e}"),
    }
}

/// A ratio with as many digits as a threshold of some percent needs.
fn ratio(ratio: f64) -> String {
    match ratio {
        ..10.0 => format!("{ratio:.3}"),
        ..1000.0 => format!("{ratio:.1}"),
        f64::INFINITY => "-".to_owned(),
        _ => format!("{ratio:.0e}"),
    }
}

/// Explains the table, as far as it has what is explained.
fn legend(changes: &[Change<'_>], threshold: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for (worse, word) in [(Worse::Lower, "Lower"), (Worse::Higher, "Higher")] {
        let of = changes.iter().map(|change| change.a).filter(|reading| reading.worse == worse);
        let labels = of.map(Reading::label).collect::<BTreeSet<_>>();
        if !labels.is_empty() {
            lines.push(format!("{word} is worse: {}.", Vec::from_iter(labels).join(", ")));
        }
    }
    let (confidence, threshold) = (CONFIDENCE * 100.0, percent(threshold));
    let has = |is: fn(&Chance) -> bool| changes.iter().any(|change| is(&change.chance));
    let mut counts = format!("worse, better: the change is at least {threshold}");
    if has(|chance| matches!(chance, Chance::Within(_))) {
        counts += &format!(" and its {confidence:.0} % interval excludes 1");
    }
    counts += ".";
    if has(|chance| *chance == Chance::None) {
        counts += " exact: simulated, so that no change is chance.";
    }
    if has(|chance| *chance == Chance::Unknown) {
        counts += &format!(
            " ?: nothing says whether it is chance, with fewer than {ROUNDS_MIN} samples or rounds \
             on a side."
        );
    }
    lines.push(counts);
    lines
}

/// What makes times of two documents different besides the sources.
fn yardstick(a: &Document, b: &Document) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(of_a), Some(of_b)) = (a.lock_pair_ns, b.lock_pair_ns) {
        let (of_a, of_b) = (number(of_a), number(of_b));
        lines.push(format!("An uncontended lock pair took {of_a} ns in A, {of_b} ns in B."));
    }
    if a.profiles != b.profiles && !a.profiles.is_empty() && !b.profiles.is_empty() {
        let (of_a, of_b) = (a.profiles.join(", "), b.profiles.join(", "));
        lines.push(format!(
            "The programs differ: A was measured with profile {of_a}, B with {of_b}. Build both \
             with one profile."
        ));
    }
    lines
}

fn lone_in_words(lone: &Lone<'_>, other: &Document) -> String {
    match lone.reading {
        Some(reading) => format!("{} of {}", reading.label(), lone.cell.in_words()),
        None => lone.cell.in_words_beside(&other.cells),
    }
}

/// The last line.
fn summary(changes: &Changes<'_>) -> String {
    let [worse, better, same, unknown] =
        [Verdict::Worse, Verdict::Better, Verdict::Same, Verdict::Unknown]
            .map(|verdict| changes.count(verdict));
    let count = changes.all.len();
    let plural = if count == 1 { "" } else { "s" };
    let unknown = match unknown {
        0 => String::new(),
        count => format!(", {count} unknown"),
    };
    format!("{count} figure{plural}: {worse} worse, {better} better, {same} the same{unknown}.")
}

#[cfg(test)]
mod tests {
    use super::super::cell::Cell;
    use super::super::interval::Interval;
    use super::*;

    fn cell(title: &str, contestant: &str) -> Cell {
        Cell {
            key: Vec::new(),
            settings: [].into(),
            title: title.to_owned(),
            contestant: contestant.to_owned(),
            simulated: false,
            readings: Vec::new(),
        }
    }

    fn reading(name: &'static str, value: f64) -> Reading {
        let unit = "attempts/s".to_owned();
        Reading { name, unit, worse: Worse::Lower, value, rounds: Vec::new() }
    }

    fn change<'c>(cell: &'c Cell, reading: &'c Reading) -> Change<'c> {
        let chance = Chance::Within(Interval { low: 876.5, high: 987.6 });
        Change { cell, a: reading, b: reading, ratio: 912.3, chance, verdict: Verdict::Better }
    }

    #[test]
    fn the_widest_row_is_one_line() {
        let cell = cell("a title", "a-name-that-does-not-fit-its-column");
        let reading = reading("second_success_share", 123_456_789.0);
        let changes = [change(&cell, &reading)];
        assert!(table(changes.iter()).fits(), "{}", table(changes.iter()));
        let lines = rows(&changes);
        assert_eq!(lines.len(), 4, "{lines:?}");
        assert!(
            lines[3].starts_with("   a-name-that-does-not-…  second success share"),
            "{lines:?}"
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:?}");
    }

    #[test]
    fn contestants_stand_below_their_title() {
        let cells = [cell("fill", "x"), cell("pair", "x"), cell("fill", "y")];
        let reading = reading("per_second", 1.0);
        let changes: Vec<_> = cells.iter().map(|cell| change(cell, &reading)).collect();
        let lines = rows(&changes);
        let firsts: Vec<_> =
            lines[2..].iter().filter_map(|line| line.split_whitespace().next()).collect();
        assert_eq!(firsts, ["fill", "x", "y", "pair", "x"]);
    }

    #[test]
    fn numbers_keep_what_matters() {
        let shown = [0.0, 0.000_01, 0.25, 1.5, 42.0, 12345.6, 2.5e10].map(number);
        assert_eq!(shown, ["0", "1.0e-5", "0.250", "1.50", "42.0", "12346", "2.500e10"]);
        let shown = [0.98765, 12.34, 12345.0, f64::INFINITY].map(ratio);
        assert_eq!(shown, ["0.988", "12.3", "1e4", "-"]);
    }
}
