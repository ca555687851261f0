//! Memory for plug-ins to manage.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use core::ffi::c_void;
use core::ptr::null_mut;
use std::io;

use freehold::Order;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::peers::FRAME_BYTES;

/// The alignment of the first frame: a pageblock, so that blocks up to that size are aligned in
/// memory as they are by number.
const ALIGN_BYTES: usize = FRAME_BYTES << Order::PAGEBLOCK.get();

/// Zeroed, unused memory. A page of it takes memory from the machine when it is first touched.
pub(crate) struct Memory {
    start: *mut c_void,
    bytes: usize,
}

// SAFETY: The value is an address and a size; it never reads or writes the memory, which belongs
// to the process, not to a thread.
unsafe impl Send for Memory {}
// SAFETY: As above. Nothing changes while it is shared.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps so many frames.
    ///
    /// # Errors
    ///
    /// The machine has no address space left for them.
    pub(crate) fn map(frames: u64) -> io::Result<Self> {
        let bytes = usize::try_from(frames)
            .ok()
            .and_then(|frames| frames.checked_mul(FRAME_BYTES)?.checked_add(ALIGN_BYTES));
        let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: Without a requested address the kernel picks an unused one, so that the new
        // mapping replaces nothing.
        let start = unsafe { mmap_anonymous(null_mut(), bytes, protection, flags) }?;
        Ok(Memory { start, bytes })
    }

    /// The first frame. All requested frames follow.
    pub(crate) fn base(&self) -> *mut c_void {
        self.start.map_addr(|address| address.next_multiple_of(ALIGN_BYTES))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `map` mapped it with this size. All users of the base must be done with it by
        // now: that is what owning the value means.
        let unmapped = unsafe { munmap(self.start, self.bytes) };
        debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
    }
}
