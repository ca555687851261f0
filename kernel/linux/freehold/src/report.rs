//! What an allocator says about itself, as names and numbers that the C side prints.
//!
//! The names are those of `freehold_host::stat::Snapshot::vmstat`, which are Linux's where Linux
//! has the figure.

use core::ffi::c_void;
use core::fmt::{self, Write};

use freehold::platform::Platform;
use freehold::{Design, NumaEvents, PageAllocator, ZoneStats};

unsafe extern "C" {
    /// `module/glue.c`: prints a figure to where `sink` says.
    fn fh_emit(sink: *mut c_void, name: *const u8, len: usize, value: u64);
    /// `module/glue.c`: prints a line to where `sink` says.
    fn fh_say(sink: *mut c_void, text: *const u8, len: usize);
}

/// Where the C side prints: an opaque pointer that comes back to it.
pub(crate) struct Sink(pub(crate) *mut c_void);

impl Sink {
    pub(crate) fn emit(&self, name: &str, value: u64) {
        // SAFETY: the name is text of this length; the C side gave the pointer.
        unsafe { fh_emit(self.0, name.as_ptr(), name.len(), value) };
    }

    /// Prints a line.
    pub(crate) fn say(&self, what: fmt::Arguments<'_>) {
        let mut line = Line { text: [0; 200], len: 0 };
        // A line takes all text.
        let _ = line.write_fmt(what);
        // SAFETY: text of this length; the C side gave the pointer.
        unsafe { fh_say(self.0, line.text.as_ptr(), line.len) };
    }
}

/// A line of text on the stack; what does not fit is left out.
struct Line {
    text: [u8; 200],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = &mut self.text[self.len..];
        let many = text.len().min(room.len());
        room[..many].copy_from_slice(&text.as_bytes()[..many]);
        self.len += many;
        Ok(())
    }
}

/// Levels, claims, NUMA events and events, summed over all zones.
pub(crate) fn stat<P: Platform, D: Design<P>>(allocator: &PageAllocator<P, D>, sink: &Sink) {
    let sum = |of: fn(&ZoneStats) -> u64| allocator.zones().map(|zone| of(&zone)).sum();
    sink.emit("nr_free_pages", sum(|zone| zone.free.get()));
    sink.emit("nr_pcp_pages", sum(|zone| zone.per_cpu.get()));
    sink.emit("nr_isolated_pages", sum(|zone| zone.isolated.get()));
    sink.emit("nr_managed_pages", sum(|zone| zone.managed.get()));
    sink.emit("pageblock_claim", sum(|zone| zone.claims));
    sink.emit("pageblock_steal", sum(|zone| zone.steals));
    let mut numa = NumaEvents::default();
    (0..).map_while(|zone| allocator.numa_events(zone)).for_each(|zone| numa.add(&zone));
    numa.by_name().iter().for_each(|&(name, count)| sink.emit(name, count));
    allocator.events().by_name().iter().for_each(|&(name, count)| sink.emit(name, count));
}

/// Checks every invariant; says which does not hold, or where the frames are. Returns whether all
/// hold.
pub(crate) fn validate<P: Platform, D: Design<P>>(
    allocator: &PageAllocator<P, D>,
    sink: &Sink,
) -> bool {
    match allocator.validate() {
        Ok(census) => {
            sink.emit("managed", census.managed.get());
            sink.emit("free", census.free.get());
            sink.emit("per_cpu", census.per_cpu.get());
            sink.emit("isolated", census.isolated.get());
            sink.emit("allocated", census.allocated.get());
            true
        }
        Err(violation) => {
            sink.say(format_args!("{violation}"));
            false
        }
    }
}
