//! Arenas on memory that their user has mapped.
#![expect(unsafe_code, reason = "takes the word of the user that the memory is there")]

use core::ptr::NonNull;

use freehold::{Design, FrameCount, Order};

use crate::mapping::Mapping;
use crate::plan::Plan;
use crate::{ArenaBuilder, Host, HostError};

/// Memory that an arena is to manage and does not own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    bytes: usize,
}

impl<D: Design<Host>> ArenaBuilder<D> {
    /// Puts the arena on memory of the caller's: `bytes` from `base` on, both multiples of a
    /// pageblock. They are the arena's capacity, and it has one node. The arena never unmaps them.
    /// [`ArenaBuilder::bytes`] may be less; `grow` adds the rest.
    ///
    /// A block lies at a multiple of its size from `base` on, so its address is a multiple of its
    /// size only up to what `base` is a multiple of.
    ///
    /// The arena gives memory back by `MADV_DONTNEED`: frames of a private anonymous mapping read
    /// as zero then, those of a file as what is in the file. The books are private to the process:
    /// in shared memory (`MAP_SHARED`), a child of a `fork` and its parent would both give out the
    /// same frames.
    ///
    /// # Safety
    ///
    /// As long as the arena exists, the memory is mapped, readable and writable, and used only
    /// through the arena.
    #[must_use]
    pub unsafe fn mapping(mut self, base: NonNull<u8>, bytes: usize) -> Self {
        self.region = Some(Region { base, bytes });
        self
    }
}

impl Region {
    /// The memory itself. Limits the plan, of one part, to it.
    ///
    /// # Errors
    ///
    /// [`HostError::BadSetting`] if the plan has more memory than the region, or the region does
    /// not consist of pageblocks.
    pub(crate) fn hold(self, plan: &mut Plan) -> Result<Mapping, HostError> {
        let Region { base, bytes } = self;
        let refuse = |reason| Err(HostError::BadSetting { setting: "mapping", reason });
        let grain = plan.frame_size.bytes_of(Order::PAGEBLOCK.frames());
        if bytes == 0 || base.addr().get() % grain != 0 || bytes % grain != 0 {
            return refuse(format!("{bytes} bytes at {base:?} are not whole blocks of {grain}"));
        }
        if base.addr().get().checked_add(bytes).is_none() || isize::try_from(bytes).is_err() {
            return refuse(format!("{bytes} bytes at {base:?} end beyond all addresses"));
        }
        let frames = FrameCount::from_bytes(bytes, plan.frame_size);
        for part in &mut plan.parts {
            if part.frames > frames {
                return refuse(format!("the region has {frames}, the arena {}", part.frames));
            }
            part.capacity = frames;
        }
        // SAFETY: The caller of `mapping` has vouched for it.
        Ok(unsafe { Mapping::borrow(base, bytes) })
    }
}
