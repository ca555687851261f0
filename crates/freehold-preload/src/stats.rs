//! Statistics, when the program exits and on a signal.
#![expect(unsafe_code, reason = "installs functions that C calls")]

use core::ffi::c_int;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, PipeReader, PipeWriter, Read, Write as _};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;

use freehold_host::{PageHeap, Snapshot};

use crate::malloc;
use crate::options::Options;

struct Stats {
    heap: &'static PageHeap,
    to: Option<PathBuf>,
    /// What a signal's handler writes to, and the process whose thread reads it: a child shares the
    /// pipe, and has no such thread.
    signals: Option<(PipeWriter, u32)>,
}

static STATS: OnceLock<Stats> = OnceLock::new();

/// Has statistics written as the options say.
pub(crate) fn start(heap: &'static PageHeap, options: Options) -> Result<(), Box<dyn Error>> {
    let (reader, writer) = options.stats_signal.map(|_| io::pipe()).transpose()?.unzip();
    let signals = writer.map(|writer| (writer, std::process::id()));
    if STATS.set(Stats { heap, to: options.stats_to, signals }).is_err() {
        return Err("the library was started twice".into());
    }
    if options.stats_at_exit {
        // SAFETY: the function is there as long as the process.
        unsafe { libc::atexit(at_exit) };
    }
    if let (Some(signal), Some(reader)) = (options.stats_signal, reader) {
        std::thread::Builder::new()
            .name("freehold-stats".into())
            .stack_size(128 << 10)
            .spawn(move || report_on_signals(reader))?;
        let handler: extern "C" fn(c_int) = on_signal;
        // SAFETY: the handler only calls functions that are allowed in one.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    Ok(())
}

extern "C" fn at_exit() {
    report("exit");
}

/// A write to a pipe, which a handler may do; its thread does the rest.
extern "C" fn on_signal(_signal: c_int) {
    // SAFETY: reads a number.
    let here = unsafe { libc::getpid() };
    if let Some(Stats { signals: Some((writer, process)), .. }) = STATS.get()
        && u32::try_from(here) == Ok(*process)
    {
        // SAFETY: takes nothing.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the C library's variable of this thread, here and below.
        let before = unsafe { *errno };
        // SAFETY: one byte, from a constant. If the pipe is full, reports are on their way.
        unsafe { libc::write(writer.as_raw_fd(), c"s".as_ptr().cast(), 1) };
        // SAFETY: as above.
        unsafe { *errno = before };
    }
}

fn report_on_signals(mut reader: PipeReader) {
    while let Ok(1) = reader.read(&mut [0]) {
        report("signal");
    }
}

fn report(when: &str) {
    let Some(stats) = STATS.get() else { return };
    let text = text(stats.heap, when);
    let written = match &stats.to {
        None => io::stderr().write_all(text.as_bytes()),
        Some(path) => (OpenOptions::new().create(true).append(true).open(path))
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| io::Error::other(format!("{}: {error}", path.display()))),
    };
    if let Err(error) = written {
        eprintln!("freehold: FREEHOLD_MALLOC=stats_to: {error}");
    }
}

/// The statistics: one block of lines.
fn text(heap: &PageHeap, when: &str) -> String {
    let arena = heap.arena();
    let snapshot = Snapshot::of(arena.allocator());
    let purged = heap.purged();
    let managed: u64 = snapshot.zones.iter().map(|zone| zone.managed).sum();
    let free: u64 = snapshot.zones.iter().map(|zone| zone.free + zone.per_cpu).sum();
    let frame_bytes = arena.frame_size().bytes() as u64;
    let mib = |frames: u64| frames * frame_bytes / (1 << 20);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "freehold: {when} of process {}: {} on an arena of {} MiB, of which {} MiB in use",
        std::process::id(),
        malloc::NAME,
        mib(managed),
        mib(managed - free),
    );
    let _ = writeln!(
        text,
        "freehold: purged {} MiB, {} MiB of it in whole pageblocks: {} stretches by {} calls",
        mib(purged.frames.get()),
        mib(purged.whole.get()),
        purged.stretches,
        purged.calls,
    );
    for line in snapshot.buddyinfo().lines() {
        let _ = writeln!(text, "freehold: {line}");
    }
    for (name, count) in snapshot.events.iter().filter(|(_, count)| **count > 0) {
        let _ = writeln!(text, "freehold: {name} {count}");
    }
    text
}
