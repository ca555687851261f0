//! What moves content: compaction and contiguous ranges. The C side moves it, by the kernel's
//! `migrate_pages`.

use core::ffi::c_void;
use core::ptr::NonNull;

use freehold::{FrameCount, Immovable, Migrate, MigrateError, Order, Pfn, RangeRequest};

use crate::calls::{self, EBUSY, status};
use crate::vmlinux::{Allocator, request};

unsafe extern "C" {
    /// `vmlinux/mm/compact.h`: moves what is in a block to another one; 0 if it did, -EBUSY if it
    /// may do so later. It may sleep, allocate and free.
    fn freehold_migrate(from: u64, to: u64, order: u32, control: *mut c_void) -> i64;
    /// The same, to wherever there is room.
    fn freehold_evict(from: u64, order: u32, control: *mut c_void) -> i64;
    /// Whether what is in a block looks as if it could be moved. It only looks.
    fn freehold_can_move(block: u64, order: u32) -> bool;
}

/// The owner of all movable content: the kernel, in a call whose `struct compact_control` this is.
struct Kernel(*mut c_void);

impl Migrate for Kernel {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        let order = u32::from(order.get());
        // SAFETY: both blocks are allocated, and the C side gave the pointer for this call.
        answer(unsafe { freehold_migrate(from.get(), to.get(), order, self.0) })
    }

    /// When the last reference to a page goes.
    fn frees_source(&self) -> bool {
        true
    }

    /// By what the kernel's pages say, as its own compaction does.
    fn knows_content(&self) -> bool {
        true
    }

    fn can_move(&self, block: Pfn, order: Order) -> bool {
        // SAFETY: it looks at the pages of a block of memory, whoever has it by now.
        unsafe { freehold_can_move(block.get(), u32::from(order.get())) }
    }

    fn evict(&self, from: Pfn, order: Order) -> Result<(), MigrateError> {
        // SAFETY: as for `migrate`.
        answer(unsafe { freehold_evict(from.get(), u32::from(order.get()), self.0) })
    }
}

fn answer(status: i64) -> Result<(), MigrateError> {
    match status {
        0 => Ok(()),
        EBUSY => Err(MigrateError::Busy),
        _ => Err(MigrateError::Failed),
    }
}

/// Allocates a block, for which content may have to be moved, and returns its first frame.
#[unsafe(no_mangle)]
extern "C" fn freehold_alloc_compacting(
    allocator: &Allocator,
    order: u32,
    flags: u32,
    control: *mut c_void,
) -> i64 {
    calls::frame(allocator.alloc_compacting_now(request(order, flags), &Kernel(control)))
}

/// Moves content until free memory is as contiguous as can be.
#[unsafe(no_mangle)]
extern "C" fn freehold_compact(allocator: &Allocator, control: *mut c_void) {
    allocator.compact(&Kernel(control));
}

/// Allocates the frames from the first one on, whose content is moved elsewhere.
#[unsafe(no_mangle)]
extern "C" fn freehold_alloc_range(
    allocator: &Allocator,
    first: u64,
    frames: u64,
    control: *mut c_void,
) -> i64 {
    let request = RangeRequest::exactly(Pfn::new(first), FrameCount::new(frames));
    status(allocator.alloc_range(request, &Kernel(control)).map(|_| ()))
}

/// Takes frames out of use, after their content has moved elsewhere; without a control, only what
/// is free.
#[unsafe(no_mangle)]
extern "C" fn freehold_remove_memory(
    allocator: &Allocator,
    first: u64,
    frames: u64,
    control: Option<NonNull<c_void>>,
) -> i64 {
    let (first, frames) = (Pfn::new(first), FrameCount::new(frames));
    status(match control {
        Some(control) => allocator.remove_memory(first, frames, &Kernel(control.as_ptr())),
        None => allocator.remove_memory(first, frames, &Immovable),
    })
}
