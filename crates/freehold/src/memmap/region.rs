//! One buffer, owned by the caller, that holds every byte the allocator writes.
//!
//! A [`LayoutBuilder`] computes where each table lies before any memory exists; a [`Carver`] then
//! initialises the tables in place. This file guarantees that tables lie within the buffer and
//! never overlap. What a table does with its bytes is up to `table`.

#![expect(unsafe_code, reason = "the places of typed tables in one raw buffer are checked here")]

use core::marker::PhantomData;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::table::{Apart, Rows, SideBySide, Stride};
use super::zeroable::Zeroable;
use crate::Error;
use crate::units::Pfn;

pub use super::table::{StridedTable, Table, Twins};

/// The alignment of every section: one cache line, so that tables of different kinds never share
/// one.
pub const LINE_BYTES: usize = 64;

/// More sections than any design has.
const SECTIONS_MAX: usize = 16;

/// What a section of the metadata holds. Cache misses are reported by these kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SectionKind {
    /// Read-only tables of nodes, CPUs and zone lists.
    Topology,
    /// Zones: their locks, free lists, watermarks and counters.
    Zones,
    /// One record for each pageblock.
    Blocks,
    /// The frames that each CPU caches, and its counters.
    PerCpu,
    /// One record for each frame.
    Frames,
    /// Clusters of free frames.
    Clusters,
    /// Bitmaps of frames, and of pageblocks.
    Bitmaps,
    /// One record of the LRU for each frame.
    LruFrames,
    /// The LRU's lists of each group and node, those of a node side by side.
    Lruvecs,
    /// Memory groups.
    LruGroups,
    /// The LRU's batches of each CPU.
    LruPerCpu,
}

impl SectionKind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            SectionKind::Topology => "topology",
            SectionKind::Zones => "zones",
            SectionKind::Blocks => "blocks",
            SectionKind::PerCpu => "per_cpu",
            SectionKind::Frames => "frames",
            SectionKind::Clusters => "clusters",
            SectionKind::Bitmaps => "bitmaps",
            SectionKind::LruFrames => "lru_frames",
            SectionKind::Lruvecs => "lruvecs",
            SectionKind::LruGroups => "lru_groups",
            SectionKind::LruPerCpu => "lru_per_cpu",
        }
    }
}

/// A part of the metadata that holds one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataSection {
    /// What it holds.
    pub kind: SectionKind,
    /// Where it begins, in bytes from the start of the metadata.
    pub offset_bytes: usize,
    /// How long it is, in bytes.
    pub len_bytes: usize,
    /// The distance between two records, in bytes.
    pub stride_bytes: usize,
}

/// How much room tables take.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    size_bytes: usize,
    align_bytes: usize,
}

impl Extent {
    /// The size in bytes of a buffer that is large enough whatever its alignment.
    pub const fn size_unaligned(&self) -> usize {
        self.size_bytes + self.align_bytes - 1
    }
}

/// How much metadata an allocator needs, and its layout.
#[derive(Clone, Copy, Debug)]
pub struct MetadataLayout {
    extent: Extent,
    sections: [Option<MetadataSection>; SECTIONS_MAX],
    first_frame: Pfn,
}

impl MetadataLayout {
    /// The layout of the tables that `plan` plans.
    pub fn of<T>(
        first_frame: Pfn,
        plan: impl FnOnce(&mut LayoutBuilder<'_>) -> Result<T, Error>,
    ) -> Result<Self, Error> {
        let mut sections = [None; SECTIONS_MAX];
        let mut builder = LayoutBuilder { sections: &mut sections, ..LayoutBuilder::new() };
        plan(&mut builder)?;
        assert!(!builder.sections.is_empty(), "there is room for all sections");
        Ok(MetadataLayout { extent: builder.finish(), sections, first_frame })
    }

    /// The frame of the first record of the frame table, and the first frame of the first
    /// pageblock.
    pub const fn first_frame(&self) -> Pfn {
        self.first_frame
    }

    /// The size of the metadata in bytes, in a buffer of the required alignment.
    pub const fn size(&self) -> usize {
        self.extent.size_bytes
    }

    /// The size in bytes of a buffer that is large enough whatever its alignment.
    pub const fn size_unaligned(&self) -> usize {
        self.extent.size_unaligned()
    }

    /// The alignment of the metadata in bytes: at least a cache line.
    pub const fn align(&self) -> usize {
        self.extent.align_bytes
    }

    /// All sections, by rising offset.
    pub fn sections(&self) -> impl Iterator<Item = MetadataSection> + '_ {
        self.sections.iter().flatten().copied()
    }
}

/// Where a table of `T` will lie.
#[derive(Debug)]
pub struct TablePlan<T> {
    offset_bytes: usize,
    stride_bytes: usize,
    len: usize,
    record: PhantomData<fn() -> T>,
}

impl<T> Clone for TablePlan<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TablePlan<T> {}

/// Plans where tables lie, one after the other.
#[derive(Debug)]
pub struct LayoutBuilder<'a> {
    extent: Extent,
    /// Places for the sections that come next; none if they are not asked for.
    sections: &'a mut [Option<MetadataSection>],
}

impl LayoutBuilder<'_> {
    /// Plans without a record of the sections, which takes room on the stack.
    pub const fn new() -> Self {
        let extent = Extent { size_bytes: 0, align_bytes: LINE_BYTES };
        LayoutBuilder { extent, sections: &mut [] }
    }

    /// Reserves a table of `len` records, side by side.
    ///
    /// # Errors
    ///
    /// [`Error::SpanTooLarge`] if the table is larger than the address space.
    pub fn table<T>(&mut self, kind: SectionKind, len: usize) -> Result<TablePlan<T>, Error> {
        self.strided_table(kind, len, size_of::<T>())
    }

    /// Reserves a table of `len` records, spaced at `stride_min` bytes, or at their size if that is
    /// more.
    ///
    /// # Errors
    ///
    /// [`Error::SpanTooLarge`] if the table is larger than the address space.
    pub fn strided_table<T>(
        &mut self,
        kind: SectionKind,
        len: usize,
        stride_min: usize,
    ) -> Result<TablePlan<T>, Error> {
        let align = align_of::<T>().max(LINE_BYTES);
        let stride = stride_min.max(size_of::<T>()).checked_next_multiple_of(align_of::<T>());
        let stride = stride.ok_or(Error::SpanTooLarge)?;
        let offset = self.extent.size_bytes.next_multiple_of(align);
        let len_bytes = stride.checked_mul(len).ok_or(Error::SpanTooLarge)?;
        let end = offset.checked_add(len_bytes).ok_or(Error::SpanTooLarge)?;
        let end = end.checked_next_multiple_of(LINE_BYTES).ok_or(Error::SpanTooLarge)?;
        if isize::try_from(end).is_err() {
            return Err(Error::SpanTooLarge);
        }
        if let Some((section, rest)) = core::mem::take(&mut self.sections).split_first_mut() {
            *section = Some(MetadataSection {
                kind,
                offset_bytes: offset,
                len_bytes,
                stride_bytes: stride,
            });
            self.sections = rest;
        }
        self.extent.size_bytes = end;
        self.extent.align_bytes = self.extent.align_bytes.max(align);
        Ok(TablePlan { offset_bytes: offset, stride_bytes: stride, len, record: PhantomData })
    }

    pub const fn finish(&self) -> Extent {
        self.extent
    }
}

/// For an allocator of bytes, such as `std::alloc::alloc`.
impl From<MetadataLayout> for core::alloc::Layout {
    fn from(layout: MetadataLayout) -> Self {
        let bytes = core::alloc::Layout::from_size_align(layout.size(), layout.align());
        bytes.expect("a layout fits the address space, and its alignment is a power of two")
    }
}

/// The buffer that a caller provides for the metadata. Its content need not be initialised. It may
/// begin at any address: what comes before the first aligned byte is not used.
#[derive(Debug)]
pub struct Metadata {
    base: NonNull<u8>,
    len_bytes: usize,
    is_zeroed: bool,
}

// SAFETY: a `Metadata` is the exclusive owner of its bytes, which any thread may use.
unsafe impl Send for Metadata {}

impl Metadata {
    /// Metadata in a buffer that lives forever: a kernel's static, or leaked memory.
    pub fn from_static(buffer: &'static mut [MaybeUninit<u8>]) -> Self {
        let len_bytes = buffer.len();
        Metadata { base: NonNull::from(buffer).cast(), len_bytes, is_zeroed: false }
    }

    /// Metadata in `len_bytes` bytes from `base`.
    ///
    /// # Safety
    ///
    /// The bytes must be valid for reads and writes, and nothing else may access them, until what
    /// is built on them (an allocator, an LRU) and all bitwise copies of it are gone.
    pub const unsafe fn from_raw_parts(base: NonNull<u8>, len_bytes: usize) -> Self {
        Metadata { base, len_bytes, is_zeroed: false }
    }

    /// The same where all bytes are zero, as the operating system hands them out. Tables with a
    /// record for each frame or pageblock are not written until memory is added there: an
    /// allocator for 1 TiB that has no memory yet touches a few pages.
    ///
    /// # Safety
    ///
    /// As for [`from_raw_parts`](Self::from_raw_parts), and every byte is zero.
    pub const unsafe fn from_zeroed_raw_parts(base: NonNull<u8>, len_bytes: usize) -> Self {
        Metadata { base, len_bytes, is_zeroed: true }
    }
}

/// Initialises tables in a [`Metadata`], in the order in which they were planned.
#[derive(Debug)]
pub struct Carver {
    metadata: Metadata,
    carved_bytes: usize,
}

impl Carver {
    /// Checks that `metadata` has room for the tables.
    ///
    /// # Errors
    ///
    /// [`Error::MetadataTooSmall`]; [`Error::MetadataMisaligned`] if it is large enough, but not
    /// from its first aligned byte on.
    pub fn new(metadata: Metadata, extent: &Extent) -> Result<Self, Error> {
        if metadata.len_bytes < extent.size_bytes {
            return Err(Error::MetadataTooSmall);
        }
        let skipped = metadata.base.align_offset(extent.align_bytes);
        if skipped > metadata.len_bytes - extent.size_bytes {
            return Err(Error::MetadataMisaligned);
        }
        // SAFETY: the offset lies within the metadata, by the two checks above.
        let base = unsafe { metadata.base.add(skipped) };
        let metadata = Metadata { base, len_bytes: metadata.len_bytes - skipped, ..metadata };
        Ok(Carver { metadata, carved_bytes: 0 })
    }

    /// Initialises a table of contiguous records, one after the other. A panic of `init`
    /// propagates, and drops the records initialised before.
    ///
    /// # Panics
    ///
    /// If the plan overlaps a table carved before, is not one for this metadata, or has gaps
    /// between its records.
    pub fn table<T>(&mut self, plan: TablePlan<T>, init: impl FnMut(usize) -> T) -> Table<T> {
        assert!(plan.stride_bytes == size_of::<T>(), "the records lie side by side");
        self.rows(plan, SideBySide, init)
    }

    /// Initialises a table with its own stride, record by record. A panic of `init` propagates, and
    /// drops the records initialised before.
    ///
    /// # Panics
    ///
    /// If the plan overlaps a table carved before, or is not one for this metadata.
    pub fn strided_table<T>(
        &mut self,
        plan: TablePlan<T>,
        init: impl FnMut(usize) -> T,
    ) -> StridedTable<T> {
        let stride = Apart::new(plan.stride_bytes);
        self.rows(plan, stride, init)
    }

    /// As [`table`](Self::table), of records that `init` makes of zeros: of zeroed metadata, where
    /// zero bytes are such records, nothing is written.
    pub fn zero_table<T: Zeroable>(
        &mut self,
        plan: TablePlan<T>,
        init: impl FnMut(usize) -> T,
    ) -> Table<T> {
        assert!(plan.stride_bytes == size_of::<T>(), "the records lie side by side");
        self.zero_rows(plan, SideBySide).unwrap_or_else(|| self.table(plan, init))
    }

    /// The same for a table with its own stride.
    pub fn zero_strided_table<T: Zeroable>(
        &mut self,
        plan: TablePlan<T>,
        init: impl FnMut(usize) -> T,
    ) -> StridedTable<T> {
        let stride = Apart::new(plan.stride_bytes);
        self.zero_rows(plan, stride).unwrap_or_else(|| self.strided_table(plan, init))
    }

    /// Takes zero bytes for records, if the bytes are zero and such records valid. `stride` is that
    /// of the plan.
    fn zero_rows<T: Zeroable, S: Stride>(
        &mut self,
        plan: TablePlan<T>,
        stride: S,
    ) -> Option<Rows<T, S>> {
        if !(self.metadata.is_zeroed && T::IS_ZERO) {
            return None;
        }
        let base = self.place(plan);
        // SAFETY: as in `rows`; and nothing has written to the place yet, so that all its bytes are
        // zero (contract of `Metadata`) and make valid records (contract of `Zeroable`).
        Some(unsafe { Rows::assume_init(base, plan.len, stride) })
    }

    /// `stride` is that of the plan.
    #[inline(never)]
    fn rows<T, S: Stride>(
        &mut self,
        plan: TablePlan<T>,
        stride: S,
        init: impl FnMut(usize) -> T,
    ) -> Rows<T, S> {
        let base = self.place(plan);
        // SAFETY: the records lie within the metadata, and its bytes are exclusively ours: nothing
        // else accesses them (contract of `Metadata`), nor does another table (`place`). They are
        // aligned for `T`: the first by `place`, the others since the stride is a multiple of it.
        unsafe { Rows::init(base, plan.len, stride, init) }
    }

    /// The first byte of a table that no table carved before overlaps.
    fn place<T>(&mut self, plan: TablePlan<T>) -> NonNull<u8> {
        let end_bytes = plan.offset_bytes + plan.stride_bytes * plan.len;
        assert!(plan.offset_bytes >= self.carved_bytes, "tables are carved in planned order");
        assert!(end_bytes <= self.metadata.len_bytes, "the plan fits the metadata");
        self.carved_bytes = end_bytes;
        // SAFETY: the offset lies within the metadata, by the assertion above.
        let place = unsafe { self.metadata.base.add(plan.offset_bytes) };
        assert!(place.cast::<T>().is_aligned(), "the metadata is aligned as the plan was");
        place
    }
}

#[cfg(test)]
mod tests;
