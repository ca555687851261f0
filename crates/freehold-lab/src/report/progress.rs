//! The progress bar: on stderr, and only if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

/// Reports what a command is doing and how far it has got.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar of so many steps. indicatif hides it if stderr is not a terminal.
    pub(crate) fn new(steps: u64) -> Self {
        let bar = ProgressBar::new(steps);
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}");
        bar.set_style(style.expect("the template is well-formed"));
        Progress(bar)
    }

    /// Shows nothing: for one of several parts of a command, which has a bar for all of them.
    pub(crate) fn hidden() -> Self {
        Progress(ProgressBar::hidden())
    }

    /// Describes the next steps.
    pub(crate) fn say(&self, what: impl Into<String>) {
        self.0.set_message(what.into());
    }

    /// One step is done.
    pub(crate) fn step(&self) {
        self.0.inc(1);
    }

    /// Everything is done: removes the bar.
    pub(crate) fn finish(&self) {
        self.0.finish_and_clear();
    }
}
