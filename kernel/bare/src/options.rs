//! The command line: words of the form `name=value`.

use core::fmt;

/// What this boot is to do.
#[derive(Debug)]
pub(crate) struct Options {
    /// `design=freehold` or `design=zone-lock`. Default: freehold.
    pub(crate) design: DesignName,
    /// `rounds=N`: steps of the torture on each CPU. Default: 50,000.
    pub(crate) rounds: u64,
    /// `memory_short=1`: all but 8 MiB of the memory is taken before the checks.
    pub(crate) memory_short: bool,
    /// `measure=1`: no checks, but how long a pair of an allocation and a free takes.
    pub(crate) measure: bool,
    /// `fault=exception|content`: something goes wrong, and the kernel must fail.
    pub(crate) fault: Option<Fault>,
}

/// The designs that this kernel has.
#[derive(Clone, Copy, Debug)]
pub(crate) enum DesignName {
    Freehold,
    ZoneLock,
}

/// What goes wrong on purpose: a check that cannot fail says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// An access to what is not mapped.
    Exception,
    /// Handlers write to a frame that is free.
    Content,
}

/// A word of the command line that makes no sense.
#[derive(Debug)]
pub(crate) struct BadOption(&'static str);

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "command line: {:?} is none of design=freehold|zone-lock, rounds=N, memory_short=0|1, \
             measure=0|1, fault=exception|content",
            self.0
        )
    }
}

impl Options {
    /// Reads a command line.
    pub(crate) fn of(command_line: &'static str) -> Result<Self, BadOption> {
        let mut options = Options {
            design: DesignName::Freehold,
            rounds: 50_000,
            memory_short: false,
            measure: false,
            fault: None,
        };
        for word in command_line.split_ascii_whitespace() {
            let bad = || BadOption(word);
            let flag = |value| match value {
                "0" => Ok(false),
                "1" => Ok(true),
                _ => Err(bad()),
            };
            match word.split_once('=').ok_or_else(bad)? {
                ("design", "freehold") => options.design = DesignName::Freehold,
                ("design", "zone-lock") => options.design = DesignName::ZoneLock,
                ("rounds", rounds) => options.rounds = rounds.parse().map_err(|_| bad())?,
                ("memory_short", value) => options.memory_short = flag(value)?,
                ("measure", value) => options.measure = flag(value)?,
                ("fault", "exception") => options.fault = Some(Fault::Exception),
                ("fault", "content") => options.fault = Some(Fault::Content),
                _ => return Err(bad()),
            }
        }
        Ok(options)
    }
}
