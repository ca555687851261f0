//! Files, by `preadv` and `pwritev`.

use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::panic::resume_unwind;
use std::thread;

use parking_lot::Mutex;
use rustix::io::{Errno, pread, preadv, pwritev};

use super::{Run, Storage};

/// What a file opened with `O_DIRECT` may be read at multiples of. A read of it that ends elsewhere
/// has come to the end of the file.
const SECTOR_BYTES: usize = 512;

/// How many threads write runs at a time, at most. To start them takes as long as several writes,
/// so each has many. Batches of reads are too small for that.
const THREADS_MAX: usize = 8;
const RUNS_PER_THREAD: usize = 16;

/// A file of the operating system, read by `preadv` and written by `pwritev`; `sync` is
/// `fdatasync`, which includes the file's length.
#[derive(Debug)]
pub struct FileStorage {
    file: File,
}

impl FileStorage {
    /// Storage in this file, which is open for reading, and for writing if blocks are written.
    pub fn new(file: File) -> Self {
        FileStorage { file }
    }

    #[cfg(feature = "io-uring")]
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Storage for FileStorage {
    fn read_at(&self, offset: u64, mut buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut done = 0;
        while !buffers.is_empty() {
            let at = offset + done as u64;
            // A call with one buffer costs the kernel less than one with a list of them.
            let read = match &mut *buffers {
                [only] => pread(&self.file, &mut **only, at),
                _ => preadv(&self.file, buffers, at),
            };
            match read {
                Ok(0) => break,
                Ok(read) => {
                    done += read;
                    IoSliceMut::advance_slices(&mut buffers, read);
                }
                Err(Errno::INTR) => {}
                // Direct I/O, and the end of the file was within a sector.
                Err(Errno::INVAL) if !done.is_multiple_of(SECTOR_BYTES) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(done)
    }

    fn write_at(&self, offset: u64, mut buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut done = 0;
        while !buffers.is_empty() {
            match pwritev(&self.file, buffers, offset + done) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => {
                    done += written as u64;
                    IoSlice::advance_slices(&mut buffers, written);
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn write_runs(&self, runs: &mut [Run<'_>]) -> Vec<io::Result<()>> {
        side_by_side(runs, |run| self.write_at(run.offset, &mut run.buffers))
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Does this to all runs, several at a time, since each waits for the disk; returns the results in
/// their order.
fn side_by_side<R: Send, T: Send>(runs: &mut [R], what: impl Fn(&mut R) -> T + Sync) -> Vec<T> {
    let threads = (runs.len() / RUNS_PER_THREAD).min(THREADS_MAX);
    let left = Mutex::new(runs.iter_mut().enumerate());
    let work = || {
        let mut done = Vec::new();
        loop {
            let next = left.lock().next();
            let Some((nth, run)) = next else { return done };
            done.push((nth, what(run)));
        }
    };
    let mut done = thread::scope(|scope| {
        let start = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        // This thread is one of them; where no more can be started, it does what is left.
        let others: Vec<_> = (1..threads).map_while(start).collect();
        let mut done = work();
        for other in others {
            done.extend(other.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        done
    });
    done.sort_unstable_by_key(|(nth, _)| *nth);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn runs_are_done_side_by_side_and_told_in_their_order() {
        let at_once = Barrier::new(THREADS_MAX);
        let mut runs: Vec<usize> = (0..128).collect();
        // Of the first ones, each waits until all threads have one.
        let done = side_by_side(&mut runs, |run| {
            if *run < THREADS_MAX {
                at_once.wait();
            }
            *run + 100
        });
        assert_eq!(done, (100..228).collect::<Vec<_>>());
        assert_eq!(side_by_side(&mut [5, 6, 7], |run| (*run, thread::current().id())), {
            let own = thread::current().id();
            [(5, own), (6, own), (7, own)]
        });
    }

    #[test]
    fn a_read_beyond_the_end_is_short() {
        let storage = FileStorage::new(tempfile::tempfile().unwrap());
        let data = [7; 700];
        storage
            .write_at(100, &mut [IoSlice::new(&data[..300]), IoSlice::new(&data[300..])])
            .unwrap();
        let (mut one, mut other) = ([1; 512], [1; 512]);
        let buffers = &mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut other)];
        assert_eq!(storage.read_at(0, buffers).unwrap(), 800);
        assert_eq!((one[99], one[100], other[287], other[288]), (0, 7, 7, 1));
        storage.sync().unwrap();
    }
}
