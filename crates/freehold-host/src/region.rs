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
    /// Puts the arena on memory of the caller's: on the pageblocks that lie wholly in the `bytes`
    /// from `base` on. They are the arena's capacity, and it has one node. The arena never unmaps
    /// them. By default it manages all of them; with less [`ArenaBuilder::bytes`], `grow` adds the
    /// rest.
    ///
    /// A block lies at a multiple of its size from the first pageblock on, so that the address of a
    /// larger block is a multiple of a pageblock only.
    ///
    /// The arena gives memory back by `MADV_DONTNEED`: frames of a private anonymous mapping read
    /// as zero then, those of a file as what is in the file. The books are private to the process:
    /// in shared memory (`MAP_SHARED`), a child of a `fork` and its parent would both give out the
    /// same frames.
    ///
    /// # Safety
    ///
    /// As long as the arena exists, these pageblocks are mapped, readable and writable, and used
    /// only through the arena.
    #[must_use]
    pub unsafe fn mapping(mut self, base: NonNull<u8>, bytes: usize) -> Self {
        self.region = Some(Region { base, bytes });
        self
    }
}

impl Region {
    /// How many bytes the caller has named.
    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// The memory itself. Limits the plan, of one part, to it; if the arena is to have `all` of it,
    /// that is what the part has.
    ///
    /// # Errors
    ///
    /// [`HostError::BadSetting`] if the region has no pageblock, or fewer than the plan.
    pub(crate) fn hold(self, plan: &mut Plan, all: bool) -> Result<Mapping, HostError> {
        let Region { base, bytes } = self;
        let refuse = |reason| Err(HostError::BadSetting { setting: "mapping", reason });
        let grain = plan.frame_size.bytes_of(Order::PAGEBLOCK.frames());
        let gap = base.addr().get().wrapping_neg() % grain;
        let usable = bytes.checked_sub(gap).map_or(0, |rest| rest - rest % grain);
        let is_address = |end: usize| isize::try_from(bytes).is_ok() && end != 0;
        let start = NonNull::new(base.as_ptr().wrapping_add(gap));
        let Some(start) = start
            .filter(|_| usable > 0 && base.addr().get().checked_add(bytes).is_some_and(is_address))
        else {
            return refuse(format!(
                "no {grain} bytes at a multiple of that in {bytes} at {base:?}"
            ));
        };
        let frames = FrameCount::from_bytes(usable, plan.frame_size);
        for part in &mut plan.parts {
            part.frames = if all { frames } else { part.frames };
            if part.frames > frames {
                return refuse(format!("the region has {frames}, the arena {}", part.frames));
            }
            part.capacity = frames;
        }
        // SAFETY: The caller of `mapping` has vouched for it.
        Ok(unsafe { Mapping::borrow(start, usable) })
    }
}
