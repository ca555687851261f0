//! What the program has in large blocks. The heap does not see that: a malloc keeps what is freed,
//! and gives it up in later calls, which do not come once the program is idle.
#![expect(unsafe_code, reason = "calls C")]

use core::ffi::c_void;
use std::sync::OnceLock;

use freehold_malloc::HeapView;

use crate::malloc;

/// The heap under the malloc, once there is one.
static HEAP: OnceLock<HeapView<'static>> = OnceLock::new();

/// Blocks above this count, a size class of both mallocs: what comes is above it if what was asked
/// for is.
const BYTES_MAX_UNNOTED: usize = 4 << 10;

/// They count at multiples of this, where most large blocks begin, and of small ones the first of
/// those up to the next: it stands for all of these. A block lies there still when it is freed.
const PLACES: usize = 16 << 10;

/// From now on, blocks are noted there.
pub(crate) fn note_to(heap: HeapView<'static>) {
    HEAP.get_or_init(|| heap);
}

/// Whether a block of which so many bytes were asked for may count.
#[inline]
pub(crate) fn may_count(asked_bytes: usize) -> bool {
    asked_bytes > BYTES_MAX_UNNOTED
}

/// Whether a block may count by its place. Null is none: the C library frees it as a thread ends,
/// and jemalloc, asked for its size, would enlist that thread.
#[inline]
pub(crate) fn may_count_at(memory: *mut c_void) -> bool {
    !memory.is_null() && memory.addr().is_multiple_of(PLACES)
}

/// What a block counts for: 0 if it does not.
///
/// # Safety
///
/// It is a block of the malloc's, or null.
pub(crate) unsafe fn bytes_of(memory: *mut c_void) -> i64 {
    if !may_count_at(memory) {
        return 0;
    }
    // SAFETY: as the caller promises.
    let bytes = unsafe { malloc::malloc_usable_size(memory) };
    if bytes > BYTES_MAX_UNNOTED { bytes.max(PLACES) as i64 } else { 0 }
}

/// Notes that so many bytes are more, or less if negative. If they have become much less, has the
/// malloc give back what it does not use.
pub(crate) fn note(bytes: i64) {
    if bytes != 0
        && let Some(heap) = HEAP.get()
        && heap.note_blocks(bytes)
    {
        malloc::give_back_all();
    }
}
