//! A simulated disk: it counts, fails when told to, and at a loss of power forgets or reorders what
//! was not synced, sector by sector.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock};

use freehold_cache::Storage;
use parking_lot::{Condvar, Mutex};

pub(crate) const SECTOR: usize = 512;

/// Blocks of 4 KiB, each full of its number's last byte.
pub(crate) fn numbered(blocks: u64) -> Vec<u8> {
    (0..blocks).flat_map(|block| [block as u8; 4096]).collect()
}

#[derive(Default)]
struct Content {
    /// What a reader sees.
    volatile: Vec<u8>,
    /// What survives in any case.
    durable: Vec<u8>,
    /// What was written since the last sync.
    pending: Vec<(usize, Vec<u8>)>,
}

/// A call that changes what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Write,
    Sync,
}

type Hook = dyn Fn(&Disk, Call) + Send + Sync;

#[derive(Default)]
pub(crate) struct Disk {
    content: Mutex<Content>,
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) syncs: AtomicU64,
    /// The offset and the length of each write.
    pub(crate) runs: Mutex<Vec<(u64, usize)>>,
    /// How many of the next reads, writes and syncs fail.
    pub(crate) failing_reads: AtomicU64,
    pub(crate) failing_writes: AtomicU64,
    pub(crate) failing_syncs: AtomicU64,
    /// How many of the next reads, and of the next writes, panic.
    pub(crate) panics: [AtomicU64; 2],
    /// Called in each write and sync, when it is done, and before it returns.
    hook: OnceLock<Box<Hook>>,
    /// While set, reads wait.
    gate: Mutex<bool>,
    opened: Condvar,
}

/// The disk as the storage of a cache.
pub(crate) struct OnDisk(pub(crate) Arc<Disk>);

impl Disk {
    /// A disk with this content, which is durable.
    pub(crate) fn with(bytes: Vec<u8>) -> Arc<Self> {
        let content = Content { volatile: bytes.clone(), durable: bytes, pending: Vec::new() };
        Arc::new(Disk { content: Mutex::new(content), ..Disk::default() })
    }

    pub(crate) fn storage(self: &Arc<Self>) -> Box<dyn Storage> {
        Box::new(OnDisk(Arc::clone(self)))
    }

    pub(crate) fn close_gate(&self) {
        *self.gate.lock() = true;
    }

    pub(crate) fn open_gate(&self) {
        *self.gate.lock() = false;
        self.opened.notify_all();
    }

    /// What a reader sees now.
    pub(crate) fn content(&self) -> Vec<u8> {
        self.content.lock().volatile.clone()
    }

    /// Has this called in each write and sync.
    pub(crate) fn hook(&self, hook: impl Fn(&Disk, Call) + Send + Sync + 'static) {
        assert!(self.hook.set(Box::new(hook)).is_ok(), "one hook");
    }

    fn call_hook(&self, call: Call) {
        if let Some(hook) = self.hook.get() {
            hook(self, call);
        }
    }

    /// Calls with the offset of each sector, and each content that it may have after a loss of
    /// power now: that which is durable, and all that was written since, as any of it may be
    /// missing or come in another order.
    pub(crate) fn survivors(&self, mut check: impl FnMut(usize, &[u8])) {
        let content = self.content.lock();
        let durable = [(0, &content.durable)].into_iter();
        let pending = content.pending.iter().map(|(offset, bytes)| (*offset, bytes));
        for (offset, bytes) in durable.chain(pending) {
            for (nth, sector) in bytes.chunks(SECTOR).enumerate() {
                check(offset + nth * SECTOR, sector);
            }
        }
    }
}

fn put(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    content.resize(content.len().max(end), 0);
    content[offset..end].copy_from_slice(bytes);
}

fn fails(count: &AtomicU64) -> io::Result<()> {
    let less = count.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
    less.map_or(Ok(()), |_| Err(io::Error::from_raw_os_error(5)))
}

impl Storage for OnDisk {
    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.reads.fetch_add(1, SeqCst);
        let mut closed = self.0.gate.lock();
        while *closed {
            self.0.opened.wait(&mut closed);
        }
        drop(closed);
        assert!(fails(&self.0.panics[0]).is_ok(), "a read that panics");
        fails(&self.0.failing_reads)?;
        let content = self.0.content.lock();
        let mut left = content.volatile.get(offset as usize..).unwrap_or_default();
        let mut read = 0;
        for buffer in buffers {
            let part = left.len().min(buffer.len());
            buffer[..part].copy_from_slice(&left[..part]);
            (left, read) = (&left[part..], read + part);
        }
        Ok(read)
    }

    fn write_at(&self, offset: u64, buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.0.writes.fetch_add(1, SeqCst);
        assert!(fails(&self.0.panics[1]).is_ok(), "a write that panics");
        fails(&self.0.failing_writes)?;
        let bytes = buffers.iter().flat_map(|buffer| buffer.iter().copied()).collect::<Vec<_>>();
        self.0.runs.lock().push((offset, bytes.len()));
        let mut content = self.0.content.lock();
        put(&mut content.volatile, offset as usize, &bytes);
        content.pending.push((offset as usize, bytes));
        drop(content);
        self.0.call_hook(Call::Write);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.syncs.fetch_add(1, SeqCst);
        let mut content = self.0.content.lock();
        let pending = std::mem::take(&mut content.pending);
        // As in Linux, what was written before a failure is forgotten, and the next sync succeeds.
        let result = fails(&self.0.failing_syncs);
        for (offset, bytes) in pending.iter().filter(|_| result.is_ok()) {
            put(&mut content.durable, *offset, bytes);
        }
        drop(content);
        self.0.call_hook(Call::Sync);
        result
    }
}
