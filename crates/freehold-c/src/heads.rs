//! Which allocations there are, by their first frame.
//!
//! The allocator is told the size of what is freed, and C is not to. It could be asked for it, but
//! while two threads free one block, which is wrong and happens, its answer is about a block that
//! is half free; and it holds a range as several blocks, and knows of each, not that they belong
//! together. So there is a byte for each frame: it says which block begins there, and the call
//! that takes it away is the one to free the block.
#![expect(unsafe_code, reason = "makes atomic bytes of zeroed memory that is not touched yet")]

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use freehold::{Order, Pfn};

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
    pub(crate) fn of_range(order: Order, is_first: bool, is_last: bool) -> Self {
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

/// The bytes. All accesses are relaxed: who allocates a frame comes after who has freed it, by the
/// allocator; and the caller who has a pointer after who has allocated it.
#[derive(Debug)]
pub(crate) struct Heads(Box<[AtomicU8]>);

impl Heads {
    pub(crate) fn new(frames: usize) -> Self {
        // The memory comes zeroed from the machine, a page when it is first touched.
        let zeroes = Box::into_raw(vec![0u8; frames].into_boxed_slice());
        // SAFETY: The memory is the box's, and atomic bytes have the layout of bytes.
        Heads(unsafe { Box::from_raw(zeroes as *mut [AtomicU8]) })
    }

    #[inline]
    fn byte(&self, pfn: Pfn) -> Option<&AtomicU8> {
        self.0.get(usize::try_from(pfn.get()).ok()?)
    }

    /// Notes what begins at a frame that the caller has allocated.
    #[inline]
    pub(crate) fn put(&self, pfn: Pfn, head: Head) {
        if let Some(byte) = self.byte(pfn) {
            byte.store(head.0, Relaxed);
        }
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
        self.byte(pfn)
            .is_some_and(|byte| byte.compare_exchange(head.0, 0, Relaxed, Relaxed).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_what_was_put_and_is_taken_once() {
        let heads = Heads::new(3);
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
