//! What is passed in structs.
//!
//! Each begins with its own size, as the program was compiled with, and zero is the default of
//! every field. So a struct may grow: a library takes what an older program leaves out as zero, and
//! refuses what a newer one has beyond, unless that is zero.
#![expect(unsafe_code, reason = "reads and writes as much of a struct as the program has")]

use core::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use freehold::{MigrateType, NodeId, Order, RangeRequest, Request, Watermark};

use crate::error::freehold_error::*;
use crate::error::{Result, explain};
use crate::options::freehold_options;

/// In freehold_request.flags: waits for no other call, takes no lease. For signal handlers.
pub const FREEHOLD_NOWAIT: u32 = 1;
/// In freehold_request.flags: prefers `node`.
pub const FREEHOLD_PREFER_NODE: u32 = 2;
/// In freehold_request.flags: memory of `node`, or none.
pub const FREEHOLD_ONLY_NODE: u32 = 4;

/// In freehold_request.migratetype: content like that of most allocations. The default.
pub const FREEHOLD_MOVABLE: u32 = 0;
/// In freehold_request.migratetype: content that stays for long. It is kept together, so that it
/// does not break up the rest.
pub const FREEHOLD_UNMOVABLE: u32 = 1;
/// In freehold_request.migratetype: content that is dropped when memory is short.
pub const FREEHOLD_RECLAIMABLE: u32 = 2;

/// In freehold_request.watermark: the ordinary reserve stays free. The default.
pub const FREEHOLD_WATERMARK_MIN: u32 = 0;
/// In freehold_request.watermark: more stays free.
pub const FREEHOLD_WATERMARK_LOW: u32 = 1;
/// In freehold_request.watermark: still more stays free.
pub const FREEHOLD_WATERMARK_HIGH: u32 = 2;
/// In freehold_request.watermark: all of memory, for work that frees memory.
pub const FREEHOLD_WATERMARK_NONE: u32 = 3;

/// How memory is to be chosen. Set `size` to sizeof(freehold_request) and the rest to 0, then what
/// you need. NULL in place of one is all defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct freehold_request {
    /// sizeof(freehold_request).
    pub size: usize,
    /// FREEHOLD_NOWAIT, FREEHOLD_PREFER_NODE, FREEHOLD_ONLY_NODE.
    pub flags: u32,
    /// The number of a node of the arena, from 0; with one of the two flags for it.
    pub node: u32,
    /// FREEHOLD_MOVABLE and so on. Ranges are always unmovable.
    pub migratetype: u32,
    /// FREEHOLD_WATERMARK_MIN and so on.
    pub watermark: u32,
}

/// The state of an arena: frames, unless the name says otherwise. Exact if no call is under way.
/// Set `size` to sizeof(freehold_stats).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct freehold_stats {
    /// sizeof(freehold_stats).
    pub size: usize,
    /// The size of a frame.
    pub frame_bytes: u64,
    /// The address space of the arena.
    pub capacity_bytes: u64,
    /// The address space of the allocator's books.
    pub metadata_bytes: u64,
    /// All frames, free or not.
    pub managed: u64,
    /// Of these, allocated now.
    pub allocated: u64,
    /// Free, and in no CPU's cache.
    pub free: u64,
    /// Free, in caches of CPUs.
    pub per_cpu: u64,
    /// Free, but in pageblocks that are being emptied.
    pub isolated: u64,
    /// Allocated since the arena was made.
    pub allocated_total: u64,
    /// Freed since then.
    pub freed_total: u64,
    /// How often a cache was refilled.
    pub refills: u64,
    /// How often a cache was drained.
    pub drains: u64,
    /// Ranges allocated since then.
    pub ranges: u64,
    /// Double frees that raced and were found too late to be refused.
    pub double_frees_late: u64,
    /// Given back to the machine by purges since then.
    pub purged_total: u64,
    /// How many threads more can have an automatic lease.
    pub spare_leases: u64,
}

/// Where all frames are, as freehold_validate finds them. Set `size` to sizeof(freehold_census).
#[repr(C)]
#[derive(Clone, Copy)]
pub struct freehold_census {
    /// sizeof(freehold_census).
    pub size: usize,
    /// All frames.
    pub managed: u64,
    /// Allocated.
    pub allocated: u64,
    /// Free, and in no CPU's cache.
    pub free: u64,
    /// Free, in caches of CPUs.
    pub per_cpu: u64,
    /// Free, in pageblocks that are being emptied.
    pub isolated: u64,
}

/// Structs of integers that begin with their size, a `usize`.
///
/// # Safety
///
/// The struct is `repr(C)`, and any bytes are a value of it. One that is [`read`] has no padding.
pub(crate) unsafe trait Versioned: Copy {}

// SAFETY: Six words, then eight halves: no padding on machines with words of 32 or 64 bits.
unsafe impl Versioned for freehold_options {}
// SAFETY: A word and four halves.
unsafe impl Versioned for freehold_request {}
// SAFETY: Of 64-bit words alone where a word is that; what would be padding elsewhere is not read.
unsafe impl Versioned for freehold_stats {}
// SAFETY: As above.
unsafe impl Versioned for freehold_census {}

/// Sizes beyond this are no sizes, but memory that was not initialised.
const SIZE_MAX: usize = 4096;

/// The size that a struct says to have.
///
/// # Safety
///
/// The pointer is NULL, or to a struct with its size in its first word.
unsafe fn size_of_at<T>(from: *const T) -> Result<usize> {
    if from.is_null() {
        return Err(FREEHOLD_ENULL);
    }
    // SAFETY: The caller vouches for it.
    let size = unsafe { from.cast::<usize>().read() };
    if (size_of::<usize>()..=SIZE_MAX).contains(&size) { Ok(size) } else { Err(FREEHOLD_EINVAL) }
}

/// Reads a struct of any version.
///
/// # Safety
///
/// The pointer is NULL, or to as many bytes as the first word says.
pub(crate) unsafe fn read<T: Versioned>(from: *const T) -> Result<T> {
    // SAFETY: The caller vouches for it.
    let size = unsafe { size_of_at(from)? };
    // SAFETY: As above.
    let given = unsafe { core::slice::from_raw_parts(from.cast::<u8>(), size) };
    let known = size.min(size_of::<T>());
    if given[known..].iter().any(|&byte| byte != 0) {
        return Err(FREEHOLD_EINVAL);
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: Both have so many bytes.
    unsafe { core::ptr::copy_nonoverlapping(given.as_ptr(), value.as_mut_ptr().cast(), known) };
    // SAFETY: Any bytes are a value, and all of them are initialised: zeroed, or copied.
    Ok(unsafe { value.assume_init() })
}

/// Whether a struct to be written says its size.
///
/// # Safety
///
/// The pointer is NULL, or to as many bytes as the first word says.
pub(crate) unsafe fn check<T: Versioned>(to: *const T) -> Result<()> {
    // SAFETY: The caller vouches for it.
    unsafe { size_of_at(to) }.map(|_| ())
}

/// Writes a struct of any version, but not its size. What this library does not know becomes zero.
///
/// # Safety
///
/// The pointer is NULL, or to as many bytes as the first word says.
pub(crate) unsafe fn write<T: Versioned>(to: *mut T, value: &T) -> Result<()> {
    const WORD: usize = size_of::<usize>();
    // SAFETY: The caller vouches for it.
    let size = unsafe { size_of_at(to)? };
    let (known, rest) = (size.min(size_of::<T>()), to.cast::<u8>().wrapping_add(WORD));
    let from = core::ptr::from_ref(value).cast::<u8>().wrapping_add(WORD);
    // SAFETY: The struct has so many bytes, by its own word, and the value as well.
    unsafe { core::ptr::copy_nonoverlapping(from, rest, known - WORD) };
    // SAFETY: As above.
    unsafe { core::ptr::write_bytes(rest.wrapping_add(known - WORD), 0, size - known) };
    Ok(())
}

/// A descriptor of our own for a program's file.
pub(crate) fn duplicate(file: i32) -> Result<OwnedFd> {
    if file < 0 {
        explain("file: no descriptor".to_owned());
        return Err(FREEHOLD_EINVAL);
    }
    // SAFETY: The program keeps its descriptor open meanwhile. If there is none, the duplication,
    // which is all that is done with it, fails.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    file.try_clone_to_owned().map_err(|error| {
        explain(format!("file: {error}"));
        FREEHOLD_EINVAL
    })
}

/// A [`freehold_request`] whose fields are valid.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wish {
    pub(crate) nowait: bool,
    node: Option<NodeId>,
    only_node: bool,
    migratetype: Option<MigrateType>,
    watermark: Option<Watermark>,
}

impl Wish {
    /// Reads a request of any version; NULL is all defaults.
    ///
    /// # Safety
    ///
    /// As for [`read`].
    pub(crate) unsafe fn read(from: *const freehold_request) -> Result<Self> {
        if from.is_null() {
            return Ok(Wish::default());
        }
        // SAFETY: The caller vouches for it.
        Wish::of(unsafe { read(from)? })
    }

    fn of(request: freehold_request) -> Result<Self> {
        let has = |flag| request.flags & flag != 0;
        if request.flags & !(FREEHOLD_NOWAIT | FREEHOLD_PREFER_NODE | FREEHOLD_ONLY_NODE) != 0 {
            return Err(FREEHOLD_EINVAL);
        }
        let node = match u16::try_from(request.node) {
            _ if !has(FREEHOLD_PREFER_NODE) && !has(FREEHOLD_ONLY_NODE) => None,
            Ok(node) => Some(NodeId::new(node)),
            Err(_) => return Err(FREEHOLD_ENODE),
        };
        Ok(Wish {
            nowait: has(FREEHOLD_NOWAIT),
            node,
            only_node: has(FREEHOLD_ONLY_NODE),
            migratetype: match request.migratetype {
                FREEHOLD_MOVABLE => None,
                FREEHOLD_UNMOVABLE => Some(MigrateType::Unmovable),
                FREEHOLD_RECLAIMABLE => Some(MigrateType::Reclaimable),
                _ => return Err(FREEHOLD_EINVAL),
            },
            watermark: match request.watermark {
                FREEHOLD_WATERMARK_MIN => None,
                FREEHOLD_WATERMARK_LOW => Some(Watermark::Low),
                FREEHOLD_WATERMARK_HIGH => Some(Watermark::High),
                FREEHOLD_WATERMARK_NONE => Some(Watermark::Ignore),
                _ => return Err(FREEHOLD_EINVAL),
            },
        })
    }

    /// The request for a block.
    #[inline]
    pub(crate) fn request(&self, order: Order) -> Request {
        let mut request = Request::new(order);
        if let Some(migratetype) = self.migratetype {
            request = request.migratetype(migratetype);
        }
        if let Some(watermark) = self.watermark {
            request = request.watermark(watermark);
        }
        if let Some(node) = self.node {
            request = request.node(node);
        }
        if self.only_node {
            request = request.only_node();
        }
        if self.nowait { request.nowait() } else { request }
    }

    /// The request for a range. Whether it may wait makes no difference there.
    pub(crate) fn range(&self, mut request: RangeRequest) -> RangeRequest {
        if let Some(watermark) = self.watermark {
            request = request.watermark(watermark);
        }
        if let Some(node) = self.node {
            request = request.node(node);
        }
        if self.only_node { request.only_node() } else { request }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: freehold_request = freehold_request {
        size: size_of::<freehold_request>(),
        flags: 0,
        node: 0,
        migratetype: 0,
        watermark: 0,
    };

    #[test]
    fn structs_of_other_versions_are_read() {
        let shorter = freehold_request { size: 12, node: 7, flags: FREEHOLD_NOWAIT, ..REQUEST };
        // SAFETY: The struct has more bytes than it says.
        let read_shorter = unsafe { read(&shorter) }.unwrap();
        assert_eq!((read_shorter.flags, read_shorter.node), (FREEHOLD_NOWAIT, 0));
        for (beyond, expected) in [(0, None), (1, Some(FREEHOLD_EINVAL))] {
            let longer = (freehold_request { size: size_of::<[usize; 4]>(), ..REQUEST }, beyond);
            let longer: (freehold_request, usize) = longer;
            let words: [usize; 4] = [longer.0.size, 0, 0, longer.1];
            // SAFETY: There are so many bytes.
            let answer = unsafe { read(words.as_ptr().cast::<freehold_request>()) };
            assert_eq!(answer.err(), expected);
        }
        for size in [0, 7, SIZE_MAX + 1, usize::MAX] {
            let wrong = freehold_request { size, ..REQUEST };
            // SAFETY: Of a size that is none, nothing but the size is read.
            assert_eq!(unsafe { read(&wrong) }.err(), Some(FREEHOLD_EINVAL));
        }
    }

    #[test]
    fn structs_of_other_versions_are_written() {
        let value =
            freehold_census { size: 0, managed: 1, allocated: 2, free: 3, per_cpu: 4, isolated: 5 };
        let mut words = [usize::MAX; 8];
        for (size, expected) in [(24, [24, 1, 2, 9, 9, 9, 9, 9]), (64, [64, 1, 2, 3, 4, 5, 0, 0])] {
            words.fill(9);
            words[0] = size;
            // SAFETY: There are so many bytes.
            unsafe { write(words.as_mut_ptr().cast(), &value) }.unwrap();
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn wrong_requests_are_refused() {
        let refused = |request| Wish::of(request).err();
        assert_eq!(refused(freehold_request { flags: 8, ..REQUEST }), Some(FREEHOLD_EINVAL));
        assert_eq!(refused(freehold_request { migratetype: 3, ..REQUEST }), Some(FREEHOLD_EINVAL));
        assert_eq!(refused(freehold_request { watermark: 4, ..REQUEST }), Some(FREEHOLD_EINVAL));
        let far = freehold_request { flags: FREEHOLD_ONLY_NODE, node: 1 << 16, ..REQUEST };
        assert_eq!(refused(far), Some(FREEHOLD_ENODE));
        assert_eq!(refused(REQUEST), None);
    }
}
