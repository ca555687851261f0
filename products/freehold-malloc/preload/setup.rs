//! What runs before `main`: the arena is built, and the malloc put on it.
#![expect(unsafe_code, reason = "places a function among those that run before `main`")]

use std::error::Error;

use freehold_host::{Arena, Backing, FrameCount, HostError, Topology};
use freehold_malloc::HeapSettings;

use crate::blocks;
use crate::malloc;
use crate::options::{self, Options};
use crate::own;
use crate::stats;

// SAFETY: the section is an array of functions like this one, each called once, with arguments that
// it may ignore.
#[used]
#[unsafe(link_section = ".init_array")]
static SETUP: extern "C" fn() = setup;

/// How much memory an arena begins with: a process that needs no more has no more locked
/// (`mlockall`), nor copied when it forks.
const START_BYTES: usize = 16 << 20;

extern "C" fn setup() {
    own::while_setting_up(set_up);
}

fn set_up() {
    let text = std::env::var_os("FREEHOLD_MALLOC").unwrap_or_default();
    let options = match options::parse(&text.to_string_lossy()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}; the program runs on {} without Freehold", malloc::NAME);
            return;
        }
    };
    if !options.is_on {
        return;
    }
    if let Err(error) = start(options) {
        eprintln!("freehold: {error}; the program runs on {} without Freehold", malloc::NAME);
    }
}

fn start(options: Options) -> Result<(), Box<dyn Error>> {
    let asks_for_huge_pages = options.asks_for_huge_pages.unwrap_or(malloc::ASKS_FOR_HUGE_PAGES);
    let settings = HeapSettings {
        // Children have no thread, so calls purge there, as they do without one.
        purge_every: options.purge.map(|interval| (interval, options.ages)),
        parts_at_falls: !asks_for_huge_pages && options.ages.part.is_some(),
        single_calls: options.single_calls.unwrap_or_else(is_filtered),
        ..HeapSettings::default()
    };
    let is_private = matches!(options.backing, Backing::Private);
    let builder = Arena::builder()
        .topology(Topology::discover().or_else(|_| allowed())?)
        .backing(options.backing.clone())
        .huge_pages(asks_for_huge_pages)
        .map_as_it_grows(is_private)
        .min_free(FrameCount::ZERO); // Nothing reclaims memory here.
    let mut capacity_bytes = options.bytes.unwrap_or_else(machine_bytes);
    let heap = loop {
        // Memory of other kinds is there as a whole.
        let bytes = if is_private { START_BYTES.min(capacity_bytes) } else { capacity_bytes };
        let builder = builder.clone().bytes(bytes).capacity_bytes(capacity_bytes);
        match malloc::use_heap(builder, settings, &options) {
            Err(error) if options.bytes.is_none() && is_private && is_limit(&*error) => {
                // Nobody has asked for that much, nor is told if there is too little for any.
                capacity_bytes /= 2;
                if capacity_bytes < malloc::CAPACITY_BYTES_MIN {
                    return Ok(());
                }
            }
            done => break done?,
        }
    };
    if let (Some(interval), true) = (options.purge, options.has_purge_thread) {
        let purge = move || {
            loop {
                std::thread::sleep(interval);
                malloc::give_back();
                // Refused by the kernel, memory stays with the program.
                let _refused = heap.purge(options.ages);
            }
        };
        let thread = std::thread::Builder::new().name("freehold-purge".into());
        thread.stack_size(128 << 10).spawn(purge)?;
    }
    blocks::note_to(heap);
    stats::start(heap, options)
}

/// Whether the program's system calls are filtered already. A filter that ends the program on calls
/// that it does not know rarely knows `process_madvise(2)`.
fn is_filtered() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP) > 0 }
}

/// The machine as far as this process may run on it, where nothing else tells.
fn allowed() -> Result<Topology, HostError> {
    let highest = freehold_host::allowed_cpus()?.into_iter().max();
    Ok(Topology::flat(highest.map_or(1, |cpu| cpu.index() + 1)))
}

/// Whether a process may not have as much address space.
fn is_limit(error: &(dyn Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(HostError::Map { .. }))
}

/// How much memory the machine has.
fn machine_bytes() -> usize {
    // SAFETY: reads a number, here and below.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    // SAFETY: as above.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = pages.checked_mul(page_bytes).and_then(|bytes| usize::try_from(bytes).ok());
    bytes.filter(|bytes| *bytes > 0).unwrap_or(1 << 30)
}
