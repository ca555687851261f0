//! Storage in memory, in which each half of a block is a step of its own.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use crate::Storage;
use crate::explore::step;

/// The size of a block.
pub(crate) const SIZE: usize = 4096;

/// What is stored of a block: the numbers at its beginning and at its end.
#[derive(Clone, Copy, Default)]
struct Stored {
    halves: [u64; 2],
    /// How many calls are writing it.
    writers: u32,
    /// The number that was written last since the last sync, and the one that survives a loss of
    /// power.
    unsynced: Option<u64>,
    durable: u64,
}

/// A disk of some blocks.
#[derive(Default)]
pub(crate) struct Disk {
    blocks: Mutex<Vec<Stored>>,
    /// How many of the next reads, writes and syncs fail.
    pub(crate) failing_reads: AtomicU32,
    pub(crate) failing_writes: AtomicU32,
    pub(crate) failing_syncs: AtomicU32,
}

/// The disk as the storage of a cache.
pub(crate) struct OnDisk(pub(crate) Arc<Disk>);

/// Where a half of a block has its number.
pub(crate) fn place(half: usize) -> std::ops::Range<usize> {
    let at = half * (SIZE - 8);
    at..at + 8
}

pub(crate) fn number_at(bytes: &[u8], half: usize) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&bytes[place(half)]);
    u64::from_le_bytes(number)
}

impl Disk {
    pub(crate) fn new(blocks: usize) -> Arc<Self> {
        Arc::new(Disk { blocks: Mutex::new(vec![Stored::default(); blocks]), ..Disk::default() })
    }

    /// The number of a block, which nothing is writing.
    pub(crate) fn number(&self, block: usize) -> u64 {
        let Stored { halves: [first, last], .. } = self.change(block, |stored| *stored);
        assert_eq!(first, last, "block {block} is torn on storage");
        first
    }

    /// The number of a block that survives a loss of power.
    pub(crate) fn durable(&self, block: usize) -> u64 {
        self.change(block, |stored| stored.durable)
    }

    fn len(&self) -> usize {
        self.blocks.lock().expect("no change panics").len()
    }

    /// No step, so the lock is never waited for.
    fn change<T>(&self, block: usize, change: impl FnOnce(&mut Stored) -> T) -> T {
        change(&mut self.blocks.lock().expect("no change panics")[block])
    }

    fn fails(left: &AtomicU32) -> io::Result<()> {
        let fails = left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok();
        if fails { Err(io::Error::other("on purpose")) } else { Ok(()) }
    }
}

impl Storage for OnDisk {
    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        step();
        Disk::fails(&self.0.failing_reads)?;
        let first = offset as usize / SIZE;
        let there = self.0.len().saturating_sub(first).min(buffers.len());
        for (nth, buffer) in buffers[..there].iter_mut().enumerate() {
            buffer.fill(0);
            for half in 0..2 {
                step();
                let stored = self.0.change(first + nth, |stored| *stored);
                assert_eq!(stored.writers, 0, "block {} is read and written", first + nth);
                buffer[place(half)].copy_from_slice(&stored.halves[half].to_le_bytes());
            }
        }
        Ok(there * SIZE)
    }

    fn write_at(&self, offset: u64, buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        step();
        Disk::fails(&self.0.failing_writes)?;
        let first = offset as usize / SIZE;
        for (nth, buffer) in buffers.iter().enumerate() {
            self.0.change(first + nth, |stored| stored.writers += 1);
            for half in 0..2 {
                step();
                let number = number_at(buffer, half);
                self.0.change(first + nth, |stored| stored.halves[half] = number);
            }
            step();
            self.0.change(first + nth, |stored| {
                stored.writers -= 1;
                stored.unsynced = Some(number_at(buffer, 0));
            });
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        step();
        let result = Disk::fails(&self.0.failing_syncs);
        for stored in &mut *self.0.blocks.lock().expect("no change panics") {
            // As in Linux, one call is told of a failure, and what was written before is forgotten.
            let written = stored.unsynced.take().filter(|_| result.is_ok());
            stored.durable = written.unwrap_or(stored.durable);
        }
        // On its way back.
        step();
        result
    }
}
