//! Leases that a thread takes by itself.
#![expect(unsafe_code, reason = "exports functions, and takes handles for what the header says")]
#![expect(clippy::missing_safety_doc, reason = "the introduction of the header says it for all")]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;
use std::sync::Arc;

use freehold::Request;

use super::{code, put};
use crate::arena::order_of;
use crate::error::freehold_error::{self, *};
use crate::{freehold_arena, freehold_lease};

/// Leases caches to the calling thread, of which there is one set for each CPU. The lease keeps the
/// arena's memory mapped, also past freehold_arena_destroy. Where all threads make many calls,
/// FREEHOLD_LEASES does this for them.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ELEASED if all caches are leased; FREEHOLD_ENOBARRIER. *lease
/// is NULL then.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_lease_begin(
    arena: *const freehold_arena,
    lease: Option<&mut MaybeUninit<*mut freehold_lease>>,
) -> freehold_error {
    put(lease, null_mut(), || {
        if arena.is_null() {
            return Err(FREEHOLD_ENULL);
        }
        // SAFETY: The caller passes a handle that is an `Arc` and has not been destroyed.
        unsafe { Arc::increment_strong_count(arena) };
        // SAFETY: As above; the count is that of this one.
        let arena = unsafe { Arc::from_raw(arena) };
        Ok(Box::into_raw(Box::new(freehold_lease::begin(arena)?)))
    })
}

/// As freehold_alloc, from the lease's caches first.
///
/// Errors: those of freehold_alloc; FREEHOLD_ETHREAD on another thread than that of the lease.
/// Threads: that of the lease. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_lease_alloc(
    lease: Option<&freehold_lease>,
    order: u32,
    block: Option<&mut MaybeUninit<*mut c_void>>,
) -> freehold_error {
    put(block, null_mut(), || {
        let request = Request::new(order_of(order));
        lease.ok_or(FREEHOLD_ENULL)?.alloc(request)
    })
}

/// As freehold_free, to the lease's caches if the block is of these. It need not have been
/// allocated through the lease, and what was may be freed by freehold_free.
///
/// Errors: those of freehold_free; FREEHOLD_ETHREAD on another thread than that of the lease.
/// Threads: that of the lease. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_lease_free(
    lease: Option<&freehold_lease>,
    block: *mut c_void,
) -> freehold_error {
    code(|| lease.ok_or(FREEHOLD_ENULL)?.free(block))
}

/// Takes the caches again if another call has taken them back: a purge, a fork, or one that had run
/// out of memory.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_ETHREAD on another thread than that of the lease.
/// Threads: that of the lease. Signals: unsafe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_lease_renew(lease: Option<&freehold_lease>) -> freehold_error {
    code(|| lease.ok_or(FREEHOLD_ENULL)?.renew())
}

/// Ends a lease; with NULL, does nothing. What was allocated stays allocated. The handle must not
/// be used any more: the library cannot tell.
///
/// Threads: any, once no other call on the lease is under way. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_lease_end(lease: *mut freehold_lease) {
    if !lease.is_null() {
        // SAFETY: The caller passes a handle that `freehold_lease_begin` has made of a `Box`, and
        // for the last time.
        drop(unsafe { Box::from_raw(lease) });
    }
}
