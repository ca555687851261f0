//! The arguments of `freehold record`, `freehold import` and `freehold trace`.

use std::path::PathBuf;

use bytesize::ByteSize;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
#[command(after_help = RECORD_HELP)]
pub(crate) struct RecordArgs {
    /// The file to write.
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,

    /// Record for so many seconds. Default: until the command exits, or until Ctrl-C.
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub(crate) seconds: Option<f64>,

    /// How much memory of the kernel each CPU has for events that have not been read yet. More
    /// bridges longer bursts.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = buffer)]
    pub(crate) buffer: ByteSize,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,

    /// A command to run. The recording ends when it exits.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<String>,
}

/// Parses a time.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    let problem = || format!("{text} is not from 0.001 to 1000000");
    (0.001..=1e6).contains(&seconds).then_some(seconds).ok_or_else(problem)
}

/// Parses the size of a buffer.
fn buffer(text: &str) -> Result<ByteSize, String> {
    let size: ByteSize = text.parse()?;
    let problem = || format!("{text} is not from 64KiB to 16GiB");
    (64 << 10..=16 << 30).contains(&size.0).then_some(size).ok_or_else(problem)
}

const RECORD_HELP: &str = "\
Records the events kmem:mm_page_* of all CPUs through a tracing instance of its own, which takes
root. Events of the recorder itself are left out. While it records, what the kernel has written is
kept in a file without a name beside TRACE: about 50 bytes an event.

Examples:
  freehold record -o build.fht -- make -j8
  freehold record --seconds 10 -o busy.fht
  freehold record --buffer 256MiB -o storm.fht -- ./fork-storm

If events are lost, the recording is kept, says so, and the exit code is 4; more --buffer helps.
If root or tracefs is missing, the exit code is 5; if the command fails, 1.";

#[derive(Debug, Args)]
#[command(after_help = IMPORT_HELP)]
pub(crate) struct ImportArgs {
    /// The text, or - for standard input.
    pub(crate) text: PathBuf,

    /// The file to write.
    #[arg(short, long, value_name = "TRACE")]
    pub(crate) output: PathBuf,

    /// Leave out lines that cannot be read, such as those that a mail program has broken, and say
    /// how many there are. Default: the first such line ends the import.
    #[arg(long)]
    pub(crate) skip_bad: bool,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

const IMPORT_HELP: &str = "\
Reads what ftrace (the file `trace`), `trace-cmd report` or `perf script` print of the events
kmem:mm_page_*, of any kernel. Other events are passed over. The texts do not say how much memory
the machine has, nor how many nodes; `freehold record` does.

A line needs a process, a CPU, a time, and the event with its fields; the error names the option of
the tool that prints what is missing. Of what cannot be, such as allocations without any free, a
warning on stderr tells; the exit code is 0.

Examples:
  freehold import trace.txt -o busy.fht
  trace-cmd report | freehold import - -o busy.fht
  perf record -a -e 'kmem:mm_page_*' -- make
  perf script --show-lost-events | freehold import - -o build.fht";

#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Show what is in a recording.
    Info(InfoArgs),
}

#[derive(Debug, Args)]
#[command(after_help = INFO_HELP)]
pub(crate) struct InfoArgs {
    /// The recording.
    pub(crate) trace: PathBuf,

    /// Print one JSON document instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

const INFO_HELP: &str = "\
Examples:
  freehold trace info build.fht
  freehold trace info build.fht --json";
