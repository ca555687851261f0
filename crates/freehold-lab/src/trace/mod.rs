//! Recordings of real kernels: making them, importing them, and showing what is in them.

mod file;
mod import;
mod info;
mod record;

pub(crate) use file::open;
pub(crate) use import::import;
pub(crate) use info::info;
pub(crate) use record::{EventsLost, record};
