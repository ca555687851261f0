//! The table of published results.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};

use crate::cli::{Cli, Command, RunArgs};

/// The table: sources, and what they say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    #[serde(rename = "source")]
    pub(super) sources: Vec<Source>,
    #[serde(rename = "result")]
    pub(super) items: Vec<Item>,
}

/// Where results were published.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    pub(super) id: String,
    /// Author, title, date, and where it can be read.
    pub(super) text: String,
}

/// One published measurement, of one figure or several.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Item {
    pub(super) name: String,
    pub(super) what: String,
    /// The source, by its id.
    pub(super) source: String,
    /// Where it was measured, and under which kernel.
    pub(super) machine: String,
    pub(super) kernel: String,
    /// The run that predicts it: the arguments of `freehold run`.
    run: String,
    /// What else is set to predict it again, at what its kernel's LRU costs.
    #[serde(default)]
    pub(super) linux: Option<String>,
    /// Whether figures of the simulated machine were fitted to it.
    #[serde(default)]
    pub(super) calibrated: bool,
    /// How the simulated machine differs, if it is not the same.
    #[serde(default)]
    pub(super) other_machine: Option<String>,
    /// How far the run is not what was measured, and what is known of a difference.
    #[serde(default)]
    pub(super) note: Option<String>,
    #[serde(rename = "figure")]
    pub(super) figures: Vec<Figure>,
}

/// One figure.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Figure {
    pub(super) what: String,
    pub(super) unit: Unit,
    pub(super) published: f64,
    /// Where it is in the result, as a JSON pointer. A part that is a lock's name means that lock.
    pub(super) at: String,
    /// What it is divided by, in the same result.
    #[serde(default)]
    pub(super) per: Option<String>,
    /// The run, if it is not that of the item.
    #[serde(default)]
    run: Option<String>,
    /// The run with whose value it is compared: a ratio.
    #[serde(default)]
    pub(super) to: Option<String>,
    /// What an earlier version said, and what that was without.
    #[serde(default)]
    pub(super) before: Option<Before>,
}

/// A prediction of an earlier version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Before {
    pub(super) predicted: f64,
    pub(super) without: String,
}

/// The unit of a figure.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    /// Of a whole: compared by the difference in points.
    Share,
    /// A change or a quotient of two figures.
    Ratio,
    PerSecond,
    Ns,
}

impl Published {
    /// The table with this text.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let published: Published = toml::from_str(text).context("the published results")?;
        let ids: BTreeSet<_> = published.sources.iter().map(|source| &source.id).collect();
        let mut names = BTreeSet::new();
        for item in &published.items {
            let name = &item.name;
            ensure!(names.insert(name), "two results have the name {name}");
            ensure!(ids.contains(&item.source), "{name}: there is no source {}", item.source);
            ensure!(!item.figures.is_empty(), "{name} has no figure");
            for figure in &item.figures {
                let is_ratio = figure.to.is_some() || figure.per.is_some();
                let fits = is_ratio || figure.unit != Unit::Ratio;
                ensure!(fits, "{name}, {}: a ratio needs `to` or `per`", figure.what);
            }
        }
        Ok(published)
    }
}

impl Item {
    /// All runs that its figures need, without its kernel's costs.
    pub(super) fn runs(&self) -> impl Iterator<Item = &str> {
        self.figures
            .iter()
            .flat_map(|figure| [Some(figure.run(self)), figure.to.as_deref()].into_iter().flatten())
    }

    /// The same run with its kernel's costs, if there is one.
    pub(super) fn as_linux(&self, run: &str) -> Option<String> {
        self.linux.as_ref().map(|settings| {
            let set = settings.split(' ').map(|setting| format!(" --set {setting}"));
            run.to_owned() + &set.collect::<String>()
        })
    }

    /// Both.
    pub(super) fn all_runs(&self) -> impl Iterator<Item = String> {
        self.runs().flat_map(|run| [Some(run.to_owned()), self.as_linux(run)]).flatten()
    }
}

impl Figure {
    /// The run that predicts it.
    pub(super) fn run<'a>(&'a self, of: &'a Item) -> &'a str {
        self.run.as_deref().unwrap_or(&of.run)
    }
}

/// Each of these runs once, in the order in which they come first.
pub(super) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut runs = Vec::new();
    for run in all {
        if !runs.contains(&run) {
            runs.push(run);
        }
    }
    runs
}

/// The arguments of a run, as a user types them.
pub(super) fn parsed(run: &str) -> Result<RunArgs> {
    let words = ["freehold", "run"].into_iter().chain(run.split_whitespace());
    match Cli::try_parse_from(words).with_context(|| run.to_owned())?.command {
        Command::Run(args) => Ok(args),
        _ => bail!("{run} is no run"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = r#"
        [[source]]
        id = "a"
        text = "A. Author, *On Pages*, 2020"
        [[result]]
        name = "one"
        what = "faults"
        source = "a"
        machine = "a large one"
        kernel = "6.1"
        run = "page-fault --machine uma-2"
        [[result.figure]]
        what = "rate"
        unit = "per_second"
        published = 7.0
        at = "/work/per_second"
    "#;

    #[test]
    fn what_is_wrong_with_the_table_is_said() {
        assert_eq!(Published::parse(ONE).unwrap().items[0].runs().count(), 1);
        let refused = |from: &str, to: &str| {
            format!("{:#}", Published::parse(&ONE.replace(from, to)).unwrap_err())
        };
        assert!(refused("source = \"a\"", "source = \"b\"").contains("no source b"));
        assert!(refused("per_second", "ratio").contains("a ratio needs"));
        assert!(refused("kernel =", "kernels =").contains("unknown field `kernels`"));
        let twice = format!("{ONE}{}", &ONE[ONE.find("[[result]]").unwrap()..]);
        assert!(format!("{:#}", Published::parse(&twice).unwrap_err()).contains("the name one"));
    }

    #[test]
    fn runs_are_parsed_as_they_are_typed() {
        assert_eq!(parsed("page-fault --cpus 2").unwrap().cells.cpus, [2]);
        let error = parsed("page-fault --cpus zero").unwrap_err();
        assert!(format!("{error:#}").contains("zero"), "{error:#}");
    }

    mod fuzz {
        use std::time::Duration;

        use super::*;

        #[test]
        fn any_table_is_read_or_refused() {
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(
                |bytes: &[u8]| {
                    let text = String::from_utf8_lossy(bytes);
                    let Ok(published) = Published::parse(&text) else { return };
                    for run in distinct(published.items.iter().flat_map(Item::runs)) {
                        let _ = parsed(run);
                    }
                },
            );
        }

        /// Sizes, lists and settings of a command line, for all of its commands.
        #[test]
        fn any_command_line_is_parsed_or_refused() {
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(
                |bytes: &[u8]| {
                    let line = String::from_utf8_lossy(bytes);
                    let words = line.split_whitespace();
                    match Cli::try_parse_from(["freehold"].into_iter().chain(words)) {
                        Ok(cli) => drop(format!("{cli:?}")),
                        Err(error) => drop(error.to_string()),
                    }
                },
            );
        }
    }
}
