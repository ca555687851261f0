//! Events between the functions of the tracer function_graph, which prints them as comments.

use super::header::{self, Header, context_of, is_number, seconds_ns};
use crate::event::Context;

/// The header of a comment, and its event: `3.000001 |   1)  comm-12  |  d..1. |   |  /* ... */`,
/// in which time, process and flags are there by option. None for a line of another form.
///
/// # Errors
///
/// The time or the CPU is missing.
pub(super) fn comment(line: &str) -> Option<(Result<Header<'_>, &'static str>, &str)> {
    // Mail programs put `> ` before what they quote.
    let line = line.trim_start_matches(['>', ' ']);
    let is_event = |at: &usize| {
        let before = line[..*at].rsplit('|').next();
        before.is_some_and(|before| before.trim().is_empty())
    };
    let (columns, event) = match line.match_indices("/* ").map(|(at, _)| at).find(is_event) {
        Some(at) => (&line[..at], line[at + 3..].trim_end().trim_end_matches("*/").trim_end()),
        None => (line, ""),
    };
    let (first, others) = columns.split_once('|')?;
    let time_ns = seconds_ns(first.trim());
    let columns = if time_ns.is_some() { others } else { columns };
    let cpu = columns.split_once(')').filter(|(cpu, _)| is_number(cpu.trim()));
    let header = match (time_ns, cpu) {
        (None, None) => return None,
        (None, Some(_)) => Err("function_graph prints no times: record with `echo \
                                funcgraph-abstime > trace_options`, or with the tracer nop"),
        (Some(_), None) => Err("function_graph prints no CPUs: record with `echo funcgraph-cpu > \
                                trace_options`"),
        (Some(time_ns), Some((cpu, others))) => match header::cpu(cpu.trim()) {
            Some(cpu) => Ok(header(time_ns, cpu, others)),
            None => Err("no CPU has such a number"),
        },
    };
    Some((header, event))
}

/// A header whose columns behind the CPU may have the process and the flags. Without the process,
/// it is 0.
fn header(time_ns: u64, cpu: u32, others: &str) -> Header<'_> {
    let (mut pid, mut context) = (0, Context::Task);
    for column in others.split('|').map(str::trim) {
        let process = column.rsplit_once('-').and_then(|(_, digits)| digits.parse().ok());
        match process {
            Some(process) => pid = process,
            None if column.contains('.') && !column.contains(' ') => context = context_of(column),
            None => {}
        }
    }
    Header::new(time_ns, cpu, pid, context)
}
