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
        self.of_sections(title, document, || runs::sections(&results.iter().collect::<Vec<_>>()))
    }

    /// The same for anything else that has sections.
    pub(crate) fn of_sections(
        &self,
        title: &str,
        document: String,
        sections: impl FnOnce() -> Result<Vec<Section>>,
    ) -> Result<()> {
        let Some(path) = &self.report else { return Ok(()) };
        let (title, lead, sections) = (title.to_owned(), vec![command()], sections()?);
        let page = Page { title, lead, sections, document };
        page.write(path, self.figures.as_deref())
    }

    /// The same for a comparison, with its ranking in words. `notes` are what it says below its
    /// table.
    pub(crate) fn of_comparison(
        &self,
        title: &str,
        comparison: &Comparison,
        notes: &[String],
    ) -> Result<()> {
        let Some(path) = &self.report else { return Ok(()) };
        let mut sections = Vec::new();
        for (heading, text) in comparison.rankings() {
            sections.push(Section { heading, text, figures: Vec::new() });
        }
        sections.extend(runs::sections(&comparison.typical_results())?);
        let lead = [command()].into_iter().chain(notes.iter().cloned()).collect();
        let document = serde_json::to_string_pretty(comparison)?;
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
