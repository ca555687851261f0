//! The functions of the C library that the library replaces.
#![expect(unsafe_code, reason = "exports functions of C, and calls C")]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::malloc;

/// Whether Freehold's handlers of forks are installed: before the malloc's, which it installs when
/// it is first called. Relaxed: a thread that does not see it asks for the same again, which the
/// host's crate does once.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// To be called before the malloc.
#[inline]
fn prepare() {
    if !INSTALLED.load(Relaxed) {
        install();
    }
}

#[cold]
fn install() {
    // First: the C library may allocate while it installs them.
    INSTALLED.store(true, Relaxed);
    // Refused: building the arena reports it.
    let _refused = freehold_host::install_fork_handlers();
}

/// The size of the machine's pages.
fn page_bytes() -> usize {
    // SAFETY: reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

#[unsafe(no_mangle)]
extern "C" fn malloc(bytes: usize) -> *mut c_void {
    prepare();
    // SAFETY: any size is allowed.
    unsafe { malloc::malloc(bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    prepare();
    // SAFETY: any sizes are allowed.
    unsafe { malloc::calloc(count, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    prepare();
    // SAFETY: as the caller promises.
    unsafe { malloc::realloc(memory, bytes) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(memory: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: as the caller promises.
        Some(bytes) => unsafe { realloc(memory, bytes) },
        None => {
            // SAFETY: takes nothing.
            let errno = unsafe { libc::__errno_location() };
            // SAFETY: the C library's variable of this thread.
            unsafe { *errno = libc::ENOMEM };
            null_mut()
        }
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: as the caller promises.
    unsafe { malloc::free(memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(memory: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    prepare();
    // SAFETY: as the caller promises.
    unsafe { malloc::posix_memalign(memory, align, bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    prepare();
    // SAFETY: a bad alignment is answered with null.
    unsafe { malloc::aligned_alloc(align, bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    aligned_alloc(align, bytes)
}

#[unsafe(no_mangle)]
extern "C" fn valloc(bytes: usize) -> *mut c_void {
    aligned_alloc(page_bytes(), bytes)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(page_bytes()) {
        Some(bytes) => aligned_alloc(page_bytes(), bytes),
        None => null_mut(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    // SAFETY: as the caller promises.
    unsafe { malloc::malloc_usable_size(memory) }
}
