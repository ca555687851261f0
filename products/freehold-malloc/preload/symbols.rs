//! The functions of the C library that the library replaces.
//!
//! A program may have a malloc of its own, without some of these functions. Those that are made of
//! others reach them by symbol, as the C library's do, so that one malloc serves the program.
#![expect(unsafe_code, reason = "exports functions of C, and calls C")]

use core::ffi::{c_int, c_void};
use core::mem;
use core::ptr::{null_mut, read_volatile};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use crate::{blocks, malloc};

/// To be called before the malloc: Freehold's handlers of forks are installed before its own, which
/// it installs when it is first called. Other threads wait for that; the C library may allocate on
/// the thread that is at it.
#[inline]
fn prepare() {
    // Refused: building the arena reports it. The error is a number, and code that would drop it
    // takes as long as all else here.
    mem::forget(freehold_host::install_fork_handlers());
}

/// The functions that are in force, which may be the program's: the dynamic linker fills these in.
static FREE: unsafe extern "C" fn(*mut c_void) = free;
static REALLOC: unsafe extern "C" fn(*mut c_void, usize) -> *mut c_void = realloc;
static ALIGNED_ALLOC: extern "C" fn(usize, usize) -> *mut c_void = aligned_alloc;

/// One of these, which the compiler takes for those of this file.
fn in_force<F: Copy>(function: &'static F) -> F {
    // SAFETY: a static of this type.
    unsafe { read_volatile(function) }
}

/// The C library's variable of this thread.
fn errno() -> *mut c_int {
    // SAFETY: takes nothing.
    unsafe { libc::__errno_location() }
}

fn set_errno(error: c_int) {
    // SAFETY: this thread's.
    unsafe { *errno() = error };
}

/// Leaves `errno` as it was, whatever system calls are made.
fn keeping_errno<T>(call: impl FnOnce() -> T) -> T {
    let errno = errno();
    // SAFETY: this thread's, here and below.
    let error = unsafe { *errno };
    let done = call();
    // SAFETY: as above.
    unsafe { *errno = error };
    done
}

/// Null, and why.
fn refuse(error: c_int) -> *mut c_void {
    set_errno(error);
    null_mut()
}

/// What a malloc has answered that may leave `errno` alone where it fails, or as a system call has
/// left it: the C library's own calls set it (POSIX).
///
/// # Safety
///
/// It is a new block of which so many bytes were asked for, or null.
#[inline]
unsafe fn found(memory: *mut c_void, bytes: usize) -> *mut c_void {
    if memory.is_null() {
        return refuse(libc::ENOMEM);
    }
    if blocks::may_count(bytes) {
        // SAFETY: as the caller promises.
        unsafe { note_new(memory) };
    }
    memory
}

/// Notes a new block. Apart, so that small blocks need no stack for it.
///
/// # Safety
///
/// It is one of the malloc's.
#[inline(never)]
unsafe fn note_new(memory: *mut c_void) {
    // SAFETY: as the caller promises.
    blocks::note(unsafe { blocks::bytes_of(memory) });
}

/// Frees a block that may count, and leaves `errno` as it was. Apart, as [`note_new`].
///
/// # Safety
///
/// It is one of the malloc's that nothing uses any more, or null.
#[inline(never)]
unsafe fn free_noted(memory: *mut c_void) {
    keeping_errno(|| {
        // SAFETY: as the caller promises.
        let bytes = unsafe { blocks::bytes_of(memory) };
        // SAFETY: as the caller promises.
        unsafe { malloc::free(memory) };
        blocks::note(-bytes);
    });
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
    malloc::before_large(bytes);
    // SAFETY: any size is allowed.
    let memory = unsafe { malloc::malloc(bytes) };
    // SAFETY: it is new.
    unsafe { found(memory, bytes) }
}

#[unsafe(no_mangle)]
extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    prepare();
    malloc::before_large(count.wrapping_mul(bytes));
    // SAFETY: any sizes are allowed.
    let memory = unsafe { malloc::calloc(count, bytes) };
    // SAFETY: it is new; an overflow is refused.
    unsafe { found(memory, count.wrapping_mul(bytes)) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn realloc(memory: *mut c_void, bytes: usize) -> *mut c_void {
    prepare();
    malloc::before_large(bytes);
    if bytes == 0 && !memory.is_null() {
        // As the C library's, and as programs expect that give up the answer.
        // SAFETY: as the caller promises.
        unsafe { free_noted(memory) };
        return null_mut();
    }
    // SAFETY: as the caller promises, here and below.
    let bytes_before = unsafe { blocks::bytes_of(memory) };
    // SAFETY: as above.
    let changed = unsafe { malloc::realloc(memory, bytes) };
    if changed.is_null() {
        return refuse(libc::ENOMEM);
    }
    // At once: use has not fallen by the whole block.
    // SAFETY: as above, a block of the malloc's.
    blocks::note(unsafe { blocks::bytes_of(changed) } - bytes_before);
    changed
}

#[unsafe(no_mangle)]
unsafe extern "C" fn reallocarray(memory: *mut c_void, count: usize, bytes: usize) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: as the caller promises.
        Some(bytes) => unsafe { in_force(&REALLOC)(memory, bytes) },
        None => refuse(libc::ENOMEM),
    }
}

/// Leaves `errno` alone, as the C library's does (2.33 and later).
#[unsafe(no_mangle)]
unsafe extern "C" fn free(memory: *mut c_void) {
    if blocks::may_count_at(memory) {
        // SAFETY: as the caller promises.
        return unsafe { free_noted(memory) };
    }
    // SAFETY: as the caller promises.
    keeping_errno(|| unsafe { malloc::free(memory) });
}

/// C23. The size is what it was allocated with, and of no use here.
#[unsafe(no_mangle)]
unsafe extern "C" fn free_sized(memory: *mut c_void, _bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { in_force(&FREE)(memory) };
}

/// C23, as [`free_sized`].
#[unsafe(no_mangle)]
unsafe extern "C" fn free_aligned_sized(memory: *mut c_void, _align: usize, _bytes: usize) {
    // SAFETY: as the caller promises.
    unsafe { in_force(&FREE)(memory) };
}

/// Returns its error, and leaves `errno` alone.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_memalign(memory: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    prepare();
    malloc::before_large(bytes);
    keeping_errno(|| {
        // SAFETY: as the caller promises.
        let error = unsafe { malloc::posix_memalign(memory, align, bytes) };
        if error == 0 {
            // SAFETY: as above, and a block has been written there.
            let memory = unsafe { *memory };
            // SAFETY: it is new.
            unsafe { note_new(memory) };
        }
        error
    })
}

#[unsafe(no_mangle)]
extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    prepare();
    malloc::before_large(bytes);
    if !align.is_power_of_two() {
        return refuse(libc::EINVAL);
    }
    // SAFETY: a power of two, and any size.
    let memory = unsafe { malloc::aligned_alloc(align, bytes) };
    // The alignment may make it larger than what is asked for.
    // SAFETY: it is new.
    unsafe { found(memory, usize::MAX) }
}

#[unsafe(no_mangle)]
extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    // Rounded up, as the C library does.
    match align.checked_next_power_of_two() {
        Some(align) => in_force(&ALIGNED_ALLOC)(align, bytes),
        None => refuse(libc::EINVAL),
    }
}

#[unsafe(no_mangle)]
extern "C" fn valloc(bytes: usize) -> *mut c_void {
    in_force(&ALIGNED_ALLOC)(page_bytes(), bytes)
}

#[unsafe(no_mangle)]
extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    match bytes.max(1).checked_next_multiple_of(page_bytes()) {
        Some(bytes) => in_force(&ALIGNED_ALLOC)(page_bytes(), bytes),
        None => refuse(libc::ENOMEM),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn malloc_usable_size(memory: *mut c_void) -> usize {
    // SAFETY: as the caller promises.
    unsafe { malloc::malloc_usable_size(memory) }
}

/// The C library's `pthread_create`, once it has been looked up.
static NEXT_CREATE: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Its type.
type Create = unsafe extern "C" fn(
    *mut libc::pthread_t,
    *const libc::pthread_attr_t,
    extern "C" fn(*mut c_void) -> *mut c_void,
    *mut c_void,
) -> c_int;

/// Tells the malloc before there is another thread. One that is started in other ways may have
/// memory of the kernel.
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: extern "C" fn(*mut c_void) -> *mut c_void,
    argument: *mut c_void,
) -> c_int {
    malloc::before_thread();
    // Looked up once, by the first thread: one that opens a library holds the linker's lock while
    // constructors run, and these may wait for a thread that starts another one.
    // Relaxed: the function was there before.
    let mut next = NEXT_CREATE.load(Relaxed);
    if next.is_null() {
        // SAFETY: a name that ends with 0.
        next = unsafe { libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()) };
        // Relaxed: as above.
        NEXT_CREATE.store(next, Relaxed);
    }
    if next.is_null() {
        return libc::EAGAIN;
    }
    // SAFETY: the function of that name.
    let next: Create = unsafe { mem::transmute(next) };
    // SAFETY: as the caller promises.
    unsafe { next(thread, attributes, start, argument) }
}
