//! Memory of this library's own, for what is set up before `main`: tables of which most is never
//! touched, and small things for good. From the malloc, they would take pages of many size classes
//! before it has an arena, each a mapping of its own that every fork copies; and it may clear what
//! is zero.
#![expect(unsafe_code, reason = "allocates memory")]

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::alloc::System;

/// What small allocations are cut from.
const CHUNK_BYTES: usize = 64 << 10;

/// The largest of them.
const SMALL_MAX: usize = CHUNK_BYTES / 2;

/// How many chunks and large allocations there are at most: far more than a setup needs.
const CHUNKS_MAX: usize = 32;

/// The malloc, but for what the thread at it allocates while it sets up the library.
struct Own {
    is_setting_up: AtomicBool,
    /// The first byte of each chunk, and that behind it.
    chunks: [(AtomicUsize, AtomicUsize); CHUNKS_MAX],
    count: AtomicUsize,
    /// What is left of the last chunk for small allocations.
    at: AtomicUsize,
    end: AtomicUsize,
}

#[global_allocator]
static OWN: Own = Own {
    is_setting_up: AtomicBool::new(false),
    chunks: [const { (AtomicUsize::new(0), AtomicUsize::new(0)) }; CHUNKS_MAX],
    count: AtomicUsize::new(0),
    at: AtomicUsize::new(0),
    end: AtomicUsize::new(0),
};

/// Sets the library up, on the only thread that there is: constructors run before `main`, and none
/// of the C library starts threads. What it allocates last it can give back, or make longer.
pub(crate) fn while_setting_up(setup: impl FnOnce()) {
    // Relaxed throughout: later threads come after.
    OWN.is_setting_up.store(true, Relaxed);
    setup();
    OWN.is_setting_up.store(false, Relaxed);
}

impl Own {
    fn has(&self, memory: *mut u8) -> bool {
        let chunks = &self.chunks[..self.count.load(Relaxed)];
        let of = |(start, end): &(AtomicUsize, AtomicUsize)| start.load(Relaxed)..end.load(Relaxed);
        chunks.iter().any(|chunk| of(chunk).contains(&memory.addr()))
    }

    /// So many bytes of zeroed memory, or null.
    fn chunk(&self, bytes: usize) -> *mut u8 {
        let nth = self.count.load(Relaxed);
        if nth == CHUNKS_MAX {
            return null_mut();
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel picks an address that nothing uses.
        let found = unsafe { libc::mmap(null_mut(), bytes, access, flags, -1, 0) };
        if found == libc::MAP_FAILED {
            return null_mut();
        }
        self.chunks[nth].0.store(found.addr(), Relaxed);
        self.chunks[nth].1.store(found.addr() + bytes, Relaxed);
        self.count.store(nth + 1, Relaxed);
        found.cast()
    }

    /// Whether these bytes are the last that were given out of a chunk.
    fn is_last(&self, memory: *mut u8, bytes: usize) -> bool {
        self.is_setting_up.load(Relaxed) && memory.addr() + bytes == self.at.load(Relaxed)
    }

    /// Memory that may have been others' if it is small, or null if there is none.
    fn alloc_own(&self, layout: Layout) -> *mut u8 {
        let (bytes, align) = (layout.size(), layout.align());
        if bytes > SMALL_MAX || align > SMALL_MAX {
            // Chunks begin at pages, which is enough for all tables.
            return if align <= 4096 { self.chunk(bytes) } else { null_mut() };
        }
        let first = self.at.load(Relaxed).next_multiple_of(align);
        if first + bytes <= self.end.load(Relaxed) {
            self.at.store(first + bytes, Relaxed);
            return core::ptr::with_exposed_provenance_mut(first);
        }
        let chunk = self.chunk(CHUNK_BYTES);
        if !chunk.is_null() {
            self.at.store(chunk.expose_provenance() + bytes, Relaxed);
            self.end.store(chunk.addr() + CHUNK_BYTES, Relaxed);
        }
        chunk
    }
}

// SAFETY: what is set up has memory of chunks, each byte of which is given to one allocation; all
// else has the malloc's. By its address, each comes back to where it is from.
unsafe impl GlobalAlloc for Own {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if self.is_setting_up.load(Relaxed) {
            let found = self.alloc_own(layout);
            if !found.is_null() {
                return found;
            }
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if self.is_setting_up.load(Relaxed) {
            let found = self.alloc_own(layout);
            if !found.is_null() {
                if layout.size() <= SMALL_MAX {
                    // SAFETY: it is that long.
                    unsafe { found.write_bytes(0, layout.size()) };
                }
                return found;
            }
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if self.is_last(memory, layout.size()) {
            self.at.store(memory.addr(), Relaxed);
        } else if !self.has(memory) {
            // SAFETY: as the caller promises.
            unsafe { System.dealloc(memory, layout) };
        }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if self.is_last(memory, layout.size()) && memory.addr() + bytes <= self.end.load(Relaxed) {
            self.at.store(memory.addr() + bytes, Relaxed);
            return memory;
        }
        if !self.has(memory) {
            // SAFETY: as the caller promises.
            return unsafe { System.realloc(memory, layout, bytes) };
        }
        let Ok(wanted) = Layout::from_size_align(bytes, layout.align()) else { return null_mut() };
        // SAFETY: as the caller promises, it is not empty.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both are that long, and do not overlap.
            unsafe { moved.copy_from_nonoverlapping(memory, bytes.min(layout.size())) };
        }
        moved
    }
}
