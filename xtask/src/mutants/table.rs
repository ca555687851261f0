//! The tables: what is broken in which file, and which test must notice.

use std::collections::BTreeSet;
use std::path::Path;
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// One file of `table/`: the places in one source file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    /// The source file, from the root of the repository.
    pub(crate) file: String,
    #[serde(default, rename = "mutant")]
    mutants: Vec<MutantEntry>,
    #[serde(default, rename = "point")]
    points: Vec<PointEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MutantEntry {
    name: String,
    #[serde(rename = "in")]
    within: Option<String>,
    find: String,
    replace: String,
    killed_by: Option<String>,
    lives: Option<String>,
    reached_by: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointEntry {
    name: String,
    #[serde(rename = "in")]
    within: Option<String>,
    find: String,
    reached_by: String,
}

/// A place in a source file: a mutant, or a point that a test must reach.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// `function: what is broken`.
    pub(crate) name: String,
    /// The source file, from the root of the repository.
    pub(crate) file: String,
    /// A part of the first line of the item that contains the text.
    pub(crate) within: String,
    /// The text, exactly once in that item.
    pub(crate) find: String,
    /// The mutant's replacement; empty if it omits the text. A point has none.
    pub(crate) replace: Option<String>,
    /// The test that must reach the place.
    pub(crate) test: String,
    pub(crate) fate: Fate,
}

/// The required result of the test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It fails with the mutant.
    Killed,
    /// It passes with the mutant, and so do all others; with the reason.
    Lives(String),
    /// It reaches the point.
    Reached,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} in {}", self.name, self.file)
    }
}

impl MutantEntry {
    fn place(self, file: &str) -> Result<Place> {
        let name = self.name;
        let (fate, test) = match (self.killed_by, self.lives, self.reached_by) {
            (Some(test), None, None) => (Fate::Killed, test),
            (None, Some(reason), Some(test)) => (Fate::Lives(reason), test),
            _ => bail!("{name:?}: give `killed_by`, or `lives` with the reason and `reached_by`"),
        };
        let (find, replace) = (self.find, Some(self.replace));
        let within = header(self.within, &name)?;
        Ok(Place { name, file: file.to_owned(), within, find, replace, test, fate })
    }
}

impl PointEntry {
    fn place(self, file: &str) -> Result<Place> {
        let within = header(self.within, &self.name)?;
        Ok(Place {
            name: self.name,
            file: file.to_owned(),
            within,
            find: self.find,
            replace: None,
            test: self.reached_by,
            fate: Fate::Reached,
        })
    }
}

/// A part of the item's first line: as given, or the function that the name begins with.
fn header(within: Option<String>, name: &str) -> Result<String> {
    let function = name.split_once(": ").map(|(function, _)| format!("fn {function}"));
    within.or(function).with_context(|| {
        format!("{name:?}: begin the name with the function and a colon, or say where with `in`")
    })
}

/// Reads all tables of a folder, in the order of their names.
pub(crate) fn read(folder: &Path) -> Result<Vec<Place>> {
    let entries = fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))?;
    let mut paths: Vec<_> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    let mut places = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path)?;
        places.extend(parse(&text).with_context(|| format!("in {}", path.display()))?);
    }
    let mut names = BTreeSet::new();
    for place in &places {
        ensure!(names.insert(&place.name), "two places have the name {:?}", place.name);
    }
    ensure!(!places.is_empty(), "{} has no tables of mutants", folder.display());
    Ok(places)
}

/// The places of one table.
pub(crate) fn parse(text: &str) -> Result<Vec<Place>> {
    let Table { file, mutants, points } = toml::from_str(text)?;
    let mutants = mutants.into_iter().map(|mutant| mutant.place(&file));
    mutants.chain(points.into_iter().map(|point| point.place(&file))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(entry: &str) -> String {
        let text = format!("file = \"a.rs\"\n[[mutant]]\nfind = \"a\"\nreplace = \"b\"\n{entry}");
        format!("{:#}", parse(&text).expect_err("it is wrong"))
    }

    #[test]
    fn a_mutant_is_looked_for_in_the_function_that_its_name_begins_with() {
        let text = "file = \"a.rs\"\n[[mutant]]\nname = \"f: no g\"\nfind = \"g();\"\n\
                    replace = \"\"\nkilled_by = \"t\"";
        let [place] = parse(text).expect("it is right").try_into().expect("it is one");
        assert_eq!((place.within.as_str(), place.fate), ("fn f", Fate::Killed));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(error("name = \"f: g\"").contains("give `killed_by`"));
        assert!(error("name = \"f: g\"\nlives = \"why\"").contains("`reached_by`"));
        assert!(error("name = \"f\"\nkilled_by = \"t\"").contains("say where with `in`"));
        assert!(error("name = \"f: g\"\nkilled_by = \"t\"\nkiled = 1").contains("killed"));
    }
}
