//! Any allocator in a shared library, by the interface in `include/freehold_peer.h`.
//!
//! Rust cannot see into a library: loading one is as safe as the library is. Naming its file
//! vouches for it, as with any program that is started: that it does what the header says, and that
//! it stands what the types here do not keep away, blocks that are freed at another peer, its own
//! or another library's, or by another order.
#![expect(unsafe_code, reason = "loads libraries and calls what they export")]

mod error;
mod table;

use core::ffi::c_void;
use core::marker::PhantomData;
use core::mem;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::path::{Path, PathBuf};

use freehold::{MigrateType, Order};
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use crate::peers::memory::Memory;
use crate::peers::{FRAME_BYTES, Peer, Refused, Seat, alloc_singly, free_singly};
pub(crate) use error::PluginError;
use table::{Calls, Checked, NONE, RegionTable};

/// A loaded library. It stays loaded until the process ends, since it may have started threads or
/// registered thread-exit handlers.
pub(crate) struct Plugin {
    path: PathBuf,
    checked: Checked,
}

impl Plugin {
    /// Loads a library and checks what it exports. Loading runs the library's own code.
    ///
    /// # Errors
    ///
    /// The problem with the file or its table.
    pub(crate) fn load(path: &Path) -> Result<Self, PluginError> {
        // The whole path: a bare name would be searched for in the system's library folders.
        let path = path.canonicalize().map_err(PluginError::Unreadable)?;
        // SAFETY: The library's own code runs. Naming the file vouches for it.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) };
        let library = library.map_err(PluginError::NotLoaded)?;
        // SAFETY: A symbol's address is not dereferenced yet.
        let symbol = unsafe { library.get::<*mut c_void>(b"freehold_peer\0") };
        let table = symbol.ok().and_then(|symbol| NonNull::new(symbol.as_raw_ptr()));
        let table = table.ok_or(PluginError::NoSymbol)?;
        // Never unloaded, so that the table and its functions stay forever.
        mem::forget(library);
        // SAFETY: The symbol of that name in a library that stays loaded. Naming the file vouches
        // that it is what the header says.
        let checked = unsafe { Checked::read(table) }?;
        Ok(Plugin { path, checked })
    }

    /// The peer's name.
    pub(crate) fn name(&self) -> &str {
        &self.checked.name
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a peer over so many frames of new memory, for so many threads.
    ///
    /// # Errors
    ///
    /// [`PluginError::NoMemory`], [`PluginError::NotCreated`].
    ///
    /// # Panics
    ///
    /// If the header cannot count so many threads.
    pub(crate) fn create(
        &self,
        frames: u64,
        threads: usize,
    ) -> Result<PluginPeer<'_>, PluginError> {
        let memory =
            Memory::map(frames).map_err(|source| PluginError::NoMemory { frames, source })?;
        let region = RegionTable {
            base: memory.base(),
            frame_count: frames,
            frame_bytes: FRAME_BYTES as u64,
            thread_count: u32::try_from(threads).expect("fewer than 2^32 threads"),
        };
        let calls = self.checked.calls;
        // SAFETY: By the header. The memory is new, and lives until after `destroy`.
        let state = unsafe { (calls.create)(&region) };
        let state = NonNull::new(state).ok_or(PluginError::NotCreated { frames })?;
        let seats = (0..threads).map(|_| AtomicBool::new(false)).collect();
        Ok(PluginPeer { plugin: self, calls, state, frames, seats, _memory: memory })
    }
}

/// A peer created by a plug-in.
pub(crate) struct PluginPeer<'p> {
    plugin: &'p Plugin,
    calls: Calls,
    state: NonNull<c_void>,
    frames: u64,
    /// Whether each of its threads sits there.
    seats: Box<[AtomicBool]>,
    /// The memory that the peer manages. Fields are dropped after `drop` has run, and so after
    /// `destroy`.
    _memory: Memory,
}

// SAFETY: By the header, a peer is not bound to a thread.
unsafe impl Send for PluginPeer<'_> {}
// SAFETY: By the header, several threads call a peer at once, each with its own number: `sit` gives
// each to one seat at a time.
unsafe impl Sync for PluginPeer<'_> {}

impl Drop for PluginPeer<'_> {
    fn drop(&mut self) {
        // SAFETY: Made by `create`; dropping the value is exclusive access.
        unsafe { (self.calls.destroy)(self.state.as_ptr()) }
    }
}

/// A plug-in's block, by its first frame.
#[repr(transparent)]
pub(crate) struct PluginBlock(u64);

impl Default for PluginBlock {
    fn default() -> Self {
        PluginBlock(NONE)
    }
}

/// The seat of a thread at a plug-in's peer.
pub(crate) struct PluginSeat<'a> {
    calls: Calls,
    state: NonNull<c_void>,
    thread: u32,
    taken: &'a AtomicBool,
    of: PhantomData<&'a PluginPeer<'a>>,
}

impl Drop for PluginSeat<'_> {
    fn drop(&mut self) {
        // Release: what the thread did there comes before what the next one does.
        self.taken.store(false, Release);
    }
}

impl<'p> Peer for PluginPeer<'p> {
    type Block = PluginBlock;
    type Seat<'a>
        = PluginSeat<'a>
    where
        Self: 'a;

    /// # Panics
    ///
    /// If the peer was not created for so many threads, or a thread with this number sits there.
    fn sit(&self, thread: usize) -> PluginSeat<'_> {
        let taken = self.seats.get(thread).expect("a peer for fewer threads");
        // Acquire: see the drop of a seat.
        assert!(!taken.swap(true, Acquire), "two threads with the number {thread}");
        let (calls, state) = (self.calls, self.state);
        PluginSeat { calls, state, thread: thread as u32, taken, of: PhantomData }
    }

    fn first_frame(block: &PluginBlock) -> u64 {
        block.0
    }

    fn managed_frames(&self) -> Option<u64> {
        Some(self.frames)
    }

    fn serves(&self, order: Order) -> bool {
        self.plugin.checked.serves(order)
    }

    fn has_bulk(&self) -> bool {
        self.calls.bulk.is_some()
    }
}

impl Seat for PluginSeat<'_> {
    type Block = PluginBlock;

    #[inline]
    fn alloc(&mut self, order: Order, _: MigrateType) -> Option<PluginBlock> {
        let order = u32::from(order.get());
        // SAFETY: The state is the peer's, which the seat borrows, and the thread's number the
        // seat's alone.
        let frame = unsafe { (self.calls.alloc)(self.state.as_ptr(), order, self.thread) };
        (frame != NONE).then_some(PluginBlock(frame))
    }

    #[inline]
    fn free(&mut self, block: PluginBlock, order: Order) -> Result<(), Refused> {
        if block.0 == NONE {
            return Err(Refused);
        }
        let order = u32::from(order.get());
        // SAFETY: As above. The block came from a library, this one by its user's word (see the
        // module), and is consumed here.
        unsafe { (self.calls.free)(self.state.as_ptr(), block.0, order, self.thread) };
        Ok(())
    }

    #[inline]
    fn alloc_bulk(&mut self, out: &mut [PluginBlock]) -> usize {
        let Some((alloc_bulk, _)) = self.calls.bulk else {
            return alloc_singly(self, out);
        };
        let (frames, count) = (out.as_mut_ptr().cast::<u64>(), out.len() as u64);
        // SAFETY: As above. A block is a number, and there is room for `count` of them.
        let got = unsafe { alloc_bulk(self.state.as_ptr(), frames, count, self.thread) };
        usize::try_from(got).map_or(out.len(), |got| got.min(out.len()))
    }

    #[inline]
    fn free_bulk(&mut self, blocks: &mut [PluginBlock]) -> Result<(), Refused> {
        let Some((_, free_bulk)) = self.calls.bulk else {
            return free_singly(self, blocks);
        };
        if blocks.iter().any(|block| block.0 == NONE) {
            return Err(Refused);
        }
        let (frames, count) = (blocks.as_ptr().cast::<u64>(), blocks.len() as u64);
        // SAFETY: As above. A block is a number; they came from a library, as in `free`, and are
        // forgotten below.
        unsafe { free_bulk(self.state.as_ptr(), frames, count, self.thread) };
        blocks.fill_with(PluginBlock::default);
        Ok(())
    }
}
