//! Calls that many tests make.

use freehold::{Design, Order, Pfn, Request, Watermark};
use freehold_host::{FrameArena, Host};
use freehold_lru::{Claim, Owner, Verdict};

/// An owner of no content.
pub(crate) struct Idle;

impl Owner for Idle {
    fn reclaim(&self, _: Pfn) -> Verdict {
        Verdict::Keep
    }
    fn forget(&self, _: Pfn, _: Claim<'_>) {}
    fn release(&self, _: &[Pfn], _: Order) {}
}

/// More calls than a thread makes before it gets a lease.
pub(crate) const MANY: usize = 5000;

/// A frame, the reserves included.
pub(crate) fn request() -> Request {
    Request::default().watermark(Watermark::Ignore)
}

pub(crate) fn take_all<D: Design<Host>>(frames: &FrameArena<D>) -> Vec<Pfn> {
    std::iter::from_fn(|| frames.alloc(request()).ok()).collect()
}

pub(crate) fn call(frames: &FrameArena) {
    let pfn = frames.alloc(Request::default()).expect("memory is free");
    frames.free(pfn, Order::ZERO).expect("it is ours");
}

/// Makes so many calls that this thread has a lease, if there is one for it.
pub(crate) fn call_often(frames: &FrameArena) {
    (0..MANY).for_each(|_| call(frames));
}

/// The next number of Marsaglia's xorshift generator, for threads and handlers of signals.
pub(crate) fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}
