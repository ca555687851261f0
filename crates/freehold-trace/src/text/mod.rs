//! Recordings of others: the text that ftrace, `trace-cmd report` and `perf script` print.

#[cfg(test)]
mod fuzz;
mod line;
#[cfg(test)]
mod tests;

use std::io::{self, BufRead};

use crate::event::{Context, Event, What};
use crate::gfp::GfpLayout;
use line::Line;

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
    /// A line has an event of the page allocator and is not as such lines are.
    #[error("line {line}: {problem}")]
    BadLine {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// It has no event of the page allocator.
    #[error(
        "there are no events such as mm_page_alloc in {lines} lines: this reads what ftrace, \
         `trace-cmd report` or `perf script` print of the events kmem:mm_page_*"
    )]
    NoEvents {
        /// How many lines there are.
        lines: usize,
    },
}

/// What a text holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// The events of the page allocator, in the order of time, from 0.
    pub events: Vec<Event>,
    /// Events of other kinds, which are left out.
    pub others: u64,
}

/// Reads a text.
///
/// # Errors
///
/// The first line that is wrong, or that there is no event of the page allocator.
pub fn import(text: impl BufRead) -> Result<Imported, TextError> {
    let gfp = GfpLayout::default();
    let mut imported = Imported::default();
    let mut lines = 0;
    // Losses have no time: theirs is that of the event before them.
    let mut time_ns = None;
    for line in text.split(b'\n') {
        lines += 1;
        let line = line.map_err(|source| TextError::Io { line: lines, source })?;
        let line = String::from_utf8_lossy(&line);
        let parsed = line::parse(&line, &gfp)
            .map_err(|problem| TextError::BadLine { line: lines, problem })?;
        match parsed {
            Line::Page(event) => {
                time_ns = Some(event.time_ns);
                imported.events.push(event);
            }
            Line::Other => imported.others += 1,
            Line::Lost { cpu, events } => {
                let what = What::Lost { events };
                let time_ns = time_ns.unwrap_or(0);
                imported.events.push(Event { time_ns, cpu, pid: 0, context: Context::Task, what });
            }
            Line::Nothing => {}
        }
    }
    let Some(first_ns) = time_ns.and_then(|_| earliest(&imported.events)) else {
        return Err(TextError::NoEvents { lines });
    };
    for event in &mut imported.events {
        event.time_ns = event.time_ns.saturating_sub(first_ns);
    }
    imported.events.sort_by_key(|event| event.time_ns);
    Ok(imported)
}

/// The time of the first event that has one of its own.
fn earliest(events: &[Event]) -> Option<u64> {
    let timed = events.iter().filter(|event| !matches!(event.what, What::Lost { .. }));
    timed.map(|event| event.time_ns).min()
}
