//! What is asked of the machine for an arena's memory.

use std::io;

use freehold::{Design, FrameCount, FrameSize, Pfn};

use super::Placement;
use crate::mapping::{Mapping, Placing};
use crate::plan::{Part, Plan};
use crate::{ArenaBuilder, Host, HostError, Numa};

/// Where the first frames of a part lie in the memory.
pub(super) fn extent(frame_size: FrameSize, part: &Part, frames: FrameCount) -> (usize, usize) {
    let offset = |pfn: Pfn| frame_size.bytes_of(pfn - Pfn::new(0));
    (offset(part.start), offset(part.start + frames))
}

/// What is asked of the machine for an arena's memory.
#[derive(Debug)]
pub(super) struct Asked {
    numa: Numa,
    os_nodes: Vec<u32>,
    /// Whether the arena has one node.
    is_flat: bool,
    huge_pages: bool,
    lock: bool,
}

impl Asked {
    pub(super) fn new<D: Design<Host>>(wishes: &ArenaBuilder<D>, plan: &Plan) -> Self {
        Asked {
            numa: wishes.numa,
            os_nodes: plan.os_nodes.clone(),
            is_flat: plan.parts.len() == 1,
            huge_pages: wishes.huge_pages,
            lock: wishes.lock,
        }
    }

    /// Asks for what an arena begins with: all of its capacity, unless that is mapped as it grows.
    /// That memory comes from the node of its part is a matter of speed, so an arena does without
    /// where the kernel refuses.
    pub(super) fn of_new(
        &self,
        memory: &Mapping,
        plan: &Plan,
        is_part: bool,
    ) -> Result<Placement, HostError> {
        let mut placement = match self.numa {
            Numa::Prefer if self.is_flat => Placement::OneNode,
            Numa::Machine => Placement::Machine,
            Numa::Interleave => Placement::Interleaved,
            Numa::Prefer | Numa::Bind => Placement::ByNode,
        };
        for part in &plan.parts {
            let frames = if is_part { part.frames } else { part.capacity };
            let (offset, end) = extent(plan.frame_size, part, frames);
            let of = (offset, end.min(memory.bytes()) - offset);
            if self.huge_pages && !is_part {
                memory.advise_huge_pages(of.0, of.1)?;
            }
            if let Err(error) = self.place(memory, of, part.os_node)? {
                placement = Placement::FirstTouch(error);
                break;
            }
        }
        if self.lock {
            memory.each_mapped(|offset, bytes| memory.lock(offset, bytes))?;
        }
        Ok(placement)
    }

    /// Asks for what an arena grows by.
    pub(super) fn of_more(
        &self,
        memory: &Mapping,
        (offset, bytes): (usize, usize),
        os_node: u32,
    ) -> Result<(), HostError> {
        if self.huge_pages {
            memory.advise_huge_pages(offset, bytes)?;
        }
        // Refused where it was when the arena was built.
        let _first_touch = self.place(memory, (offset, bytes), os_node)?;
        if self.lock { memory.lock(offset, bytes) } else { Ok(()) }
    }

    /// Has memory come from the nodes that it is wanted from: a refusal, or an error if the user
    /// relies on it.
    fn place(
        &self,
        memory: &Mapping,
        (offset, bytes): (usize, usize),
        os_node: u32,
    ) -> Result<io::Result<()>, HostError> {
        let (placing, nodes) = match self.numa {
            Numa::Prefer if self.is_flat => return Ok(Ok(())),
            Numa::Machine => return Ok(Ok(())),
            Numa::Interleave => (Placing::Interleave, &self.os_nodes[..]),
            Numa::Prefer => (Placing::Prefer, &[os_node][..]),
            Numa::Bind => (Placing::Bind, &[os_node][..]),
        };
        match memory.place(offset, bytes, placing, nodes) {
            Err(source) if self.numa != Numa::Prefer => {
                let advice = "to take memory from the nodes wanted";
                Err(HostError::Advise { advice, source })
            }
            placed => Ok(placed),
        }
    }
}
