//! Frames: their numbers, how many, and their size.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

use super::Order;
use crate::geometry::FRAME_BYTES;

/// The number of a page frame: its physical address divided by the frame size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Pfn(u64);

impl Pfn {
    /// The frame with this number.
    #[inline]
    pub const fn new(number: u64) -> Self {
        Pfn(number)
    }

    /// The number itself.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The frame `count` frames above this one. Saturates at the largest number.
    #[inline]
    pub const fn offset(self, count: FrameCount) -> Self {
        Pfn(self.0.saturating_add(count.0))
    }

    /// The frame that the byte at a physical address lies in.
    #[inline]
    pub const fn from_address(address: u64, size: FrameSize) -> Self {
        Pfn(address >> size.shift)
    }

    /// The physical address of its first byte; `None` if that exceeds 64 bits.
    #[inline]
    pub const fn address(self, size: FrameSize) -> Option<u64> {
        self.0.checked_mul(1 << size.shift)
    }

    /// How many frames lie between `lower` and this one; `None` if `lower` is the higher one.
    #[inline]
    pub const fn frames_above(self, lower: Pfn) -> Option<FrameCount> {
        match self.0.checked_sub(lower.0) {
            Some(frames) => Some(FrameCount(frames)),
            None => None,
        }
    }

    /// Whether a block of `order` may start here: blocks lie at multiples of their size.
    #[inline]
    pub const fn is_aligned(self, order: Order) -> bool {
        self.0 & (order.frames().get() - 1) == 0
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pfn {:#x}", self.0)
    }
}

impl fmt::LowerHex for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::UpperHex for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::UpperHex::fmt(&self.0, f)
    }
}

impl From<u64> for Pfn {
    fn from(number: u64) -> Self {
        Pfn(number)
    }
}

impl From<Pfn> for u64 {
    fn from(pfn: Pfn) -> Self {
        pfn.0
    }
}

/// Panics in debug builds if the sum exceeds 64 bits, as integers do.
impl Add<FrameCount> for Pfn {
    type Output = Self;
    fn add(self, frames: FrameCount) -> Self {
        Pfn(self.0 + frames.0)
    }
}

/// Panics in debug builds if the sum exceeds 64 bits, as integers do.
impl AddAssign<FrameCount> for Pfn {
    fn add_assign(&mut self, frames: FrameCount) {
        self.0 += frames.0;
    }
}

/// Panics in debug builds if the right frame is the higher one, as integers do.
impl Sub for Pfn {
    type Output = FrameCount;
    fn sub(self, lower: Self) -> FrameCount {
        FrameCount(self.0 - lower.0)
    }
}

/// A number of page frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct FrameCount(u64);

impl FrameCount {
    /// No frames.
    pub const ZERO: Self = FrameCount(0);

    /// So many frames.
    #[inline]
    pub const fn new(count: u64) -> Self {
        FrameCount(count)
    }

    /// The count itself.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// How many frames so many bytes take: rounded up to whole frames.
    #[inline]
    pub const fn from_bytes(bytes: usize, size: FrameSize) -> Self {
        FrameCount(bytes.div_ceil(size.bytes()) as u64)
    }

    /// The difference; no frames if `other` is larger.
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        FrameCount(self.0.saturating_sub(other.0))
    }
}

impl From<u64> for FrameCount {
    fn from(count: u64) -> Self {
        FrameCount(count)
    }
}

impl From<FrameCount> for u64 {
    fn from(frames: FrameCount) -> Self {
        frames.0
    }
}

impl Add for FrameCount {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        FrameCount(self.0 + other.0)
    }
}

impl AddAssign for FrameCount {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

/// Panics in debug builds if the right count is larger, as integers do.
impl Sub for FrameCount {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        FrameCount(self.0 - other.0)
    }
}

/// Panics in debug builds if the right count is larger, as integers do.
impl SubAssign for FrameCount {
    fn sub_assign(&mut self, other: Self) {
        self.0 -= other.0;
    }
}

/// Panics in debug builds if the product exceeds 64 bits, as integers do.
impl Mul<u64> for FrameCount {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        FrameCount(self.0 * times)
    }
}

impl core::iter::Sum for FrameCount {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(FrameCount::ZERO, |a, b| a + b)
    }
}

impl fmt::LowerHex for FrameCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::Display for FrameCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames", self.0)
    }
}

/// The size of a frame: a power of two from 4 KiB to 1 GiB, the same for all frames of an
/// allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameSize {
    /// The size in bytes as a power of two.
    shift: u8,
}

impl FrameSize {
    /// The smallest size: 4 KiB.
    pub const MIN: Self = FrameSize { shift: 12 };

    /// The largest size: 1 GiB.
    pub const MAX: Self = FrameSize { shift: 30 };

    /// The default: [`FRAME_BYTES`].
    pub const DEFAULT: Self = match FrameSize::new(FRAME_BYTES) {
        Some(size) => size,
        None => panic!("FRAME_BYTES is not the size of a frame"),
    };

    /// The size of so many bytes; `None` unless that is a power of two from 4 KiB to 1 GiB.
    #[inline]
    pub const fn new(bytes: usize) -> Option<Self> {
        if !bytes.is_power_of_two() || bytes < Self::MIN.bytes() || bytes > Self::MAX.bytes() {
            return None;
        }
        Some(FrameSize { shift: bytes.ilog2() as u8 })
    }

    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        1 << self.shift
    }

    /// The size of so many frames in bytes. Saturates.
    #[inline]
    pub const fn bytes_of(self, frames: FrameCount) -> usize {
        let frames = if frames.0 > usize::MAX as u64 { usize::MAX } else { frames.0 as usize };
        frames.saturating_mul(self.bytes())
    }

    /// The size in KiB: 4 or more.
    #[inline]
    pub const fn kib(self) -> u64 {
        1 << (self.shift - 10)
    }
}

impl Default for FrameSize {
    fn default() -> Self {
        FrameSize::DEFAULT
    }
}

impl fmt::Display for FrameSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} KiB", self.kib())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::format;

    #[test]
    fn addresses_frames_and_bytes() {
        let size = FrameSize::MIN;
        assert_eq!(Pfn::from_address(0x5fff, size), Pfn::new(5));
        assert_eq!(Pfn::new(5).address(size), Some(0x5000));
        assert_eq!(Pfn::new(u64::MAX).address(size), None);
        assert_eq!(FrameCount::from_bytes(0, size), FrameCount::ZERO);
        assert_eq!(FrameCount::from_bytes(4097, size), FrameCount::new(2));
        assert_eq!(FrameCount::from_bytes(usize::MAX, size).get(), 1 << 52);
    }

    #[test]
    fn a_difference_of_frames_is_a_count() {
        let (low, high) = (Pfn::new(5), Pfn::new(12));
        assert_eq!(high - low, FrameCount::new(7));
        assert_eq!((high.frames_above(low), low.frames_above(high)), (Some(high - low), None));
        assert_eq!(low + FrameCount::new(7), high);
        let mut at = low;
        at += (high - low) * 2;
        assert_eq!(u64::from(at), 19);
        let mut count = high - low;
        count -= FrameCount::new(2);
        assert_eq!(count.get(), 5);
        assert_eq!(FrameCount::from(3).saturating_sub(FrameCount::new(5)), FrameCount::ZERO);
        assert_eq!(format!("{at:#x} {:X} {:x}", Pfn::from(0xab), high - low), "0x13 AB 7");
    }
}
