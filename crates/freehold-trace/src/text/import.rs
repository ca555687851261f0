//! A text, line by line.

use std::collections::HashMap;
use std::io::BufRead;

use super::age::Age;
use super::line::{self, Line, Page};
use super::{BadLines, Doubt, Imported, TextError, binary, doubt};
use crate::event::{Context, Event, Kind, What};
use crate::gfp::GfpLayout;

/// Reads a text.
///
/// # Errors
///
/// It is no text, has no event of the page allocator, or its times are none; the first line that is
/// wrong.
pub fn import(text: impl BufRead) -> Result<Imported, TextError> {
    import_with(text, BadLines::Refuse)
}

/// Reads a text that may have bad lines.
///
/// # Errors
///
/// Those of [`import`]; if bad lines are left out, the first of them if there are no others.
pub fn import_with(mut text: impl BufRead, bad_lines: BadLines) -> Result<Imported, TextError> {
    let start = text.fill_buf().map_err(|source| TextError::Io { line: 1, source })?;
    if let Some((what, command)) = binary::kind(start) {
        return Err(TextError::Binary { what, command });
    }
    let gfp = GfpLayout::default();
    let mut importing = Importing { bad_lines, ..Importing::default() };
    for line in text.split(b'\n') {
        importing.lines += 1;
        let line = line.map_err(|source| TextError::Io { line: importing.lines, source })?;
        importing.add(&String::from_utf8_lossy(&line), &gfp)?;
    }
    importing.finish()
}

/// A text that is being read.
#[derive(Default)]
struct Importing {
    bad_lines: BadLines,
    imported: Imported,
    lines: usize,
    /// The event of the line before, which may go on.
    last: Option<Page>,
    /// Losses may have no time: theirs is that of the event before them.
    time_ns: Option<u64>,
    age: Age,
    /// The time of each CPU's last event.
    by_cpu: HashMap<u32, u64>,
    back: Back,
    /// The same for all CPUs of a text of perf.
    perf: Back,
    headings: u64,
    overwritten: Option<Doubt>,
    /// The first line that names an event of the page allocator.
    mention: Option<usize>,
}

/// Times that go back.
#[derive(Default)]
struct Back {
    last_ns: u64,
    first_line: usize,
    back: u64,
    of: u64,
}

impl Importing {
    fn add(&mut self, line: &str, gfp: &GfpLayout) -> Result<(), TextError> {
        let parsed = line::parse(line, self.last.is_some(), gfp);
        if let Ok(Line::Rest) = parsed {
            self.last = None;
            let problem = "it goes on in the next line: some program has broken it".to_owned();
            return self.bad(self.lines - 1, problem);
        }
        self.flush();
        match parsed {
            Ok(Line::Page(page)) => self.last = Some(page),
            Ok(Line::Other) => self.imported.others += 1,
            Ok(Line::Lost { cpu, events, time_ns }) => {
                let time_ns = time_ns.or(self.time_ns).unwrap_or(0);
                let what = What::Lost { events };
                let lost = Event { time_ns, cpu, pid: 0, context: Context::Task, what };
                self.imported.events.push(lost);
            }
            Ok(Line::Heading) => self.headings += 1,
            Ok(Line::Kept { events: kept, of }) if kept < of => {
                self.overwritten = Some(Doubt::Overwritten { kept, of });
            }
            Ok(Line::Kept { .. } | Line::Nothing | Line::Rest) => {
                if self.mention.is_none() && names_event(line) {
                    self.mention = Some(self.lines);
                }
            }
            Err(problem) => return self.bad(self.lines, problem),
        }
        Ok(())
    }

    /// A line cannot be read.
    fn bad(&mut self, line: usize, problem: String) -> Result<(), TextError> {
        if self.bad_lines == BadLines::Refuse {
            return Err(TextError::BadLine { line, problem });
        }
        self.imported.bad_lines += 1;
        self.imported.first_bad.get_or_insert((line, problem));
        Ok(())
    }

    /// The event of the line before is whole.
    fn flush(&mut self) {
        let Some(page) = self.last.take() else { return };
        let Event { time_ns, cpu, .. } = page.event;
        let line = self.lines - 1;
        if let Some(last_ns) = self.by_cpu.insert(cpu, time_ns) {
            self.back.last_ns = last_ns;
            self.back.see(time_ns, line);
        }
        if page.name.perf {
            self.perf.see(time_ns, line);
        }
        self.time_ns = Some(time_ns);
        self.age.see(self.imported.events.len(), &page);
        self.imported.events.push(page.event);
    }

    fn finish(mut self) -> Result<Imported, TextError> {
        self.lines += 1;
        self.flush();
        let lines = self.lines - 1;
        let Importing { mut imported, age, back, perf, headings, overwritten, .. } = self;
        let Some(first_ns) = self.time_ns.and_then(|_| earliest(&imported.events)) else {
            return Err(match imported.first_bad {
                Some((line, problem)) => TextError::BadLine { line, problem },
                None => TextError::NoEvents { lines, mention: self.mention },
            });
        };
        if perf.are_differences() {
            let Back { first_line: line, back, of, .. } = perf;
            return Err(TextError::Differences { line, back, of });
        }
        age.modernize(&mut imported.events);
        for event in &mut imported.events {
            event.time_ns = event.time_ns.saturating_sub(first_ns);
        }
        imported.events.sort_by_key(|event| event.time_ns);
        imported.doubts = doubt::of_events(&imported.events);
        imported.doubts.extend(back.doubt());
        if headings > 1 {
            imported.doubts.push(Doubt::Several { headings });
        }
        imported.doubts.extend(overwritten);
        imported.doubts.extend(age.doubts());
        let has_losses = imported.events.iter().any(|event| event.what.kind() == Kind::Lost);
        if perf.of > 0 && !has_losses {
            imported.doubts.push(Doubt::PerfLosses);
        }
        Ok(imported)
    }
}

impl Back {
    fn see(&mut self, time_ns: u64, line: usize) {
        self.of += 1;
        if time_ns < self.last_ns {
            if self.back == 0 {
                self.first_line = line;
            }
            self.back += 1;
        }
        self.last_ns = time_ns;
    }

    /// Half of the differences between times are less than the one before.
    fn are_differences(&self) -> bool {
        self.of >= 8 && self.back * 4 > self.of
    }

    fn doubt(&self) -> Option<Doubt> {
        let Back { first_line: line, back: lines, .. } = *self;
        (lines > 0).then_some(Doubt::TimesGoBack { line, lines })
    }
}

/// Whether a line has the name of an event, in whatever form.
fn names_event(line: &str) -> bool {
    Kind::OF_KERNEL.iter().any(|kind| line.contains(kind.name()))
}

/// The time of the first event that has one of its own.
fn earliest(events: &[Event]) -> Option<u64> {
    let timed = events.iter().filter(|event| !matches!(event.what, What::Lost { .. }));
    timed.map(|event| event.time_ns).min()
}
