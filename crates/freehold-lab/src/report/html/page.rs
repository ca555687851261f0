//! A page for a browser: one file, without scripts and without anything from elsewhere.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A page.
pub(crate) struct Page {
    pub(crate) title: String,
    /// What kind of figures these are, the command that made them, and what they leave open.
    pub(crate) lead: Vec<String>,
    pub(crate) sections: Vec<Section>,
    /// The document that holds all figures.
    pub(crate) document: String,
}

/// A part of a page under a heading.
pub(crate) struct Section {
    pub(crate) heading: String,
    pub(crate) text: Vec<String>,
    pub(crate) figures: Vec<Figure>,
}

/// A chart, and its numbers.
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) caption: String,
    pub(crate) svg: Markup,
    pub(crate) headings: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Figure {
    /// The name of its file.
    fn file_name(&self, nth: usize) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = self.title.chars().map(plain).collect();
        format!("{:02}-{}.svg", nth + 1, name.trim_matches('-'))
    }
}

/// Light and dark, narrow and wide. Without a colour here, series have those of the charts.
const STYLE: &str = "
:root { color-scheme: light dark; --text: #24292f; --back: #ffffff; --card: #f6f8fa;
  --grid: #d0d7de; --faint: #57606a; }
@media (prefers-color-scheme: dark) { :root { --text: #e6edf3; --back: #0d1117; --card: #161b22;
  --grid: #30363d; --faint: #9198a1; --series-0: #4aa8e0; --series-1: #f0b429;
  --series-2: #2fc79a; --series-3: #e0a0c4; --series-4: #8ccbf0; --series-5: #ff8c42;
  --series-6: #f0e442; --series-7: #a0a0a0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 88rem; background: var(--back);
  color: var(--text); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0; }
h2 { font-size: 1.2rem; margin: 2rem 0 0.5rem; }
h3 { font-size: 1rem; margin: 0; }
p { max-width: 50rem; margin: 0.4rem 0; }
.lead, figcaption, summary { color: var(--faint); font-size: 0.9rem; }
.figures { display: grid; gap: 1rem; align-items: start;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 26rem), 1fr)); }
figure { margin: 0; padding: 0.75rem; background: var(--card); border-radius: 8px; min-width: 0; }
figure svg { width: 100%; height: auto; display: block; margin: 0.5rem 0; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.15rem 0.6rem; text-align: right; border-bottom: 1px solid var(--grid);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
pre { white-space: pre-wrap; font-size: 0.8rem; }
";

impl Page {
    /// Writes the page to `path`; and, if `figures` is a folder, each figure as a file of its own.
    pub(crate) fn write(&self, path: &Path, figures: Option<&Path>) -> Result<()> {
        let name = || path.display().to_string();
        fs::write(path, self.html().into_string()).with_context(name)?;
        let Some(folder) = figures else { return Ok(()) };
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let all = self.sections.iter().flat_map(|section| &section.figures);
        for (nth, figure) in all.enumerate() {
            let path = folder.join(figure.file_name(nth));
            fs::write(&path, &figure.svg.0).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn html(&self) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    @for line in &self.lead { p.lead { (line) } }
                    @for section in &self.sections { (section.html()) }
                    section {
                        h2 { "All figures" }
                        details {
                            summary { "The JSON document of this report" }
                            pre #document { (self.document) }
                        }
                    }
                }
            }
        }
    }
}

impl Section {
    fn html(&self) -> Markup {
        html! {
            section {
                h2 { (self.heading) }
                @for line in &self.text { p { (line) } }
                div.figures { @for figure in &self.figures { (figure.html()) } }
            }
        }
    }
}

impl Figure {
    fn html(&self) -> Markup {
        html! {
            figure data-title=(self.title) {
                h3 { (self.title) }
                (self.svg)
                figcaption { (self.caption) }
                details {
                    summary { "Numbers" }
                    div.scroll {
                        table {
                            thead { tr { @for heading in &self.headings { th { (heading) } } } }
                            tbody {
                                @for row in &self.rows { tr { @for cell in row { td { (cell) } } } }
                            }
                        }
                    }
                }
            }
        }
    }
}
