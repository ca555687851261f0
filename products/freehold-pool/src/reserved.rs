//! The address space of a pool, and the system calls on it.
#![expect(unsafe_code, reason = "maps, protects, clears and lends out memory")]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use std::{io, slice, thread};

use freehold_host::Stretch;
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous,
    mprotect, msync, munmap,
};

use crate::Image;

/// How often a range is reserved again that the kernel has no mapping for at the moment, and the
/// time in between: a few tens of ms in all.
const RESERVE_TRIES: usize = 256;
const RESERVE_PAUSE: Duration = Duration::from_micros(50);

/// The size of the machine's pages, in bytes.
pub(crate) fn page_bytes() -> usize {
    // By the C library, which answers under valgrind, too.
    // SAFETY: Reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every machine has pages")
}

/// A stretch of address space of which nothing is accessible at first. All pages of it are private
/// memory, zero or of an image where they were not touched since they were last discarded.
///
/// Ranges are offsets in bytes, made of whole pages; a range beyond the end is a panic.
#[derive(Debug)]
pub(crate) struct Reserved {
    base: NonNull<u8>,
    bytes: usize,
    /// Whether others may have a part of it: see [`Left::Lost`].
    has_lost: AtomicBool,
}

/// A mapping over a range that the kernel refused.
#[derive(Debug)]
pub(crate) struct NotMapped {
    pub(crate) source: io::Error,
    pub(crate) left: Left,
}

/// What a refused mapping has left of a range: kernels may unmap what was there before they refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// What was there, since all of it is mapped. Had the kernel unmapped it, and other threads
    /// mapped all of it since, that would be theirs: nothing tells one from the other.
    Same,
    /// Nothing: it is inaccessible, and reads as zero once it is accessible.
    Empty,
    /// Mappings of others, perhaps. It must never be touched again.
    Lost,
}

// SAFETY: The mapping belongs to the process, not to a thread. Safe code of this type never reads
// or writes the memory, and callers of the unsafe methods answer for what they reach.
unsafe impl Send for Reserved {}
// SAFETY: As for `Send`. The system calls may run at the same time.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Reserves so many bytes, made of pages.
    ///
    /// # Errors
    ///
    /// That of `mmap(2)`.
    pub(crate) fn new(bytes: usize) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: Without an address of ours the kernel picks an unused one, so that the new
        // mapping replaces nothing.
        let base = unsafe { mmap_anonymous(null_mut(), bytes, ProtFlags::empty(), flags) }?;
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Reserved { base, bytes, has_lost: AtomicBool::new(false) })
    }

    /// Where an offset is in memory.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset <= self.bytes, "{offset} is beyond {} bytes", self.bytes);
        // SAFETY: Within the mapping, or just behind it.
        unsafe { self.base.add(offset) }
    }

    fn start(&self, range: &Range<usize>) -> *mut c_void {
        assert!(range.start <= range.end && range.end <= self.bytes, "{range:?}");
        self.at(range.start).as_ptr().cast()
    }

    /// Makes a range readable and writable.
    ///
    /// # Errors
    ///
    /// That of `mprotect(2)`: `ENOMEM` beyond `vm.max_map_count`.
    pub(crate) fn open(&self, range: Range<usize>) -> io::Result<()> {
        let flags = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: The range is ours, and becoming accessible harms no reference.
        unsafe { mprotect(self.start(&range), range.len(), flags) }.map_err(io::Error::from)
    }

    /// Makes a range inaccessible. Its content stays.
    ///
    /// # Errors
    ///
    /// As for [`Reserved::open`].
    ///
    /// # Safety
    ///
    /// There is no reference into the range.
    pub(crate) unsafe fn close(&self, range: Range<usize>) -> io::Result<()> {
        // SAFETY: The range is ours, and nothing uses it, as the caller promises.
        unsafe { mprotect(self.start(&range), range.len(), MprotectFlags::empty()) }
            .map_err(io::Error::from)
    }

    /// Clears a range, which is accessible, by writing to it.
    ///
    /// # Safety
    ///
    /// The range is accessible, and there is no other reference into it.
    pub(crate) unsafe fn clear(&self, range: Range<usize>) {
        let start: *mut u8 = self.start(&range).cast();
        // SAFETY: The range is in the mapping, and writable and ours, as the caller promises.
        unsafe { start.write_bytes(0, range.len()) };
    }

    /// The bytes of a range.
    ///
    /// # Safety
    ///
    /// The range is accessible, and stays so for `'a`; meanwhile nothing writes to it.
    pub(crate) unsafe fn bytes<'a>(&self, range: Range<usize>) -> &'a [u8] {
        let start: *const u8 = self.start(&range).cast_const().cast();
        // SAFETY: The range is in the mapping and accessible; its pages are initialised.
        unsafe { slice::from_raw_parts(start, range.len()) }
    }

    /// The bytes of a range.
    ///
    /// # Safety
    ///
    /// As for [`Reserved::bytes`], and nothing else reads it.
    pub(crate) unsafe fn bytes_mut<'a>(&self, range: Range<usize>) -> &'a mut [u8] {
        let start: *mut u8 = self.start(&range).cast();
        // SAFETY: As in `bytes`, and nothing else has it.
        unsafe { slice::from_raw_parts_mut(start, range.len()) }
    }

    /// Discards a range: it reads as zero from now on, or as its image. Returns whether the kernel
    /// did so, which refuses if the memory is locked.
    ///
    /// # Safety
    ///
    /// There is no reference into the range.
    pub(crate) unsafe fn discard(&self, range: Range<usize>) -> bool {
        // SAFETY: The range is ours, and nothing uses it, as the caller promises.
        unsafe { madvise(self.start(&range), range.len(), Advice::LinuxDontNeed) }.is_ok()
    }

    /// Maps a range anew: it reads as zero, at once if `open`, or once it is made accessible.
    ///
    /// # Errors
    ///
    /// That of `mmap(2)`, and what it has left.
    ///
    /// # Safety
    ///
    /// There is no reference into the range.
    pub(crate) unsafe fn replace(&self, range: Range<usize>, open: bool) -> Result<(), NotMapped> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let access = if open { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::empty() };
        // SAFETY: A part of our own mapping, which nothing uses, gives way to one of the same kind.
        let mapped = unsafe { mmap_anonymous(self.start(&range), range.len(), access, flags) };
        mapped.map(drop).map_err(|errno| self.after(&range, errno))
    }

    /// Maps a range anew, inaccessible, as [`Reserved::replace`] does; also in a process that has
    /// one mapping more than it may have: kernels allow that one, and then refuse to replace any.
    ///
    /// # Errors
    ///
    /// As for [`Reserved::replace`].
    ///
    /// # Safety
    ///
    /// As for [`Reserved::replace`].
    pub(crate) unsafe fn close_anew(&self, range: Range<usize>) -> Result<(), NotMapped> {
        // SAFETY: As the caller promises.
        match unsafe { self.replace(range.clone(), false) } {
            Err(NotMapped { left: Left::Same, source })
                if source.kind() == io::ErrorKind::OutOfMemory =>
            {
                let start = self.start(&range);
                // SAFETY: A part of our own mapping, which nothing uses.
                let left = match unsafe { munmap(start, range.len()) } {
                    Err(_) => Left::Same,
                    // Another thread may be faster, and the range its own.
                    Ok(()) => self.reserve_again(start, range.len()),
                };
                // Relaxed: as in `after`.
                self.has_lost.fetch_or(left == Left::Lost, Relaxed);
                if left == Left::Empty { Ok(()) } else { Err(NotMapped { source, left }) }
            }
            done => done,
        }
    }

    /// Maps an image over a range of its size, copy-on-write, readable and writable.
    ///
    /// # Errors
    ///
    /// That of `mmap(2)`: `ENOMEM` beyond `vm.max_map_count`; and what it has left.
    ///
    /// # Safety
    ///
    /// There is no reference into the range.
    pub(crate) unsafe fn map_image(
        &self,
        range: Range<usize>,
        image: &Image,
    ) -> Result<(), NotMapped> {
        assert_eq!(range.len(), image.range().len());
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (file, at) = image.file();
        // SAFETY: A part of our own mapping, which nothing uses, gives way to a private one.
        let mapped = unsafe { mmap(self.start(&range), range.len(), access, flags, file, at) };
        mapped.map(drop).map_err(|errno| self.after(&range, errno))
    }

    /// What a mapping over a range has left that was refused.
    #[cold]
    fn after(&self, range: &Range<usize>, errno: Errno) -> NotMapped {
        let start = self.start(range);
        // SAFETY: Asks whether all of it is mapped, and changes nothing.
        let left = match unsafe { msync(start, range.len(), MsyncFlags::ASYNC) } {
            Ok(()) => Left::Same,
            Err(_) => self.reserve_again(start, range.len()),
        };
        // Relaxed: who drops this value comes after all that use it.
        self.has_lost.fetch_or(left == Left::Lost, Relaxed);
        NotMapped { source: errno.into(), left }
    }

    /// Reserves a range that was unmapped, unless another thread has got a part of it meanwhile.
    fn reserve_again(&self, start: *mut c_void, bytes: usize) -> Left {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        for _ in 0..RESERVE_TRIES {
            // SAFETY: The new mapping replaces nothing.
            match unsafe { mmap_anonymous(start, bytes, ProtFlags::empty(), flags) } {
                Ok(found) if found == start => return Left::Empty,
                Ok(elsewhere) => {
                    // To kernels before Linux 4.17 the address is a hint.
                    // SAFETY: Just mapped, and used by nothing.
                    let _stays = unsafe { munmap(elsewhere, bytes) };
                    return Left::Lost;
                }
                // The addresses are free; another thread has taken the mapping that was given up.
                // Short of mappings as well, it will soon give some back.
                Err(Errno::NOMEM) => thread::sleep(RESERVE_PAUSE),
                Err(_) => return Left::Lost,
            }
        }
        Left::Lost
    }

    /// Fills a range, which is accessible, with the first of these bytes.
    ///
    /// # Safety
    ///
    /// As for [`Reserved::clear`].
    pub(crate) unsafe fn copy(&self, range: Range<usize>, from: &[u8]) {
        let start: *mut u8 = self.start(&range).cast();
        // SAFETY: The range is in the mapping, and writable and ours, as the caller promises.
        unsafe { start.copy_from_nonoverlapping(from[..range.len()].as_ptr(), range.len()) };
    }

    /// A range, to be discarded together with others.
    pub(crate) fn stretch(&self, range: &Range<usize>) -> Stretch {
        let start = NonNull::new(self.start(range).cast()).expect("in the mapping");
        Stretch::new(start, range.len())
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if *self.has_lost.get_mut() {
            return;
        }
        // SAFETY: All of it is ours, and those who had a part of it have borrowed this value.
        let unmapped = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
        // A machine that is out of memory may refuse: then the addresses stay in use.
        debug_assert_ne!(unmapped, Err(Errno::INVAL), "no mapping of ours");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::in_child;

    /// What a kernel does that unmaps a range before it refuses.
    fn unmap(reserved: &Reserved, range: &Range<usize>) {
        // SAFETY: Of the test's own, and without references.
        unsafe { munmap(reserved.start(range), range.len()) }.unwrap();
    }

    /// In a child: no other thread gets what is not mapped.
    #[test]
    fn a_range_that_a_refused_mapping_has_unmapped_is_reserved_again_or_left_alone() {
        in_child(refuse_and_look).unwrap();
    }

    fn refuse_and_look() {
        let page = page_bytes();
        let reserved = Reserved::new(4 * page).unwrap();
        let range = page..3 * page;
        let after = || reserved.after(&range, Errno::NOMEM).left;
        assert_eq!(after(), Left::Same);
        unmap(&reserved, &range);
        assert_eq!(after(), Left::Empty);
        reserved.open(range.clone()).unwrap();
        unmap(&reserved, &range);
        // Another thread gets half of it.
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let there = reserved.start(&(2 * page..3 * page));
        // SAFETY: Replaces nothing.
        let other =
            unsafe { mmap_anonymous(there, page, access, flags | MapFlags::FIXED_NOREPLACE) };
        let other: *mut u8 = other.unwrap().cast();
        // SAFETY: The other's page, here and below.
        unsafe { other.write(7) };
        assert_eq!(after(), Left::Lost);
        drop(reserved);
        // SAFETY: As above; were it unmapped, this would fault.
        assert_eq!(unsafe { other.read() }, 7);
    }

    #[test]
    fn a_discarded_range_reads_as_zero() {
        let page = page_bytes();
        let reserved = Reserved::new(4 * page).unwrap();
        reserved.open(0..4 * page).unwrap();
        // SAFETY: Accessible, and of no other owner.
        unsafe { reserved.bytes_mut(0..4 * page) }.fill(7);
        // SAFETY: No reference lives.
        assert!(unsafe { reserved.discard(page..2 * page) });
        // SAFETY: As above.
        unsafe { reserved.clear(2 * page..3 * page) };
        // SAFETY: As above.
        unsafe { reserved.replace(3 * page..4 * page, false) }.unwrap();
        reserved.open(3 * page..4 * page).unwrap();
        // SAFETY: Accessible, and nothing writes.
        let bytes = unsafe { reserved.bytes(0..4 * page) };
        let sums: Vec<usize> =
            bytes.chunks(page).map(|page| page.iter().map(|byte| *byte as usize).sum()).collect();
        assert_eq!(sums, [7 * page, 0, 0, 0]);
    }
}
