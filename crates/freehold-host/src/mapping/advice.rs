//! What the machine does with mapped memory: which pages back it, when it is taken and given back.
#![expect(unsafe_code, reason = "advises, locks and discards mapped memory")]

use core::ffi::{c_int, c_long, c_ulong, c_void};
use core::ptr::NonNull;
use std::io;

use rustix::mm::{Advice, MlockFlags, madvise, mlock_with};

use super::discard::{Stretch, discard_stretches};
use super::{Kind, Mapping};
use crate::HostError;

/// How memory is placed on nodes: Linux's policies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placing {
    Prefer,
    Bind,
    Interleave,
}

impl Mapping {
    fn advise(&self, part: Part, advice: Advice, name: &'static str) -> Result<(), HostError> {
        // SAFETY: The part lies in the mapping. Advice that changes its content is given by
        // `discard` and `discard_lazily`, whose callers vouch for it, and by `wipe_on_fork`, whose
        // caller vouches for the children.
        unsafe { madvise(part.start, part.bytes, advice) }
            .map_err(|errno| HostError::Advise { advice: name, source: errno.into() })
    }

    /// Asks for huge pages wherever the memory of a part is first touched from now on.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel was built without transparent huge pages.
    pub(crate) fn advise_huge_pages(&self, offset: usize, bytes: usize) -> Result<(), HostError> {
        self.advise(self.part(offset, bytes), Advice::LinuxHugepage, "huge pages")
    }

    /// Has the children of a fork find zeroes here, in place of a copy.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] from kernels before Linux 4.14.
    ///
    /// # Safety
    ///
    /// Zero bytes are valid there for whatever a child finds there, in any state that a thread of
    /// the parent may have left it in.
    pub(crate) unsafe fn wipe_on_fork(&self) -> Result<(), HostError> {
        self.advise(self.part(0, self.bytes()), Advice::LinuxWipeOnFork, "to wipe on fork")
    }

    /// Takes memory from the machine for a part, now. Content stays as it is.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the machine has not enough, or from kernels before Linux 5.14.
    pub(crate) fn populate(&self, offset: usize, bytes: usize) -> Result<(), HostError> {
        self.advise(self.part(offset, bytes), Advice::LinuxPopulateWrite, "to prefault memory")
    }

    /// Keeps pages of a part in memory once they are touched: they are not swapped out.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] beyond the limit of locked memory (`ulimit -l`).
    pub(crate) fn lock(&self, offset: usize, bytes: usize) -> Result<(), HostError> {
        let part = self.part(offset, bytes);
        // SAFETY: The mapping is ours, and locking does not change its content.
        unsafe { mlock_with(part.start, part.bytes, MlockFlags::ONFAULT) }
            .map_err(|errno| HostError::Advise { advice: "to lock memory", source: errno.into() })
    }

    /// Gives the memory of a part back to the machine: of a shared mapping, what lies behind it.
    /// The part stays mapped and reads as zero.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is locked, the file system cannot
    /// punch holes, or the part is not made of whole pages, [huge](Mapping::huge_page_bytes) ones
    /// of memory that is made of them.
    ///
    /// # Panics
    ///
    /// If the part ends beyond the mapping.
    ///
    /// # Safety
    ///
    /// Other code that uses the memory of the part during the call does so by atomic accesses, and
    /// expects them to find zero; and there is no reference to other content of it.
    pub(crate) unsafe fn discard(&self, offset: usize, bytes: usize) -> Result<(), HostError> {
        let advice = match self.kind {
            Kind::Private | Kind::Huge(_) => Advice::LinuxDontNeed,
            Kind::Shared => Advice::LinuxRemove,
        };
        self.advise(self.part(offset, bytes), advice, "to take memory back")
    }

    /// Lets the machine take the memory of a part when it needs some, unless the part has been
    /// written again by then. Until it does, the content may stay, or be zero.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses: the memory is shared or locked, or of huge
    /// pages.
    ///
    /// # Panics
    ///
    /// If the part ends beyond the mapping.
    ///
    /// # Safety
    ///
    /// As for [`Mapping::discard`].
    pub(crate) unsafe fn discard_lazily(
        &self,
        offset: usize,
        bytes: usize,
    ) -> Result<(), HostError> {
        let advice = "to take memory back when it needs some";
        self.advise(self.part(offset, bytes), Advice::LinuxFree, advice)
    }

    /// [`Mapping::discard`] of several parts, of private memory by one system call if `at_once` and
    /// the kernel has it ([`discard_stretches`]). Returns the number of calls.
    ///
    /// # Errors
    ///
    /// As for [`Mapping::discard`]. Some parts may have been discarded then.
    ///
    /// # Panics
    ///
    /// If a part ends beyond the mapping, or there are more than 64.
    ///
    /// # Safety
    ///
    /// As for [`Mapping::discard`].
    pub(crate) unsafe fn discard_parts(
        &self,
        parts: &[(usize, usize)],
        at_once: bool,
    ) -> Result<u64, HostError> {
        const PARTS_MAX: usize = 64;
        assert!(parts.len() <= PARTS_MAX, "{} parts at once", parts.len());
        if self.kind != Kind::Private {
            for &(offset, bytes) in parts {
                // SAFETY: As the caller promises.
                unsafe { self.discard(offset, bytes) }?;
            }
            return Ok(parts.len() as u64);
        }
        let mut stretches = [Stretch::EMPTY; PARTS_MAX];
        for (stretch, &(offset, bytes)) in stretches.iter_mut().zip(parts) {
            let start = self.part(offset, bytes).start.cast();
            *stretch = Stretch::new(NonNull::new(start).expect("in the mapping"), bytes);
        }
        let mut answer = Ok(());
        let refused = |_at, source| {
            answer = Err(HostError::Advise { advice: "to take memory back", source });
        };
        // SAFETY: The parts lie in the mapping, and the caller vouches for their content.
        let calls = unsafe { discard_stretches(&stretches[..parts.len()], at_once, refused) };
        answer.map(|()| calls)
    }

    /// Has a part get its memory from these nodes, whichever CPU touches it.
    ///
    /// # Errors
    ///
    /// What the kernel answers: `ENOSYS` without NUMA, `EPERM` in a sandbox, `EINVAL` if there is
    /// no such node.
    ///
    /// # Panics
    ///
    /// If the part ends beyond the mapping.
    pub(crate) fn place(
        &self,
        offset: usize,
        bytes: usize,
        placing: Placing,
        os_nodes: &[u32],
    ) -> io::Result<()> {
        const WORD_BITS: usize = c_ulong::BITS as usize;
        let part = self.part(offset, bytes);
        let highest = os_nodes.iter().copied().max().unwrap_or(0) as usize;
        let mut nodes: Vec<c_ulong> = vec![0; highest / WORD_BITS + 1];
        for &node in os_nodes {
            nodes[node as usize / WORD_BITS] |= 1 << (node as usize % WORD_BITS);
        }
        // The kernel looks at one bit less than it is told.
        let bits = nodes.len() * WORD_BITS + 1;
        let mode: c_int = match placing {
            Placing::Prefer => libc::MPOL_PREFERRED,
            Placing::Bind => libc::MPOL_BIND,
            Placing::Interleave => libc::MPOL_INTERLEAVE,
        };
        // SAFETY: The part lies in the mapping; the policy changes where its memory comes from,
        // never what it holds. The kernel reads as many words of `nodes` as `bits` says there are.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                part.start,
                part.bytes,
                c_long::from(mode),
                nodes.as_ptr(),
                bits,
                0 as c_long,
            )
        };
        if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    fn part(&self, offset: usize, bytes: usize) -> Part {
        let end = offset.checked_add(bytes).expect("a part that ends beyond all addresses");
        assert!(end <= self.bytes(), "a part that ends beyond the mapping");
        assert!(bytes == 0 || self.has(offset, bytes), "a part that is not mapped yet");
        Part { start: self.base().as_ptr().wrapping_add(offset).cast(), bytes }
    }
}

/// A part of a mapping.
#[derive(Clone, Copy)]
struct Part {
    start: *mut c_void,
    bytes: usize,
}
