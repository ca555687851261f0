//! The results of a race as text.

use anyhow::Result;

use super::results::{MetadataRow, OK, Results, Row, Skipped};
use crate::report::document::threads_in_words;
use crate::report::out;
use crate::report::profile::MEASURED;
use crate::report::table::{Table, WIDTH};

/// Prints the measurements, a table, and below it everything that does not fit into one.
pub(super) fn print(results: &Results) -> Result<()> {
    let filled = |line: &str| textwrap::fill(line, usize::from(WIDTH));
    out!("{}", filled(&heading(results)));
    for line in rows(results) {
        out!("{line}");
    }
    let shown = Shown::of(results);
    for line in legend(results, shown) {
        out!("{}", filled(&line));
    }
    if !results.metadata.is_empty() {
        out!("{}", metadata(&results.metadata));
    }
    for line in findings(results) {
        out!("{}", filled(&line));
    }
    Ok(())
}

/// The kind of the figures.
fn heading(results: &Results) -> String {
    let rounds = results.rounds;
    let plural = if rounds == 1 { "" } else { "s" };
    format!(
        "{MEASURED}: medians of {rounds} round{plural}, in ns for a frame (in order3, huge and \
         mixed: a block) and thread."
    )
}

/// What is available for comparison.
#[derive(Clone, Copy)]
struct Shown {
    freehold: bool,
    best_peer: bool,
}

impl Shown {
    fn of(results: &Results) -> Self {
        let any = |of: fn(&Row) -> Option<f64>| results.results.iter().any(|row| of(row).is_some());
        Shown {
            freehold: any(|row| row.ratio_to_freehold),
            best_peer: any(|row| row.ratio_to_best_peer),
        }
    }
}

/// The lines of the table: those of a heat below its title.
fn rows(results: &Results) -> Vec<String> {
    let text = table(results, Shown::of(results)).to_string();
    let mut lines = text.lines().map(str::to_owned);
    let mut all: Vec<_> = lines.by_ref().take(2).collect();
    let mut last = None;
    for (row, line) in results.results.iter().zip(lines) {
        let heat = Some((&row.bench, row.threads, row.memory));
        if heat != last {
            last = heat;
            all.push(title(row));
        }
        all.push(line);
    }
    all
}

/// The title of a row's heat.
fn title(row: &Row) -> String {
    let Row { bench, threads, memory, best_peer, .. } = row;
    let threads = threads_in_words(*threads);
    let best = best_peer.as_ref().map(|peer| format!("; best peer: {peer}"));
    format!("{bench}, {threads}, memory {memory}x{}", best.unwrap_or_default())
}

fn table(results: &Results, shown: Shown) -> Table {
    let mut headings = vec!["contestant", "get ns", "put ns", "pair ns", "locks"];
    if shown.freehold {
        headings.extend(["freehold", "spread"]);
    }
    if shown.best_peer {
        headings.extend(["best peer", "spread"]);
    }
    let mut table = Table::new(headings).numbers_from(1);
    for row in &results.results {
        let mark = if row.notes.is_empty() { "" } else { "*" };
        let mut cells = vec![format!("  {}{mark}", row.contestant)];
        cells.extend([row.get_ns, row.put_ns].map(|ns| number(ns, "")));
        cells.push(if row.referee == OK { number(row.pair_ns, "") } else { "FAILED".to_owned() });
        cells.push(number(row.lock_pairs, ""));
        let percent =
            |of: Option<f64>| of.map_or("-".to_owned(), |of| format!("{:.0} %", of * 1e2));
        if shown.freehold {
            cells.extend([number(row.ratio_to_freehold, "x"), percent(row.ratio_spread)]);
        }
        if shown.best_peer {
            cells.extend([number(row.ratio_to_best_peer, "x"), percent(row.best_peer_spread)]);
        }
        table.row(cells);
    }
    table
}

/// Explains the columns of the table.
fn legend(results: &Results, shown: Shown) -> Vec<String> {
    let Results { lock_pair_ns, vec_pair_ns, .. } = results;
    let mut lines = vec![format!(
        "memory: as a multiple of what all threads hold. pair: get and put. locks: a pair in \
         uncontended lock/unlock pairs, which took {lock_pair_ns:.2} ns. A Vec pop and push took \
         {vec_pair_ns:.2} ns."
    )];
    let to = [(shown.freehold, "freehold"), (shown.best_peer, "best peer")];
    let to: Vec<_> =
        to.into_iter().filter_map(|(is_shown, name)| is_shown.then_some(name)).collect();
    if !to.is_empty() {
        lines.push(format!(
            "{}: how many times as long a pair takes as theirs, taken round by round. spread: of \
             these ratios, (max - min) / median.",
            to.join(", ")
        ));
    }
    lines.extend(notes(&results.results).into_iter().map(|note| format!("* {note}")));
    lines
}

/// The size of each contestant's metadata, by memory.
fn metadata(rows: &[MetadataRow]) -> Table {
    let mut memories: Vec<f64> = Vec::new();
    let mut contestants: Vec<&str> = Vec::new();
    for row in rows {
        if !memories.contains(&row.memory) {
            memories.push(row.memory);
        }
        if !contestants.contains(&&*row.contestant) {
            contestants.push(&row.contestant);
        }
    }
    let headings = memories.iter().map(|memory| format!("memory {memory}x"));
    let headings = ["metadata, bytes a frame".to_owned()].into_iter().chain(headings);
    let mut table = Table::new(headings).numbers_from(1);
    for contestant in contestants {
        let of = |&memory: &f64| {
            let is = |row: &&MetadataRow| row.contestant == contestant && row.memory == memory;
            number(rows.iter().find(is).map(|row| row.frame_metadata_bytes), "")
        };
        let cells = [format!("  {contestant}")].into_iter().chain(memories.iter().map(of));
        table.row(cells);
    }
    table
}

/// What was left out, what has failed, and freehold's standing.
fn findings(results: &Results) -> Vec<String> {
    let left_out = skips(&results.skipped).into_iter().map(|skip| format!("Left out: {skip}"));
    let failed = results.failed().map(|row| {
        let Row { contestant, bench, threads, memory, referee, .. } = row;
        let threads = threads_in_words(*threads);
        format!("FAILED: {contestant} in {bench}, {threads}, memory {memory}x: {referee}")
    });
    left_out.chain(failed).chain(results.standing.iter().map(ToString::to_string)).collect()
}

/// A number with three digits, or more if it is large.
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
        for &note in &row.notes {
            let who = row.contestant.as_str();
            match notes.iter_mut().find(|(of, _)| *of == note) {
                Some((_, all)) if all.contains(&who) => (),
                Some((_, all)) => all.push(who),
                None => notes.push((note, vec![who])),
            }
        }
    }
    notes.into_iter().map(|(note, who)| format!("{}: {note}", who.join(", "))).collect()
}

/// One line for each bench and reason, whatever the number of threads and the memory.
fn skips(skipped: &[Skipped]) -> Vec<String> {
    let mut lines = Vec::new();
    for Skipped { bench, threads, memory, contestant, reason } in skipped {
        let line = match contestant {
            Some(contestant) => format!("{contestant} in {bench}: {reason}"),
            None => {
                let threads = threads_in_words(*threads);
                format!("{bench}, {threads}, memory {memory}x: {reason}")
            }
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

    fn results(rows: Vec<Row>) -> Results {
        Results {
            schema: super::super::results::SCHEMA,
            machine: "host",
            profile: "release",
            rounds: 1000,
            frames: 64,
            lock_pair_ns: 5.0,
            vec_pair_ns: 1.0,
            results: rows,
            metadata: Vec::new(),
            skipped: Vec::new(),
            standing: Vec::new(),
        }
    }

    fn row(contestant: &str, bench: &str, memory: f64) -> Row {
        let (contestant, bench) = (contestant.to_owned(), bench.to_owned());
        Row { contestant, bench, memory, threads: 1, referee: OK.to_owned(), ..Row::default() }
    }

    #[test]
    fn the_widest_row_fits() {
        let large = Some(123_456.7);
        let results = results(vec![Row {
            get_ns: large,
            put_ns: large,
            pair_ns: large,
            lock_pairs: large,
            ratio_to_freehold: Some(12_345.6),
            ratio_spread: Some(1.23),
            ratio_to_best_peer: large,
            best_peer_spread: Some(1.23),
            notes: vec!["slow"],
            ..row("buddy_system_allocator", "random", 1.5)
        }]);
        let table = table(&results, Shown::of(&results));
        assert!(table.fits(), "{table}");
        assert!(table.to_string().contains(" 12346x"), "{table}");
    }

    #[test]
    fn a_failure_is_named_with_its_heat_and_reason() {
        let failed = Row { referee: "lost a frame".to_owned(), ..row("bad", "random", 1.5) };
        let results = results(vec![failed]);
        assert!(rows(&results)[3].contains("FAILED"));
        let expected = "FAILED: bad in random, 1 thread, memory 1.5x: lost a frame";
        assert_eq!(findings(&results), [expected]);
    }

    #[test]
    fn metadata_is_listed_by_memory() {
        let of = |contestant: &str, memory, bytes| MetadataRow {
            contestant: contestant.to_owned(),
            memory,
            managed_frames: 1000,
            metadata_bytes: 0,
            frame_metadata_bytes: bytes,
        };
        let rows = [of("a", 1.5, 16.0), of("b", 1.5, 0.5), of("a", 16.0, 8.0)];
        let text = metadata(&rows).to_string();
        let cells: Vec<Vec<_>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(text.starts_with(" metadata, bytes a frame"), "{text}");
        assert_eq!((&cells[2], &cells[3]), (&vec!["a", "16.0", "8.00"], &vec!["b", "0.50", "-"]));
    }

    #[test]
    fn numbers_keep_three_digits() {
        let shown = [0.125, 9.994, 9.999, 42.0, 99.97, 12345.6].map(|n| number(Some(n), "x"));
        assert_eq!(shown, ["0.12x", "9.99x", "10.0x", "42.0x", "100x", "12346x"]);
        assert_eq!(number(None, "x"), "-");
    }

    #[test]
    fn notes_and_skips_are_said_once() {
        let noted = |who: &str, notes| Row { notes, ..row(who, "fill", 1.5) };
        let rows =
            [noted("a", vec!["slow"]), noted("b", Vec::new()), noted("c", vec!["slow", "large"])];
        assert_eq!(notes(&[&rows[..], &rows[..]].concat()), ["a, c: slow", "c: large"]);
        let skip = |threads, contestant: Option<&str>| Skipped {
            bench: "fill".to_owned(),
            threads,
            memory: 16.0,
            contestant: contestant.map(str::to_owned),
            reason: "why".to_owned(),
        };
        let lines = skips(&[skip(1, Some("a")), skip(2, Some("a")), skip(2, None)]);
        assert_eq!(lines, ["a in fill: why", "fill, 2 threads, memory 16x: why"]);
    }
}
