//! Why a library cannot take part, such as for its version of the interface.

use std::io;

/// The version of the interface that the lab implements: `FREEHOLD_PEER_INTERFACE`.
pub(super) const INTERFACE: u32 = 1;

/// Why a library cannot take part.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PluginError {
    /// There is no such file.
    #[error("cannot read the file")]
    Unreadable(#[source] io::Error),
    /// The file is no library, or one with unresolved dependencies.
    #[error("cannot load the library")]
    NotLoaded(#[source] libloading::Error),
    /// The library has no table.
    #[error(
        "the library exports no symbol `freehold_peer`: define it by include/freehold_peer.h, \
         and without `static`"
    )]
    NoSymbol,
    /// The table is of another version.
    #[error(
        "the library has version {found} of the peer interface, this program version {INTERFACE}: \
         compile it with this program's include/freehold_peer.h"
    )]
    Interface {
        /// Its version.
        found: u32,
    },
    /// A required field of the table is null.
    #[error("the field `{field}` of the library's table is missing")]
    Missing {
        /// The name of the field.
        field: &'static str,
    },
    /// A name that does not fit a table column.
    #[error("the peer's name is {name:?}: it must be 1 to 22 letters, digits, `-`, `_` and `.`")]
    Name {
        /// That name.
        name: String,
    },
    /// A peer without single frames.
    #[error("the peer has no blocks of order 0: bit 0 of `orders` must be set")]
    NoFrames,
    /// The machine has no memory for the peer.
    #[error("cannot map {frames} frames for the peer")]
    NoMemory {
        /// How many frames it was to manage.
        frames: u64,
        /// The operating system's error.
        source: io::Error,
    },
    /// `create` returned null.
    #[error("the peer refused to manage {frames} frames: `create` returned NULL")]
    NotCreated {
        /// How many frames it was to manage.
        frames: u64,
    },
}
