//! Recording the running kernel through tracefs.
//!
//! The kernel writes its events into a buffer a CPU. One thread a CPU copies what is there to a
//! file without a name, page by page as the kernel has written it. When the recording has ended,
//! pages are decoded, merged by time and stored.

mod decode;
mod expression;
#[cfg(test)]
mod fuzz;
mod instance;
mod layout;
mod page;
mod recorder;
mod spool;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::format::FormatError;

pub use recorder::{Recorded, record};

/// What to record, and for how long.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to run; the recording ends when it exits. If empty, nothing is run.
    pub command: Vec<String>,
    /// How long to record at most.
    pub limit: Option<Duration>,
    /// How large the kernel's buffer for each CPU is.
    pub buffer_bytes: u64,
    /// A folder for what is recorded, before it is stored: 50 bytes an event.
    pub spool: PathBuf,
}

/// How far a recording is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Recording since so long, and so many bytes of the kernel's buffers.
    Recording {
        /// Since the start.
        elapsed: Duration,
        /// In the spool.
        bytes: u64,
    },
    /// Storing what was recorded: so many events up to now.
    Storing {
        /// Of all CPUs.
        events: u64,
    },
}

/// Why nothing was recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// There is no tracefs.
    #[error(
        "tracefs is not mounted: `mount -t tracefs nodev /sys/kernel/tracing`, as root; or the \
         kernel was built without CONFIG_TRACING"
    )]
    NoTracefs,
    /// The caller may not use it.
    #[error("{}: permission denied. Recording the kernel takes root: try `sudo`", path.display())]
    Denied {
        /// What was not allowed.
        path: PathBuf,
    },
    /// The kernel has no events of its page allocator.
    #[error("{}: this kernel has no events of the group kmem", path.display())]
    NoEvents {
        /// Where they would be.
        path: PathBuf,
    },
    /// A file of tracefs does not do what is expected of it.
    #[error("{}: {source}", path.display())]
    Tracefs {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel describes its events in a way that is not understood.
    #[error("tracefs: {0}")]
    BadFormat(String),
    /// The kernel's pages are not as it describes them.
    #[error("tracefs: {0}")]
    BadPage(String),
    /// The command cannot be run.
    #[error("{command}: {source}")]
    Command {
        /// Its name.
        command: String,
        /// Why.
        source: io::Error,
    },
    /// What this machine is cannot be found out.
    #[error("the machine: {0}")]
    Machine(io::Error),
    /// The events cannot be kept until they are stored.
    #[error("keeping what was recorded: {0}")]
    Spool(io::Error),
    /// The recording cannot be stored.
    #[error(transparent)]
    Format(#[from] FormatError),
}

impl RecordError {
    /// Whether what is missing is a privilege, or tracefs: nothing that another command line would
    /// change.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::NoTracefs | Self::Denied { .. } | Self::NoEvents { .. })
    }
}
