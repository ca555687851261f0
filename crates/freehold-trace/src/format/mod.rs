//! The file format: `FORMAT.md` of the crate describes it.

mod block;
mod chunk;
#[cfg(test)]
mod fuzz;
mod reader;
#[cfg(test)]
mod tests;
mod varint;
mod writer;

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Serialize};

use crate::machine::{Machine, Zones, sum};

pub use reader::Reader;
pub use writer::Writer;

/// What a file begins with. The first byte is no text, and line ends are of both kinds, so that a
/// copy that changed either is found out.
pub const MAGIC: [u8; 8] = *b"\x89FHT\r\n\x1a\n";

/// The version of the format.
pub const VERSION: u16 = 1;

/// How many events a block has at most.
const BLOCK_EVENTS: usize = 1 << 16;

/// What is known before the first event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Where the events are from: `tracefs`, or the name of the text that was imported.
    pub source: String,
    /// The program that wrote the file, with its version.
    pub writer: String,
    /// What was run while recording, as a shell would have it; empty if nothing was.
    pub command: Vec<String>,
    /// When the recording began, in seconds since 1970.
    pub began_unix_s: u64,
    /// The machine.
    pub machine: Machine,
    /// Its zones when the recording began.
    pub before: Zones,
}

/// What is known after the last event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trailer {
    /// How many events the file has.
    pub events: u64,
    /// From the start of the recording to its end.
    pub elapsed_ns: u64,
    /// What the kernel says of events that it has lost, by CPU.
    pub lost: BTreeMap<u32, Losses>,
    /// The zones when the recording ended.
    pub after: Zones,
}

/// Events of a CPU that are not in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Losses {
    /// Overwritten before they were read.
    pub overrun: u64,
    /// Not written, since an interrupt filled the buffer in the middle of another event.
    pub commit_overrun: u64,
    /// Not written, since the buffer was full.
    pub dropped: u64,
}

impl Losses {
    /// All of them; at most [`u64::MAX`], whatever a file says.
    pub fn sum(self) -> u64 {
        sum([self.overrun, self.commit_overrun, self.dropped].into_iter())
    }
}

impl Trailer {
    /// How many events the kernel has lost; at most [`u64::MAX`].
    pub fn lost_events(&self) -> u64 {
        sum(self.lost.values().map(|losses| losses.sum()))
    }
}

/// Why a file was refused, or cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// It could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It is something else.
    #[error("this is no recording of freehold's: it does not begin as one")]
    Foreign,
    /// It is from a newer program.
    #[error("the file has version {0} of the format, and this program reads version {VERSION}")]
    Newer(u16),
    /// It ends too early.
    #[error("the file is cut short: byte {at} is its last")]
    Truncated {
        /// How long it is.
        at: u64,
    },
    /// It is not as it was written.
    #[error("byte {at}: {problem}")]
    Damaged {
        /// Where the part with the damage begins.
        at: u64,
        /// What is wrong with it.
        problem: String,
    },
}
