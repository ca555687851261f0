//! Files, by io_uring with the memory of the cache registered, so that the kernel need not pin and
//! map pages for each read and write.
//!
//! Calls stay synchronous: a thread takes one of the rings, submits all that it has to read or
//! write with one system call, and waits in the same one. If others have all rings, what is a
//! single block is read or written without one.
#![expect(unsafe_code, reason = "hands addresses to the kernel, which outlive the call")]

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write as _};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use freehold_host::Arena;
use io_uring::{IoUring, opcode, squeue, types};
use parking_lot::{Mutex, MutexGuard};

use super::pread::FileStorage;
use super::{ReadRun, Run, Storage};
use crate::counters;

/// How many operations a ring takes at a time.
const DEPTH: u32 = 128;

/// The most bytes of a registered buffer, a limit of the kernel's.
const BUFFER_BYTES: usize = 1 << 30;

const RINGS_MAX: usize = 16;

/// Rings, one for each CPU or so, that know the memory of the cache.
pub(crate) struct Rings {
    rings: Box<[Mutex<IoUring>]>,
    /// The memory: registered, if there is any. Kept, since the kernel has its addresses.
    arena: Arc<Arena>,
    registered_bytes: usize,
}

/// From how many adjacent blocks on they are one operation with a list of buffers, which the kernel
/// pins, in place of one with a registered buffer each; and how many such an operation has at most.
const LISTED_MIN: usize = 8;
const LISTED_MAX: usize = 128;

/// One operation: an address within a borrowed buffer, or of a list of them, and where it goes in
/// the file.
struct Step {
    address: *mut u8,
    bytes: usize,
    offset: u64,
    is_write: bool,
    /// How many buffers it has: a list, if there are several.
    buffers: usize,
}

impl Rings {
    /// Starts rings, and registers the memory; says why not if it could not.
    ///
    /// # Errors
    ///
    /// The error of the kernel: it has no io_uring, or does not permit it.
    pub(crate) fn start(arena: &Arc<Arena>) -> io::Result<(Self, Option<String>)> {
        let count = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let rings = (0..count.min(RINGS_MAX)).map(|_| IoUring::new(DEPTH).map(Mutex::new));
        let rings = rings.collect::<io::Result<Box<[_]>>>()?;
        let (base, bytes) = (arena.base().as_ptr(), arena.total_frames().get() as usize);
        let bytes = bytes * arena.frame_size().bytes();
        let buffers: Vec<_> = (0..bytes)
            .step_by(BUFFER_BYTES)
            .map(|at| libc_iovec(base.wrapping_add(at), BUFFER_BYTES.min(bytes - at)))
            .collect();
        let mut rings = Rings { rings, arena: Arc::clone(arena), registered_bytes: bytes };
        // An arena of several memory nodes has gaps, which cannot be registered as one.
        if arena.ranges().len() > 1 {
            rings.registered_bytes = 0;
            return Ok((rings, Some("memory on several nodes is not registered".into())));
        }
        for ring in &rings.rings {
            // SAFETY: the buffers are memory of the arena, which is mapped as long as the rings
            // exist: they keep it.
            let registered = unsafe { ring.lock().submitter().register_buffers(&buffers) };
            if let Err(error) = registered {
                rings.registered_bytes = 0;
                return Ok((rings, Some(format!("memory is not registered: {error}"))));
            }
        }
        Ok((rings, None))
    }

    /// A ring that no thread has, from the thread's own on.
    fn free(&self) -> Option<MutexGuard<'_, IoUring>> {
        let (own, count) = (counters::of_thread(), self.rings.len());
        (0..count).find_map(|nth| self.rings[(own + nth) % count].try_lock())
    }

    /// A ring for so many operations. One alone needs none: while others have them all, `None`,
    /// for a ring that is waited for would take one thread's operations after another's.
    fn ring_for(&self, operations: usize) -> Option<MutexGuard<'_, IoUring>> {
        let wait = || self.rings[counters::of_thread() % self.rings.len()].lock();
        self.free().or_else(|| (operations > 1).then(wait))
    }

    /// The registered buffer that contains all of these bytes.
    fn buffer_of(&self, step: &Step) -> Option<u16> {
        let at = (step.address as usize).checked_sub(self.arena.base().as_ptr() as usize)?;
        let is_inside = at + step.bytes <= self.registered_bytes;
        let (first, last) = (at / BUFFER_BYTES, (at + step.bytes).saturating_sub(1) / BUFFER_BYTES);
        (is_inside && first == last).then_some(first as u16)
    }

    fn entry(&self, file: types::Fd, step: &Step) -> squeue::Entry {
        let (address, bytes, offset) = (step.address, step.bytes as u32, step.offset);
        if step.buffers > 1 {
            let (list, count) = (step.address.cast::<libc::iovec>(), step.buffers as u32);
            return match step.is_write {
                true => opcode::Writev::new(file, list, count).offset(offset).build(),
                false => opcode::Readv::new(file, list, count).offset(offset).build(),
            };
        }
        match (self.buffer_of(step), step.is_write) {
            (Some(buffer), true) => {
                opcode::WriteFixed::new(file, address, bytes, buffer).offset(offset).build()
            }
            (Some(buffer), false) => {
                opcode::ReadFixed::new(file, address, bytes, buffer).offset(offset).build()
            }
            (None, true) => opcode::Write::new(file, address, bytes).offset(offset).build(),
            (None, false) => opcode::Read::new(file, address, bytes).offset(offset).build(),
        }
    }

    /// Runs all steps on one of the rings, and returns what became of each: how many bytes, or the
    /// error.
    ///
    /// # Safety
    ///
    /// The addresses are those of buffers, or of lists of buffers, that the caller has borrowed for
    /// the call: exclusively, if they are read into.
    unsafe fn run(
        &self,
        ring: &mut IoUring,
        file: types::Fd,
        steps: &[Step],
    ) -> Vec<io::Result<usize>> {
        let mut results: Vec<_> = steps.iter().map(|_| Ok(0)).collect();
        let (mut pushed, mut completed) = (0, 0);
        while completed < steps.len() {
            // As many as the ring takes are under way, until the last.
            while pushed < steps.len() && pushed - completed < DEPTH as usize {
                let entry = self.entry(file, &steps[pushed]).user_data(pushed as u64);
                // SAFETY: the buffers, the lists of them and the file outlive the operation, since
                // this neither returns nor unwinds before its completion has come.
                if let Err(error) = unsafe { ring.submission().push(&entry) } {
                    // A ring is empty between calls, and has room for so many.
                    give_up(&error);
                }
                pushed += 1;
            }
            // Not for each by itself: a call costs more than it takes a disk to end some.
            let awaited = (pushed - completed).div_ceil(4);
            // Whatever the kernel says to one call, operations that it has begun use the buffers
            // until they complete: so the loop ends with the last one only.
            if let Err(error) = ring.submit_and_wait(awaited)
                && !matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock)
                && error.kind() != ErrorKind::ResourceBusy
            {
                give_up(&error);
            }
            for done in ring.completion() {
                let result = done.result();
                results[done.user_data() as usize] = match usize::try_from(result) {
                    Ok(bytes) => Ok(bytes),
                    Err(_) => Err(io::Error::from_raw_os_error(-result)),
                };
                completed += 1;
            }
        }
        results
    }
}

/// Ends the process: the ring is broken, and what it does with the buffers is unknown. Nothing may
/// unwind from here, as it would if standard error cannot be written to.
fn give_up(error: &dyn std::error::Error) -> ! {
    let _closed = writeln!(io::stderr(), "freehold-cache: io_uring: {error}");
    std::process::abort();
}

/// How many adjacent buffers each operation has.
fn buffers_each(buffers: usize) -> usize {
    if buffers < LISTED_MIN { 1 } else { LISTED_MAX }
}

/// How many operations so many adjacent buffers are.
fn steps_of(buffers: usize) -> usize {
    buffers.div_ceil(buffers_each(buffers))
}

/// The steps that read into adjacent buffers.
fn push_reads(steps: &mut Vec<Step>, mut offset: u64, buffers: &mut [IoSliceMut<'_>]) {
    let each = buffers_each(buffers.len());
    for part in buffers.chunks_mut(each) {
        let (count, bytes) = (part.len(), part.iter().map(|buffer| buffer.len()).sum());
        // The standard library has a slice as the kernel does, an `iovec`.
        let address = match part {
            [only] => only.as_mut_ptr(),
            list => list.as_mut_ptr().cast(),
        };
        steps.push(Step { address, bytes, offset, is_write: false, buffers: count });
        offset += bytes as u64;
    }
}

/// The steps that write adjacent buffers.
fn push_writes(steps: &mut Vec<Step>, mut offset: u64, buffers: &[IoSlice<'_>]) {
    for part in buffers.chunks(buffers_each(buffers.len())) {
        let bytes = part.iter().map(|buffer| buffer.len()).sum();
        // Written from, and never written to.
        let address = match part {
            [only] => only.as_ptr().cast_mut(),
            list => list.as_ptr().cast_mut().cast(),
        };
        steps.push(Step { address, bytes, offset, is_write: true, buffers: part.len() });
        offset += bytes as u64;
    }
}

fn libc_iovec(base: *mut u8, bytes: usize) -> libc::iovec {
    libc::iovec { iov_base: base.cast(), iov_len: bytes }
}

/// A file, read and written by io_uring; what an operation leaves undone is done by `preadv` and
/// `pwritev`.
pub(crate) struct UringStorage {
    file: FileStorage,
    rings: Arc<Rings>,
}

impl UringStorage {
    pub(crate) fn new(file: FileStorage, rings: Arc<Rings>) -> Self {
        UringStorage { file, rings }
    }

    fn fd(&self) -> types::Fd {
        types::Fd(self.file.file().as_raw_fd())
    }

    /// What became of a read into adjacent buffers.
    fn read_of(
        &self,
        steps: &[Step],
        buffers: &mut [IoSliceMut<'_>],
        results: &mut impl Iterator<Item = io::Result<usize>>,
    ) -> io::Result<usize> {
        let (mut read, mut first) = (0, 0);
        for (result, step) in results.zip(steps) {
            match result? {
                bytes if bytes == step.bytes => read += bytes,
                // The end of the file, or an interruption, which `preadv` tells apart.
                _ => return Ok(read + self.file.read_at(step.offset, &mut buffers[first..])?),
            }
            first += step.buffers;
        }
        Ok(read)
    }
}

impl Storage for UringStorage {
    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let Some(mut ring) = self.rings.ring_for(buffers.len()) else {
            return self.file.read_at(offset, buffers);
        };
        let mut steps = Vec::with_capacity(buffers.len());
        push_reads(&mut steps, offset, buffers);
        // SAFETY: the buffers are borrowed exclusively for the call.
        let mut results = unsafe { self.rings.run(&mut ring, self.fd(), &steps) }.into_iter();
        drop(ring);
        self.read_of(&steps, buffers, &mut results)
    }

    fn read_runs(&self, runs: &mut [ReadRun<'_>]) -> Vec<io::Result<usize>> {
        let blocks = runs.iter().map(|run| run.buffers.len()).sum();
        let Some(mut ring) = self.rings.ring_for(blocks) else {
            return self.file.read_runs(runs);
        };
        let mut steps = Vec::with_capacity(blocks);
        for run in &mut *runs {
            push_reads(&mut steps, run.offset, &mut run.buffers);
        }
        // SAFETY: the buffers are borrowed exclusively for the call.
        let mut results = unsafe { self.rings.run(&mut ring, self.fd(), &steps) }.into_iter();
        drop(ring);
        let mut steps = &steps[..];
        let outcome = |run: &mut ReadRun<'_>| {
            let (own, others) = steps.split_at(steps_of(run.buffers.len()));
            steps = others;
            let mut results = results.by_ref().take(own.len());
            let outcome = self.read_of(own, &mut run.buffers, &mut results);
            results.for_each(drop);
            outcome
        };
        runs.iter_mut().map(outcome).collect()
    }

    fn write_at(&self, offset: u64, buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut runs = [Run { offset, buffers: buffers.to_vec() }];
        self.write_runs(&mut runs).into_iter().collect()
    }

    fn write_runs(&self, runs: &mut [Run<'_>]) -> Vec<io::Result<()>> {
        let blocks = runs.iter().map(|run| run.buffers.len()).sum();
        let Some(mut ring) = self.rings.ring_for(blocks) else {
            return self.file.write_runs(runs);
        };
        let mut steps = Vec::with_capacity(blocks);
        for run in &*runs {
            push_writes(&mut steps, run.offset, &run.buffers);
        }
        // SAFETY: the buffers are borrowed for the call, and the kernel reads them only.
        let results = unsafe { self.rings.run(&mut ring, self.fd(), &steps) };
        drop(ring);
        let mut results = results.into_iter().zip(&steps);
        let outcome = |run: &mut Run<'_>| {
            let (mut outcome, mut first) = (Ok(()), 0);
            for (result, step) in results.by_ref().take(steps_of(run.buffers.len())) {
                let own = &mut run.buffers[first..first + step.buffers];
                first += step.buffers;
                let written = result.and_then(|bytes| match bytes == step.bytes {
                    true => Ok(()),
                    false => self.file.write_at(step.offset, own),
                });
                outcome = outcome.and(written);
            }
            outcome
        };
        runs.iter_mut().map(outcome).collect()
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_single_block_waits_for_no_ring() {
        let arena = Arc::new(Arena::builder().bytes(1 << 20).build().unwrap());
        let Ok((rings, _)) = Rings::start(&arena) else { return };
        let rings = Arc::new(rings);
        let file = FileStorage::new(tempfile::tempfile().unwrap());
        let storage = UringStorage::new(file, Arc::clone(&rings));
        let taken: Vec<_> = rings.rings.iter().map(Mutex::lock).collect();
        let (done, finished) = channel();
        let thread = thread::spawn(move || {
            let (ones, mut read) = ([1; 4096], [0; 4096]);
            storage.write_at(4096, &mut [IoSlice::new(&ones)]).unwrap();
            assert_eq!(storage.read_at(4096, &mut [IoSliceMut::new(&mut read)]).unwrap(), 4096);
            let buffers = vec![IoSliceMut::new(&mut read)];
            let results = storage.read_runs(&mut [ReadRun { offset: 4096, buffers }]);
            assert_eq!(results.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [4096]);
            assert_eq!(ones, read);
            done.send(()).unwrap();
        });
        let result = finished.recv_timeout(Duration::from_secs(20));
        drop(taken);
        thread.join().unwrap();
        result.expect("the calls went by without a ring");
    }

    #[test]
    fn runs_of_all_lengths_are_read_as_they_were_written() {
        let arena = Arc::new(Arena::builder().bytes(1 << 20).build().unwrap());
        let Ok((rings, _)) = Rings::start(&arena) else { return };
        let file = FileStorage::new(tempfile::tempfile().unwrap());
        let storage = UringStorage::new(file, Arc::new(rings));
        let lengths = [1, 7, 8, 128, 129, 300, 2];
        let offset = |nth: usize| nth as u64 * 512 * 512;
        let content = |nth: usize, block: usize| [(nth * 50 + block) as u8; 512];
        let blocks: Vec<Vec<_>> = (0..lengths.len())
            .map(|nth| (0..lengths[nth]).map(|block| content(nth, block)).collect())
            .collect();
        let mut runs: Vec<_> = (0..lengths.len())
            .map(|nth| Run {
                offset: offset(nth),
                buffers: blocks[nth].iter().map(|block| IoSlice::new(block)).collect(),
            })
            .collect();
        assert!(storage.write_runs(&mut runs).iter().all(Result::is_ok));
        // The last run ends with the file, within its second block.
        storage.file.file().set_len(offset(6) + 512 + 100).unwrap();
        let mut read: Vec<_> = lengths.iter().map(|&length| vec![[0; 512]; length]).collect();
        let mut runs: Vec<_> = (read.iter_mut().enumerate())
            .map(|(nth, blocks)| ReadRun {
                offset: offset(nth),
                buffers: blocks.iter_mut().map(|block| IoSliceMut::new(block)).collect(),
            })
            .collect();
        let bytes: Vec<_> = storage.read_runs(&mut runs).into_iter().map(Result::unwrap).collect();
        assert_eq!(bytes[..6], lengths[..6].iter().map(|length| length * 512).collect::<Vec<_>>());
        assert_eq!(bytes[6], 512 + 100);
        assert_eq!((&read[..6], &read[6][0]), (&blocks[..6], &blocks[6][0]));
        assert_eq!((read[6][1][99], read[6][1][100]), (blocks[6][1][99], 0));
        // A single list that goes beyond the end.
        let mut buffers: Vec<_> = read[5].iter_mut().map(|block| IoSliceMut::new(block)).collect();
        assert_eq!(storage.read_at(offset(6), &mut buffers).unwrap(), 512 + 100);
    }
}
