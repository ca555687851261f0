//! Allocating and freeing.
#![expect(unsafe_code, reason = "exports functions, and reads and writes arrays of the caller")]
#![expect(clippy::missing_safety_doc, reason = "the introduction of the header says it for all")]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use super::{code, put};
use crate::arena::order_of;
use crate::args::{Wish, freehold_request};
use crate::error::freehold_error::{self, *};
use crate::freehold_arena;

/// Allocates a block of 2^order frames, whose content is undefined: 0 is one frame. Its address is
/// a multiple of its size (up to 1 GiB; in small arenas, up to 4 MiB).
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ENOMEM; FREEHOLD_EWATERMARK; FREEHOLD_EORDER. *block is NULL
/// then.
/// Threads: any. Signals: unsafe; freehold_alloc_with can be safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_alloc(
    arena: Option<&freehold_arena>,
    order: u32,
    block: Option<&mut MaybeUninit<*mut c_void>>,
) -> freehold_error {
    put(block, null_mut(), || arena.ok_or(FREEHOLD_ENULL)?.alloc_any(order_of(order)))
}

/// As freehold_alloc, with memory that is chosen as `request` says.
///
/// Errors: also FREEHOLD_EINVAL and FREEHOLD_ENODE; with FREEHOLD_NOWAIT, FREEHOLD_EWOULDWAIT.
/// Threads: any. Signals: safe with FREEHOLD_NOWAIT, otherwise unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc_with(
    arena: Option<&freehold_arena>,
    order: u32,
    request: *const freehold_request,
    block: Option<&mut MaybeUninit<*mut c_void>>,
) -> freehold_error {
    put(block, null_mut(), || {
        // SAFETY: The caller passes a struct that says its size, or NULL.
        let wish = unsafe { Wish::read(request)? };
        arena.ok_or(FREEHOLD_ENULL)?.alloc(order, &wish)
    })
}

/// Allocates so many bytes, rounded up. Up to a pageblock (2 MiB of frames of 4 KiB) they are the
/// smallest block that holds them, and beyond that a range of whole frames.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ESIZE for 0; FREEHOLD_ENOMEM; FREEHOLD_EWATERMARK;
/// FREEHOLD_EBUSY. *block is NULL then.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_alloc_bytes(
    arena: Option<&freehold_arena>,
    bytes: usize,
    block: Option<&mut MaybeUninit<*mut c_void>>,
) -> freehold_error {
    put(block, null_mut(), || arena.ok_or(FREEHOLD_ENULL)?.alloc_bytes(bytes))
}

/// Allocates a range: contiguous frames that hold so many bytes, any number of them, at a multiple
/// of `align`, a power of two, or 0 for none. It is freed like any other memory. Slower than a
/// block: it searches for a place.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ESIZE for 0; FREEHOLD_EALIGN, also for more than the arena's
/// base is aligned to; FREEHOLD_ENOMEM; FREEHOLD_EWATERMARK; FREEHOLD_EBUSY if no place is free as
/// a whole; FREEHOLD_EINVAL, also for FREEHOLD_NOWAIT; FREEHOLD_ENODE. *block is NULL then.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc_range(
    arena: Option<&freehold_arena>,
    bytes: usize,
    align: usize,
    request: *const freehold_request,
    block: Option<&mut MaybeUninit<*mut c_void>>,
) -> freehold_error {
    put(block, null_mut(), || {
        // SAFETY: The caller passes a struct that says its size, or NULL.
        let wish = unsafe { Wish::read(request)? };
        arena.ok_or(FREEHOLD_ENULL)?.alloc_range(bytes, align, &wish)
    })
}

/// Allocates up to `count` blocks of 2^order frames into `blocks`, and sets *got to how many: fewer
/// if memory runs out. The entries behind are left as they are. `request` may be NULL.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ENOMEM if there is not even one; FREEHOLD_EORDER;
/// FREEHOLD_EINVAL, also for FREEHOLD_NOWAIT; FREEHOLD_ENODE. *got is 0 then.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_alloc_bulk(
    arena: Option<&freehold_arena>,
    order: u32,
    request: *const freehold_request,
    blocks: *mut *mut c_void,
    count: usize,
    got: Option<&mut MaybeUninit<usize>>,
) -> freehold_error {
    put(got, 0, || {
        // SAFETY: The caller passes a struct that says its size, or NULL.
        let wish = unsafe { Wish::read(request)? };
        let arena = arena.ok_or(FREEHOLD_ENULL)?;
        if wish.nowait {
            return Err(FREEHOLD_EINVAL);
        }
        if blocks.is_null() && count > 0 {
            return Err(FREEHOLD_ENULL);
        }
        let put = |index: usize, block| {
            // SAFETY: The caller's array has `count` entries, and `alloc_bulk` puts no more.
            unsafe { blocks.wrapping_add(index).write(block) };
        };
        arena.alloc_bulk(order, &wish, put, count)
    })
}

/// Frees an allocation, all of it: `block` is what one of the functions above has returned.
/// Whatever else it is leads to an error and changes nothing; free memory that has been allocated
/// again meanwhile looks like an allocation of the caller's.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_EFOREIGN; FREEHOLD_EINTERIOR; FREEHOLD_EDOUBLEFREE.
/// Threads: any. Of two that free the same block, one gets an error. Signals: unsafe;
/// freehold_free_nowait is safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_free(
    arena: Option<&freehold_arena>,
    block: *mut c_void,
) -> freehold_error {
    code(|| arena.ok_or(FREEHOLD_ENULL)?.free(block))
}

/// Frees an allocation if it has the size that allocating so many bytes leads to.
///
/// Errors: those of freehold_free; FREEHOLD_ESIZE if it has another.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_free_sized(
    arena: Option<&freehold_arena>,
    block: *mut c_void,
    bytes: usize,
) -> freehold_error {
    code(|| arena.ok_or(FREEHOLD_ENULL)?.free_sized(block, bytes))
}

/// As freehold_free, from signal handlers: waits for no other call and takes no lease.
///
/// Errors: those of freehold_free.
/// Threads: any. Signals: safe for blocks of less than a pageblock.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_free_nowait(
    arena: Option<&freehold_arena>,
    block: *mut c_void,
) -> freehold_error {
    code(|| arena.ok_or(FREEHOLD_ENULL)?.free_nowait(block))
}

/// Frees `count` allocations of any sizes, faster than one by one if neighbours in the array have
/// the same. Stops at the first that cannot be freed. `freed`, which may be NULL, becomes the
/// number of those before it.
///
/// Errors: those of freehold_free, for the block at *freed; that one and all behind it are as they
/// were.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_free_bulk(
    arena: Option<&freehold_arena>,
    blocks: *const *mut c_void,
    count: usize,
    freed: Option<&mut MaybeUninit<usize>>,
) -> freehold_error {
    let mut done = 0;
    let error = code(|| {
        let arena = arena.ok_or(FREEHOLD_ENULL)?;
        if blocks.is_null() && count > 0 {
            return Err(FREEHOLD_ENULL);
        }
        let result;
        // SAFETY: The caller's array has `count` entries, and `free_bulk` asks for no more.
        let at = |index| unsafe { blocks.wrapping_add(index).read() }.cast_const();
        (done, result) = arena.free_bulk(count, at);
        result
    });
    if let Some(freed) = freed {
        freed.write(done);
    }
    error
}

/// How many bytes the allocation at `block` has: at least those asked for.
///
/// Errors: those of freehold_free; *bytes is 0 then.
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_usable_bytes(
    arena: Option<&freehold_arena>,
    block: *const c_void,
    bytes: Option<&mut MaybeUninit<usize>>,
) -> freehold_error {
    put(bytes, 0, || arena.ok_or(FREEHOLD_ENULL)?.usable_bytes(block))
}

/// Whether an address lies in the arena's address space, allocated or not. With NULL, false.
///
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_contains(
    arena: Option<&freehold_arena>,
    address: *const c_void,
) -> bool {
    arena.is_some_and(|arena| arena.frames.contains(address))
}

/// Where the arena begins; NULL for NULL. Its capacity is in freehold_stats.
///
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_base(arena: Option<&freehold_arena>) -> *mut c_void {
    arena.map_or(null_mut(), |arena| arena.base().as_ptr().cast())
}

/// The size of a frame in bytes; 0 for NULL.
///
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_frame_bytes(arena: Option<&freehold_arena>) -> usize {
    arena.map_or(0, |arena| arena.frames.frame_size().bytes())
}
