//! `freehold record`: what the page allocator of the running kernel does.

use std::time::Duration;

use anyhow::{Result, bail};
use bytesize::ByteSize;
use freehold_trace::tracefs::{self, Options, Progress, Recorded};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::file::WRITER;
use crate::cli::RecordArgs;
use crate::output::{Output, folder};
use crate::report::out;
use crate::signals::stop_flag;

/// Events were lost in a recording. Exits with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error(
    "{lost} events were lost and {kept} kept: more --buffer than {buffer} bridges longer bursts"
)]
pub(crate) struct EventsLost {
    lost: u64,
    kept: u64,
    buffer: ByteSize,
}

/// Records, and says what was recorded.
pub(crate) fn record(args: &RecordArgs) -> Result<()> {
    let stop = stop_flag()?;
    let options = Options {
        command: args.command.clone(),
        limit: args.seconds.map(Duration::from_secs_f64),
        buffer_bytes: args.buffer.0,
        spool: folder(&args.output).to_owned(),
    };
    let output = Output::new(&args.output)?;
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}").expect("it is well-formed"));
    let recorded = tracefs::record(&options, WRITER, &stop, output.writer(), |progress| {
        bar.set_message(in_words(progress));
        bar.tick();
    });
    bar.finish_and_clear();
    let Recorded { trailer, status, missing } = recorded?;
    let bytes = output.keep()?;
    let path = args.output.display();
    let lost = trailer.lost_events();
    if args.json {
        let document = json!({
            "schema": "freehold.record/1",
            "trace": args.output,
            "bytes": bytes,
            "events": trailer.events,
            "elapsed_ns": trailer.elapsed_ns,
            "lost": trailer.lost,
            "events_missing": missing.iter().map(|kind| kind.name()).collect::<Vec<_>>(),
            "command": args.command,
            "exit_code": status.and_then(|status| status.code()),
        });
        out!("{}", serde_json::to_string_pretty(&document)?);
    } else {
        let seconds = Duration::from_nanos(trailer.elapsed_ns).as_secs_f64();
        out!(
            "{path}: {} events in {seconds:.2} s, {lost} lost; {}",
            trailer.events,
            ByteSize(bytes)
        );
    }
    for kind in missing {
        eprintln!("warning: this kernel has no event {}", kind.name());
    }
    if lost > 0 {
        return Err(EventsLost { lost, kept: trailer.events, buffer: args.buffer }.into());
    }
    match status.filter(|status| !status.success()) {
        Some(status) => bail!("{}: {status}; {path} has what it did", args.command.join(" ")),
        None => Ok(()),
    }
}

fn in_words(progress: Progress) -> String {
    match progress {
        Progress::Recording { elapsed, bytes } => {
            format!("recording for {:.0} s: {}", elapsed.as_secs_f64(), ByteSize(bytes))
        }
        Progress::Storing { events } => format!("storing: {events} events"),
    }
}
