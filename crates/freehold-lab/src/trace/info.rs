//! `freehold trace info`: what is in a recording.

use std::time::Duration;

use anyhow::{Context, Result};
use bytesize::ByteSize;
use freehold_trace::machine::Zones;
use freehold_trace::{Header, Summary, Summing, Trailer};
use serde_json::json;

use super::file::open;
use crate::cli::InfoArgs;
use crate::report::out;
use crate::report::table::Table;

/// Flags of allocations that are listed: those most often used.
const GFPS_MAX: usize = 8;

/// Reads a whole recording and prints what it has.
pub(crate) fn info(args: &InfoArgs) -> Result<()> {
    let name = || args.trace.display().to_string();
    let bytes = args.trace.metadata().with_context(name)?.len();
    let mut reader = open(&args.trace)?;
    let mut summing = Summing::default();
    for event in reader.by_ref() {
        summing.add(&event.with_context(name)?);
    }
    let header = reader.header();
    let trailer = reader.trailer().expect("all events have been read");
    let summary = summing.finish();
    if args.json {
        let document = json!({
            "schema": "freehold.trace/1",
            "bytes": bytes,
            "header": header,
            "summary": summary,
            "trailer": trailer,
        });
        out!("{}", serde_json::to_string_pretty(&document)?);
        return Ok(());
    }
    about(header, trailer, &summary, bytes)?;
    counts(&summary, trailer)?;
    orders(&summary, header, trailer)
}

/// Where it is from.
fn about(header: &Header, trailer: &Trailer, summary: &Summary, bytes: u64) -> Result<()> {
    let Header { source, writer, command, machine, before, .. } = header;
    let seconds = Duration::from_nanos(trailer.elapsed_ns).as_secs_f64();
    let events = trailer.events;
    let bits = bytes as f64 * 8.0 / events.max(1) as f64;
    out!("{events} events in {seconds:.3} s; {}, {bits:.1} bits an event", ByteSize(bytes));
    out!("from {source}, by {writer}");
    if !command.is_empty() {
        out!("command   {}", command.join(" "));
    }
    if !machine.kernel.is_empty() {
        out!("machine   {}, Linux {}", machine.processor, machine.kernel);
    }
    let nodes = machine.nodes.len().max(1);
    let memory = match before.managed() {
        0 => "memory unknown".to_owned(),
        frames => {
            let of = |frames: u64| ByteSize(frames * machine.frame_bytes.max(1));
            format!("{} of memory, {} free at first", of(frames), of(before.free()))
        }
    };
    out!(
        "          {} CPUs, {} of them busy; {nodes} nodes; {memory}",
        machine.cpus.len(),
        summary.events_by_cpu.len()
    );
    Ok(())
}

/// What there is of each kind of event, and what is missing.
fn counts(summary: &Summary, trailer: &Trailer) -> Result<()> {
    let mut table = Table::new(["event", "count", "a second"]).numbers_from(1);
    let seconds = Duration::from_nanos(trailer.elapsed_ns).as_secs_f64();
    for (name, count) in &summary.events {
        let rate = *count as f64 / seconds;
        table.row([(*name).to_owned(), count.to_string(), format!("{rate:.0}")]);
    }
    out!("\n{table}");
    let Summary { processes, events_in_interrupts, allocations_failed, .. } = summary;
    out!("{processes} processes and threads; {events_in_interrupts} events in interrupts");
    out!("{allocations_failed} allocations refused; {} frees in groups", summary.frees_batched);
    let unknown = summary.frees_of_unknown;
    out!("{unknown} frees of blocks from before; {} lost frees", summary.allocations_of_live);
    let (most, end) = (summary.live_frames_max, summary.live_frames_at_end);
    out!("{most} frames allocated at once at most, {end} at the end");
    let lost = trailer.lost_events();
    if lost > 0 || summary.gaps > 0 {
        out!("LOST: {lost} events, in {} gaps", summary.gaps);
    }
    let allocations: u64 = summary.allocations_by_order.iter().sum();
    let per_thousand = |count: u64| count as f64 * 1e3 / allocations.max(1) as f64;
    out!(
        "of 1000 allocations: {:.0} frames refilled per-CPU lists, {:.1} blocks went past them, \
         {:.0} were drained",
        per_thousand(summary.blocks_refilled),
        per_thousand(summary.blocks_past_lists),
        per_thousand(summary.blocks_drained),
    );
    Ok(())
}

/// By order: what was allocated and freed, and what the zones had.
fn orders(summary: &Summary, header: &Header, trailer: &Trailer) -> Result<()> {
    let (before, after) = (Zones::free_blocks(&header.before), trailer.after.free_blocks());
    let columns = [&summary.allocations_by_order, &summary.frees_by_order, &before, &after];
    let headings = ["order", "allocated", "freed", "free at first", "free at the end"];
    let mut table = Table::new(headings).numbers_from(0);
    for order in 0..columns.iter().map(|column| column.len()).max().unwrap_or(0) {
        let cell = |column: &&Vec<u64>| column.get(order).map_or("-".into(), u64::to_string);
        table.row([order.to_string()].into_iter().chain(columns.iter().map(cell)));
    }
    out!("\n{table}");
    let mut gfps: Vec<_> = summary.allocations_by_gfp.iter().collect();
    gfps.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let mut table = Table::new(["allocations with the flags", "count"]).numbers_from(1);
    for (flags, count) in gfps.iter().take(GFPS_MAX) {
        table.row([flags.to_string(), count.to_string()]);
    }
    if let Some(others) = gfps.get(GFPS_MAX..).filter(|others| !others.is_empty()) {
        let count: u64 = others.iter().map(|(_, count)| **count).sum();
        table.row([format!("{} others", others.len()), count.to_string()]);
    }
    out!("\n{table}");
    Ok(())
}
