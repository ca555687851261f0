//! What the functions of any C side share: where an allocator is made, and how errors and frame
//! numbers go over.
//!
//! Errors are negative numbers of `errno.h`, as the kernel's functions return them.

use core::ptr::NonNull;
use core::slice;

use freehold::platform::Platform;
use freehold::{
    Config, Design, Error, FrameCount, MemoryRange, Metadata, NodeId, Order, PageAllocator, Pfn,
    ZoneKind,
};

/// CPUs are numbered below this: `FH_CPUS_MAX` on the C side.
const CPUS_MAX: usize = 256;

/// All memory and all CPUs of an allocator are one node's.
static NODES: [NodeId; CPUS_MAX] = [NodeId::new(0); CPUS_MAX];

// A `Pfn` holds one `u64` and nothing else, so arrays of frame numbers are arrays of `Pfn`.
const _: () =
    assert!(size_of::<Pfn>() == size_of::<u64>() && align_of::<Pfn>() == align_of::<u64>());

/// The kernel's number for what may succeed later.
pub(crate) const EBUSY: i64 = -16;

/// The number that stands for an error in the kernel.
#[cold]
pub(crate) fn errno(error: Error) -> i64 {
    const ENXIO: i64 = -6;
    const EAGAIN: i64 = -11;
    const ENOMEM: i64 = -12;
    const EINVAL: i64 = -22;
    match error {
        Error::OutOfMemory | Error::BelowWatermark => ENOMEM,
        Error::WouldWait => EAGAIN,
        Error::RangeBusy => EBUSY,
        Error::ForeignFrame => ENXIO,
        _ => EINVAL,
    }
}

/// Zero, or what stands for the error.
pub(crate) fn status(result: Result<(), Error>) -> i64 {
    result.map_or_else(errno, |()| 0)
}

/// A number, or what stands for the error.
pub(crate) fn number(result: Result<usize, Error>) -> i64 {
    result.map_or_else(errno, |number| number as i64)
}

/// The first frame of a block, or what stands for the error.
#[inline(always)]
pub(crate) fn frame(result: Result<Pfn, Error>) -> i64 {
    match result {
        Ok(pfn) => pfn.get() as i64,
        Err(error) => errno(error),
    }
}

pub(crate) fn order(order: u32) -> Order {
    Order::new(order as u8)
}

pub(crate) fn range(first: u64, frames: u64) -> MemoryRange {
    MemoryRange::new(Pfn::new(first), FrameCount::new(frames))
}

/// A zone without memory: the span of frames that it may get some in, and the machine's CPUs.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) first: u64,
    pub(crate) frames: u64,
    pub(crate) cpus: u32,
    /// What its watermarks follow from; `None` for what follows from its memory.
    pub(crate) min_free: Option<u64>,
    /// Whether it may get memory for content that can move only.
    pub(crate) cma: bool,
}

impl Shape {
    fn with_config<R>(&self, then: impl FnOnce(&Config<'_>) -> R) -> R {
        let zones = [ZoneKind::Normal, ZoneKind::Movable].map(|kind| (NodeId::new(0), kind));
        let zones = if self.cma { &zones[..] } else { &zones[..1] };
        let nodes = NODES.get(..self.cpus as usize).unwrap_or(&[]);
        let span = (Pfn::new(self.first), FrameCount::new(self.frames));
        let config = Config::new(&[], nodes).spare_zones(zones).span(span);
        then(&config.min_free(self.min_free.map(FrameCount::new)))
    }

    /// How many bytes an allocator takes.
    pub(crate) fn bytes<P: Platform, D: Design<P>>(&self) -> i64 {
        let layout = self
            .with_config(|config| PageAllocator::<P, D>::layout(config, &D::Settings::default()));
        number(
            layout.map(|layout| size_of::<Option<PageAllocator<P, D>>>() + layout.size_unaligned()),
        )
    }

    /// Makes an allocator in a buffer.
    ///
    /// # Safety
    ///
    /// The buffer has the bytes that [`Shape::bytes`] returned, all zero, begins at a page, and is
    /// this allocator's until it is no longer used.
    pub(crate) unsafe fn create<P: Platform, D: Design<P>>(
        &self,
        buffer: NonNull<u8>,
        bytes: usize,
        platform: P,
    ) -> Result<&'static PageAllocator<P, D>, Error> {
        let own = size_of::<Option<PageAllocator<P, D>>>();
        // SAFETY: the buffer is longer than that, as the caller promises.
        let rest = unsafe { buffer.add(own) };
        // SAFETY: the rest of the buffer, zeroed, and nothing else uses it.
        let metadata = unsafe { Metadata::from_zeroed_raw_parts(rest, bytes - own) };
        let place = buffer.cast::<Option<PageAllocator<P, D>>>();
        // SAFETY: the beginning of the buffer, aligned to a page; nothing else uses it.
        unsafe { place.write(None) };
        // SAFETY: it has just been initialised, and nothing else uses it.
        let place = unsafe { &mut *place.as_ptr() };
        self.with_config(|config| {
            let settings = D::Settings::default();
            PageAllocator::new_in(place, platform, config, &settings, metadata).map(|made| &*made)
        })
    }
}

/// An array of frame numbers of the C side's, to be read.
///
/// # Safety
///
/// There are as many, and nothing writes to them until the end of the call.
pub(crate) unsafe fn pfns<'a>(array: NonNull<u64>, many: usize) -> &'a [Pfn] {
    // SAFETY: as the caller promises, and of the layout that is asserted above.
    unsafe { slice::from_raw_parts(array.cast::<Pfn>().as_ptr(), many) }
}

/// An array of the C side's, to be filled with frame numbers.
///
/// # Safety
///
/// There is room for as many, initialised to anything, and nothing else uses it until the end of
/// the call.
pub(crate) unsafe fn pfns_mut<'a>(array: NonNull<u64>, many: usize) -> &'a mut [Pfn] {
    // SAFETY: as the caller promises, and of the layout that is asserted above.
    unsafe { slice::from_raw_parts_mut(array.cast::<Pfn>().as_ptr(), many) }
}
