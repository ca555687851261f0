//! What a zone does when it has no free block of the type asked for: claim a pageblock of another
//! type, or take a single chunk from it.
//!
//! After Linux 6.12 (`__rmqueue`, `__rmqueue_claim`, `__rmqueue_steal`). Two things are left out:
//! claiming does not boost the watermarks, since there is no reclaim to wake, and there is no mode
//! that forbids fragmentation (`ALLOC_NOFRAGMENT`).

use crate::buddy::{Beside, Buddy};
use crate::kind::Kind;
use crate::pageblock::BlockType;
use freehold::memmap::index::FrameIndex;
use freehold::platform::Platform;
use freehold::units::{FrameCount, MigrateType, Order};
use freehold::zone::fallback::FALLBACKS;

/// The step of the search that found the last block. A refill that takes many blocks resumes there,
/// since the earlier steps have run dry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// A free block of the type itself, perhaps after claiming a pageblock for it.
    #[default]
    Normal,
    /// One chunk of another type's pageblock.
    Steal,
}

/// How often a zone fell back to other types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fallbacks {
    /// Free blocks whose pageblocks changed their type.
    pub claims: u64,
    /// Chunks taken from pageblocks of another type.
    pub steals: u64,
}

/// Takes a block of the type or of another one. Its head is unmarked.
pub(crate) fn take<P: Platform, B: Beside<P>>(
    buddy: &Buddy<'_, P, B>,
    kind: Kind,
    step: &mut Step,
    fallbacks: &mut Fallbacks,
) -> Option<FrameIndex> {
    if *step == Step::Normal {
        if let Some(block) = buddy.take_smallest(kind) {
            return Some(block);
        }
        if let Some(block) = claim(buddy, kind) {
            fallbacks.claims += 1;
            return Some(block);
        }
    }
    let block = steal(buddy, kind)?;
    fallbacks.steals += 1;
    *step = Step::Steal;
    Some(block)
}

/// Claims a pageblock, from the largest free blocks down, so that types mix as little as possible.
fn claim<P: Platform, B: Beside<P>>(buddy: &Buddy<'_, P, B>, kind: Kind) -> Option<FrameIndex> {
    let migratetype = kind.migratetype;
    for from in kind.order.to(Order::BUDDY_MAX).rev() {
        let Some((block, of)) = first_fallback(buddy, from, migratetype) else { continue };
        if !may_claim(from, migratetype) {
            return None;
        }
        if from >= Order::PAGEBLOCK {
            claim_whole(buddy, block, from, BlockType::of(of), kind);
            return Some(block);
        }
        if is_mostly_alike(buddy, block, migratetype, of) {
            buddy.retype_pageblock(block, migratetype);
            return buddy.take_smallest(kind);
        }
    }
    None
}

/// Takes a free block of whole pageblocks, retypes them, and returns all but the first part of the
/// order asked for to the lists. Its head is unmarked.
pub(crate) fn claim_whole<P: Platform, B: Beside<P>>(
    buddy: &Buddy<'_, P, B>,
    block: FrameIndex,
    from: Order,
    of: BlockType,
    kind: Kind,
) {
    buddy.take(block, from, from, of);
    buddy.tables.blocks.set_migratetype(block, from, kind.migratetype);
    buddy.put_rest(block, from, kind.order, BlockType::of(kind.migratetype));
}

/// Takes one chunk, the smallest that suffices; the rest of it keeps its type.
fn steal<P: Platform, B: Beside<P>>(buddy: &Buddy<'_, P, B>, kind: Kind) -> Option<FrameIndex> {
    for from in kind.order.to(Order::BUDDY_MAX) {
        if let Some((block, of)) = first_fallback(buddy, from, kind.migratetype) {
            buddy.take(block, from, kind.order, BlockType::of(of));
            return Some(block);
        }
    }
    None
}

/// The first free block of `order` of the best type that may stand in.
fn first_fallback<P: Platform, B: Beside<P>>(
    buddy: &Buddy<'_, P, B>,
    order: Order,
    migratetype: MigrateType,
) -> Option<(FrameIndex, MigrateType)> {
    FALLBACKS[migratetype.index()]
        .into_iter()
        .find_map(|of| Some((buddy.lists.list(order, BlockType::of(of)).first()?, of)))
}

/// Whether a pageblock may change its type for a free block of `order`. Immovable content may
/// always claim one, since scattering it does more harm.
fn may_claim(order: Order, migratetype: MigrateType) -> bool {
    order.get() >= Order::PAGEBLOCK.get() / 2 || migratetype != MigrateType::Movable
}

/// Whether at least half of a pageblock is free or in use for content like that of `migratetype`.
fn is_mostly_alike<P: Platform, B: Beside<P>>(
    buddy: &Buddy<'_, P, B>,
    block: FrameIndex,
    migratetype: MigrateType,
    of: MigrateType,
) -> bool {
    let (free, movable) = buddy.census_of_pageblock(block);
    let pageblock = Order::PAGEBLOCK.frames().get();
    let alike = match (migratetype, of) {
        (MigrateType::Movable, _) => movable,
        // Unmovable and reclaimable content are alike: neither can be moved away.
        (_, MigrateType::Movable) => FrameCount::new(pageblock - free.get() - movable.get()),
        _ => FrameCount::ZERO,
    };
    free.get() + alike.get() >= pageblock / 2
}
