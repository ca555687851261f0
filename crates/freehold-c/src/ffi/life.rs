//! Arenas from their creation to their end.
#![expect(unsafe_code, reason = "exports functions, and takes pointers for what the header says")]
#![expect(clippy::missing_safety_doc, reason = "the introduction of the header says it for all")]

use core::ffi::{c_char, c_void};
use core::mem::MaybeUninit;
use core::ptr::{NonNull, null_mut};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use freehold::{FrameSize, Immovable, Order};
use freehold_host::ArenaBuilder;

use super::{code, put};
use crate::args;
use crate::error::freehold_error::{self, *};
use crate::error::{Result, detailed, explain, explained};
use crate::freehold_arena;
use crate::options::freehold_options;

/// The version of this header: 0.1.
pub const FREEHOLD_VERSION_MAJOR: u32 = 0;
/// The version of this header, its second part.
pub const FREEHOLD_VERSION_MINOR: u32 = 1;

/// The version of the library, such as "0.1.0".
///
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// Makes an arena: reserves address space, which takes memory of the machine when it is first
/// touched.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_EINVAL for options; FREEHOLD_ESYSTEM. *arena is NULL then, and
/// freehold_last_message has details.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_new(
    options: *const freehold_options,
    arena: Option<&mut MaybeUninit<*mut freehold_arena>>,
) -> freehold_error {
    detailed(|| {
        put(arena, null_mut(), || {
            // SAFETY: The caller passes a struct that says its size, or NULL.
            let options = unsafe { args::read(options)? };
            build(options.builder()?)
        })
    })
}

/// Makes an arena of memory that the caller has mapped, and owns: freehold_arena_destroy leaves it
/// there. The arena uses the region from the first multiple of a pageblock (2 MiB of frames of
/// 4 KiB) to the last whole frame, and nothing else may use that as long as it exists. `options`
/// may be NULL.
///
/// Addresses of blocks larger than a pageblock are multiples of a pageblock, or of what the first
/// pageblock lies at a multiple of. What purges give back reads as zero then: without
/// FREEHOLD_SHARED the region must be anonymous memory in the machine's own pages, since a private
/// mapping of a file reads as the file, and MAP_HUGETLB keeps parts. After a fork, parent and child
/// must not both use an arena of shared memory: the books are private.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_EINVAL for options, if no such memory is in the region, and if
/// it is less than options->bytes; FREEHOLD_ESYSTEM. *arena is NULL then, and
/// freehold_last_message has details.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_from_region(
    base: *mut c_void,
    bytes: usize,
    options: *const freehold_options,
    arena: Option<&mut MaybeUninit<*mut freehold_arena>>,
) -> freehold_error {
    detailed(|| {
        put(arena, null_mut(), || {
            let base = NonNull::new(base.cast::<u8>()).ok_or(FREEHOLD_ENULL)?;
            let options = match options.is_null() {
                true => freehold_options::default(),
                // SAFETY: The caller passes a struct that says its size.
                false => unsafe { args::read(options)? },
            };
            let (builder, shared) = options.region_builder()?;
            let frame = FrameSize::new(options.frame_bytes).unwrap_or(FrameSize::DEFAULT);
            let gap = base.addr().get().wrapping_neg() % frame.bytes_of(Order::PAGEBLOCK.frames());
            let usable = bytes.saturating_sub(gap);
            let end = base.addr().get().checked_add(bytes);
            let start = NonNull::new(base.as_ptr().wrapping_add(gap));
            let Some(start) = start.filter(|_| {
                usable >= frame.bytes() && end.is_some() && isize::try_from(bytes).is_ok()
            }) else {
                explain(format!(
                    "the region of {bytes} bytes at {base:?} has no pageblock to begin in"
                ));
                return Err(FREEHOLD_EINVAL);
            };
            // SAFETY: The caller gives the region to the arena as long as that exists.
            build(unsafe { builder.mapping(start, usable, shared) })
        })
    })
}

/// Ends an arena and unmaps its memory; with NULL, does nothing. Pointers into the arena, and its
/// handle, must not be used any more: the library cannot tell. Leases of it keep the memory mapped
/// until the last of them ends.
///
/// Threads: any, once no other call on the arena is under way. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_arena_destroy(arena: *mut freehold_arena) {
    if !arena.is_null() {
        // SAFETY: The caller passes a handle that `build` has made of an `Arc`, and for the last
        // time.
        drop(unsafe { Arc::from_raw(arena) });
    }
}

/// Adds memory within the arena's capacity: `bytes`, rounded up to pageblocks for each node.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ECAPACITY.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_grow(arena: Option<&freehold_arena>, bytes: usize) -> freehold_error {
    detailed(|| {
        code(|| {
            arena.ok_or(FREEHOLD_ENULL)?.frames.grow(bytes).map_err(explained)?;
            Ok(())
        })
    })
}

/// Takes memory away, from the end of each node, and gives it back to the machine. All of it must
/// be free.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ECAPACITY if there is less; FREEHOLD_EBUSY if some of it is
/// allocated; FREEHOLD_ENOMEM, FREEHOLD_EWATERMARK if too little would be left.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_shrink(arena: Option<&freehold_arena>, bytes: usize) -> freehold_error {
    detailed(|| {
        code(|| {
            arena.ok_or(FREEHOLD_ENULL)?.frames.shrink(bytes, &Immovable).map_err(explained)?;
            Ok(())
        })
    })
}

/// Gives the memory of free frames back to the machine. They read as zero then, and take memory
/// again when they are written. Meanwhile, other calls find less free memory. `purged`, which may
/// be NULL, becomes the number of bytes.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ESYSTEM if the kernel refuses, for instance locked memory.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_purge(
    arena: Option<&freehold_arena>,
    purged: Option<&mut MaybeUninit<usize>>,
) -> freehold_error {
    detailed(|| {
        let mut unwanted = MaybeUninit::uninit();
        put(Some(purged.unwrap_or(&mut unwanted)), 0, || {
            let arena = arena.ok_or(FREEHOLD_ENULL)?;
            Ok(arena.frames.frame_size().bytes_of(arena.purge()?))
        })
    })
}

/// Gives the memory of frames that the caller has allocated back to the machine. They stay
/// allocated, and read as zero. `block` is a multiple of the frame size, and so is `bytes`; part of
/// an allocation will do, and so will several side by side.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_EFOREIGN; FREEHOLD_EALIGN; FREEHOLD_ESIZE; FREEHOLD_EDOUBLEFREE
/// if some of it is free; FREEHOLD_ESYSTEM if the kernel refuses, for instance locked memory.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_discard(
    arena: Option<&freehold_arena>,
    block: *mut c_void,
    bytes: usize,
) -> freehold_error {
    detailed(|| {
        code(|| {
            let arena = arena.ok_or(FREEHOLD_ENULL)?;
            let (first, frames) = arena.owned(block, bytes)?;
            arena.frames.discard(first, frames).map_err(explained)
        })
    })
}

/// Takes memory from the machine for frames that the caller has allocated, by so many threads (0
/// is 1), so that no later access faults. Their content stays as it is. `block` and `bytes` are as
/// for freehold_discard.
///
/// Errors: those of freehold_discard; FREEHOLD_ESYSTEM if the machine has not enough memory, or has
/// a kernel before Linux 5.14.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_prefault(
    arena: Option<&freehold_arena>,
    block: *mut c_void,
    bytes: usize,
    threads: u32,
) -> freehold_error {
    detailed(|| {
        code(|| {
            let arena = arena.ok_or(FREEHOLD_ENULL)?;
            let (first, frames) = arena.owned(block, bytes)?;
            arena.frames.prefault(first, frames, threads as usize).map_err(explained)
        })
    })
}

/// The descriptor of the file behind an arena of FREEHOLD_MEMFD or FREEHOLD_FILE, for processes
/// that map it too: an address lies in it as far from the beginning as from freehold_base. It is
/// the arena's: duplicate it to keep it longer. -1 for NULL, and if there is no file.
///
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_file(arena: Option<&freehold_arena>) -> i32 {
    arena.and_then(|arena| arena.frames.file()).map_or(-1, |file| file.as_raw_fd())
}

fn build(builder: ArenaBuilder) -> Result<*mut freehold_arena> {
    let frames = builder.build_frames().map_err(explained)?;
    Ok(Arc::into_raw(Arc::new(freehold_arena::new(frames))).cast_mut())
}
