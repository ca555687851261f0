//! What all lines begin with: who, where, when. It is read by its form, and what stands behind the
//! time is not searched: users' texts may hold anything.

use crate::event::Context;
use crate::machine::CPU_MAX;

/// The header of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub(super) time_ns: u64,
    pub(super) cpu: u32,
    /// What names the process: `comm-12`, `12` or `12/13`.
    process: &'a str,
    /// The process; none if `process` has no number.
    pid: Option<u32>,
    pub(super) context: Context,
}

impl<'a> Header<'a> {
    /// The first header of a line, and what stands behind it, from the name of the event.
    ///
    /// * ftrace, trace-cmd: `comm-12 (10) [001] d.h1. 3.000001:`, with or without flags and `(10)`;
    /// * their latency format: `comm-12 1d.h1. 300us+:` or `3.000001:`;
    /// * perf: `comm 12/13 [001] 3.000001:`.
    ///
    /// The name of a process has 15 bytes at most, too few for a whole header with an event. If
    /// none has a process, it is the first without.
    pub(super) fn find(line: &'a str) -> Option<(Self, &'a str)> {
        let mut from = 0;
        let mut nameless = None;
        while let Some((at, word)) = next_word(line, from) {
            from = at + word.len();
            if let Some((before, time_ns)) = time(&line[..at], word) {
                let rest = event_and_fields(&line[from..]);
                // A process may be called `1 [0] 1.000000:`; perf puts its CPU behind that.
                match Self::before(before, time_ns).filter(|_| !rest.starts_with('[')) {
                    Some(header) if header.pid.is_some() => return Some((header, rest)),
                    Some(header) => nameless = nameless.or(Some((header, rest))),
                    None => {}
                }
            }
        }
        nameless
    }

    /// A header of function_graph.
    pub(super) fn new(time_ns: u64, cpu: u32, pid: u32, context: Context) -> Self {
        Header { time_ns, cpu, process: "", pid: Some(pid), context }
    }

    /// The header that ends with a text, before the time.
    fn before(text: &'a str, time_ns: u64) -> Option<Self> {
        let mut rest = text;
        let mut context = Context::Task;
        // Flags of ftrace; the mode, the day and its time of perf.
        for place in 0..4 {
            let (before, word) = last_word(rest);
            let flags = if let Some(cpu) = cpu_in_brackets(word) {
                return Self::of(before, time_ns, cpu, context);
            } else if let Some((cpu, flags)) = cpu_and_flags(word).filter(|_| place == 0) {
                return Self::of(before, time_ns, cpu, context_of(flags));
            } else if is_number(word) {
                return None;
            } else {
                word
            };
            if place == 0 {
                context = context_of(flags);
            }
            rest = before;
        }
        None
    }

    fn of(text: &'a str, time_ns: u64, cpu: u32, context: Context) -> Option<Self> {
        let process = last_word(without_group(text)).1;
        Some(Header { time_ns, cpu, process, pid: pid(process), context })
    }

    /// The process. Perf divides its number from the name by a space, the others by a dash.
    pub(super) fn pid(&self, perf: bool) -> Result<u32, String> {
        let is_alone = self.process.starts_with(|c: char| c == '-' || c.is_ascii_digit())
            && !self.process.contains(|c: char| !matches!(c, '0'..='9' | '/' | '-'));
        match self.pid {
            Some(pid) if !perf || is_alone => Ok(pid),
            _ if perf => {
                Err(format!("`{}` is no process: perf prints it with `-F +tid`", self.process))
            }
            _ if self.process.is_empty() => Err("no process stands before the CPU".to_owned()),
            _ => Err(format!("`{}` does not end in a process", self.process)),
        }
    }
}

/// The number of a process: of `comm-12`, what is behind the dash; of `12/13`, the thread.
fn pid(word: &str) -> Option<u32> {
    if let Some((process, thread)) = word.split_once('/')
        && let (Some(_), Some(thread)) = (perf_number(process), perf_number(thread))
    {
        return Some(thread);
    }
    perf_number(word).or_else(|| word.rsplit_once('-')?.1.parse().ok())
}

/// Perf has -1 for a process that it does not know.
fn perf_number(word: &str) -> Option<u32> {
    if word == "-1" { Some(0) } else { word.parse().ok() }
}

/// A text without the thread group at its end: `(10)`, `(   10)`, `(-----)`.
fn without_group(text: &str) -> &str {
    let text = text.trim_end();
    let group = text.strip_suffix(')').and_then(|text| text.rsplit_once('('));
    match group {
        Some((before, inner)) if inner.trim_start().bytes().all(is_digit_or_dash) => before,
        _ => text,
    }
}

fn is_digit_or_dash(byte: u8) -> bool {
    byte.is_ascii_digit() || byte == b'-'
}

/// The number of a CPU, if a kernel can have it.
pub(super) fn cpu(digits: &str) -> Option<u32> {
    digits.parse().ok().filter(|cpu| *cpu <= CPU_MAX)
}

/// `[001]`, and `[001]-0x1` of `trace-cmd report -R`.
fn cpu_in_brackets(word: &str) -> Option<u32> {
    let (digits, rest) = word.strip_prefix('[')?.split_once(']')?;
    (rest.is_empty() || rest.starts_with("-0x")).then(|| cpu(digits))?
}

/// `1d.h1.` of the latency format.
fn cpu_and_flags(word: &str) -> Option<(u32, &str)> {
    let end = word.find(|c: char| !c.is_ascii_digit())?;
    let (digits, flags) = word.split_at(end);
    let of_flags = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'#' | b'?');
    let has_flags = (4..=8).contains(&flags.len()) && flags.bytes().all(of_flags);
    has_flags.then_some((cpu(digits)?, flags))
}

/// The third of the flags of ftrace says what was interrupted.
pub(super) fn context_of(flags: &str) -> Context {
    match flags.chars().nth(2) {
        Some('h' | 'H' | 'z' | 'Z') => Context::HardIrq,
        Some('s') => Context::SoftIrq,
        _ => Context::Task,
    }
}

/// The time that a word ends, in nanoseconds, and what stands before it: `3.000001:`; or `300us+:`,
/// in which how long it was until the next event stands behind the unit, and may be a space.
fn time<'a>(before: &'a str, word: &str) -> Option<(&'a str, u64)> {
    let text = word.strip_suffix(':')?;
    if let Some(time_ns) = seconds_ns(text) {
        return Some((before, time_ns));
    }
    let (before, text) = match text.strip_suffix(['+', '!', '#', '*', '@', '$']) {
        Some(text) => (before, text),
        None if text.is_empty() => last_word(before),
        None => return None,
    };
    let us: u64 = text.strip_suffix("us").filter(|digits| is_number(digits))?.parse().ok()?;
    Some((before, us.checked_mul(1000)?))
}

/// `12.000345` in nanoseconds. All tools print six digits or nine.
pub(super) fn seconds_ns(text: &str) -> Option<u64> {
    let (seconds, fraction) = text.split_once('.')?;
    let digits = fraction.len();
    if !(6..=9).contains(&digits) || !is_number(fraction) || !is_number(seconds) {
        return None;
    }
    let fraction = fraction.parse::<u64>().ok()? * 10_u64.pow(9 - digits as u32);
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

/// What stands behind the time without what stands before the event's name: the period of perf, the
/// `(+12)` of `trace-cmd report --ts-diff`.
fn event_and_fields(text: &str) -> &str {
    let text = text.trim_start();
    match next_word(text, 0) {
        Some((_, word)) if is_number(word) || word.starts_with("(+") => {
            text[word.len()..].trim_start()
        }
        _ => text,
    }
}

pub(super) fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The next word of a text from there, and where it begins.
pub(super) fn next_word(text: &str, from: usize) -> Option<(usize, &str)> {
    let rest = text[from..].trim_start();
    let at = text.len() - rest.len();
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    (end > 0).then(|| (at, &rest[..end]))
}

/// A text without its last word, and that word.
pub(super) fn last_word(text: &str) -> (&str, &str) {
    let text = text.trim_end();
    let word = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    text.split_at(text.len() - word.len())
}
