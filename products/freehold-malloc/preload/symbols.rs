//! The functions of the C library that the library replaces.
#![expect(unsafe_code, reason = "exports functions of C, and calls C")]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;

use crate::malloc;

/// To be called before the malloc: Freehold's handlers of forks are installed before its own, which
/// it installs when it is first called. Other threads wait for that; the C library may allocate on
/// the thread that is at it.
#[inline]
fn prepare() {
    // Refused: building the arena reports it.
    let _refused = freehold_host::install_fork_handlers();
}

/// Null, and why.
fn refuse(error: c_int) -> *mut c_void {
    // SAFETY: takes nothing.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the C library's variable of this thread.
    unsafe { *errno = error };
    null_mut()
}

/// What a malloc has answered that may leave `errno` alone where it fails: mimalloc does, and the C
/// library's own calls set it (POSIX).
fn found(memory: *mut c_void) -> *mut c_void {
    if memory.is_null() { refuse(libc::ENOMEM) } else { memory }
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
    found(unsafe { malloc::malloc(bytes) })
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    prepare();
    // SAFETY: any sizes are allowed.
    found(unsafe { malloc::calloc(count, bytes) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    prepare();
    // SAFETY: as the caller promises.
    let memory = unsafe { malloc::realloc(memory, bytes) };
    // Freed, it may be null: no failure.
    if bytes == 0 { memory } else { found(memory) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(memory: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: as the caller promises.
        Some(bytes) => unsafe { realloc(memory, bytes) },
        None => refuse(libc::ENOMEM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn free(memory: *mut c_void) {
    // SAFETY: as the caller promises.
    unsafe { malloc::free(memory) }
}

/// C23. The size is what it was allocated with, and of no use here.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(memory: *mut c_void, _bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { free(memory) };
}

/// C23, as [`free_sized`].
#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(memory: *mut c_void, _align: usize, _bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { free(memory) };
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
    if !align.is_power_of_two() {
        return refuse(libc::EINVAL);
    }
    // SAFETY: a power of two, and any size.
    found(unsafe { malloc::aligned_alloc(align, bytes) })
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    // Rounded up, as the C library does.
    match align.checked_next_power_of_two() {
        Some(align) => aligned_alloc(align, bytes),
        None => refuse(libc::EINVAL),
    }
}

#[unsafe(no_mangle)]
extern "C" fn valloc(bytes: usize) -> *mut c_void {
    aligned_alloc(page_bytes(), bytes)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(page_bytes()) {
        Some(bytes) => aligned_alloc(page_bytes(), bytes),
        None => refuse(libc::ENOMEM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    // SAFETY: as the caller promises.
    unsafe { malloc::malloc_usable_size(memory) }
}
