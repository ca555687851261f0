//! A guest's memory: `vm-memory`.
#![expect(unsafe_code, reason = "makes volatile slices of frames that the value owns")]

extern crate std;

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::Arc;

use freehold_host::designs::Freehold;
use freehold_host::{Design, FrameCount, Host, HostError, OwnedPageRange};
use vm_memory::bitmap::{BS, Bitmap};
use vm_memory::guest_memory::Result;
use vm_memory::{
    Address, FileOffset, GuestAddress, GuestMemoryError, GuestMemoryRegion, GuestMemoryRegionBytes,
    GuestUsize, MemoryRegionAddress, VolatileSlice,
};

/// A region of a guest's memory: frames of an arena, to which they return when it is dropped.
///
/// `GuestRegionCollection` makes a guest's memory of such regions. `B` tracks what was written, as
/// in `vm-memory`; `()` tracks nothing.
///
/// ```
/// use std::sync::Arc;
/// use freehold_adapters::GuestRegion;
/// use freehold_host::{Arena, Backing, FrameCount, RangeRequest};
/// use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestRegionCollection};
///
/// let arena = Arena::builder().bytes(64 << 20).backing(Backing::Memfd);
/// // SAFETY: frames that a device process can write are reached by regions alone.
/// let arena = unsafe { arena.build_shared() }?;
/// let ram = FrameCount::from_bytes(24 << 20, arena.frame_size());
/// let ram = Arc::new(arena).allocate_range_owned(RangeRequest::new(ram))?;
/// let ram = GuestRegion::new(ram, GuestAddress(0x10_0000), ())?;
/// let memory = GuestRegionCollection::from_regions(vec![ram])?;
/// memory.write_obj(0x1234_u16, GuestAddress(0x12_0000))?;
/// assert_eq!(memory.read_obj::<u16>(GuestAddress(0x12_0000))?, 0x1234);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct GuestRegion<B = (), D: Design<Host> = Freehold<Host>> {
    range: OwnedPageRange<D>,
    start: GuestAddress,
    file: Option<FileOffset>,
    bitmap: B,
}

/// Why frames cannot be a region of a guest's memory.
#[derive(Debug)]
#[non_exhaustive]
pub enum GuestRegionError {
    /// The region would end beyond the guest's address space.
    BeyondAddressSpace,
    /// The file behind the arena cannot be shared: too many are open.
    File(io::Error),
    /// These are no whole pages of the region.
    BadPart,
    /// The machine does not take memory back.
    Discard(HostError),
}

impl fmt::Display for GuestRegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GuestRegionError::BeyondAddressSpace => {
                f.write_str("the region would end beyond the guest's address space")
            }
            GuestRegionError::File(error) => write!(f, "the arena's file: {error}"),
            GuestRegionError::BadPart => f.write_str("these are no whole pages of the region"),
            GuestRegionError::Discard(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GuestRegionError {}

impl<B: Bitmap, D: Design<Host>> GuestRegion<B, D> {
    /// Frames as the guest's memory from `start` on. The content stays as it is: that of another
    /// guest, unless the range was discarded since. Opens the arena's file once more, if it has
    /// one: see [`GuestRegion::with_file`].
    ///
    /// # Errors
    ///
    /// [`GuestRegionError`]; the frames are freed then.
    pub fn new(
        range: OwnedPageRange<D>,
        start: GuestAddress,
        bitmap: B,
    ) -> core::result::Result<Self, GuestRegionError> {
        let file = range.arena().file().map(|file| file.try_clone_to_owned());
        let file = file.transpose().map_err(GuestRegionError::File)?;
        GuestRegion::with_file(range, start, bitmap, file.map(|file| Arc::new(File::from(file))))
    }

    /// The same with an open file of the arena, so that many regions share one: that of the first
    /// region is [`FileOffset::arc`] of its `file_offset`.
    ///
    /// # Errors
    ///
    /// [`GuestRegionError::BeyondAddressSpace`]; the frames are freed then.
    pub fn with_file(
        range: OwnedPageRange<D>,
        start: GuestAddress,
        bitmap: B,
        file: Option<Arc<File>>,
    ) -> core::result::Result<Self, GuestRegionError> {
        if start.checked_add(range.bytes() as u64 - 1).is_none() {
            return Err(GuestRegionError::BeyondAddressSpace);
        }
        let offset = range.address().addr().get() - range.arena().base().addr().get();
        let file = file.map(|file| FileOffset::from_arc(file, offset as u64));
        Ok(GuestRegion { file, range, start, bitmap })
    }

    /// Gives the memory of some of the guest's pages back to the machine, for a balloon: they read
    /// as zero then, and take memory again when they are written. `offset` and `bytes` are
    /// multiples of the arena's frame size. To the bitmap it is a write.
    ///
    /// # Errors
    ///
    /// [`GuestRegionError::BadPart`] if the region does not have these pages;
    /// [`GuestRegionError::Discard`] if the machine refuses, for instance locked memory.
    pub fn discard(
        &self,
        offset: MemoryRegionAddress,
        bytes: usize,
    ) -> core::result::Result<(), GuestRegionError> {
        let size = self.range.arena().frame_size();
        let is_whole = |bytes: usize| bytes.is_multiple_of(size.bytes());
        let first = offset.0 as usize;
        let end = first.checked_add(bytes).filter(|&end| end <= self.range.bytes());
        if !is_whole(first) || !is_whole(bytes) || end.is_none() {
            return Err(GuestRegionError::BadPart);
        }
        let frames = |bytes| FrameCount::from_bytes(bytes, size);
        // SAFETY: the range is private, and no slice of it is ever made here.
        let discarded = unsafe { self.range.discard_shared(frames(first), frames(bytes)) };
        discarded.map_err(GuestRegionError::Discard)?;
        self.bitmap.mark_dirty(first, bytes);
        Ok(())
    }

    /// The frames, which are no longer the guest's, with its content: to be discarded, split and
    /// freed. To be read as a slice only if no process is left that writes them: see
    /// [`ArenaBuilder::build_shared`](freehold_host::ArenaBuilder::build_shared).
    pub fn into_range(self) -> OwnedPageRange<D> {
        self.range
    }
}

impl<B: Bitmap, D: Design<Host>> GuestMemoryRegion for GuestRegion<B, D> {
    type B = B;

    fn len(&self) -> GuestUsize {
        self.range.bytes() as GuestUsize
    }

    fn start_addr(&self) -> GuestAddress {
        self.start
    }

    fn bitmap(&self) -> BS<'_, B> {
        self.bitmap.slice_at(0)
    }

    fn get_host_address(&self, address: MemoryRegionAddress) -> Result<*mut u8> {
        let address = self.check_address(address).ok_or(GuestMemoryError::InvalidBackendAddress)?;
        Ok(self.range.address().as_ptr().wrapping_add(address.0 as usize))
    }

    fn file_offset(&self) -> Option<&FileOffset> {
        self.file.as_ref()
    }

    fn get_slice(
        &self,
        offset: MemoryRegionAddress,
        count: usize,
    ) -> Result<VolatileSlice<'_, BS<'_, B>>> {
        let is_within = offset.checked_add(count as u64).is_some_and(|end| end.0 <= self.len());
        if !is_within {
            return Err(GuestMemoryError::InvalidBackendAddress);
        }
        let bitmap = self.bitmap.slice_at(offset.0 as usize);
        let first = self.range.address().as_ptr().wrapping_add(offset.0 as usize);
        // SAFETY: the bytes lie within the range (checked above), which this value owns as long as
        // it is borrowed. No reference to them exists: the range is private, and is not read as a
        // slice here.
        Ok(unsafe { VolatileSlice::with_bitmap(first, count, bitmap, None) })
    }
}

impl<B: Bitmap, D: Design<Host>> GuestMemoryRegionBytes for GuestRegion<B, D> {}

impl<B, D: Design<Host>> fmt::Debug for GuestRegion<B, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GuestRegion")
            .field("range", &self.range)
            .field("start", &self.start)
            .finish_non_exhaustive()
    }
}
