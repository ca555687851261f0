//! What a document has figures of, and which cells of two documents are the same.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use crate::report::figure::Worse;

/// One thing that was run, with its figures.
#[derive(Debug)]
pub(super) struct Cell {
    /// What was run, by name. Equal in cells that are compared.
    pub(super) key: Vec<(&'static str, String)>,
    /// Further choices. Equal as far as both cells have them.
    pub(super) settings: BTreeMap<String, String>,
    /// The cell in words, except for its contestant.
    pub(super) title: String,
    /// The design, or whatever else took part.
    pub(super) contestant: String,
    /// Whether a simulated machine has made the figures, so that none is chance.
    pub(super) simulated: bool,
    pub(super) readings: Vec<Reading>,
}

/// One figure of a cell.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    pub(super) name: &'static str,
    pub(super) unit: String,
    pub(super) worse: Worse,
    pub(super) value: f64,
    /// What it is the median of, round by round; none if it was measured once.
    pub(super) rounds: Vec<Vec<f64>>,
}

impl Reading {
    /// Name and unit in words.
    pub(super) fn label(&self) -> String {
        match self.name {
            "per_second" => self.unit.clone(),
            name => name.replace('_', " "),
        }
    }
}

impl Cell {
    /// Whether the two are the same, run twice.
    fn is_same(&self, other: &Self) -> bool {
        self.key == other.key && self.differing(other).next().is_none()
    }

    /// The settings of both that differ: name, own value, the other's value.
    fn differing<'c>(
        &'c self,
        other: &'c Self,
    ) -> impl Iterator<Item = (&'c str, &'c str, &'c str)> {
        self.settings.iter().filter_map(|(name, own)| {
            let others = other.settings.get(name).filter(|others| *others != own)?;
            Some((name.as_str(), own.as_str(), others.as_str()))
        })
    }

    /// The cell in words.
    pub(super) fn in_words(&self) -> String {
        format!("{} in {}", self.contestant, self.title)
    }

    /// The same for one without a counterpart: with the settings that keep it from being the same
    /// as some cell of the other document.
    pub(super) fn in_words_beside(&self, others: &[Cell]) -> String {
        let alike = others.iter().find(|other| other.key == self.key);
        let differing = alike.into_iter().flat_map(|other| self.differing(other));
        let differing = differing.map(|(name, own, other)| format!("{name}={own}, not {other}"));
        let differing: Vec<_> = differing.collect();
        match differing[..] {
            [] => self.in_words(),
            _ => format!("{} ({})", self.in_words(), differing.join(", ")),
        }
    }
}

/// Refuses two cells that are the same, and says in titles what else tells cells apart.
pub(super) fn tell_apart(cells: &mut [Cell]) -> Result<()> {
    let mut titles = Vec::new();
    for (at, cell) in cells.iter().enumerate() {
        if cells[..at].iter().any(|before| before.is_same(cell)) {
            bail!(
                "it has {} twice: store each command's document in a file of its own, and name \
                   each design and number of CPUs once",
                cell.in_words()
            );
        }
        let alike = cells.iter().filter(|other| other.key == cell.key);
        let mut names: Vec<_> = alike
            .flat_map(|other| cell.differing(other))
            .map(|(name, own, _)| (name, own))
            .collect();
        names.sort_unstable();
        names.dedup();
        let names = names.into_iter().map(|(name, own)| format!(", {name}={own}"));
        titles.push(format!("{}{}", cell.title, names.collect::<String>()));
    }
    for (cell, title) in cells.iter_mut().zip(titles) {
        cell.title = title;
    }
    Ok(())
}

/// Cells that two documents share, and those that only one of them has.
pub(super) struct Matched<'c> {
    pub(super) both: Vec<(&'c Cell, &'c Cell)>,
    pub(super) only_a: Vec<&'c Cell>,
    pub(super) only_b: Vec<&'c Cell>,
}

/// Finds each cell's counterpart. Fails if there are several: they differ in settings that the cell
/// does not have.
pub(super) fn matched<'c>(a: &'c [Cell], b: &'c [Cell]) -> Result<Matched<'c>> {
    let mut matched = Matched { both: Vec::new(), only_a: Vec::new(), only_b: Vec::new() };
    for cell in a {
        match counterparts(cell, b)?[..] {
            [] => matched.only_a.push(cell),
            [other, ..] => matched.both.push((cell, other)),
        }
    }
    for cell in b {
        if counterparts(cell, a)?.is_empty() {
            matched.only_b.push(cell);
        }
    }
    Ok(matched)
}

fn counterparts<'c>(cell: &Cell, others: &'c [Cell]) -> Result<Vec<&'c Cell>> {
    let same: Vec<_> = others.iter().filter(|other| other.is_same(cell)).collect();
    if let [one, other, ..] = same[..] {
        let (one, other) = (one.in_words(), other.in_words());
        bail!(
            "{} could be {one} or {other}: run both with one version of freehold",
            cell.in_words()
        );
    }
    Ok(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(design: &str, settings: &[(&str, &str)]) -> Cell {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Cell {
            key: vec![("design", design.to_owned())],
            settings: settings.iter().map(own).collect(),
            title: "bulk on host".to_owned(),
            contestant: design.to_owned(),
            simulated: false,
            readings: Vec::new(),
        }
    }

    #[test]
    fn cells_that_cannot_be_told_apart_are_refused() {
        let mut twice = [cell("x", &[("pcp", "auto")]), cell("x", &[("pcp", "auto")])];
        let error = tell_apart(&mut twice).unwrap_err().to_string();
        assert!(error.starts_with("it has x in bulk on host twice: "), "{error}");
        let mut apart = [cell("x", &[("pcp", "auto")]), cell("x", &[("pcp", "fixed")])];
        tell_apart(&mut apart).unwrap();
        assert_eq!(apart[1].in_words(), "x in bulk on host, pcp=fixed");
        let error = matched(&[cell("x", &[])], &apart).err().unwrap().to_string();
        assert!(error.contains("could be x in bulk on host, pcp=auto or x in"), "{error}");
    }
}
