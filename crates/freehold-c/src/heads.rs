//! Which allocations there are, by their first frame.
//!
//! The allocator is told the size of what is freed, and C is not to. It could be asked for it, but
//! while two threads free one block, which is wrong and happens, its answer is about a block that
//! is half free; and it holds a range as several blocks, and knows of each, not that they belong
//! together. So there is a byte for each frame: it says which block begins there, and the call
//! that takes it away is the one to free the block.
#![expect(unsafe_code, reason = "makes atomic bytes of zeroed memory that is not touched yet")]

use std::alloc::Layout;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use freehold::platform::Word;
use freehold::{Error, FrameCount, Order, Pfn};

/// What begins at a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head(u8);

/// In a byte: the block continues the allocation before it.
const CONTINUES: u8 = 1 << 7;
/// In a byte: another block continues this one.
const GOES_ON: u8 = 1 << 6;
/// The rest of a byte: one more than the order of the block; 0 if none begins there.
const ORDER: u8 = GOES_ON - 1;

impl Head {
    /// An allocation of one block.
    #[inline]
    pub(crate) fn block(order: Order) -> Self {
        Head((order.get() + 1) & ORDER)
    }

    /// One of the blocks of a range.
    fn of_range(order: Order, is_first: bool, is_last: bool) -> Self {
        let head = Head::block(order).0;
        Head(head | if is_first { 0 } else { CONTINUES } | if is_last { 0 } else { GOES_ON })
    }

    #[inline]
    pub(crate) fn order(self) -> Order {
        Order::new((self.0 & ORDER).saturating_sub(1))
    }

    /// Whether another block belongs to the same allocation.
    #[inline]
    pub(crate) fn goes_on(self) -> bool {
        self.0 & GOES_ON != 0
    }

    /// Whether an allocation begins here.
    #[inline]
    fn is_first(self) -> bool {
        self.0 & ORDER != 0 && self.0 & CONTINUES == 0
    }
}

/// Why an allocation is not freed, or not to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfreed {
    /// Another call has taken it.
    Taken,
    /// A block that should continue it is none.
    Broken,
    /// The allocator refuses a block.
    Refused(Error),
}

/// The bytes.
///
/// In a program that frees each allocation once, all accesses could be relaxed: a call that
/// allocates a frame comes after the one that has freed it, by the allocator, and a caller that has
/// a pointer after the one that has allocated it. A second free that comes late may take what
/// another thread has allocated there since. Putting a head releases and taking it acquires, so
/// that the free comes after that allocation: otherwise the allocator could take the block for free
/// already, and it would be lost. `tests/models` runs all this under loom.
#[derive(Debug)]
pub(crate) struct Heads<B: Word<u8> = AtomicU8>(Box<[B]>);

impl<B: Word<u8>> Heads<B> {
    pub(crate) fn new(frames: usize) -> Self {
        if B::ZERO_BYTES.is_none() || Layout::new::<B>() != Layout::new::<u8>() {
            return Heads((0..frames).map(|_| B::new(0)).collect());
        }
        // The memory comes zeroed from the machine, a page when it is first touched.
        let zeroes = Box::into_raw(vec![0u8; frames].into_boxed_slice());
        // SAFETY: The memory is the box's, and a zero is a `B` of zero bytes and of its layout.
        Heads(unsafe { Box::from_raw(zeroes as *mut [B]) })
    }

    #[inline]
    fn byte(&self, pfn: Pfn) -> Option<&B> {
        self.0.get(usize::try_from(pfn.get()).ok()?)
    }

    /// Notes what begins at a frame that the caller has allocated.
    #[inline]
    pub(crate) fn put(&self, pfn: Pfn, head: Head) {
        if let Some(byte) = self.byte(pfn) {
            // Release: whichever call takes the block comes after its allocation.
            byte.store(head.0, Release);
        }
    }

    /// Notes that a range begins at a frame that the caller has allocated, as blocks of these
    /// orders.
    pub(crate) fn put_range(
        &self,
        first: Pfn,
        frames: FrameCount,
        order_at: impl Fn(Pfn) -> Order,
    ) {
        let end = first.offset(frames);
        let of_first = order_at(first);
        let mut next = first.offset(of_first.frames());
        // The first one last: a call that takes it finds all others.
        let head = Head::of_range(of_first, true, next >= end);
        while next < end {
            let order = order_at(next);
            let after = next.offset(order.frames());
            self.put(next, Head::of_range(order, false, after >= end));
            next = after;
        }
        self.put(first, head);
    }

    /// The allocation that begins at a frame.
    #[inline]
    pub(crate) fn first(&self, pfn: Pfn) -> Option<Head> {
        Some(Head(self.byte(pfn)?.load(Relaxed))).filter(|head| head.is_first())
    }

    /// The block of an allocation's at a frame, the first or one that continues it.
    pub(crate) fn part(&self, pfn: Pfn) -> Option<Head> {
        Some(Head(self.byte(pfn)?.load(Relaxed))).filter(|head| head.0 & ORDER != 0)
    }

    /// Takes a head away. Of several callers at a time, one gets `true`.
    #[inline]
    pub(crate) fn take(&self, pfn: Pfn, head: Head) -> bool {
        // Acquire: pairs with the release in `put`.
        self.byte(pfn)
            .is_some_and(|byte| byte.compare_exchange(head.0, 0, Acquire, Relaxed).is_ok())
    }

    /// Frees the allocation that begins at a frame, each of its blocks by `free`, the first one
    /// last. Of several callers at a time, one does.
    #[inline]
    pub(crate) fn free(
        &self,
        first: Pfn,
        head: Head,
        free: impl Fn(Pfn, Order) -> Result<(), Error>,
    ) -> Result<(), Unfreed> {
        if !self.take(first, head) {
            return Err(Unfreed::Taken);
        }
        if head.goes_on() {
            self.free_rest(first.offset(head.order().frames()), &free)?;
        }
        free(first, head.order()).map_err(Unfreed::Refused)
    }

    /// Frees the blocks that continue an allocation whose first the caller has taken.
    #[cold]
    fn free_rest(
        &self,
        mut next: Pfn,
        free: &impl Fn(Pfn, Order) -> Result<(), Error>,
    ) -> Result<(), Unfreed> {
        loop {
            let head = self.part(next).filter(|head| self.take(next, *head));
            let head = head.ok_or(Unfreed::Broken)?;
            free(next, head.order()).map_err(Unfreed::Refused)?;
            if !head.goes_on() {
                return Ok(());
            }
            next = next.offset(head.order().frames());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_was_put_and_is_taken_once() {
        let heads = Heads::<AtomicU8>::new(3);
        let [first, second, beyond] = [0, 2, 3].map(Pfn::new);
        for order in 0..=30 {
            let order = Order::new(order);
            heads.put(first, Head::of_range(order, true, false));
            heads.put(second, Head::of_range(order, false, true));
            let head = heads.first(first).unwrap();
            assert!(head.goes_on() && head.order() == order);
            assert_eq!(heads.first(second), None);
            assert!(!heads.part(second).unwrap().goes_on());
            assert!(heads.take(first, head) && !heads.take(first, head));
            assert_eq!((heads.first(first), heads.part(first)), (None, None));
        }
        heads.put(beyond, Head::block(Order::ZERO));
        assert_eq!(heads.first(beyond), None);
        assert!(!heads.take(Pfn::new(u64::MAX), Head::block(Order::ZERO)));
    }
}
