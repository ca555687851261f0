//! One line of the text that ftrace, trace-cmd and perf print.

use super::fields::Fields;
use super::header::{self, Header, is_number, last_word, next_word, seconds_ns};
use super::{graph, refused};
use crate::event::{Context, Event, Kind};
use crate::gfp::{self, GfpLayout};

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An event of the page allocator, at the time that the line has.
    Page(Page),
    /// An event of another kind.
    Other,
    /// So many events of a CPU were lost before the next, or at this time.
    Lost { cpu: u32, events: u64, time_ns: Option<u64> },
    /// A text begins here: `# tracer: nop`, `cpus=2`.
    Heading,
    /// The buffer of ftrace had so many events of so many that it was given.
    Kept { events: u64, of: u64 },
    /// The rest of the line before, which was broken.
    Rest,
    /// A comment, a heading, a call of a stack, or an empty line.
    Nothing,
}

/// An event of the page allocator, and what its line says of its kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) event: Event,
    pub(super) name: Name,
    /// Its GFP flags have names of kernels before 4.6.
    pub(super) old_flags: bool,
    /// Its GFP flags are this number.
    pub(super) gfp_bits: Option<u64>,
}

/// What the name of an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) kind: Kind,
    /// It has a group, as perf prints it.
    pub(super) perf: bool,
    /// It is one of kernels before 3.3.
    pub(super) old: bool,
}

impl Name {
    /// `mm_page_alloc:`, `kmem:mm_page_alloc:`, `kmem:mm_page_alloc:k:`.
    pub(super) fn of(word: &str) -> Option<Self> {
        let mut parts = word.strip_suffix(':')?.split(':');
        let first = parts.next()?;
        let perf = first == "kmem";
        let name = if perf { parts.next()? } else { first };
        let (kind, old) = match name {
            "mm_page_free_direct" => (Kind::Free, true),
            "mm_pagevec_free" => (Kind::FreeBatched, true),
            name => (Kind::from_name(name)?, false),
        };
        (perf || parts.next().is_none()).then_some(Name { kind, perf, old })
    }
}

/// Reads a line that stands behind one with an event of the page allocator, or does not.
///
/// # Errors
///
/// What is wrong with a line that has an event of the page allocator.
pub(super) fn parse(line: &str, after_page: bool, gfp: &GfpLayout) -> Result<Line, String> {
    let trimmed = line.trim();
    if let Some((header, rest)) = Header::find(trimmed) {
        // Perf puts nothing before the name of a process, which may be `#1`.
        let is_comment = line.starts_with("# ") || line.starts_with('#') && !is_of_perf(rest);
        return if is_comment { Ok(Line::Nothing) } else { event(header, rest, gfp) };
    }
    if trimmed.starts_with('#') || trimmed.is_empty() {
        return Ok(heading(trimmed));
    }
    if let Some(lost) = lost(trimmed).or_else(|| lost_in_dump(trimmed)) {
        return Ok(lost);
    }
    if let Some((header, rest)) = graph::comment(trimmed) {
        let is_page = next_word(rest, 0).is_some_and(|(_, word)| Name::of(word).is_some());
        return match header {
            Some(header) => event(header, rest, gfp),
            None if is_page => Err(graph::MISSING.to_owned()),
            None => Ok(Line::Other),
        };
    }
    refused::check(trimmed)?;
    if after_page && is_rest(line) {
        return Ok(Line::Rest);
    }
    let is_time = |word: &str| word.strip_suffix(':').and_then(seconds_ns).is_some();
    Ok(match trimmed.split_whitespace().any(is_time) {
        true => Line::Other,
        false if last_word(trimmed).1.starts_with("cpus=") => Line::Heading,
        false => Line::Nothing,
    })
}

/// The event behind a header.
fn event(header: Header<'_>, rest: &str, layout: &GfpLayout) -> Result<Line, String> {
    let (_, word) = next_word(rest, 0).unwrap_or_default();
    if word.starts_with("PERF_RECORD_LOST") {
        // Perf has the time 0 for records without one.
        let time_ns = Some(header.time_ns).filter(|time_ns| *time_ns > 0);
        return Ok(Line::Lost { cpu: header.cpu, events: last_number(rest), time_ns });
    }
    let Some(name) = Name::of(word) else {
        let is_perf = |word: &str| Name::of(word).is_some_and(|name| name.perf);
        return if word.starts_with("page=") || word.starts_with("pfn=") {
            Err("no name of an event: perf prints it with `-F +event`".to_owned())
        } else if !word.ends_with(':') && rest.split_whitespace().any(is_perf) {
            Err(format!("`{word}` stands between the time and the event: print it without"))
        } else {
            Ok(Line::Other)
        };
    };
    let pid = header.pid(name.perf)?;
    let fields = Fields(rest[word.len()..].trim());
    let what = fields.what(name.kind, layout)?;
    let Header { time_ns, cpu, .. } = header;
    // What perf puts there is the mode of the CPU.
    let context = if name.perf { Context::Task } else { header.context };
    let flags = fields.gfp().ok().filter(|_| name.kind == Kind::Alloc);
    Ok(Line::Page(Page {
        event: Event { time_ns, cpu, pid, context, what },
        name,
        old_flags: flags.is_some_and(gfp::has_old_names),
        gfp_bits: flags.and_then(gfp::number),
    }))
}

fn is_of_perf(rest: &str) -> bool {
    next_word(rest, 0).and_then(|(_, word)| Name::of(word)).is_some_and(|name| name.perf)
}

/// What a comment says of the text.
fn heading(comment: &str) -> Line {
    if comment.starts_with("# tracer:") {
        return Line::Heading;
    }
    let counts = if let Some(counts) = comment.strip_prefix("# entries-in-buffer/entries-written:")
    {
        counts.split_whitespace().next()
    } else if comment.starts_with("# latency:") {
        comment.split_whitespace().skip(1).find_map(|word| word.strip_prefix('#'))
    } else {
        None
    };
    let counts = counts.and_then(|word| word.trim_end_matches(',').split_once('/'));
    match counts.map(|(events, of)| (events.parse(), of.parse())) {
        Some((Ok(events), Ok(of))) => Line::Kept { events, of },
        _ => Line::Nothing,
    }
}

/// `CPU:1 [LOST 123 EVENTS]` of ftrace, `CPU:1 [123 EVENTS DROPPED]` of trace-cmd, which puts the
/// name of the file before it if there are several.
fn lost(line: &str) -> Option<Line> {
    let (before, text) = line.split_at(line.find("CPU:")?);
    let (cpu, rest) = text.strip_prefix("CPU:")?.split_once(' ')?;
    let words = rest.trim_start().strip_prefix('[')?.strip_suffix(']')?;
    let lost = words.contains("LOST") || words.contains("DROPPED");
    let events = words.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0);
    let begins = before.is_empty() || before.ends_with(char::is_whitespace);
    (lost && begins).then_some(Line::Lost { cpu: header::cpu(cpu)?, events, time_ns: None })
}

/// `1 819434776960 0xb0c8 [0x38]: PERF_RECORD_LOST: id:62: lost:8` of `perf script -D`: the CPU and
/// the time come first.
fn lost_in_dump(line: &str) -> Option<Line> {
    let mut words = line.split_whitespace();
    let (cpu, time_ns) = (words.next()?, words.next()?.parse::<u64>().ok()?);
    // The largest number stands for no CPU.
    let cpu = if cpu == "4294967295" { 0 } else { header::cpu(cpu)? };
    words.find(|word| word.starts_with("PERF_RECORD_LOST"))?;
    Some(Line::Lost { cpu, events: last_number(line), time_ns: Some(time_ns) })
}

/// The last digits of a text: how many were lost.
fn last_number(text: &str) -> u64 {
    let mut numbers = text.rsplit(|c: char| !c.is_ascii_digit()).filter(|word| is_number(word));
    numbers.next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Names of the fields of page events.
const FIELDS: [&str; 7] =
    ["page", "pfn", "order", "migratetype", "gfp_flags", "percpu_refill", "cold"];

/// Whether a line is the rest of one that was broken, between words or within the last.
fn is_rest(line: &str) -> bool {
    let (_, word) = next_word(line, 0).unwrap_or_default();
    let has_field = word.split_once('=').is_some_and(|(name, _)| FIELDS.contains(&name));
    let of_value = |byte: u8| matches!(byte, b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'|');
    let in_word = !word.starts_with("PERF_RECORD") && line.trim_end().bytes().all(of_value);
    has_field || in_word
}
