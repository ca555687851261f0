//! `freehold import`: recordings from the text of other tools.

use anyhow::{Context, Result, anyhow};
use bytesize::ByteSize;
use freehold_trace::machine::Machine;
use freehold_trace::text::{self, BadLines, Imported, TextError};
use freehold_trace::{Header, Trailer, What, Writer};
use serde_json::json;

use super::file::WRITER;
use crate::cli::ImportArgs;
use crate::input;
use crate::output::Output;
use crate::report::out;

/// Reads a text and stores it.
pub(crate) fn import(args: &ImportArgs) -> Result<()> {
    let name = input::name_of(&args.text);
    let input = input::open(&args.text).with_context(|| name.clone())?;
    let bad_lines = if args.skip_bad { BadLines::LeaveOut } else { BadLines::Refuse };
    let hinting = |error| match error {
        TextError::BadLine { .. } if !args.skip_bad => {
            anyhow!("{error} (--skip-bad leaves out such lines)")
        }
        error => error.into(),
    };
    let Imported { events, others, bad_lines, first_bad, doubts } =
        text::import_with(input, bad_lines).map_err(hinting).with_context(|| name.clone())?;
    let output = Output::new(&args.output)?;
    let mut cpus: Vec<_> = events.iter().map(|event| event.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    let header = Header {
        source: name.clone(),
        writer: WRITER.to_owned(),
        machine: Machine { cpus, ..Machine::default() },
        ..Header::default()
    };
    let mut trailer = Trailer::default();
    let mut writer = Writer::new(output.writer(), &header)?;
    for event in events {
        trailer.events += 1;
        trailer.elapsed_ns = event.time_ns;
        if let What::Lost { events } = event.what {
            let overrun = &mut trailer.lost.entry(event.cpu).or_default().overrun;
            *overrun = overrun.saturating_add(events);
        }
        writer.push(event)?;
    }
    writer.finish(trailer.clone())?;
    let bytes = output.keep()?;
    if let Some((line, problem)) = &first_bad {
        eprintln!("warning: {name}: {bad_lines} bad lines were left out; line {line}: {problem}");
    }
    for doubt in &doubts {
        let kind = if doubt.is_note() { "note" } else { "warning" };
        eprintln!("{kind}: {name}: {doubt}");
    }
    if args.json {
        let document = json!({
            "schema": "freehold.import/1",
            "trace": args.output,
            "bytes": bytes,
            "events": trailer.events,
            "elapsed_ns": trailer.elapsed_ns,
            "lost": trailer.lost,
            "other_events": others,
            "bad_lines": bad_lines,
            "doubts": doubts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        out!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    let path = args.output.display();
    let (events, lost) = (trailer.events, trailer.lost_events());
    out!("{path}: {events} events, {lost} lost; {others} of other kinds; {}", ByteSize(bytes));
    Ok(())
}
