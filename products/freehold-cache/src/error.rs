//! Errors.

use std::path::PathBuf;
use std::{fmt, io};

use freehold_host::HostError;

/// Why a call of the cache failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum CacheError {
    /// The error of the storage.
    Io(io::Error),
    /// The file of this path could not be opened, or is none whose blocks can be cached.
    Open(PathBuf, io::Error),
    /// Guards are held on all blocks that could make room, and none of them was released while the
    /// call waited; or what could make room cannot be written back.
    NoRoom,
    /// The same within the tenant of this name, which is at its limit.
    TenantFull(String),
    /// A setting that is out of range: which, and why.
    BadSetting(&'static str, String),
    /// There is a tenant of this name.
    TenantExists(String),
    /// The number of tenants has reached the configured maximum.
    TooManyTenants,
    /// The same file is open in this cache. Clone the handle instead: two would each cache it.
    AlreadyOpen,
    /// The memory could not be had.
    Host(HostError),
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::Io(error) => write!(f, "storage: {error}"),
            CacheError::NoRoom => f.write_str("all blocks of the cache are in use"),
            CacheError::TenantFull(name) => {
                write!(f, "all blocks that the tenant {name:?} may have are in use")
            }
            CacheError::Open(path, error) => write!(f, "{}: {error}", path.display()),
            CacheError::BadSetting(setting, reason) => write!(f, "{setting}: {reason}"),
            CacheError::TenantExists(name) => write!(f, "there is a tenant {name:?}"),
            CacheError::TooManyTenants => f.write_str("as many tenants as the settings allow"),
            CacheError::AlreadyOpen => f.write_str("the file is open in this cache"),
            CacheError::Host(error) => write!(f, "memory: {error}"),
        }
    }
}

impl std::error::Error for CacheError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            CacheError::Io(error) | CacheError::Open(_, error) => Some(error),
            CacheError::Host(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for CacheError {
    fn from(error: io::Error) -> Self {
        CacheError::Io(error)
    }
}

impl From<HostError> for CacheError {
    fn from(error: HostError) -> Self {
        CacheError::Host(error)
    }
}

/// The error of the storage itself, or else one that contains this one.
impl From<CacheError> for io::Error {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::Io(error) => error,
            other => io::Error::other(other),
        }
    }
}

/// A [`sync`](crate::CachedFile::sync) that cannot promise what it should, or that has an earlier
/// failure to report.
#[derive(Debug)]
pub struct SyncError {
    /// The error of the storage: of this call, or else the last one of a write-back.
    pub error: io::Error,
    /// How far the call came.
    pub state: SyncState,
}

/// What is on storage after a `sync` that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SyncState {
    /// All that was written before the call: a write-back had failed, and was repeated with success
    /// by the end of this call at the latest. The next `sync` succeeds, unless something else
    /// fails.
    Repaired,
    /// So many blocks could not be written. They stay in the cache, and the next `sync` tries
    /// again.
    Dirty(u64),
    /// The storage failed to make durable what was written, now or before, so any block that was
    /// written since the last success may be lost, and it is not known which. Every further `sync`
    /// of this file returns this state: what it would promise is not true any more.
    Lost,
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state {
            SyncState::Repaired => write!(f, "a write-back failed and was repeated: "),
            SyncState::Dirty(blocks) => write!(f, "{blocks} blocks could not be written: "),
            SyncState::Lost => write!(f, "what was written may be lost: "),
        }?;
        write!(f, "{}", self.error)
    }
}

impl std::error::Error for SyncError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<SyncError> for io::Error {
    fn from(error: SyncError) -> Self {
        io::Error::new(error.error.kind(), error)
    }
}
