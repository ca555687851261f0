//! The form of a command's output.

use clap::Args;

/// Text by default.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct FormatArgs {
    /// Print one JSON document instead of text.
    #[arg(long)]
    json: bool,

    /// Print one CSV table instead: a line of headings, numbers in full, units in the headings.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

impl FormatArgs {
    pub(crate) fn format(self) -> Format {
        match (self.json, self.csv) {
            (true, _) => Format::Json,
            (_, true) => Format::Csv,
            _ => Format::Text,
        }
    }
}

/// A form of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Text,
    Json,
    Csv,
}
