//! How a block leaves its user: by one step, which of two frees of it only one can make.

use crate::block::{Block, WORD};
use crate::entry::{CHILD_FRAMES, Entry};
use crate::lower::Lower;
use freehold::platform::{IrqsOff, Platform};
use freehold::{Error, Order};

/// How often a block that others change, or break up, is looked at again.
const LOOKS: u32 = 10_000_000;

impl<P: Platform> Lower<P> {
    /// Frees a block, or a part of one; returns how many frames the caller has to count: not those
    /// of isolated children.
    #[inline]
    pub(crate) fn release(&self, platform: &P, block: Block) -> Result<u32, Error> {
        // A wrong free of a part of more than a word may leave what looks like no block.
        let mut looks = 0;
        while looks < LOOKS {
            let entry = self.entries.get(block.child());
            let frames = match entry.is_huge() {
                true => self.release_huge(platform, block, entry)?,
                false => self.release_small(platform, block)?,
            };
            if let Some(frames) = frames {
                return Ok(frames);
            }
            // Another call that is about to end its change may take as long as it likes.
            looks += u32::from(!entry.is_splitting() && !self.has_changing(block.child()));
            platform.relax();
        }
        Err(Error::WrongOrder)
    }

    /// Frees a block of a child that is not huge. `None`: look again.
    #[inline]
    fn release_small(&self, platform: &P, block: Block) -> Result<Option<u32>, Error> {
        self.check_used(block.words().start, block.bit())?;
        if block.order >= Order::PAGEBLOCK {
            return Err(Error::WrongOrder);
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

    /// Frees a huge block; or has it be two of one child, or one of frames, for a part of it.
    /// `None`: look again.
    fn release_huge(&self, platform: &P, block: Block, now: Entry) -> Result<Option<u32>, Error> {
        let Some(order) = now.huge_order() else { return Ok(None) };
        if order < block.order {
            return Err(Error::WrongOrder);
        }
        let first = Block::huge(block.child(), order).child();
        let update = |change: &dyn Fn(Entry) -> Entry| {
            let same = |_, now: Entry| (now.huge_order() == Some(order)).then(|| change(now));
            self.entries.update_all(first, order, same)
        };
        if order == block.order {
            let frames = |of: Entry| u32::from(of.is_huge() && !of.is_isolated()) * CHILD_FRAMES;
            let freed = update(&|now| now.becomes(Entry::WHOLE));
            return Ok(freed.map(|was| was.map(frames).iter().sum()));
        }
        if order > Order::PAGEBLOCK {
            update(&|now| now.becomes(Entry::huge(Order::PAGEBLOCK, now.is_fixed())));
            return Ok(None);
        }
        // No handler may come between that frees another part of the block, and waits.
        let _off = IrqsOff::new(platform);
        if update(&|now| now.splitting()).is_some() {
            self.fill(first, true, now.is_fixed());
            // `Some`: only this call changes it, but for isolation.
            let _ = self.entries.update(first, |now| Some(now.becomes(Entry::default())));
        }
        Ok(None)
    }
}
