//! What a thread that panicked had to say.

use std::any::Any;

/// The message of a panic, or nothing if it has none.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> Option<&str> {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
}
