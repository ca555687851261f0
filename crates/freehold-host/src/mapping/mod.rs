//! Memory from the operating system, or of the user: mapped, and unmapped on drop.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

use crate::{Backing, HostError};

pub(crate) use advice::Placing;
pub(crate) use at_fork::at_fork;
pub use discard::{Stretch, discard_stretches, discards_at_once};

mod advice;
mod at_fork;
mod discard;
mod mapped;

use mapped::Mapped;

/// The size of the machine's pages, in bytes: 4096 on most machines, up to 65536 on some. Memory
/// goes back to the machine in whole pages.
pub(crate) fn page_bytes() -> usize {
    // By the C library: under valgrind, what the kernel tells of itself is not where rustix looks.
    // SAFETY: Reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every machine has pages")
}

/// A stretch of memory of the process, readable and writable.
///
/// Unless it is of huge pages, it is reserved only: a page of it takes memory from the machine when
/// it is first touched, and then is zero.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    kind: Kind,
    /// The file behind a shared mapping.
    file: Option<Arc<OwnedFd>>,
    owner: Owner,
    is_new_memory: bool,
    /// If it is mapped as it is needed, what of it is there.
    mapped: Option<Mapped>,
}

/// What memory is, as far as it matters for giving it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Private to the process, in the machine's pages.
    Private,
    /// Private to the process, in huge pages of so many bytes.
    Huge(usize),
    /// Shared: of a file, or of anonymous memory.
    Shared,
}

/// Who unmaps a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The mapping itself, with so many bytes of guard pages before and after.
    Us { guard_bytes: usize },
    /// The user who gave it.
    User,
}

// SAFETY: A mapping belongs to the process, not to a thread, and the type itself never reads or
// writes the memory; code that does so through its pointers answers for it.
unsafe impl Send for Mapping {}
// SAFETY: As for `Send`. The system calls that take a shared mapping may run at the same time.
unsafe impl Sync for Mapping {}

/// A stretch of address space that nothing uses yet: it can be neither read nor written. Unmapped
/// on drop, unless memory was put there.
struct Reserved {
    /// The first byte behind the guard.
    start: *mut c_void,
    bytes: usize,
    guard_bytes: usize,
    /// Whether what lies between the guards is no longer reserved: others may have it by now.
    is_vacant: bool,
}

impl Reserved {
    /// Reserves `bytes`, made of pages, at a multiple of `align`, a power of two, with guards
    /// before and after.
    fn new(bytes: usize, align: usize, guard_bytes: usize) -> io::Result<Self> {
        let sizes = (bytes.checked_add(2 * guard_bytes))
            .and_then(|needed| Some((needed, needed.checked_add(align)?)))
            .filter(|(_, padded)| isize::try_from(*padded).is_ok());
        let (needed, padded) = sizes.ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: Without an address of ours the kernel picks an unused one, so that the new
        // mapping replaces nothing.
        let found = unsafe { mmap_anonymous(null_mut(), padded, ProtFlags::empty(), flags) }?;
        let start = (found.addr() + guard_bytes).next_multiple_of(align);
        let head = start - guard_bytes - found.addr();
        unmap_unused(found, head);
        unmap_unused(found.wrapping_byte_add(head + needed), padded - head - needed);
        let start = found.wrapping_byte_add(head + guard_bytes);
        Ok(Reserved { start, bytes, guard_bytes, is_vacant: false })
    }

    /// Hands all of it but the guards out as private memory.
    fn open(self) -> io::Result<Mapping> {
        // SAFETY: The stretch is ours, and nothing points to it.
        unsafe { mprotect(self.start, self.bytes, MprotectFlags::READ | MprotectFlags::WRITE) }?;
        Ok(self.into_mapping(Kind::Private, None))
    }

    /// Maps memory in place of all of it but the guards, and hands it out.
    ///
    /// # Errors
    ///
    /// That of the operating system; `EEXIST` if another thread got some of the addresses.
    fn fill(
        mut self,
        kind: Kind,
        file: Option<Arc<OwnedFd>>,
        flags: MapFlags,
    ) -> io::Result<Mapping> {
        self.vacate()?;
        self.occupy(kind, file, flags)
    }

    /// Unmaps all of it but the guards.
    ///
    /// A mapping over it (`MAP_FIXED`) would do without, but one that fails may have unmapped what
    /// was there, or not: so it could not be told later to whom the addresses belong.
    fn vacate(&mut self) -> io::Result<()> {
        // SAFETY: The stretch is ours, and nothing points to it.
        unsafe { munmap(self.start, self.bytes) }?;
        self.is_vacant = true;
        Ok(())
    }

    /// Maps memory where the stretch was vacated, if nothing is mapped there by now.
    fn occupy(
        self,
        kind: Kind,
        file: Option<Arc<OwnedFd>>,
        flags: MapFlags,
    ) -> io::Result<Mapping> {
        let &Reserved { start, bytes, .. } = &self;
        let (access, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, flags | MapFlags::FIXED_NOREPLACE);
        let filled = match &file {
            // SAFETY: The new mapping replaces nothing.
            Some(file) => unsafe { mmap(start, bytes, access, flags, file, 0) },
            // SAFETY: As above.
            None => unsafe { mmap_anonymous(start, bytes, access, flags) },
        }?;
        if filled != start {
            // To kernels before Linux 4.17 the address is a hint.
            unmap_unused(filled, bytes);
            return Err(Errno::EXIST.into());
        }
        Ok(self.into_mapping(kind, file))
    }

    /// There is memory between the guards now.
    fn into_mapping(self, kind: Kind, file: Option<Arc<OwnedFd>>) -> Mapping {
        let &Reserved { start, bytes, guard_bytes, .. } = &self;
        core::mem::forget(self);
        let base = NonNull::new(start.cast()).expect("the kernel maps nothing at address 0");
        let owner = Owner::Us { guard_bytes };
        Mapping { base, bytes, kind, file, owner, is_new_memory: true, mapped: None }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        let first = self.start.wrapping_byte_sub(self.guard_bytes);
        if self.is_vacant {
            unmap_unused(first, self.guard_bytes);
            unmap_unused(self.start.wrapping_byte_add(self.bytes), self.guard_bytes);
        } else {
            unmap_unused(first, self.bytes + 2 * self.guard_bytes);
        }
    }
}

/// How often a mapping is tried elsewhere, if other threads get the addresses that it was to have.
pub(crate) const PLACES_MAX: usize = 100;

impl Mapping {
    /// Reserves `bytes` of private memory, which are not 0, at a multiple of `align`, a power of
    /// two. Both are rounded up to the machine's pages.
    ///
    /// # Errors
    ///
    /// [`HostError::Map`] if the operating system has no address space left for it.
    pub(crate) fn reserve(bytes: usize, align: usize) -> Result<Self, HostError> {
        Mapping::new(&Backing::Private, bytes, align, false)
    }

    /// Memory as `backing` says, with guard pages before and after if wanted.
    ///
    /// # Errors
    ///
    /// [`HostError::Map`] if the operating system has no address space or no huge pages left for
    /// it; [`HostError::BackingFile`] if the file cannot be created or made large enough;
    /// [`HostError::BadSetting`] for a size of huge pages that is none.
    pub(crate) fn new(
        backing: &Backing,
        bytes: usize,
        align: usize,
        guards: bool,
    ) -> Result<Self, HostError> {
        assert!(bytes > 0, "an empty mapping");
        assert!(align.is_power_of_two(), "an alignment of {align}");
        let refuse = |source: io::Error| HostError::Map { bytes, source };
        let guard_bytes = if guards { page_bytes() } else { 0 };
        let reserve = |page_bytes: usize| {
            let bytes = bytes.checked_next_multiple_of(page_bytes);
            let bytes = bytes.ok_or(io::ErrorKind::OutOfMemory)?;
            Reserved::new(bytes, align.max(page_bytes), guard_bytes)
        };
        let private = || reserve(page_bytes())?.open();
        let fill = |page_bytes, kind, file: Option<&Arc<OwnedFd>>, flags| {
            let mut filled = Err(Errno::EXIST.into());
            for _ in 0..PLACES_MAX {
                filled = reserve(page_bytes)?.fill(kind, file.cloned(), flags);
                if !matches!(&filled, Err(error) if error.kind() == io::ErrorKind::AlreadyExists) {
                    break;
                }
            }
            filled
        };
        let refuse_file = |action| {
            move |errno: Errno| HostError::BackingFile { action, bytes, source: errno.into() }
        };
        let shared = |file: Arc<OwnedFd>| {
            let needed = bytes.checked_next_multiple_of(page_bytes());
            let needed = needed.ok_or(io::ErrorKind::OutOfMemory.into()).map_err(refuse)? as u64;
            let size = fstat(&file).map_err(refuse_file("read the size of"))?.st_size;
            if (size as u64) < needed {
                ftruncate(&file, needed).map_err(refuse_file("enlarge"))?;
            }
            fill(page_bytes(), Kind::Shared, Some(&file), MapFlags::SHARED).map_err(refuse)
        };
        let mapping = match backing {
            Backing::Private => private().map_err(refuse),
            Backing::Memfd => {
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let file = memfd_create("freehold", flags).map_err(refuse_file("create"))?;
                // No process that gets the file takes memory away from under the others.
                fcntl_add_seals(&file, SealFlags::SHRINK).map_err(refuse_file("seal"))?;
                shared(Arc::new(file))
            }
            Backing::File(file) => shared(Arc::clone(file)),
            &Backing::HugeTlb { page_bytes, or_private } => {
                let flags = huge_pages(page_bytes)?;
                let huge = fill(page_bytes, Kind::Huge(page_bytes), None, flags);
                (if huge.is_err() && or_private { private() } else { huge }).map_err(refuse)
            }
        };
        let is_new_memory = !matches!(backing, Backing::File(_));
        let mut mapping = mapping?;
        mapping.is_new_memory = is_new_memory;
        Ok(mapping)
    }

    /// The user's own mapping, which the user unmaps.
    ///
    /// # Safety
    ///
    /// The memory is one allocation of at most `isize::MAX` bytes: mapped, readable, writable and
    /// initialised as long as this value exists.
    pub(crate) unsafe fn of_user(base: NonNull<u8>, bytes: usize, shared: bool) -> Self {
        let kind = if shared { Kind::Shared } else { Kind::Private };
        let (owner, is_new_memory) = (Owner::User, false);
        Mapping { base, bytes, kind, file: None, owner, is_new_memory, mapped: None }
    }

    /// The first byte.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The size in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The file behind it.
    pub(crate) fn file(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(|file| file.as_fd())
    }

    /// Whether it read as zero when it was mapped, since nothing can have been written there.
    pub(crate) fn is_new_memory(&self) -> bool {
        self.is_new_memory
    }

    /// The size of the huge pages that it is made of.
    pub(crate) fn huge_page_bytes(&self) -> Option<usize> {
        match self.kind {
            Kind::Huge(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Has the crate take it for memory in huge pages, of which a machine that runs tests need have
    /// none.
    pub(crate) fn pretend_huge(&mut self, page_bytes: usize) {
        self.kind = Kind::Huge(page_bytes);
    }

    /// The address of the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If the mapping ends before it.
    #[inline]
    pub(crate) fn address(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes, "offset {offset:#x} lies beyond the mapping");
        let address = self.base.as_ptr().wrapping_add(offset);
        // SAFETY: The mapping is smaller than `isize::MAX`, by `Reserved::new` or the promise of
        // the user, and its addresses do not wrap: none of them is 0.
        unsafe { NonNull::new_unchecked(address) }
    }
}

/// The flags of a mapping of huge pages of this size.
fn huge_pages(page_bytes: usize) -> Result<MapFlags, HostError> {
    const SIZE_SHIFT: u32 = 26;
    if !page_bytes.is_power_of_two() || page_bytes < self::page_bytes() {
        let reason = format!("huge pages of {page_bytes} bytes: name a size that the machine has");
        return Err(HostError::BadSetting { setting: "backing", reason });
    }
    let size = MapFlags::from_bits_retain(page_bytes.ilog2() << SIZE_SHIFT);
    Ok(MapFlags::PRIVATE | MapFlags::HUGETLB | size)
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if let Some(mapped) = &self.mapped {
            for (offset, bytes) in mapped.all() {
                unmap_unused(self.base.as_ptr().wrapping_add(offset).cast(), bytes);
            }
        } else if let Owner::Us { guard_bytes } = self.owner {
            let first = self.base.as_ptr().wrapping_byte_sub(guard_bytes);
            unmap_unused(first.cast(), self.bytes + 2 * guard_bytes);
        }
    }
}

/// Unmaps memory to which nothing points any more: private to this file, whose callers own it. What
/// the machine refuses to unmap, being out of memory, stays mapped for good.
fn unmap_unused(start: *mut c_void, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: The callers pass what they have mapped, and what nothing points to: the trimmed ends
    // of a new mapping, one at the wrong place, or one whose owner is being dropped.
    let unmapped = unsafe { munmap(start, bytes) };
    debug_assert_ne!(unmapped, Err(Errno::INVAL), "no mapping of ours");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::in_child;

    const MIB: usize = 1 << 20;

    #[test]
    fn memory_is_aligned_zeroed_and_discarded() {
        let mapping = Mapping::reserve(6 * MIB, 2 * MIB).unwrap();
        assert_eq!(mapping.bytes(), 6 * MIB);
        assert_eq!(mapping.base().as_ptr().addr() % (2 * MIB), 0);
        let last = mapping.address(6 * MIB - 1);
        // SAFETY: The byte lies in the mapping, which this test alone uses.
        assert_eq!(unsafe { last.read() }, 0);
        // SAFETY: As above.
        unsafe { last.write(7) };
        // SAFETY: As above: no other user.
        unsafe { mapping.discard(4 * MIB, 2 * MIB) }.unwrap();
        // SAFETY: As above.
        assert_eq!(unsafe { last.read() }, 0);
    }

    /// In a child, whose only thread it is: no real other one gets the addresses first.
    #[test]
    fn addresses_that_another_thread_got_meanwhile_stay_with_it() {
        in_child(map_what_is_vacant).unwrap();
    }

    fn map_what_is_vacant() {
        let page = page_bytes();
        let mut reserved = Reserved::new(4 * page, page, page).unwrap();
        let start = reserved.start;
        reserved.vacate().unwrap();
        // What a thread does that calls `mmap` at this moment.
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let there = start.wrapping_byte_add(page);
        // SAFETY: Replaces nothing.
        let other =
            unsafe { mmap_anonymous(there, page, access, flags | MapFlags::FIXED_NOREPLACE) };
        assert_eq!(other, Ok(there));
        let other: *mut u8 = there.cast();
        // SAFETY: The page is this test's, here and below.
        unsafe { other.write(7) };
        let filled = reserved.occupy(Kind::Private, None, flags);
        assert_eq!(filled.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        // SAFETY: As above; were it unmapped, this would fault.
        assert_eq!(unsafe { other.read() }, 7);
        unmap_unused(there, page);
    }

    #[test]
    #[should_panic(expected = "beyond the mapping")]
    fn an_address_beyond_the_end_panics() {
        Mapping::reserve(MIB, 4096).unwrap().address(MIB);
    }

    #[test]
    fn more_than_the_address_space_is_refused() {
        for bytes in [usize::MAX - 4095, 1 << 62] {
            let error = Mapping::reserve(bytes, 2 * MIB).unwrap_err();
            assert!(matches!(error, HostError::Map { .. }), "{error}");
        }
    }

    #[test]
    fn node_0_may_be_preferred_and_a_missing_one_not() {
        let mapping = Mapping::reserve(4 * MIB, 2 * MIB).unwrap();
        if let Err(error) = mapping.place(0, 2 * MIB, Placing::Prefer, &[0]) {
            // Kernels without NUMA and sandboxes refuse in general; that is no fault of ours.
            let answer = error.raw_os_error();
            assert!(answer == Some(libc::ENOSYS) || answer == Some(libc::EPERM), "{error}");
        }
        assert!(mapping.place(2 * MIB, 2 * MIB, Placing::Prefer, &[1023]).is_err());
    }
}
