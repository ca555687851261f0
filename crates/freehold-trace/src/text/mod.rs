//! Recordings of others: the text that ftrace, `trace-cmd report` and `perf script` print.
//!
//! A line is read by its form, or refused with the option of its tool that helps; a text that says
//! what cannot be is read with a [`Doubt`].

mod age;
mod binary;
mod doubt;
#[cfg(test)]
mod doubts;
mod fields;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod fuzz;
mod graph;
mod header;
mod import;
mod line;
mod refused;
#[cfg(test)]
mod tests;

use std::io;

use crate::event::Event;
pub use doubt::Doubt;
pub use import::{import, import_with};

/// Why a text was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TextError {
    /// It could not be read.
    #[error("line {line}: {source}")]
    Io {
        /// The line after the last that was read, from 1.
        line: usize,
        /// Why.
        source: io::Error,
    },
    /// It is a file of another kind.
    #[error("this is {what}, not text: `{command}` prints it")]
    Binary {
        /// What it is.
        what: &'static str,
        /// What makes it a text.
        command: &'static str,
    },
    /// A line has an event of the page allocator and is not as such lines are.
    #[error("line {line}: {problem}")]
    BadLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The times of a text of perf, which is in order, are not: they are differences.
    #[error(
        "line {line}: the times go back in {back} of {of} lines: perf prints them without \
         `--deltatime`"
    )]
    Differences {
        /// The first line whose time goes back, from 1.
        line: usize,
        /// How many do.
        back: u64,
        /// Of so many.
        of: u64,
    },
    /// It has no event of the page allocator.
    #[error(
        "there are no events such as mm_page_alloc in {lines} lines{}: this reads what ftrace, \
         `trace-cmd report` or `perf script` print of the events kmem:mm_page_*",
        mention.map_or(String::new(), |line| format!(", though line {line} names one"))
    )]
    NoEvents {
        /// How many lines there are.
        lines: usize,
        /// The first line with such a name, from 1.
        mention: Option<usize>,
    },
}

/// What becomes of a line that has an event of the page allocator and cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadLines {
    /// The text is refused.
    #[default]
    Refuse,
    /// It is left out, and counted.
    LeaveOut,
}

/// What a text holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The events of the page allocator, in the order of time, from 0. The process is 0 where
    /// function_graph does not print it.
    pub events: Vec<Event>,
    /// Events of other kinds, which are left out.
    pub others: u64,
    /// Lines that were left out since they cannot be read.
    pub bad_lines: u64,
    /// The first of them, from 1, and what is wrong with it.
    pub first_bad: Option<(usize, String)>,
    /// Why this may not be what happened.
    pub doubts: Vec<Doubt>,
}
