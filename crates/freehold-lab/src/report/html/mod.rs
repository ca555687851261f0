//! `--report FILE.html`: results as a page with charts, to look at and to send.

pub(crate) mod chart;
pub(crate) mod page;
mod runs;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::comparison::Comparison;
use super::document::RunResult;
use page::{Page, Section};

/// Where a command writes its page.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Also write a page for a browser, with charts: one file that needs nothing else.
    #[arg(long, value_name = "FILE.html")]
    pub(crate) report: Option<PathBuf>,

    /// With --report: write each chart as an SVG file into this folder as well.
    #[arg(long, value_name = "DIR", requires = "report")]
    pub(crate) figures: Option<PathBuf>,
}

impl ReportArgs {
    /// Writes the page of results, if one is asked for. `document` is what `--json` prints.
    pub(crate) fn of_runs(
        &self,
        title: &str,
        results: &[RunResult],
        document: String,
    ) -> Result<()> {
        let sections = || runs::sections(&results.iter().collect::<Vec<_>>());
        self.of_sections(title, &[], || Ok((sections()?, document)))
    }

    /// The same for a comparison, with its ranking in words.
    pub(crate) fn of_comparison(
        &self,
        title: &str,
        comparison: &Comparison,
        notes: &[String],
    ) -> Result<()> {
        self.of_sections(title, notes, || {
            let ranking = |(heading, text)| Section { heading, text, figures: Vec::new() };
            let mut sections: Vec<_> = comparison.rankings().into_iter().map(ranking).collect();
            sections.extend(runs::sections(&comparison.typical_results())?);
            Ok((sections, serde_json::to_string_pretty(comparison)?))
        })
    }

    /// The same for anything that has sections and a document. `notes` are what the command says
    /// below its table.
    pub(crate) fn of_sections(
        &self,
        title: &str,
        notes: &[String],
        parts: impl FnOnce() -> Result<(Vec<Section>, String)>,
    ) -> Result<()> {
        let Some(path) = &self.report else { return Ok(()) };
        let (sections, document) = parts()?;
        let lead = [command()].into_iter().chain(notes.iter().cloned()).collect();
        let page = Page { title: title.to_owned(), lead, sections, document };
        page.write(path, self.figures.as_deref())
    }
}

/// The command, as it was typed.
fn command() -> String {
    let quoted = |argument: String| match argument.contains(char::is_whitespace) {
        true => format!("'{argument}'"),
        false => argument,
    };
    let arguments: Vec<_> = std::env::args().skip(1).map(quoted).collect();
    format!("freehold {}", arguments.join(" "))
}
