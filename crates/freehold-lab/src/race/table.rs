//! The results of a race as people read them.

use anyhow::Result;

use super::results::{OK, Results, Row, Skipped};
use crate::report::document::threads_in_words;
use crate::report::out;
use crate::report::profile::MEASURED;
use crate::report::table::{Table, WIDTH};

/// Prints a table, and below it all that does not fit into one.
pub(super) fn print(results: &Results) -> Result<()> {
    // Without the reference there is nothing to compare with.
    let compared = results.results.iter().any(|row| row.ratio_to_freehold.is_some());
    out!("{}", table(results, compared));
    for line in legend(results, compared) {
        out!("{}", textwrap::fill(&line, usize::from(WIDTH)));
    }
    Ok(())
}

fn table(results: &Results, compared: bool) -> Table {
    let mut headings = vec!["bench", "threads", "contestant"];
    headings.extend(["get ns", "put ns", "pair ns", "locks"]);
    if compared {
        headings.extend(["ratio", "spread"]);
    }
    headings.push("referee");
    let mut table = Table::new(headings).numbers_from(3);
    let mut last = None;
    for row in &results.results {
        // A heat's name stands in its first line.
        let heat = Some((&row.bench, row.threads));
        let [bench, threads] = match heat == last {
            true => [String::new(), String::new()],
            false => [row.bench.clone(), row.threads.to_string()],
        };
        last = heat;
        let mark = if row.note.is_some() { "*" } else { "" };
        let mut cells = vec![bench, threads, format!("{}{mark}", row.contestant)];
        cells.extend([row.get_ns, row.put_ns, row.pair_ns].map(|ns| number(ns, "")));
        cells.push(number(row.lock_pairs, ""));
        if compared {
            cells.push(number(row.ratio_to_freehold, "x"));
            cells.push(row.ratio_spread.map_or("-".to_owned(), |of| format!("{:.0} %", of * 1e2)));
        }
        cells.push(if row.referee == OK { OK } else { "FAILED" }.to_owned());
        table.row(cells);
    }
    table
}

/// What the table shows, and all that does not fit into it.
fn legend(results: &Results, compared: bool) -> Vec<String> {
    let Results { rounds, lock_pair_ns, vec_pair_ns, .. } = results;
    let plural = if *rounds == 1 { "" } else { "s" };
    let mut lines = vec![
        format!(
            "{MEASURED}: medians of {rounds} round{plural}, in ns for a frame (in huge and mixed: \
             a block) and thread."
        ),
        format!(
            "pair: get and put. locks: a pair in uncontended lock/unlock pairs, which took \
             {lock_pair_ns:.2} ns. A Vec pop and push took {vec_pair_ns:.2} ns."
        ),
    ];
    if compared {
        let ratio = "ratio: to freehold, taken round by round. spread: of the ratios, (max - min) \
                     / median.";
        lines.push(ratio.to_owned());
    }
    lines.extend(notes(&results.results).into_iter().map(|note| format!("* {note}")));
    lines.extend(skips(&results.skipped).into_iter().map(|skip| format!("Left out: {skip}")));
    lines.extend(results.failed().map(|row| {
        let Row { contestant, bench, threads, referee, .. } = row;
        format!("FAILED: {contestant} in {bench} with {}: {referee}", threads_in_words(*threads))
    }));
    lines
}

/// A number with three digits, or more where it is large.
fn number(value: Option<f64>, unit: &str) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 9.995 => format!("{value:.2}{unit}"),
        Some(value) if value < 99.95 => format!("{value:.1}{unit}"),
        Some(value) => format!("{value:.0}{unit}"),
    }
}

/// Each note once.
fn notes(rows: &[Row]) -> Vec<String> {
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows {
        let Some(note) = row.note else { continue };
        let who = row.contestant.as_str();
        match notes.iter_mut().find(|(of, _)| *of == note) {
            Some((_, all)) if all.contains(&who) => (),
            Some((_, all)) => all.push(who),
            None => notes.push((note, vec![who])),
        }
    }
    notes.into_iter().map(|(note, who)| format!("{}: {note}", who.join(", "))).collect()
}

/// One line for each bench and reason, whatever the number of threads.
fn skips(skipped: &[Skipped]) -> Vec<String> {
    let mut lines = Vec::new();
    for Skipped { bench, threads, contestant, reason } in skipped {
        let line = match contestant {
            Some(contestant) => format!("{contestant} in {bench}: {reason}"),
            None => format!("{bench} with {}: {reason}", threads_in_words(*threads)),
        };
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results(row: Row) -> Results {
        Results {
            schema: super::super::results::SCHEMA,
            machine: "host",
            profile: "release",
            rounds: 1000,
            frames: 64,
            lock_pair_ns: 5.0,
            vec_pair_ns: 1.0,
            results: vec![row],
            skipped: Vec::new(),
        }
    }

    #[test]
    fn the_widest_row_fits() {
        let large = Some(123_456.7);
        let results = results(Row {
            bench: "random".to_owned(),
            contestant: "buddy_system_allocator".to_owned(),
            threads: 1024,
            get_ns: large,
            put_ns: large,
            pair_ns: large,
            lock_pairs: large,
            ratio_to_freehold: Some(12_345.6),
            ratio_spread: Some(1.23),
            referee: "lost a frame".to_owned(),
            note: Some("slow"),
            ..Row::default()
        });
        let table = table(&results, true);
        assert!(table.fits(), "{table}");
        assert!(table.to_string().contains(" 12346x"), "{table}");
        let last = legend(&results, true).pop();
        let last = last.expect("there are lines");
        assert_eq!(
            last,
            "FAILED: buddy_system_allocator in random with 1024 threads: lost a frame"
        );
    }

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [0.125, 9.994, 9.999, 42.0, 99.97, 12345.6].map(|n| number(Some(n), "x"));
        assert_eq!(shown, ["0.12x", "9.99x", "10.0x", "42.0x", "100x", "12346x"]);
        assert_eq!(number(None, "x"), "-");
    }

    #[test]
    fn notes_and_skips_are_said_once() {
        let row = |who: &str, note| Row { contestant: who.to_owned(), note, ..Row::default() };
        let rows = [row("a", Some("slow")), row("b", None), row("c", Some("slow"))];
        assert_eq!(notes(&[&rows[..], &rows[..]].concat()), ["a, c: slow"]);
        let skip = |threads, contestant: Option<&str>| Skipped {
            bench: "fill".to_owned(),
            threads,
            contestant: contestant.map(str::to_owned),
            reason: "why".to_owned(),
        };
        let lines = skips(&[skip(1, Some("a")), skip(2, Some("a")), skip(2, None)]);
        assert_eq!(lines, ["a in fill: why", "fill with 2 threads: why"]);
    }
}
