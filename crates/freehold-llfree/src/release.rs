//! How a block leaves its user: by one step, which of two frees of it only one can make.

use crate::block::{Block, WORD, child_of, frames_in};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::lower::Lower;
use freehold::memmap::index::ZoneIndex;
use freehold::platform::{IrqsOff, Platform};
use freehold::{Error, Order};

/// How often a block that others change, or break up, is looked at again.
const LOOKS: u32 = 10_000_000;

/// Frames that were freed.
pub(crate) struct Released {
    pub(crate) zone: ZoneIndex,
    pub(crate) child: u32,
    /// Those that the caller has to count: not those of isolated children.
    pub(crate) frames: u32,
}

impl<P: Platform> Lower<P> {
    /// Frees a block, or a part of one.
    #[inline]
    pub(crate) fn release(
        &self,
        platform: &P,
        first: u32,
        order: Order,
    ) -> Result<Released, Error> {
        if order > crate::ORDER_MAX {
            return Err(Error::OrderTooLarge);
        }
        // As its number is.
        if !first.is_multiple_of(frames_in(order)) {
            return Err(Error::Misaligned);
        }
        let child = child_of(first);
        let zone = self.zone_of(child).ok_or(Error::ForeignFrame)?;
        // A wrong free of a part of more than a word may leave what looks like no block.
        let mut looks = 0;
        while looks < LOOKS {
            let entry = self.entries.get(child);
            let frames = match entry.is_huge() {
                true => self.release_huge(platform, child, entry, order)?,
                false if order < Order::PAGEBLOCK => {
                    self.release_small(platform, Block { first, order })?
                }
                false => return Err(self.why_not_huge(first)),
            };
            if let Some(frames) = frames {
                return Ok(Released { zone, child, frames });
            }
            // Another call that is about to end its change may take as long as it likes.
            looks += u32::from(!entry.is_splitting() && !self.has_changing(child));
            platform.relax();
        }
        Err(Error::WrongOrder)
    }

    /// Why a block of whole children is none, whose first child has no such block.
    fn why_not_huge(&self, first: u32) -> Error {
        let frame = Block::frame(first);
        let (word, bit) = (frame.words().start, frame.bit());
        match self.taken(word) & bit == 0 {
            true => Error::DoubleFree,
            false if self.holes(word) & bit != 0 => Error::ForeignFrame,
            false => Error::WrongOrder,
        }
    }

    /// Frees a block of less than a child, which is not huge. `None`: look again.
    #[inline]
    fn release_small(&self, platform: &P, block: Block) -> Result<Option<u32>, Error> {
        let (word, bit) = (block.words().start, block.bit());
        if self.taken(word) & bit == 0 {
            return Err(Error::DoubleFree);
        }
        if self.holes(word) & bit != 0 {
            return Err(Error::ForeignFrame);
        }
        let Some(of) = self.block_of(block.first) else { return Ok(None) };
        if of.order < block.order {
            return Err(Error::WrongOrder);
        }
        let frames = match of.order {
            Order::ZERO if self.is_changing(block) => None,
            Order::ZERO => Some(self.put_bits(block)),
            order if order <= WORD => self.claim_part(of, block).then(|| self.put_bits(block)),
            order if order == block.order => self.put_long(platform, block),
            _ => {
                self.halve(platform, of);
                None
            }
        };
        let Some(frames) = frames else { return Ok(None) };
        if frames == 0 {
            return Err(Error::DoubleFree);
        }
        let entry = self.entries.add(block.child(), frames);
        Ok(Some(if entry.is_isolated() { 0 } else { frames }))
    }

    /// Frees a child or two of a huge block; or has it be two of one child, or one of frames, for a
    /// part of it. `None`: look again.
    fn release_huge(
        &self,
        platform: &P,
        child: u32,
        entry: Entry,
        order: Order,
    ) -> Result<Option<u32>, Error> {
        let Some(of) = entry.huge_order() else { return Ok(None) };
        if of < order {
            return Err(Error::WrongOrder);
        }
        let whole = |entry: Entry| entry.becomes(Entry::WHOLE);
        let frames_of = |entry: Entry| if entry.is_isolated() { 0 } else { CHILD_FRAMES };
        if entry.is_pair() {
            let (nth, is_all) = (child as usize % 2, order == of);
            let parted = self.entries.update_pair(child, |mut pair| {
                if !pair.iter().all(|entry| entry.huge_order() == Some(of)) {
                    return None;
                }
                pair = pair.map(|entry| entry.becomes(Entry::huge(false, entry.is_fixed())));
                if is_all {
                    pair = pair.map(whole);
                } else if order == Order::PAGEBLOCK {
                    pair[nth] = whole(pair[nth]);
                }
                Some(pair)
            });
            return Ok(parted.ok().and_then(|pair| match is_all {
                true => Some(pair.map(frames_of).iter().sum()),
                false => (order == Order::PAGEBLOCK).then(|| frames_of(pair[nth])),
            }));
        }
        if order == Order::PAGEBLOCK {
            let single = |now: Entry| (now.huge_order() == Some(of)).then(|| whole(now));
            return Ok(self.entries.update(child, single).ok().map(frames_of));
        }
        // No handler may come between that frees another part of the block, and waits.
        let _off = IrqsOff::new(platform);
        let split = |now: Entry| (now.huge_order() == Some(of)).then(|| now.splitting());
        if self.entries.update(child, split).is_ok() {
            self.fill(child, true, entry.is_fixed());
            // `Ok`: only this call changes it, but for isolation.
            let _ = self.entries.update(child, |now| Some(now.becomes(Entry::default())));
        }
        Ok(None)
    }
}
