//! The first word of each frame, which tells who owns it.

use freehold::{Order, Pfn};

/// How the first word of a frame is reached: in a kernel, through its direct map.
///
/// The calls are made only for frames that the caller of the checks has allocated. Reads and writes
/// must really happen, so they are volatile or atomic; relaxed will do.
pub trait Stamps {
    /// Reads the first word of a frame.
    fn read(&self, frame: Pfn) -> u64;
    /// Writes the first word of a frame.
    fn write(&self, frame: Pfn, stamp: u64);
}

/// The stamp of a frame that is free.
pub(crate) const FREE: u64 = 0;

/// All frames of a block.
pub(crate) fn frames(first: Pfn, order: Order) -> impl Iterator<Item = Pfn> {
    (first.get()..first.get() + order.frames().get()).map(Pfn::new)
}

/// Replaces the stamps of a block. Returns how many were not the expected one.
pub(crate) fn replace<S: Stamps>(
    stamps: &S,
    (first, order): (Pfn, Order),
    expected: u64,
    new: u64,
) -> u64 {
    let mut wrong = 0;
    for frame in frames(first, order) {
        wrong += u64::from(stamps.read(frame) != expected);
        stamps.write(frame, new);
    }
    wrong
}
