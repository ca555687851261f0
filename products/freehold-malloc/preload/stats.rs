//! Statistics, when the program exits and on a signal.
#![expect(unsafe_code, reason = "installs functions that C calls")]

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use std::error::Error;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use freehold_malloc::HeapView;

use crate::malloc;
use crate::options::Options;

struct Stats {
    heap: HeapView<'static>,
    to: Option<PathBuf>,
}

static STATS: OnceLock<Stats> = OnceLock::new();

/// Counts signals that were not reported yet. No pipe: a program may close all descriptors, and the
/// number would be that of a file of its own. A child has a copy, and no thread that waits for it.
static SIGNALS: Semaphore = Semaphore(UnsafeCell::new(MaybeUninit::zeroed()));

struct Semaphore(UnsafeCell<MaybeUninit<libc::sem_t>>);

// SAFETY: a semaphore is for threads to meet at. It is initialised before a second one knows it.
unsafe impl Sync for Semaphore {}

/// Has statistics written as the options say.
pub(crate) fn start(heap: HeapView<'static>, options: Options) -> Result<(), Box<dyn Error>> {
    if STATS.set(Stats { heap, to: options.stats_to }).is_err() {
        return Err("the library was started twice".into());
    }
    if options.stats_at_exit {
        // SAFETY: the function is there as long as the process.
        unsafe { libc::atexit(at_exit) };
    }
    if let Some(signal) = options.stats_signal {
        // SAFETY: nothing uses it yet, and it stays where it is.
        unsafe { libc::sem_init(SIGNALS.0.get().cast(), 0, 0) };
        std::thread::Builder::new()
            .name("freehold-stats".into())
            .stack_size(128 << 10)
            .spawn(report_on_signals)?;
        let handler: extern "C" fn(c_int) = on_signal;
        // SAFETY: the handler only calls functions that are allowed in one.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
    Ok(())
}

extern "C" fn at_exit() {
    report("exit");
}

/// All that a handler may do; a thread does the rest.
extern "C" fn on_signal(_signal: c_int) {
    // SAFETY: initialised before the handler was installed. Allowed in a handler; it sets `errno`
    // only if there were two billion signals.
    unsafe { libc::sem_post(SIGNALS.0.get().cast()) };
}

fn report_on_signals() -> ! {
    loop {
        // SAFETY: initialised before this thread was started.
        if unsafe { libc::sem_wait(SIGNALS.0.get().cast()) } == 0 {
            report("signal");
        }
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
fn text(heap: HeapView<'_>, when: &str) -> String {
    let snapshot = heap.snapshot();
    let purged = heap.purged();
    let managed: u64 = snapshot.zones.iter().map(|zone| zone.managed).sum();
    let free: u64 = snapshot.zones.iter().map(|zone| zone.free + zone.per_cpu).sum();
    let frame_bytes = heap.frame_bytes() as u64;
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
