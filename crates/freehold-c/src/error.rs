//! Error codes, and texts about the last error.
#![expect(unsafe_code, reason = "exports a function")]
#![expect(non_camel_case_types, reason = "the names in C")]

use std::cell::RefCell;
use std::ffi::CStr;

use freehold::Error;
use freehold_host::HostError;

use crate::heads::Unfreed;

/// Why a call was refused. A call that returns an error has changed nothing, unless its description
/// says otherwise. The numbers never change; later versions may add some.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum freehold_error {
    /// No error.
    FREEHOLD_OK = 0,
    /// An argument that must not be NULL is NULL.
    FREEHOLD_ENULL = 1,
    /// An option, a flag or the `size` of a struct is not valid.
    FREEHOLD_EINVAL = 2,
    /// The pointer is not into memory that the arena manages.
    FREEHOLD_EFOREIGN = 3,
    /// The pointer is into an allocation, but not to its first byte.
    FREEHOLD_EINTERIOR = 4,
    /// The memory is free already.
    FREEHOLD_EDOUBLEFREE = 5,
    /// A size is zero, too large, not a multiple of what it must be, or not that of the allocation.
    FREEHOLD_ESIZE = 6,
    /// The order is larger than the allocator serves.
    FREEHOLD_EORDER = 7,
    /// An alignment is not a power of two, or more than the arena's base is aligned to.
    FREEHOLD_EALIGN = 8,
    /// No free block of this size.
    FREEHOLD_ENOMEM = 9,
    /// What is free is kept back by a watermark.
    FREEHOLD_EWATERMARK = 10,
    /// Another call has the free memory in hand, and this one may not wait (FREEHOLD_NOWAIT).
    FREEHOLD_EWOULDWAIT = 11,
    /// Every place for this range has memory in use.
    FREEHOLD_EBUSY = 12,
    /// There is no such node.
    FREEHOLD_ENODE = 13,
    /// The arena cannot grow by so much, or has less than it is to shrink by.
    FREEHOLD_ECAPACITY = 14,
    /// All caches are leased.
    FREEHOLD_ELEASED = 15,
    /// The lease is another thread's.
    FREEHOLD_ETHREAD = 16,
    /// The machine has no `membarrier(2)`, which leases need.
    FREEHOLD_ENOBARRIER = 17,
    /// The operating system refused: see freehold_last_message.
    FREEHOLD_ESYSTEM = 18,
    /// The arena's books are not consistent: a defect of the library, or of a program that has
    /// written to memory that it had not allocated.
    FREEHOLD_ECORRUPT = 19,
    /// Anything else: see freehold_last_message.
    FREEHOLD_EOTHER = 20,
}

use freehold_error::*;

/// What a call returns in Rust.
pub(crate) type Result<T> = std::result::Result<T, freehold_error>;

const ALL: [(freehold_error, &CStr); 21] = [
    (FREEHOLD_OK, c"no error"),
    (FREEHOLD_ENULL, c"an argument that must not be NULL is NULL"),
    (FREEHOLD_EINVAL, c"an option, a flag or the size of a struct is not valid"),
    (FREEHOLD_EFOREIGN, c"the pointer is not into memory that the arena manages"),
    (FREEHOLD_EINTERIOR, c"the pointer is not to the first byte of an allocation"),
    (FREEHOLD_EDOUBLEFREE, c"the memory is free already"),
    (FREEHOLD_ESIZE, c"the size is zero, too large, or not that of the allocation"),
    (FREEHOLD_EORDER, c"the order is larger than the allocator serves"),
    (FREEHOLD_EALIGN, c"the alignment is not a power of two, or more than that of the arena"),
    (FREEHOLD_ENOMEM, c"no free block of this size"),
    (FREEHOLD_EWATERMARK, c"what is free is kept back by a watermark"),
    (FREEHOLD_EWOULDWAIT, c"another call has the free memory in hand, and this one may not wait"),
    (FREEHOLD_EBUSY, c"every place for this range has memory in use"),
    (FREEHOLD_ENODE, c"there is no such node"),
    (FREEHOLD_ECAPACITY, c"the arena cannot grow or shrink by so much"),
    (FREEHOLD_ELEASED, c"all caches are leased"),
    (FREEHOLD_ETHREAD, c"the lease is another thread's"),
    (FREEHOLD_ENOBARRIER, c"the machine has no membarrier(2), which leases need"),
    (FREEHOLD_ESYSTEM, c"the operating system refused"),
    (FREEHOLD_ECORRUPT, c"the arena's books are not consistent"),
    (FREEHOLD_EOTHER, c"another error"),
];

/// The text of an error code: static, never NULL, also for numbers that are no error codes.
///
/// Threads: any. Signals: safe.
#[unsafe(no_mangle)]
pub extern "C" fn freehold_strerror(error: i32) -> *const core::ffi::c_char {
    let known = ALL.iter().find(|(code, _)| *code as i32 == error);
    known.map_or(c"not an error code of freehold", |(_, text)| *text).as_ptr()
}

impl From<Error> for freehold_error {
    fn from(error: Error) -> Self {
        match error {
            Error::OutOfMemory => FREEHOLD_ENOMEM,
            Error::BelowWatermark => FREEHOLD_EWATERMARK,
            Error::WouldWait => FREEHOLD_EWOULDWAIT,
            Error::OrderTooLarge => FREEHOLD_EORDER,
            Error::UnknownNode | Error::UnknownZone => FREEHOLD_ENODE,
            Error::Leased => FREEHOLD_ELEASED,
            Error::NoBarrier => FREEHOLD_ENOBARRIER,
            Error::ForeignFrame | Error::OutsideSpan => FREEHOLD_EFOREIGN,
            Error::DoubleFree => FREEHOLD_EDOUBLEFREE,
            Error::WrongOrder | Error::BadRange => FREEHOLD_ESIZE,
            Error::Misaligned | Error::BadAlignment => FREEHOLD_EALIGN,
            Error::RangeBusy => FREEHOLD_EBUSY,
            Error::BadSetting | Error::BadTopology | Error::SpanTooLarge => FREEHOLD_EINVAL,
            _ => FREEHOLD_EOTHER,
        }
    }
}

impl From<Unfreed> for freehold_error {
    fn from(why: Unfreed) -> Self {
        match why {
            Unfreed::Taken => FREEHOLD_EDOUBLEFREE,
            Unfreed::Broken => FREEHOLD_ECORRUPT,
            Unfreed::Refused(error) => error.into(),
        }
    }
}

/// The code of an error whose text is worth keeping.
pub(crate) fn explained(error: HostError) -> freehold_error {
    let cause = std::error::Error::source(&error).map(|cause| format!(" ({cause})"));
    explain(format!("{error}{}", cause.unwrap_or_default()));
    match error {
        HostError::BadSetting { setting: "shrink", .. } => FREEHOLD_ECAPACITY,
        HostError::BadSetting { .. } => FREEHOLD_EINVAL,
        HostError::CapacityExceeded { .. } => FREEHOLD_ECAPACITY,
        HostError::Allocator(error) => error.into(),
        _ => FREEHOLD_ESYSTEM,
    }
}

thread_local! {
    static MESSAGE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Keeps a text for [`last_message`].
pub(crate) fn explain(message: String) {
    // A thread that is ending keeps none.
    let _ending = MESSAGE.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = message;
        }
    });
}

/// A call whose errors have a text: one of their own, or that of the code.
pub(crate) fn detailed(call: impl FnOnce() -> freehold_error) -> freehold_error {
    explain(String::new());
    let error = call();
    if error != FREEHOLD_OK && last_message().is_empty() {
        let text =
            ALL.iter().find(|(code, _)| *code == error).map(|(_, text)| text.to_string_lossy());
        explain(text.unwrap_or_default().into_owned());
    }
    error
}

/// What this thread's last call of those that explain their errors said; empty if nothing.
pub(crate) fn last_message() -> String {
    let read = |last: &RefCell<String>| last.try_borrow().map(|last| last.clone());
    MESSAGE.try_with(read).ok().and_then(|last| last.ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_number_and_its_text() {
        for (number, (code, text)) in ALL.iter().enumerate() {
            assert_eq!(*code as usize, number);
            assert!(!text.is_empty());
        }
    }
}
