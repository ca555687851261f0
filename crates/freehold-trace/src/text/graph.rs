//! Events between the functions of the tracer function_graph, which prints them as comments.

use super::header::{Header, context_of, cpu, is_number, seconds_ns};
use crate::event::Context;

/// What a comment lacks without the options of function_graph.
pub(super) const MISSING: &str = "function_graph prints times and CPUs with `echo \
                                  funcgraph-abstime > trace_options` and `echo funcgraph-cpu > \
                                  trace_options`; the tracer nop always does";

/// The header of a comment, and its event: `3.000001 |   1)  comm-12  |  d..1. |   |  /* ... */`,
/// in which all columns are there by option. No header without time and CPU; 0 is the process
/// that is not there. None for a line of another form.
pub(super) fn comment(line: &str) -> Option<(Option<Header<'_>>, &str)> {
    // Mail programs put `> ` before what they quote.
    let line = line.trim_start_matches(['>', ' ']);
    // What stands before it in its column, which may be the first.
    let before = |at: usize| line[..at].rsplit('|').next().unwrap_or_default().trim();
    let is_cpu = |text: &str| text.strip_suffix(')').is_some_and(is_number);
    let places = || line.match_indices("/* ").map(|(at, _)| at);
    let at = places()
        .find(|at| before(*at).is_empty())
        .or_else(|| places().find(|at| is_cpu(before(*at))))?;
    let event = line[at + 3..].trim_end().trim_end_matches("*/").trim_end();
    Some((header(&line[..at]), event))
}

fn header(text: &str) -> Option<Header<'_>> {
    let mut columns = text.split('|').map(str::trim).peekable();
    let mut time_ns = None;
    // Behind the time, the time since the start of the trace.
    while let Some(time) = columns.next_if(|text| seconds_ns(text).is_some() || is_us(text)) {
        time_ns = time_ns.or(seconds_ns(time));
    }
    let (digits, process) = columns.next()?.split_once(')')?;
    let (mut pid, mut context) = (0, Context::Task);
    for column in std::iter::once(process).chain(columns) {
        match column.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok()) {
            Some(process) => pid = process,
            None if column.contains('.') && !column.contains(' ') => context = context_of(column),
            None => {}
        }
    }
    Some(Header::new(time_ns?, cpu(digits)?, pid, context))
}

fn is_us(text: &str) -> bool {
    text.strip_suffix(" us").is_some_and(is_number)
}
