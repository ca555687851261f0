//! One line of the text that ftrace, trace-cmd and perf print.

use crate::event::{Context, Event, Kind, MigrateType, What};
use crate::gfp::{Gfp, GfpLayout};

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// An event of the page allocator, at the time that the line has.
    Page(Event),
    /// An event of another kind.
    Other,
    /// So many events of a CPU were lost before the next.
    Lost { cpu: u32, events: u64 },
    /// A comment, a heading, or an empty line.
    Nothing,
}

/// Reads a line.
///
/// # Errors
///
/// What is wrong with a line that has an event of the page allocator.
pub(super) fn parse(line: &str, gfp: &GfpLayout) -> Result<Line, String> {
    let trimmed = line.trim();
    if trimmed.is_empty() || trimmed.starts_with('#') {
        return Ok(Line::Nothing);
    }
    if let Some(lost) = lost(trimmed) {
        return Ok(lost);
    }
    let Some((before, kind, fields)) = event(trimmed) else {
        // `cpus=2` of trace-cmd, or an event of another kind, which has a time.
        let is_event = trimmed.split_whitespace().any(|word| time_ns(word).is_some());
        return Ok(if is_event { Line::Other } else { Line::Nothing });
    };
    let header = Header::parse(before)?;
    let what = Fields(fields).what(kind, gfp)?;
    if !what.is_possible() {
        return Err("no block of this order begins at this frame".to_owned());
    }
    let Header { time_ns, cpu, pid, context } = header;
    Ok(Line::Page(Event { time_ns, cpu, pid, context, what }))
}

/// `CPU:1 [LOST 123 EVENTS]` of ftrace, `CPU:1 [123 EVENTS DROPPED]` of trace-cmd.
fn lost(line: &str) -> Option<Line> {
    let (cpu, rest) = line.strip_prefix("CPU:")?.split_once(' ')?;
    let words = rest.trim_start().strip_prefix('[')?.strip_suffix(']')?;
    let lost = words.contains("LOST") || words.contains("DROPPED");
    let events = words.split_whitespace().find_map(|word| word.parse().ok()).unwrap_or(0);
    lost.then_some(Line::Lost { cpu: cpu.parse().ok()?, events })
}

/// What stands before the name of a page event, its kind, and its fields.
fn event(line: &str) -> Option<(&str, Kind, &str)> {
    Kind::OF_KERNEL.into_iter().find_map(|kind| {
        let name = kind.name();
        // The name ends with a colon, and begins after white space or the name of its group.
        let at = line.match_indices(name).map(|(at, _)| at).find(|&at| {
            line[at + name.len()..].starts_with(':')
                && line[..at].ends_with(|c: char| c.is_whitespace() || c == ':')
        })?;
        let before = line[..at].trim_end().trim_end_matches("kmem:");
        Some((before.trim_end(), kind, &line[at + name.len() + 1..]))
    })
}

/// What all lines begin with.
struct Header {
    time_ns: u64,
    cpu: u32,
    pid: u32,
    context: Context,
}

impl Header {
    /// `comm-12 [001] d.h1. 3.000001:` of ftrace, with or without flags and `(12)`;
    /// `comm 12/13 [001] 3.000001:` of perf.
    fn parse(text: &str) -> Result<Self, String> {
        let (rest, time) = last_word(text);
        let time_ns = time_ns(time).ok_or_else(|| format!("`{time}` is no time"))?;
        let (mut rest, mut word) = last_word(rest);
        let mut context = Context::Task;
        if !word.starts_with('[') {
            context = context_of(word);
            (rest, word) = last_word(rest);
        }
        let cpu = word.strip_prefix('[').and_then(|word| word.strip_suffix(']'));
        let cpu = cpu.and_then(|digits| digits.parse().ok()).ok_or(
            "no CPU, such as [001], stands before the time: perf prints it with `-F +cpu`",
        )?;
        let (before, mut word) = last_word(rest);
        if word.starts_with('(') || word.ends_with(')') {
            word = last_word(before.trim_end_matches(['(', ' ', '-'])).1;
        }
        // Of `12/13`, the thread; of `comm-12`, the number.
        let digits = word.rsplit(['-', '/']).next().unwrap_or_default();
        let pid = digits.parse().map_err(|_| format!("`{word}` does not end in a process"))?;
        Ok(Header { time_ns, cpu, pid, context })
    }
}

/// A text without its last word, and that word.
fn last_word(text: &str) -> (&str, &str) {
    let text = text.trim_end();
    let word = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    text.split_at(text.len() - word.len())
}

/// `12.000345:` in nanoseconds.
fn time_ns(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.strip_suffix(':')?.split_once('.')?;
    let digits = fraction.len();
    if !(1..=9).contains(&digits) || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - digits as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// The third of the flags of ftrace says what was interrupted.
fn context_of(flags: &str) -> Context {
    match flags.chars().nth(2) {
        Some('h' | 'H' | 'z' | 'Z') => Context::HardIrq,
        Some('s') => Context::SoftIrq,
        _ => Context::Task,
    }
}

/// `name=value` of an event.
struct Fields<'a>(&'a str);

impl<'a> Fields<'a> {
    fn text(&self, name: &str) -> Result<&'a str, String> {
        let mut words = self.0.split_whitespace();
        words
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| format!("it has no {name}="))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let text = self.text(name)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| format!("{name}={text} is no number"))
    }

    fn small(&self, name: &str) -> Result<u8, String> {
        let number = self.number(name)?;
        u8::try_from(number).map_err(|_| format!("{name}={number} is too large"))
    }

    fn migratetype(&self) -> Result<MigrateType, String> {
        self.small("migratetype").map(MigrateType)
    }

    /// Whether the allocation failed: the kernel prints no page, and 0 as its number.
    fn failed(&self) -> bool {
        let no_page = self.text("page").is_ok_and(|page| {
            let digits = page.trim_start_matches("0x");
            matches!(page, "(null)" | "(nil)") || digits.bytes().all(|byte| byte == b'0')
        });
        no_page && self.number("pfn") == Ok(0)
    }

    fn what(&self, kind: Kind, gfp: &GfpLayout) -> Result<What, String> {
        let pfn = self.number("pfn")?;
        Ok(match kind {
            Kind::Alloc => What::Alloc {
                pfn: (!self.failed()).then_some(pfn),
                order: self.small("order")?,
                gfp: Gfp::parse(self.text("gfp_flags")?, gfp)
                    .map_err(|part| format!("gfp_flags: `{part}` is no flag"))?,
                migratetype: self.migratetype()?,
            },
            Kind::Free => What::Free { pfn, order: self.small("order")? },
            Kind::FreeBatched => What::FreeBatched { pfn },
            Kind::PcpuDrain => What::PcpuDrain {
                pfn,
                order: self.small("order")?,
                migratetype: self.migratetype()?,
            },
            Kind::ZoneLocked | Kind::Lost => What::ZoneLocked {
                pfn,
                order: self.small("order")?,
                migratetype: self.migratetype()?,
                // Kernels before 5.19 report refills alone.
                refill: self.number("percpu_refill").map_or(true, |refill| refill == 1),
            },
        })
    }
}
