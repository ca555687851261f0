//! A comparison as text: for each machine what was found and a table, and what goes with the places
//! in full.

use super::comparison::{Comparison, Ranked, WHAT_REASONS_ARE, kind};
use super::document::number;
use super::reasons::in_short;
use super::table::{Table, WIDTH};

/// Two contestants closer than this share of their values are not told apart by one seed: as close
/// ones change places between the sizes of a workload (`tools/check-briefs`).
const CLOSE: f64 = 0.02;

/// How many characters the longest bar has.
const BAR: usize = 12;

impl Comparison {
    /// What was found on the simulated machine, or on the host, and a table. Empty if nothing ran
    /// there.
    pub(crate) fn answer(&self, simulated: bool) -> String {
        let mut text = String::new();
        for all in self.by_machine() {
            if self.typical_of(all[0]).simulated.is_some() == simulated {
                text += &format!("{}\n{}\n", paragraph("", &self.finding(&all)), self.table(&all));
            }
        }
        text
    }

    /// What the columns of the tables mean, and what they leave open; then `notes`.
    pub(crate) fn legend(&self, notes: &[String]) -> String {
        let mut legend = format!("ratio: to {}, seed by seed. ", self.baseline);
        legend += match self.ranking.iter().any(|ranked| ranked.seeds > 1) {
            true => {
                "place: a contestant is ahead of another if it is with all seeds; those between \
                 which that is open share their places."
            }
            false => {
                "place: by one seed, which gives no interval; ≈: so close to the next that it may \
                 as well be a tie."
            }
        };
        if self.results.iter().any(|result| result.simulated.is_some()) {
            legend += " share of time: waiting for the lock most waited for, and in the allocator \
                       besides waiting; barriers do not count.";
        }
        if self.results.iter().any(|result| result.simulated.is_none()) {
            legend += " one CPU alone: to allocate and free a frame.";
        }
        let all = [&legend].into_iter().chain(notes);
        all.map(|text| paragraph("", text)).collect::<Vec<_>>().join("\n")
    }

    /// For each machine, what goes with the places.
    pub(crate) fn why(&self) -> String {
        let mut lines = Vec::new();
        for all in self.by_machine() {
            lines.push(format!("What goes with the places on {}:", all[0].machine));
            for ranked in all {
                let first = ranked.reasons.first().map_or("", String::as_str);
                let text = format!("{}: {first}", self.standing(ranked));
                lines.push(paragraph(&format!("{}. ", ranked.place()), &text));
                lines.extend(ranked.reasons.iter().skip(1).map(|text| paragraph("   - ", text)));
            }
            lines.push(String::new());
        }
        lines.push(paragraph("", WHAT_REASONS_ARE));
        lines.join("\n")
    }

    /// Who is first on a machine, and by how much.
    fn finding(&self, all: &[&Ranked]) -> String {
        let (first, machine) = (all[0], &all[0].machine);
        let goal = self.goal(&first.standings[0]);
        let (value, heading) =
            (goal.shown(first.standings[0].median), goal.heading(self.typical_of(first)));
        let times = |other: &Ranked, which| {
            let ratio = first.standings[0].median / other.standings[0].median;
            ratio.is_finite().then(|| format!("{ratio:.2}x the {which} ({})", other.contestant))
        };
        let leading = all.iter().filter(|other| self.is_open(first, other));
        let names: Vec<_> = leading.map(|ranked| &*ranked.contestant).collect();
        let last = all.last().filter(|last| all.len() > 2 && !names.contains(&&*last.contestant));
        let last = last.and_then(|last| times(last, "last"));
        let mut text = match (names.len(), all.get(1)) {
            (1, Some(next)) => {
                let gaps: Vec<_> = times(next, "next").into_iter().chain(last).collect();
                let gaps = match gaps.is_empty() {
                    true => String::new(),
                    false => format!(", {}", gaps.join(" and ")),
                };
                format!("{} is first on {machine}: {value} {heading}{gaps}", names[0])
            }
            (1, None) => format!("{} on {machine}: {value} {heading}", names[0]),
            _ => {
                let (end, others) = names.split_last().unwrap_or((&"", &[]));
                let names = format!("{} and {end}", others.join(", "));
                let last = last.map(|last| format!(", {last}")).unwrap_or_default();
                format!(
                    "{names} are too close to rank on {machine}: {value} {heading} at best{last}"
                )
            }
        };
        text += &format!("; {}, {}.", kind(self.typical_of(first)), first.seeds_in_words());
        for (nth, standing) in first.standings.iter().enumerate().skip(1) {
            let first = all.iter().filter(|ranked| ranked.standings[nth].place_first == 1);
            let names: Vec<_> = first.map(|ranked| &*ranked.contestant).collect();
            let heading = self.goal(standing).heading(self.typical_of(all[0]));
            text += &match names.len() < all.len() {
                true => format!(" First in {heading}: {}.", names.join(", ")),
                false => format!(" All tie in {heading}."),
            };
        }
        text
    }

    /// Whether it is open which of two contestants is ahead by the first goal, by one seed: by how
    /// far its samples spread. By several seeds, whether nobody is ahead of the other.
    fn is_open(&self, first: &Ranked, other: &Ranked) -> bool {
        if first.seeds > 1 {
            return other.standings[0].place_first == 1;
        }
        let [one, two] = [first, other].map(|of| of.standings[0].median);
        let spread =
            |of: &Ranked| number(self.typical_of(of).workload_specific.get("spread")).max(CLOSE);
        (one - two).abs() <= spread(first).max(spread(other)) * one.abs().min(two.abs())
    }

    /// A row for each contestant on a machine; without the reasons and the bars if the table would
    /// be too wide.
    fn table(&self, all: &[&Ranked]) -> Table {
        let with = [(true, true), (true, false)];
        let mut tables = with.into_iter().map(|with| self.table_with(all, with));
        tables.find(Table::fits).unwrap_or_else(|| self.table_with(all, (false, false)))
    }

    fn table_with(&self, all: &[&Ranked], (with_bars, with_reasons): (bool, bool)) -> Table {
        let typical = self.typical_of(all[0]);
        let mut headings = vec!["design".to_owned()];
        for standing in &all[0].standings {
            headings.push(self.goal(standing).heading(typical));
            headings.extend(["ratio", "place"].map(str::to_owned));
        }
        let numbers = headings.len();
        headings.extend(with_bars.then(String::new));
        let why = if typical.simulated.is_some() { "share of time" } else { "one CPU alone" };
        headings.extend(with_reasons.then(|| why.to_owned()));
        let longest = all.iter().map(|of| of.standings[0].median).fold(0.0, f64::max);
        let mut table = Table::new(headings).numbers_in(1..numbers);
        for (nth, ranked) in all.iter().enumerate() {
            let mut row = vec![ranked.contestant.clone()];
            for (number, standing) in ranked.standings.iter().enumerate() {
                row.push(self.goal(standing).shown(standing.median));
                row.push(format!("{:.2}x", standing.ratio));
                let next = all.get(nth + 1).filter(|_| number == 0 && ranked.seeds == 1);
                let is_close = next.is_some_and(|next| self.is_open(ranked, next));
                row.push(format!("{}{}", if is_close { "≈" } else { "" }, standing.place()));
            }
            row.extend(with_bars.then(|| bar(ranked.standings[0].median / longest)));
            row.extend(with_reasons.then(|| in_short(self.typical_of(ranked))));
            table.row(row);
        }
        table
    }
}

/// A bar of so much of the longest, to an eighth of a character.
fn bar(share: f64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = (share * (8 * BAR) as f64).round() as usize;
    "█".repeat(eighths / 8) + EIGHTHS[eighths % 8]
}

/// Text that fits the width, indented below its bullet.
fn paragraph(bullet: &str, text: &str) -> String {
    let indent = " ".repeat(bullet.len());
    let options = textwrap::Options::new(usize::from(WIDTH))
        .initial_indent(bullet)
        .subsequent_indent(&indent)
        .word_splitter(textwrap::WordSplitter::NoHyphenation);
    // A number stays with its unit: lines are broken only at spaces.
    let units = [" %", " ns", " µs", " ms"];
    let glued = units
        .iter()
        .fold(text.to_owned(), |text, unit| text.replace(unit, &unit.replace(' ', "\u{a0}")));
    textwrap::fill(&glued, options).replace('\u{a0}', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::by_hand::measured;
    use crate::report::comparison::Terms;
    use crate::report::document::RunResult;
    use crate::report::goal::RATE;

    fn of(results: Vec<RunResult>) -> Comparison {
        let baseline = "zone-lock".to_owned();
        let terms = Terms { baseline, varied: None, goals: &[RATE], telling: &[] };
        Comparison::new(results, terms).unwrap()
    }

    /// Three contestants with these rates, whose samples spread by so much.
    fn on_host(rates: [f64; 3], spread: f64) -> Comparison {
        let names = ["zone-lock", "freehold", "cluster"];
        of(names.iter().zip(rates).map(|(name, rate)| measured(name, rate, spread)).collect())
    }

    fn first_sentence(comparison: &Comparison) -> String {
        let answer = comparison.answer(false).replace('\n', " ");
        answer.split_once(';').unwrap().0.to_owned()
    }

    #[test]
    fn the_answer_says_who_is_first_and_by_how_much() {
        let comparison = on_host([1e6, 3e6, 2e6], 0.01);
        let clear = "freehold is first on host: 3.00 M faults/s, 1.50x the next (cluster) and \
                     3.00x the last (zone-lock)";
        assert_eq!(first_sentence(&comparison), clear);
        assert_eq!(comparison.answer(true), "", "nothing was simulated");
    }

    #[test]
    fn the_answer_names_no_first_where_one_seed_cannot_tell() {
        let close = "freehold and cluster are too close to rank on host: 3.00 M faults/s at best, \
                     3.00x the last (zone-lock)";
        assert_eq!(first_sentence(&on_host([1e6, 3e6, 2.5e6], 0.3)), close);
        assert_eq!(first_sentence(&on_host([1e6, 3e6, 2.99e6], 0.0)), close);
        let all = first_sentence(&on_host([2.9e6, 3e6, 2.99e6], 0.1));
        assert!(all.starts_with("freehold, cluster and zone-lock are too close"), "{all}");
        assert!(!all.contains("the last"), "{all}");
    }

    #[test]
    fn close_places_are_marked_and_bars_are_as_long_as_their_figures() {
        let answer = on_host([1e6, 3e6, 2.99e6], 0.0).answer(false);
        let rows = answer.lines().filter(|line| line.contains('█'));
        let rows: Vec<Vec<_>> = rows.map(|row| row.split_whitespace().collect()).collect();
        let cells: Vec<_> = rows.iter().map(|row| (row[0], row[4], row[5])).collect();
        let expected = [
            ("freehold", "≈1", "████████████"),
            ("cluster", "2", "████████████"),
            ("zone-lock", "3", "████"),
        ];
        assert_eq!(cells, expected, "{answer}");
        assert_eq!((bar(0.5), bar(1.0 / 96.0)), ("██████".to_owned(), "▏".to_owned()));
    }

    #[test]
    fn a_number_stays_with_its_unit() {
        // Room for the number, but not for its unit.
        let words = "word ".repeat(18);
        for unit in ["%", "ns", "µs", "ms"] {
            let text = paragraph("1. ", &format!("{words}12.567 {unit}"));
            let last = text.lines().last().unwrap();
            assert_eq!(last, format!("   12.567 {unit}"), "{text}");
        }
    }
}
