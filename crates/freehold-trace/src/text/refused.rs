//! Forms of lines that lack what an event needs, each with the option that helps.

use super::header::{is_number, last_word, next_word, seconds_ns};
use super::line::Name;

/// Refuses a line without a header that can be read, if it has an event of the page allocator.
///
/// # Errors
///
/// Which form it has, and what helps.
pub(super) fn check(line: &str) -> Result<(), String> {
    if line.contains('\0') {
        return Err(
            "it has zero bytes: ftrace prints text with `echo nobin > trace_options`".to_owned()
        );
    }
    let words: Vec<_> = line.split_whitespace().collect();
    if let [pid, cpu, time, "type:", kind] = words[..] {
        let is_hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
        if [pid, cpu, time, kind].into_iter().all(is_hex) {
            return Err("ftrace prints bare numbers: it needs `echo noraw > trace_options` and \
                        `echo nohex > trace_options`"
                .to_owned());
        }
    }
    if words.iter().any(|word| word.starts_with("PERF_RECORD_LOST")) {
        return Err(
            "no CPU and time of what was lost: perf prints them with `-F +cpu,+time`".to_owned()
        );
    }
    match before_event(line) {
        Some(before) => Err(missing(before)),
        None => Ok(()),
    }
}

/// What stands before the first word that is the name of a page event. None without one, and for
/// events without a header whose text has one.
fn before_event(line: &str) -> Option<&str> {
    let mut from = 0;
    while let Some((at, word)) = next_word(line, from) {
        if Name::of(word).is_some() {
            return Some(line[..at].trim_end());
        }
        let is_name = |name: &str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if from == 0 && word.strip_suffix(':').is_some_and(is_name) {
            return None;
        }
        from = at + word.len();
    }
    None
}

/// What is missing in a header, or cannot be read.
fn missing(header: &str) -> String {
    let (before, word) = last_word(header);
    let Some(time) = word.strip_suffix(':') else {
        return match word {
            "" => "neither CPU nor time stands before it: ftrace prints them with `echo \
                   context-info > trace_options`"
                .to_owned(),
            _ => "no time stands before it: perf prints it with `-F +time`".to_owned(),
        };
    };
    if time.starts_with("(+") && time.ends_with("ms)") {
        return "ftrace's option verbose prints other columns: it needs `echo noverbose > \
                trace_options`"
            .to_owned();
    }
    // `trace-cmd report --raw-ts` leaves no space behind the CPU.
    if is_number(time.rsplit(']').next().unwrap_or_default()) {
        return format!(
            "`{word}` counts ticks of a clock, not seconds: record with `echo mono > trace_clock`, \
             and leave out `--raw-ts` of trace-cmd"
        );
    }
    let is_time = seconds_ns(time).is_some() || time.contains("us") || before.ends_with("us");
    match is_time {
        true => "no CPU, such as [001], stands before the time: perf prints it with `-F +cpu` and \
                 without `-L`"
            .to_owned(),
        false => format!("`{word}` is no time"),
    }
}
