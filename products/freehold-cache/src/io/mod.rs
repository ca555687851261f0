//! What the cache reads blocks from and writes them to, and by which system calls.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};

mod pread;
#[cfg(feature = "io-uring")]
mod uring;

pub use pread::FileStorage;
#[cfg(feature = "io-uring")]
pub(crate) use uring::{Rings, UringStorage};

/// Storage for the blocks of one file. Files implement it by [`FileStorage`]; an implementation of
/// your own can count, delay, fail, or write a log first.
///
/// Any thread may call any method at any time, also for the same blocks: the cache writes a block
/// twice at the same time now and then, with the same content.
///
/// The cache calls it while it holds latches of the blocks concerned, so an implementation must not
/// use the same cache, except for another file's blocks that are not being written.
///
/// A panic of it comes out of the call that caused it, and loses nothing: a block that was being
/// read is not cached, and one that was being written stays dirty. A panic of [`Storage::sync`]
/// counts as a failure of it.
pub trait Storage: Send + Sync {
    /// Reads from `offset` on into all buffers, one after the other, and returns how many bytes
    /// there were: fewer than asked for only at the end of the file.
    ///
    /// # Errors
    ///
    /// The error of the storage. What is in the buffers then does not matter.
    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Reads several runs, and returns for each, in their order, what [`Storage::read_at`] would.
    /// By default one by one.
    fn read_runs(&self, runs: &mut [ReadRun<'_>]) -> Vec<io::Result<usize>> {
        runs.iter_mut().map(|run| self.read_at(run.offset, &mut run.buffers)).collect()
    }

    /// Writes all of the buffers, one after the other, from `offset` on.
    ///
    /// # Errors
    ///
    /// The error of the storage. Any part of the buffers may have been written.
    fn write_at(&self, offset: u64, buffers: &mut [IoSlice<'_>]) -> io::Result<()>;

    /// Writes several runs, and returns what became of each, in their order. By default one by
    /// one.
    fn write_runs(&self, runs: &mut [Run<'_>]) -> Vec<io::Result<()>> {
        runs.iter_mut().map(|run| self.write_at(run.offset, &mut run.buffers)).collect()
    }

    /// Returns once all that was written before the call is on storage, and survives a loss of
    /// power.
    ///
    /// # Errors
    ///
    /// The error of the storage. Any part of what was written since the last success may be lost.
    fn sync(&self) -> io::Result<()>;
}

/// Adjacent blocks to be read.
#[derive(Debug)]
pub struct ReadRun<'a> {
    /// Where the first byte is.
    pub offset: u64,
    /// Where the blocks go, one after the other.
    pub buffers: Vec<IoSliceMut<'a>>,
}

/// Adjacent blocks to be written.
#[derive(Debug)]
pub struct Run<'a> {
    /// Where the first byte goes.
    pub offset: u64,
    /// The blocks, one after the other.
    pub buffers: Vec<IoSlice<'a>>,
}

/// How files are read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum IoEngine {
    /// `preadv` and `pwritev`.
    #[default]
    Pread,
    /// io_uring, the memory of the cache registered with it. Needs the feature `io-uring`. Where
    /// the kernel does not permit it, [`IoEngine::Pread`], and
    /// [`Cache::engine`](crate::Cache::engine) says why.
    Uring,
}

/// The engine in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineReport {
    /// The engine.
    pub engine: IoEngine,
    /// Whether it reads and writes registered buffers.
    pub registered: bool,
    /// Why it is not what was asked for.
    pub reason: Option<String>,
}

impl fmt::Display for EngineReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.engine, self.registered) {
            (IoEngine::Pread, _) => "pread",
            (IoEngine::Uring, true) => "io_uring, registered buffers",
            (IoEngine::Uring, false) => "io_uring",
        })?;
        self.reason.as_ref().map_or(Ok(()), |reason| write!(f, " ({reason})"))
    }
}
