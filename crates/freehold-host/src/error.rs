//! Errors between the allocator and the operating system.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why the machine could not be read, a thread not be bound, or an arena not be built or changed.
///
/// Each message names the object (a file, a size, a CPU) and a remedy. Allocation itself returns
/// the smaller [`freehold::Error`].
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// A file that describes the machine cannot be read.
    UnreadableFile {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
        /// How to fix it.
        remedy: &'static str,
    },
    /// A file that describes the machine does not have the form that Linux documents.
    MalformedFile {
        /// The file.
        path: PathBuf,
        /// The problem and its position.
        problem: String,
        /// How to fix it.
        remedy: &'static str,
    },
    /// The operating system provided no address space.
    Map {
        /// How many bytes were requested.
        bytes: usize,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused what the file behind shared memory needs.
    BackingFile {
        /// What was to be done with the file, such as `enlarge`.
        action: &'static str,
        /// How many bytes it was to have.
        bytes: usize,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The operating system refused to advise or to purge mapped memory.
    Advise {
        /// The advice, such as `huge pages`.
        advice: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The CPUs on which a thread may run could not be read or changed.
    Affinity {
        /// The CPU to which the thread was to be bound, if any.
        cpu: Option<freehold::CpuId>,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A setting of a builder that this machine cannot satisfy.
    BadSetting {
        /// The method of the builder, such as `nodes`.
        setting: &'static str,
        /// Why it cannot be satisfied, and which values can.
        reason: String,
    },
    /// The arena has less reserved address space left than it should grow by.
    CapacityExceeded {
        /// How many bytes were requested.
        bytes: usize,
        /// How many bytes the arena can still grow by.
        left: usize,
    },
    /// The operating system refused to register fork handlers, so that children could not use the
    /// arena.
    ForkHandlers {
        /// The error of the operating system.
        source: io::Error,
    },
    /// The allocator refused the configuration or the memory. Displays as its error.
    Allocator(freehold::Error),
}

impl HostError {
    /// Whether other memory was where some was to be mapped.
    pub(crate) fn is_taken(&self) -> bool {
        let HostError::Map { source, .. } = self else { return false };
        source.kind() == io::ErrorKind::AlreadyExists
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::UnreadableFile { path, remedy, .. } => {
                write!(f, "cannot read {}: {remedy}", path.display())
            }
            HostError::MalformedFile { path, problem, remedy } => {
                write!(f, "{}: {problem}: {remedy}", path.display())
            }
            HostError::Map { bytes, .. } => write!(
                f,
                "cannot map {bytes} bytes: ask for less, or raise the limit of address space \
                 (`ulimit -v`), vm.max_map_count or, for huge pages, vm.nr_hugepages"
            ),
            HostError::BackingFile { action, bytes, .. } => write!(
                f,
                "cannot {action} the file behind {bytes} bytes of memory: give one that is open \
                 for writing, free room on its file system, or raise the limits of open files \
                 (`ulimit -n`) and of their sizes (`ulimit -f`)"
            ),
            HostError::Advise { advice, source } => {
                let remedy = match source.raw_os_error() {
                    Some(libc::ENOMEM | libc::EAGAIN | libc::EPERM) => {
                        "free memory, or raise the limit of locked memory (`ulimit -l`)"
                    }
                    _ => "do without where it, or what backs the memory, does not support that",
                };
                write!(f, "the kernel refused {advice} for the arena's memory: {remedy}")
            }
            HostError::Affinity { cpu: Some(cpu), .. } => write!(
                f,
                "cannot bind the thread to {cpu}: choose one of the CPUs that `allowed_cpus` lists"
            ),
            HostError::Affinity { cpu: None, .. } => {
                f.write_str("cannot read on which CPUs the thread may run")
            }
            HostError::BadSetting { setting, reason } => write!(f, "{setting}: {reason}"),
            HostError::CapacityExceeded { bytes, left } => write!(
                f,
                "the arena cannot grow by {bytes} bytes, {left} are left: build it with a larger \
                 `capacity_bytes`"
            ),
            HostError::ForkHandlers { .. } => f.write_str(
                "cannot install handlers of forks (`pthread_atfork`): free memory, or register \
                 fewer of them",
            ),
            HostError::Allocator(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HostError::UnreadableFile { source, .. }
            | HostError::Map { source, .. }
            | HostError::BackingFile { source, .. }
            | HostError::Advise { source, .. }
            | HostError::Affinity { source, .. }
            | HostError::ForkHandlers { source } => Some(source),
            HostError::MalformedFile { .. }
            | HostError::BadSetting { .. }
            | HostError::CapacityExceeded { .. }
            | HostError::Allocator(_) => None,
        }
    }
}

impl From<freehold::Error> for HostError {
    fn from(error: freehold::Error) -> Self {
        HostError::Allocator(error)
    }
}
