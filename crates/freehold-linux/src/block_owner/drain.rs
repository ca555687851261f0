//! Returning blocks to the zone: merged first, the largest first.

use super::owned::Owners;
use crate::frame::{FrameState, Tag};
use crate::pageblock::BlockType;
use crate::skeleton::{LocalPages, Skeleton};
use freehold::memmap::index::FrameIndex;
use freehold::memmap::list::{End, ListHead};
use freehold::platform::Platform;
use freehold::units::{FrameCount, MigrateType, Order};

/// Blocks that a walk over a CPU's lists has passed. Pending interrupts are let in every few of
/// them.
#[derive(Default)]
struct Passed(u32);

impl Passed {
    const BETWEEN_IRQS: u32 = 64;

    fn one<P: Platform>(&mut self, pages: &Local<'_, P>) {
        self.0 += 1;
        if self.0.is_multiple_of(Self::BETWEEN_IRQS) {
            pages.pcp.let_irqs_in();
        }
    }
}

type Local<'a, P> = LocalPages<'a, P, Owners>;

/// Merges the free blocks on the CPU's lists that belong to its own pageblocks, order by order from
/// the lowest, without the zone lock.
pub(super) fn merge<P: Platform>(pages: &Local<'_, P>) {
    let design = pages.design;
    let mut passed = Passed::default();
    for order in Order::ZERO.to(Order::PAGEBLOCK).take(Order::PAGEBLOCK.index()) {
        for migratetype in MigrateType::ALL {
            let mut next = pages.pcp.list(order, migratetype).first();
            while let Some(block) = next {
                next = ListHead::<P::LocalCell<u32>>::behind(&design.frames, block);
                if let Some(buddy) = own_buddy(design, block, order) {
                    if next == Some(buddy) {
                        next = ListHead::<P::LocalCell<u32>>::behind(&design.frames, buddy);
                    }
                    unite(pages, block, buddy, order);
                }
                passed.one(pages);
            }
        }
    }
}

/// The buddy of a block of this CPU's own, if it is on the lists too. A pageblock has one owner,
/// and only its frames carry this mark, so a frame that carries it is on the lists whose lock is
/// held.
fn own_buddy<P: Platform>(
    design: &Skeleton<P, Owners>,
    block: FrameIndex,
    order: Order,
) -> Option<FrameIndex> {
    let own = |frame| design.frames.state(frame).is(Tag::PcpBuddy, order);
    let buddy = block.buddy(order);
    (own(block) && own(buddy)).then_some(buddy)
}

fn unite<P: Platform>(pages: &Local<'_, P>, block: FrameIndex, buddy: FrameIndex, order: Order) {
    let LocalPages { design, pcp, .. } = pages;
    let frames = &design.frames;
    let list = |order, of: BlockType| pcp.list(order, of.migratetype().unwrap_or_default());
    for half in [block, buddy] {
        let of = frames.state(half).block_type();
        list(order, of).remove(frames, half);
        frames.set_state(half, FrameState::TAIL);
    }
    let (head, order) = (block.head(order.up()), order.up());
    let of = BlockType::of(design.blocks.migratetype(head));
    frames.set_state(head, FrameState::head(Tag::PcpBuddy, order, of));
    list(order, of).push(frames, head, End::Front);
}

/// Returns at least `wanted` frames to the zone; the lists have that many. What is left of a
/// partial block goes to the back of the zone's lists, so that its owner finds it there when it
/// fetches it back.
pub(super) fn drain<P: Platform>(pages: &Local<'_, P>, wanted: u32) -> FrameCount {
    let (mut drained, mut available) = (FrameCount::ZERO, FrameCount::ZERO);
    let LocalPages { design, pcp, .. } = pages;
    let guard = pages.lock_zone();
    for order in Order::ZERO.to(Order::PAGEBLOCK).rev() {
        for migratetype in MigrateType::ALL {
            let list = pcp.list(order, migratetype);
            while drained.get() < u64::from(wanted)
                && let Some(block) = list.last()
            {
                list.remove(&design.frames, block);
                let own = design.frames.state(block).tag() == Tag::PcpBuddy;
                let end = (own && order < Order::PAGEBLOCK).then_some(End::Back);
                available += guard.put(block, order, end);
                drained += order.frames();
            }
        }
    }
    guard.add_free(available);
    drained
}
