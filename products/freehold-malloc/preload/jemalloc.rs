//! jemalloc, on Freehold by extent hooks.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::error::Error;
use std::sync::OnceLock;
use std::time::Duration;

use freehold_host::ArenaBuilder;
use freehold_malloc::jemalloc::{Hooks, Jemalloc, LARGE_BYTES};
use freehold_malloc::{HeapSettings, HeapView};
pub(crate) use tikv_jemalloc_sys::{
    aligned_alloc, calloc, free, malloc, malloc_usable_size, posix_memalign, realloc,
};

use crate::options::Options;

// A page more, to begin large blocks at places of their own in caches, would make them odd spans: a
// free takes twice as long, and neighbours do not merge.
freehold_malloc::malloc_conf!("cache_oblivious:false");

/// The name, for messages.
pub(crate) const NAME: &str = "jemalloc";

/// The smallest arena that is of use: what it begins with.
pub(crate) const CAPACITY_BYTES_MIN: usize = 16 << 20;

/// Whether huge pages are asked for by default: jemalloc leaves it to the machine (`thp:default`).
pub(crate) const ASKS_FOR_HUGE_PAGES: bool = false;

/// How long a full arena refuses what it has just searched for: jemalloc goes to the kernel then.
const REFUSAL: Duration = Duration::from_millis(10);

/// Has the malloc use a heap over such an arena from now on.
pub(crate) fn use_heap(
    arena: ArenaBuilder,
    settings: HeapSettings,
    options: &Options,
) -> Result<HeapView<'static>, Box<dyn Error>> {
    let settings = HeapSettings { refuse_for: Some(REFUSAL), ..settings };
    let hooks = Hooks::new(arena, settings)?.leak();
    Jemalloc::TIKV.set_dirty_decay(options.decay)?;
    hooks.install_on_used(&Jemalloc::TIKV, false)?;
    // Nothing else sets it.
    let _first = HOOKS.set(hooks);
    Ok(hooks.heap())
}

/// Hooks that are not on all arenas yet: most processes have one thread, and no large block.
static HOOKS: OnceLock<&Hooks> = OnceLock::new();
static ARE_ON_ALL: AtomicBool = AtomicBool::new(false);
static ARE_FOR_LARGE: AtomicBool = AtomicBool::new(false);

/// To be called before a thread is started.
pub(crate) fn before_thread() {
    // Relaxed, here and below: a call that comes second need not wait, since an arena without hooks
    // will do.
    if let Some(hooks) = HOOKS.get()
        && !ARE_ON_ALL.swap(true, Relaxed)
    {
        ARE_FOR_LARGE.store(true, Relaxed);
        // Refused, the others have memory of the kernel.
        let _refused = hooks.install(&Jemalloc::TIKV);
    }
}

/// To be called before a block of so many bytes is allocated.
#[inline]
pub(crate) fn before_large(bytes: usize) {
    if bytes >= LARGE_BYTES && !ARE_FOR_LARGE.load(Relaxed) {
        install_for_large();
    }
}

#[cold]
fn install_for_large() {
    if let Some(hooks) = HOOKS.get()
        && !ARE_FOR_LARGE.swap(true, Relaxed)
    {
        // As above.
        let _refused = hooks.install_on_used(&Jemalloc::TIKV, true);
    }
}

/// Has the malloc return to the heap what it has not used for a while, also of idle threads.
pub(crate) fn give_back() {
    // Refused, the heap has what was returned before.
    let _refused = Jemalloc::TIKV.decay();
}

/// Has the malloc return to the heap all that it does not use.
pub(crate) fn give_back_all() {
    // Refused, it stays for its decay.
    let _refused = Jemalloc::TIKV.purge();
}
