//! Images: what slots contain after a reset, in place of zeroes.
#![expect(unsafe_code, reason = "maps images")]

use core::ffi::c_void;
use core::ptr::null_mut;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::{fmt, io};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::PoolError;
use crate::reserved::page_bytes;

/// What a slot contains at first, and again after each reset: the initial memory of a module. Slots
/// of [`Pool::take_with`](crate::Pool::take_with) map it copy-on-write, so that they share its
/// pages until they write to them.
///
/// Clones are the same image; two that were built from the same bytes are not. Its memory, and a
/// file descriptor, are given back when the last clone is dropped and no slot has it any more: a
/// slot has it until it is taken with another image, or without.
#[derive(Clone)]
pub struct Image(Arc<Mapped>);

struct Mapped {
    file: OwnedFd,
    /// Where in the file the image begins.
    file_offset: u64,
    /// Where in a slot it is: whole pages.
    range: Range<usize>,
    /// All of it, mapped for reading.
    content: *mut c_void,
}

// SAFETY: The mapping belongs to the process, not to a thread.
unsafe impl Send for Mapped {}
// SAFETY: As for `Send`. It is only read.
unsafe impl Sync for Mapped {}

impl Image {
    /// An image of these bytes, which begins so many bytes from the start of a slot. The rest of
    /// its last page is zero. The bytes are copied, to memory of their own (`memfd_create(2)`).
    ///
    /// # Errors
    ///
    /// [`PoolError::BadImage`] if there are no bytes, or the offset is not made of pages of the
    /// machine; [`PoolError::NewImage`] if the operating system refuses.
    pub fn new(offset: usize, bytes: &[u8]) -> Result<Self, PoolError> {
        let range = range_in_slot(offset, bytes.len())?;
        let new = |source| PoolError::NewImage { bytes: bytes.len(), source };
        let file = sealed_file(bytes, range.len()).map_err(new)?;
        // SAFETY: The file is sealed.
        unsafe { Self::map(file, 0, range) }.map_err(new)
    }

    /// An image of a part of a file, of whole pages of the machine, which begins so many bytes from
    /// the start of a slot. If the file ends within the last page, the rest of it is zero. Nothing
    /// is copied.
    ///
    /// # Errors
    ///
    /// [`PoolError::BadImage`] if the part is empty or ends beyond the file, or a bound of it or
    /// the offset is not made of pages; [`PoolError::NewImage`] if the operating system refuses: a
    /// file must be open for reading, and on a file system that can map it.
    ///
    /// # Safety
    ///
    /// That part of the file must not change, and the file not become shorter, until the last clone
    /// of the image and all pools with slots that had it are dropped.
    pub unsafe fn from_file(
        offset: usize,
        file: impl AsFd,
        part: Range<u64>,
    ) -> Result<Self, PoolError> {
        let page = page_bytes() as u64;
        let bad = |reason| Err(PoolError::BadImage { reason });
        if !part.start.is_multiple_of(page) || !part.end.is_multiple_of(page) {
            return bad(format!("{part:?} of a file does not begin and end at pages of {page}"));
        }
        let bytes = usize::try_from(part.end.saturating_sub(part.start)).unwrap_or(usize::MAX);
        let range = range_in_slot(offset, bytes)?;
        let new = |source: io::Error| PoolError::NewImage { bytes, source };
        let size = fstat(&file).map_err(|errno| new(errno.into()))?.st_size as u64;
        if part.end > size.next_multiple_of(page) {
            return bad(format!("{part:?} ends beyond a file of {size} bytes"));
        }
        let file = file.as_fd().try_clone_to_owned().map_err(new)?;
        // SAFETY: As the caller promises.
        unsafe { Self::map(file, part.start, range) }.map_err(new)
    }

    /// # Safety
    ///
    /// The file does not change while the image exists.
    unsafe fn map(file: OwnedFd, file_offset: u64, range: Range<usize>) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE;
        // SAFETY: Without an address of ours the kernel picks an unused one.
        let content =
            unsafe { mmap(null_mut(), range.len(), ProtFlags::READ, flags, &file, file_offset) }?;
        Ok(Image(Arc::new(Mapped { file, file_offset, range, content })))
    }

    /// Where in a slot the image is, in bytes, made of pages.
    pub fn range(&self) -> Range<usize> {
        self.0.range.clone()
    }

    /// Whether both are clones of one image.
    pub(crate) fn is(&self, other: &Image) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The file behind the image, and where in it the image begins.
    pub(crate) fn file(&self) -> (BorrowedFd<'_>, u64) {
        (self.0.file.as_fd(), self.0.file_offset)
    }

    /// All of the image.
    pub(crate) fn bytes(&self) -> &[u8] {
        let Mapped { content, range, .. } = &*self.0;
        // SAFETY: So much is mapped for reading, and does not change.
        unsafe { core::slice::from_raw_parts(content.cast(), range.len()) }
    }
}

/// Where an image of so many bytes is in a slot.
fn range_in_slot(offset: usize, bytes: usize) -> Result<Range<usize>, PoolError> {
    let page = page_bytes();
    let bad = |reason| Err(PoolError::BadImage { reason });
    if bytes == 0 {
        return bad("it has no bytes: take slots without an image".to_owned());
    }
    if !offset.is_multiple_of(page) {
        return bad(format!("its offset {offset} is not made of pages of {page} bytes"));
    }
    let end = offset.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(page));
    let Some(end) = end.filter(|&end| isize::try_from(end).is_ok()) else {
        return bad(format!("{bytes} bytes at {offset} end beyond all addresses"));
    };
    Ok(offset..end)
}

/// A file in memory with these bytes, followed by zeroes, which nothing can change.
fn sealed_file(bytes: &[u8], file_bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("freehold-image", flags)?);
    ftruncate(&file, file_bytes as u64)?;
    file.write_all_at(bytes, 0)?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    fcntl_add_seals(&file, seals)?;
    Ok(file.into())
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("range", &self.0.range).finish_non_exhaustive()
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: The mapping is ours, and those who read it have borrowed this value.
        let unmapped = unsafe { munmap(self.content, self.range.len()) };
        // A machine that is out of memory may refuse: then the addresses stay in use.
        debug_assert_ne!(unmapped, Err(Errno::INVAL), "no mapping of ours");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: usize) -> File {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at / page_bytes()) as u8 + 1).collect();
        file.write_all(&content).unwrap();
        file
    }

    #[test]
    fn a_part_of_a_file_is_an_image() {
        let page = page_bytes();
        let file = file(3 * page + 1);
        // SAFETY: Nothing changes the file.
        let image = unsafe { Image::from_file(page, &file, page as u64..4 * page as u64) };
        let image = image.unwrap();
        drop(file);
        assert_eq!(image.range(), page..4 * page);
        let first: Vec<u8> = image.bytes().chunks(page).map(|page| page[0]).collect();
        assert_eq!((first, image.bytes()[2 * page + 1]), (vec![2, 3, 4], 0));

        let pool = crate::Pool::builder().slots(1).slot_bytes(4 * page).build().unwrap();
        for round in 0..3 {
            let mut slot = pool.take_with(None, &image).unwrap();
            assert_eq!(slot.bytes()[..page], vec![0; page], "round {round}");
            assert_eq!(slot.bytes()[page..], *image.bytes(), "round {round}");
            slot.bytes_mut().fill(9);
        }
    }

    #[test]
    fn parts_that_are_no_image_are_named() {
        let page = page_bytes() as u64;
        let file = file(2 * page as usize);
        for (part, expected) in [
            (1..page, "does not begin and end at pages"),
            (0..page + 1, "does not begin and end at pages"),
            (page..page, "it has no bytes"),
            (page..3 * page, "ends beyond a file of"),
        ] {
            // SAFETY: Nothing changes the file.
            let message = unsafe { Image::from_file(0, &file, part) }.unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
        }
        let directory = File::open("/").unwrap();
        // SAFETY: It cannot be mapped.
        let error = unsafe { Image::from_file(0, &directory, 0..page) }.unwrap_err();
        assert!(
            matches!(error, PoolError::NewImage { .. } | PoolError::BadImage { .. }),
            "{error}"
        );
    }

    #[test]
    fn nothing_can_change_an_image_of_bytes() {
        let image = Image::new(0, b"hello").unwrap();
        let file = File::from(image.file().0.try_clone_to_owned().unwrap());
        assert!(file.write_all_at(b"other", 0).is_err());
        assert!(file.set_len(0).is_err());
        assert_eq!(image.bytes()[..5], *b"hello");
    }
}
