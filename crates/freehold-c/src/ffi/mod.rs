//! The functions that C calls.

mod blocks;
mod leases;
mod life;
mod reports;

pub use blocks::*;
pub use leases::*;
pub use life::*;
pub use reports::*;

use core::mem::MaybeUninit;

use crate::error::Result;
use crate::error::freehold_error::{self, *};

/// Where a result goes: the address of a variable of the caller's that need not be initialised.
type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// Puts a result where the caller wants it; on errors, `none`.
#[inline]
fn put<T>(out: Out<'_, T>, none: T, result: impl FnOnce() -> Result<T>) -> freehold_error {
    let Some(out) = out else { return FREEHOLD_ENULL };
    match result() {
        Ok(value) => {
            out.write(value);
            FREEHOLD_OK
        }
        Err(error) => {
            out.write(none);
            error
        }
    }
}

/// The code of a call without a result.
#[inline]
fn code(result: impl FnOnce() -> Result<()>) -> freehold_error {
    result().err().unwrap_or(FREEHOLD_OK)
}
