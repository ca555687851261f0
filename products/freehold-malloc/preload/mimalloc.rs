//! mimalloc, on Freehold by a managed arena.

use std::error::Error;

use freehold_host::ArenaBuilder;
use freehold_malloc::mimalloc::{Managed, Mimalloc};
use freehold_malloc::{HeapSettings, HeapView};
pub(crate) use libmimalloc_sys::{
    mi_aligned_alloc as aligned_alloc, mi_calloc as calloc, mi_free as free, mi_malloc as malloc,
    mi_posix_memalign as posix_memalign, mi_realloc as realloc,
    mi_usable_size as malloc_usable_size,
};

use crate::options::Options;

/// The name, for messages.
pub(crate) const NAME: &str = "mimalloc";

/// The smallest arena that is of use: mimalloc manages no less.
pub(crate) const CAPACITY_BYTES_MIN: usize = 64 << 20;

/// Whether huge pages are asked for by default: mimalloc does (`MIMALLOC_ALLOW_THP`).
pub(crate) const ASKS_FOR_HUGE_PAGES: bool = true;

/// Has the malloc use a heap over such an arena from now on. When it returns memory is its own
/// option (`MIMALLOC_PURGE_DELAY`).
pub(crate) fn use_heap(
    arena: ArenaBuilder,
    settings: HeapSettings,
    _options: &Options,
) -> Result<HeapView<'static>, Box<dyn Error>> {
    let managed = Managed::new(arena, settings)?.leak();
    managed.manage(&Mimalloc::SYS)?;
    Ok(managed.heap())
}

/// What jemalloc has to know before there are threads and large blocks, mimalloc has not.
pub(crate) fn before_thread() {}
pub(crate) fn before_large(_bytes: usize) {}

/// Has the malloc return to the heap what it has not used for a while, also of idle threads.
pub(crate) fn give_back() {
    Mimalloc::collect_sys();
}

/// Has the malloc return to the heap all that this thread does not use.
pub(crate) fn give_back_all() {
    Mimalloc::collect_all_sys();
}
