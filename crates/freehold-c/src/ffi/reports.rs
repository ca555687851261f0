//! Statistics, checks, messages.
#![expect(unsafe_code, reason = "exports functions, and writes to structs and texts of the caller")]
#![expect(clippy::missing_safety_doc, reason = "the introduction of the header says it for all")]

use core::ffi::c_char;
use core::mem::MaybeUninit;

use super::code;
use crate::args::{self, freehold_census, freehold_stats};
use crate::error::freehold_error::{self, *};
use crate::error::{detailed, last_message};
use crate::freehold_arena;

pub use crate::report::{
    FREEHOLD_TEXT_BUDDYINFO, FREEHOLD_TEXT_JSON, FREEHOLD_TEXT_PROMETHEUS, FREEHOLD_TEXT_ZONEINFO,
};

/// Fills in the state of the arena. Visits every pageblock.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_EINVAL if stats->size is no size.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_stats_get(
    arena: Option<&freehold_arena>,
    stats: *mut freehold_stats,
) -> freehold_error {
    code(|| {
        let arena = arena.ok_or(FREEHOLD_ENULL)?;
        // SAFETY: The caller passes a struct that says its size, or NULL.
        unsafe { args::check(stats)? };
        // SAFETY: As above.
        unsafe { args::write(stats, &arena.stats()) }
    })
}

/// Writes the state of the arena as text, in one of the formats FREEHOLD_TEXT_JSON and so on.
/// Writes at most `size` bytes, of which the last is 0, and sets *length, which may be NULL, to how
/// long the whole text is without it: as snprintf does. `text` may be NULL if `size` is 0.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_EINVAL for a format that there is not.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_stats_text(
    arena: Option<&freehold_arena>,
    format: u32,
    text: *mut c_char,
    size: usize,
    length: Option<&mut MaybeUninit<usize>>,
) -> freehold_error {
    code(|| {
        let whole = arena.ok_or(FREEHOLD_ENULL)?.text(format)?;
        if text.is_null() && size > 0 {
            return Err(FREEHOLD_ENULL);
        }
        // SAFETY: The caller has room for `size` bytes.
        unsafe { write_text(&whole, text, size) };
        if let Some(length) = length {
            length.write(whole.len());
        }
        Ok(())
    })
}

/// Checks the arena's books and says where all frames are. `census` may be NULL. Visits every
/// frame, and other calls wait meanwhile.
///
/// Errors: FREEHOLD_ENULL; FREEHOLD_EINVAL if census->size is no size; FREEHOLD_ECORRUPT, with
/// details in freehold_last_message.
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_validate(
    arena: Option<&freehold_arena>,
    census: *mut freehold_census,
) -> freehold_error {
    detailed(|| {
        code(|| {
            let arena = arena.ok_or(FREEHOLD_ENULL)?;
            if census.is_null() {
                return arena.census().map(|_| ());
            }
            // SAFETY: The caller passes a struct that says its size.
            unsafe { args::check(census)? };
            let found = arena.census()?;
            // SAFETY: As above.
            unsafe { args::write(census, &found) }
        })
    })
}

/// What was wrong in the last call on this thread that failed among those that make, grow, shrink,
/// purge, discard or validate; empty if none has. Written as by freehold_stats_text; returns how
/// long the whole text is.
///
/// Threads: any. Signals: unsafe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freehold_last_message(text: *mut c_char, size: usize) -> usize {
    let message = last_message();
    if !text.is_null() {
        // SAFETY: The caller has room for `size` bytes.
        unsafe { write_text(&message, text, size) };
    }
    message.len()
}

/// Whether an error says that the arena has no room for what was asked for, now or at all: it is
/// FREEHOLD_ENOMEM, FREEHOLD_EWATERMARK or FREEHOLD_EBUSY. A cache gives something up then, and
/// asks again.
///
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_is_full(error: i32) -> bool {
    [FREEHOLD_ENOMEM, FREEHOLD_EWATERMARK, FREEHOLD_EBUSY].iter().any(|full| *full as i32 == error)
}

/// Writes as much of a text as there is room for, and a 0 behind it.
///
/// # Safety
///
/// There is room for `size` bytes.
unsafe fn write_text(whole: &str, text: *mut c_char, size: usize) {
    let Some(room) = size.checked_sub(1) else { return };
    let length = whole.len().min(room);
    // SAFETY: `length` is less than `size`, and no longer than the text.
    unsafe { core::ptr::copy_nonoverlapping(whole.as_ptr(), text.cast(), length) };
    // SAFETY: As above.
    unsafe { text.wrapping_add(length).write(0) };
}
