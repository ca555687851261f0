//! Anonymous memory from the operating system, unmapped on drop, and copied by a fork.
#![expect(unsafe_code, reason = "maps, advises and unmaps memory, and installs handlers of forks")]

use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::ptr::{NonNull, null_mut};
use std::io;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::HostError;

/// The size of the machine's pages, in bytes: 4096 on most machines, up to 65536 on some. Memory
/// goes back to the machine in whole pages.
pub(crate) fn page_bytes() -> usize {
    // By the C library: under valgrind, what the kernel tells of itself is not where rustix looks.
    // SAFETY: Reads a number.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every machine has pages")
}

/// A stretch of zeroed memory, private to the process, readable and writable.
///
/// It is reserved only: a page of it takes memory from the machine when it is first touched.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// Whether it is unmapped on drop.
    is_owned: bool,
}

// SAFETY: A mapping belongs to the process, not to a thread, and the type itself never reads or
// writes the memory; whoever does so through its pointers answers for it.
unsafe impl Send for Mapping {}
// SAFETY: As for `Send`. The system calls that take a shared mapping may run at the same time.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `bytes`, which are not 0, at a multiple of `align`, a power of two. Both are
    /// rounded up to the machine's pages.
    ///
    /// # Errors
    ///
    /// [`HostError::Map`] if the operating system has no address space left for it.
    pub(crate) fn reserve(bytes: usize, align: usize) -> Result<Self, HostError> {
        assert!(bytes > 0, "an empty mapping");
        assert!(align.is_power_of_two(), "an alignment of {align}");
        let refuse = |source: io::Error| HostError::Map { bytes, source };
        let align = align.max(page_bytes());
        let sizes = bytes
            .checked_next_multiple_of(page_bytes())
            .and_then(|bytes| Some((bytes, bytes.checked_add(align)?)))
            .filter(|(_, padded)| isize::try_from(*padded).is_ok());
        let Some((bytes, padded)) = sizes else {
            return Err(refuse(io::ErrorKind::OutOfMemory.into()));
        };
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: Without an address of ours the kernel picks an unused one, so that the new
        // mapping replaces nothing.
        let start = unsafe {
            mmap_anonymous(null_mut(), padded, ProtFlags::READ | ProtFlags::WRITE, flags)
        }
        .map_err(|errno| refuse(errno.into()))?;
        let head = start.addr().next_multiple_of(align) - start.addr();
        let base = start.wrapping_byte_add(head);
        unmap_unused(start, head);
        unmap_unused(base.wrapping_byte_add(bytes), padded - head - bytes);
        let base = NonNull::new(base.cast()).expect("the kernel maps nothing at address 0");
        Ok(Mapping { base, bytes, is_owned: true })
    }

    /// Memory that somebody else has mapped, and unmaps later than this is dropped.
    ///
    /// # Safety
    ///
    /// The memory is mapped, readable and writable, and in nobody else's use as long as this lives.
    pub(crate) unsafe fn borrow(base: NonNull<u8>, bytes: usize) -> Self {
        Mapping { base, bytes, is_owned: false }
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

    /// The address of the byte at `offset`.
    ///
    /// # Panics
    ///
    /// If the mapping ends before it.
    #[inline]
    pub(crate) fn address(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.bytes, "offset {offset:#x} lies beyond the mapping");
        // SAFETY: The offset lies inside the mapping, which is one allocation and smaller than
        // `isize::MAX`, by `reserve`.
        unsafe { self.base.add(offset) }
    }

    /// Asks for huge pages wherever the memory is first touched from now on.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel was built without transparent huge pages.
    pub(crate) fn advise_huge_pages(&self) -> Result<(), HostError> {
        // SAFETY: The advice changes how the memory is backed, never what it holds.
        unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxHugepage) }
            .map_err(|errno| HostError::Advise { advice: "huge pages", source: errno.into() })
    }

    /// Has the children of a fork find zeroes here, in place of a copy.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] from kernels before Linux 4.14.
    pub(crate) fn wipe_on_fork(&self) -> Result<(), HostError> {
        // SAFETY: The advice changes what is there in children to come, and nothing here.
        unsafe { madvise(self.base.as_ptr().cast(), self.bytes, Advice::LinuxWipeOnFork) }
            .map_err(|errno| HostError::Advise { advice: "to wipe on fork", source: errno.into() })
    }

    /// Gives the memory of a part back to the machine. The part stays mapped and reads as zero.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked (`mlockall`), or the part
    /// is not made of whole pages.
    ///
    /// # Panics
    ///
    /// If the part ends beyond the mapping.
    ///
    /// # Safety
    ///
    /// Nobody else uses the memory of the part during the call.
    pub(crate) unsafe fn discard(&self, offset: usize, bytes: usize) -> Result<(), HostError> {
        let start = self.part(offset, bytes);
        // SAFETY: The part lies in the mapping, and the caller vouches that it is nobody else's.
        unsafe { madvise(start, bytes, Advice::LinuxDontNeed) }.map_err(|errno| HostError::Advise {
            advice: "to take memory back",
            source: errno.into(),
        })
    }

    /// Asks that a part gets its memory from one node first, whichever CPU touches it. Where that
    /// node is full, memory comes from another.
    ///
    /// # Errors
    ///
    /// What the kernel answers: `ENOSYS` without NUMA, `EPERM` in a sandbox, `EINVAL` if there is
    /// no such node.
    ///
    /// # Panics
    ///
    /// If the part ends beyond the mapping.
    pub(crate) fn prefer_node(&self, offset: usize, bytes: usize, os_node: u32) -> io::Result<()> {
        const WORD_BITS: usize = c_ulong::BITS as usize;
        let start = self.part(offset, bytes);
        let bit = os_node as usize;
        let mut nodes: Vec<c_ulong> = vec![0; bit / WORD_BITS + 1];
        nodes[bit / WORD_BITS] = 1 << (bit % WORD_BITS);
        // The kernel looks at one bit less than it is told.
        let bits = nodes.len() * WORD_BITS + 1;
        // SAFETY: The part lies in the mapping; the policy changes where its memory comes from,
        // never what it holds. The kernel reads as many words of `nodes` as `bits` says there are.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                start,
                bytes,
                c_long::from(libc::MPOL_PREFERRED as c_int),
                nodes.as_ptr(),
                bits,
                0 as c_long,
            )
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn part(&self, offset: usize, bytes: usize) -> *mut c_void {
        let end = offset.checked_add(bytes).expect("a part that ends beyond all addresses");
        assert!(end <= self.bytes, "a part that ends beyond the mapping");
        self.base.as_ptr().wrapping_add(offset).cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.is_owned {
            unmap_unused(self.base.as_ptr().cast(), self.bytes);
        }
    }
}

/// Has functions called on the thread that forks: `prepare` before, `parent` and `child` after,
/// each in its process. For good: the process's children inherit the handlers.
///
/// # Errors
///
/// `ENOMEM` if there are too many.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: The functions are safe to call, take nothing, and are there as long as this code is:
    // if it is unloaded, so are the handlers (glibc and musl keep them by object, or for ever).
    let answer = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if answer == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(answer)) }
}

/// Unmaps memory that nobody can name any more: private to this file, whose callers own it.
fn unmap_unused(start: *mut c_void, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: The callers pass memory that `reserve` has mapped and that nothing points to: the
    // trimmed ends of a new mapping, or a mapping whose owner is being dropped.
    let unmapped = unsafe { munmap(start, bytes) };
    debug_assert!(unmapped.is_ok(), "munmap: {unmapped:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

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
        if let Err(error) = mapping.prefer_node(0, 2 * MIB, 0) {
            // Kernels without NUMA and sandboxes refuse in general; that is no fault of ours.
            let answer = error.raw_os_error();
            assert!(answer == Some(libc::ENOSYS) || answer == Some(libc::EPERM), "{error}");
        }
        assert!(mapping.prefer_node(2 * MIB, 2 * MIB, 1023).is_err());
    }
}
