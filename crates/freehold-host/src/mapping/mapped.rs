//! Memory that is mapped as it is needed, each part of it from its beginning on.
#![expect(unsafe_code, reason = "maps memory")]

use core::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::io;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use super::{Kind, Mapping, Reserved, page_bytes, unmap_unused};
use crate::HostError;

/// Up to where each part of a mapping is mapped. All are of one size.
#[derive(Debug)]
pub(super) struct Mapped {
    part_bytes: usize,
    /// By offsets in the mapping. Release where one is raised, acquire where it is asked for: who
    /// finds memory mapped may use it.
    ends: Box<[AtomicUsize]>,
}

impl Mapped {
    /// Nothing of so many parts of this size.
    pub(super) fn new(part_bytes: usize, parts: usize) -> Self {
        let ends = (0..parts).map(|nth| AtomicUsize::new(nth * part_bytes)).collect();
        Mapped { part_bytes, ends }
    }

    /// Whether so many bytes from an offset on are mapped.
    pub(super) fn has(&self, offset: usize, bytes: usize) -> bool {
        let end = self.ends.get(offset / self.part_bytes);
        let end = end.map_or(0, |end| end.load(Acquire));
        offset < end && bytes <= end - offset
    }

    /// What is mapped: the offset and the size of each part.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let part = |(nth, end): (usize, &AtomicUsize)| {
            let start = nth * self.part_bytes;
            (start, end.load(Acquire) - start)
        };
        self.ends.iter().enumerate().map(part).filter(|(_, bytes)| *bytes > 0)
    }

    /// Has `map` map what lies between the mapped and an offset of the same part, by offset and
    /// size, unless that is mapped already. Returns what was mapped. One call at a time.
    pub(super) fn raise(
        &self,
        (from, to): (usize, usize),
        map: impl FnOnce(usize, usize) -> io::Result<()>,
    ) -> io::Result<Option<(usize, usize)>> {
        let end = &self.ends[from / self.part_bytes];
        // Relaxed: it is raised by one call at a time.
        let mapped = end.load(Relaxed);
        if to <= mapped {
            return Ok(None);
        }
        map(mapped, to - mapped)?;
        end.store(to, Release);
        Ok(Some((mapped, to - mapped)))
    }
}

impl Mapping {
    /// So many bytes at such an alignment, which are private memory as [`Mapping::map_up_to`] maps
    /// them: in parts of a size, each from its beginning on. Until then, nothing is mapped there,
    /// and others may come to have the addresses.
    ///
    /// # Errors
    ///
    /// As for [`Mapping::reserve`].
    pub(crate) fn unmapped(
        bytes: usize,
        align: usize,
        part_bytes: usize,
    ) -> Result<Self, HostError> {
        let reserved = Reserved::new(bytes, align.max(page_bytes()), 0);
        let mut reserved = reserved.map_err(|source| HostError::Map { bytes, source })?;
        reserved.vacate().map_err(|source| HostError::Map { bytes, source })?;
        let mut mapping = reserved.into_mapping(Kind::Private, None);
        mapping.mapped = Some(Mapped::new(part_bytes, bytes.div_ceil(part_bytes)));
        Ok(mapping)
    }

    /// Maps what is not mapped yet of a part, up to an offset in it. Returns what was mapped, by
    /// offset and size. One call at a time; of other mappings, nothing.
    ///
    /// # Errors
    ///
    /// [`HostError::Map`]: beyond a limit, or where others have mapped something since.
    pub(crate) fn map_up_to(
        &self,
        (start, end): (usize, usize),
    ) -> Result<Option<(usize, usize)>, HostError> {
        let Some(mapped) = &self.mapped else { return Ok(None) };
        let map = |offset, bytes| {
            let start = self.base.as_ptr().wrapping_add(offset).cast();
            let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
            let access = ProtFlags::READ | ProtFlags::WRITE;
            // SAFETY: The new mapping replaces nothing.
            let found = unsafe { mmap_anonymous(start, bytes, access, flags) }?;
            if found == start {
                return Ok(());
            }
            // To kernels before Linux 4.17 the address is a hint.
            unmap_unused(found, bytes);
            Err(Errno::EXIST.into())
        };
        let refuse = |source| HostError::Map { bytes: end - start, source };
        mapped.raise((start, end), map).map_err(refuse)
    }

    /// Calls a function for all that is there, by offset and size.
    pub(crate) fn each_mapped<E>(
        &self,
        mut each: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        match &self.mapped {
            None => each(0, self.bytes),
            Some(mapped) => mapped.all().try_for_each(|(offset, bytes)| each(offset, bytes)),
        }
    }

    /// Whether so many bytes from an offset on are there.
    #[inline]
    pub(crate) fn has(&self, offset: usize, bytes: usize) -> bool {
        match &self.mapped {
            None => offset < self.bytes && bytes <= self.bytes - offset,
            Some(mapped) => mapped.has(offset, bytes),
        }
    }
}
