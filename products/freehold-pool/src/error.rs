//! Why a pool could not be built, or a call failed.

use std::{fmt, io};

use crate::SlotIndex;

/// Why a pool could not be built, or a call failed. Messages name the setting and a remedy.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolError {
    /// A setting that cannot be met.
    BadSetting {
        /// The method of the builder, such as `slot_bytes`.
        setting: &'static str,
        /// Why it cannot be met, and which values can.
        reason: String,
    },
    /// The operating system provided no address space.
    Map {
        /// How many bytes were requested.
        bytes: usize,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The machine's CPUs could not be read.
    Cpus(freehold_host::HostError),
    /// All slots are in use.
    Exhausted {
        /// How many slots the pool has.
        slots: u32,
    },
    /// More bytes than a slot has.
    TooLarge {
        /// How many bytes were requested.
        bytes: usize,
        /// How many a slot has.
        slot_bytes: usize,
    },
    /// The operating system refused to make bytes of a slot accessible, or inaccessible.
    Protect {
        /// The slot.
        slot: SlotIndex,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused to reset a slot, which still has its content.
    Reset {
        /// The slot.
        slot: SlotIndex,
        /// The error of the operating system.
        source: io::Error,
    },
    /// An image that no slot can have.
    BadImage {
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused to make an image.
    NewImage {
        /// How many bytes it should have.
        bytes: usize,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused to map an image in a slot, or to take out another one.
    Image {
        /// The slot.
        slot: SlotIndex,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The allocator refused its configuration.
    Allocator(freehold::Error),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolError::BadSetting { setting, reason } => write!(f, "{setting}: {reason}"),
            PoolError::Map { bytes, .. } => write!(
                f,
                "cannot reserve {bytes} bytes of addresses: lower `slots`, `slot_bytes` or \
                 `guard_bytes`, or raise the limit of address space (`ulimit -v`)"
            ),
            PoolError::Cpus(_) => {
                f.write_str("cannot read which CPUs the machine has: give `cpus`")
            }
            PoolError::Exhausted { slots } => {
                write!(f, "all {slots} slots are in use: build the pool with more `slots`")
            }
            PoolError::TooLarge { bytes, slot_bytes } => write!(
                f,
                "a slot has {slot_bytes} bytes, not {bytes}: build the pool with larger \
                 `slot_bytes`"
            ),
            PoolError::Protect { slot, .. } => write!(
                f,
                "cannot change how much of {slot} is accessible: free memory, or raise \
                 vm.max_map_count, of which a slot in use takes 2"
            ),
            PoolError::Reset { slot, .. } => write!(f, "cannot reset {slot}"),
            PoolError::BadImage { reason } => write!(f, "image: {reason}"),
            PoolError::NewImage { bytes, .. } => write!(
                f,
                "cannot make an image of {bytes} bytes: free memory, raise the limit of open files \
                 (`ulimit -n`), or open a file that can be read and mapped"
            ),
            PoolError::Image { slot, .. } => write!(
                f,
                "cannot change the image of {slot}: free memory, or raise vm.max_map_count, of \
                 which a slot in use with an image takes 4"
            ),
            PoolError::Allocator(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PoolError::Map { source, .. }
            | PoolError::Protect { source, .. }
            | PoolError::Reset { source, .. }
            | PoolError::NewImage { source, .. }
            | PoolError::Image { source, .. } => Some(source),
            PoolError::Cpus(source) => Some(source),
            PoolError::BadSetting { .. }
            | PoolError::BadImage { .. }
            | PoolError::Exhausted { .. }
            | PoolError::TooLarge { .. }
            | PoolError::Allocator(_) => None,
        }
    }
}

impl From<freehold::Error> for PoolError {
    fn from(error: freehold::Error) -> Self {
        PoolError::Allocator(error)
    }
}
