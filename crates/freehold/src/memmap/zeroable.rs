//! Records that are valid as zero bytes.
//!
//! An operating system hands out zeroed memory, which costs nothing until it is touched. A table
//! whose records begin as zero bytes needs no initialisation there: an allocator for 1 TiB of
//! address space that has no memory yet touches a few pages of its metadata.

#![expect(unsafe_code, reason = "states which records are valid as zero bytes")]

use crate::platform::ZeroBytes;

/// A record of which zero bytes may be a valid one. Implemented by [`zeroable`] alone.
///
/// # Safety
///
/// If [`IS_ZERO`](Zeroable::IS_ZERO), a record of zero bytes is valid and owns nothing.
pub unsafe trait Zeroable {
    /// Whether zero bytes are a record all of whose words and cells hold zero.
    const IS_ZERO: bool;
}

/// Implements [`Zeroable`] for a struct, given for each field what is known of it, such as
/// `P::U32::ZERO_BYTES`. A field that is left out, or knowledge of another type, does not compile.
#[doc(hidden)]
#[macro_export]
macro_rules! zeroable {
    ($record:ident { $($field:tt: $of_field:expr),* $(,)? }) => {
        // SAFETY: `fields` names every field, and of the type of each it is known that zero bytes
        // are valid and own nothing: so that is true of the struct.
        #[expect(unsafe_code, reason = "the fields are checked")]
        unsafe impl<P: Platform> $crate::memmap::zeroable::Zeroable for $record<P> {
            const IS_ZERO: bool = {
                const fn fields<P: Platform>(record: &$record<P>) {
                    let $record { $($field: _),* } = record;
                }
                let _: fn(&Self) = fields::<P>;
                use $crate::memmap::zeroable::is_zero;
                true $(&& is_zero(|record: &Self| &raw const record.$field, $of_field))*
            };
        }
    };
}
pub use crate::zeroable;

/// Whether something is known of a field, and of its type. By a raw pointer: a reference to a field
/// that is a `Box<T>` would do for one to a `T`.
pub const fn is_zero<R, T>(_field: fn(&R) -> *const T, known: Option<ZeroBytes<T>>) -> bool {
    known.is_some()
}
