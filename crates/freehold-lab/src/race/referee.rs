//! The referee: no frame is allocated twice, none is invented, blocks are aligned, and all frames
//! can be allocated again in the end.
//!
//! It never checks while the clock runs. Between allocating and freeing, all threads show what they
//! hold, at one time; so it sees a frame that two of them hold, no matter when each got it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{PoisonError, RwLock};

use freehold::Order;

/// Why a contestant is disqualified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Two holders of one frame.
    Twice { frame: u64 },
    /// A block with frames that the contestant does not manage.
    Outside { frame: u64, managed: u64 },
    /// A block that does not begin at a multiple of its size.
    Misaligned { frame: u64, order: Order },
    /// All frames are freed, but not all can be allocated again.
    Lost { frames: u64, managed: u64 },
    /// There was no block, although there is memory for it.
    OutOfMemory { held: usize, order: Order },
    /// A free of an allocated block was refused.
    Refused,
    /// The contestant's own consistency check failed.
    Books(String),
    /// It panicked.
    Panicked(String),
    /// Another thread failed, and this one waited for it.
    Abandoned,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Twice { frame } => write!(f, "allocated frame {frame} twice"),
            Failure::Outside { frame, managed } => {
                write!(f, "allocated frame {frame}, but manages {managed} frames")
            }
            Failure::Misaligned { frame, order } => {
                let order = order.get();
                write!(f, "allocated a block of order {order} at frame {frame}, misaligned")
            }
            Failure::Lost { frames, managed } => {
                write!(f, "lost {frames} of {managed} frames: they could not be allocated again")
            }
            Failure::OutOfMemory { held, order } => {
                let order = order.get();
                write!(f, "had no block of order {order} for a thread that held {held}, ")?;
                f.write_str("although there is memory for all")
            }
            Failure::Refused => f.write_str("refused to free what it had allocated"),
            Failure::Books(problem) => write!(f, "its own consistency check failed: {problem}"),
            Failure::Panicked(message) => write!(f, "panicked: {message}"),
            Failure::Abandoned => f.write_str("another thread failed"),
        }
    }
}

impl From<crate::peers::Refused> for Failure {
    fn from(_: crate::peers::Refused) -> Self {
        Failure::Refused
    }
}

/// Frames whose state shares a page of the book.
const PAGE_FRAMES: u64 = 1 << 15;

type Page = Box<[AtomicU64; (PAGE_FRAMES / 64) as usize]>;

/// A block by its first frame.
pub(crate) type Block = (u64, Order);

/// Passes blocks on so many at a time: what looks at them is compiled once, and not once for each
/// contestant.
fn in_runs(
    blocks: impl Iterator<Item = Block>,
    each: &mut dyn FnMut(&[Block]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut run = [(0, Order::ZERO); 64];
    let mut count = 0;
    for block in blocks {
        run[count] = block;
        count += 1;
        if count == run.len() {
            each(&run)?;
            count = 0;
        }
    }
    each(&run[..count])
}

/// Which frames are held: one bit a frame, in pages that are created on demand, since frames of a
/// malloc may lie anywhere.
pub(crate) struct Book {
    /// How many frames there are, from 0; `None` for the whole address space.
    managed: Option<u64>,
    /// Whether blocks must be aligned.
    aligned: bool,
    pages: RwLock<HashMap<u64, Page>>,
}

impl Book {
    pub(crate) fn new(managed: Option<u64>, aligned: bool) -> Self {
        Book { managed, aligned, pages: RwLock::default() }
    }

    /// Enters blocks that are held from now on, each by its first frame.
    ///
    /// # Errors
    ///
    /// [`Failure::Twice`], [`Failure::Outside`], [`Failure::Misaligned`].
    pub(crate) fn claim(&self, blocks: impl Iterator<Item = Block>) -> Result<(), Failure> {
        in_runs(blocks, &mut |run| {
            self.make_pages(run)?;
            self.each_frame(run, |word, bit| word.fetch_or(bit, Relaxed) & bit == 0)
        })
    }

    /// Removes them again: they are about to be freed.
    ///
    /// # Errors
    ///
    /// [`Failure::Twice`]: another holder has claimed and released them meanwhile.
    pub(crate) fn release(&self, blocks: impl Iterator<Item = Block>) -> Result<(), Failure> {
        in_runs(blocks, &mut |run| {
            self.each_frame(run, |word, bit| word.fetch_and(!bit, Relaxed) & bit != 0)
        })
    }

    /// Checks that such blocks exist, and that they have pages.
    fn make_pages(&self, blocks: &[Block]) -> Result<(), Failure> {
        let mut last = None;
        for &(first, order) in blocks {
            self.check(first, order)?;
            let end = first + order.frames().get() - 1;
            for number in first / PAGE_FRAMES..=end / PAGE_FRAMES {
                if last != Some(number) {
                    self.make_page(number);
                    last = Some(number);
                }
            }
        }
        Ok(())
    }

    fn make_page(&self, number: u64) {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        if !pages.contains_key(&number) {
            drop(pages);
            let mut pages = self.pages.write().unwrap_or_else(PoisonError::into_inner);
            let blank = || Box::new([const { AtomicU64::new(0) }; (PAGE_FRAMES / 64) as usize]);
            pages.entry(number).or_insert_with(blank);
        }
    }

    /// Flips the bit of each frame; one that does not flip as expected is held twice. Relaxed: a
    /// bit is flipped once whatever the order, and threads meet between claiming and releasing.
    fn each_frame(
        &self,
        blocks: &[Block],
        flips: fn(&AtomicU64, u64) -> bool,
    ) -> Result<(), Failure> {
        let pages = self.pages.read().unwrap_or_else(PoisonError::into_inner);
        let mut last: Option<(u64, &Page)> = None;
        for &(first, order) in blocks {
            for frame in first..first + order.frames().get() {
                let number = frame / PAGE_FRAMES;
                let page = match last {
                    Some((of, page)) if of == number => page,
                    _ => pages.get(&number).ok_or(Failure::Twice { frame })?,
                };
                last = Some((number, page));
                let at = frame % PAGE_FRAMES;
                if !flips(&page[(at / 64) as usize], 1 << (at % 64)) {
                    return Err(Failure::Twice { frame });
                }
            }
        }
        Ok(())
    }

    fn check(&self, frame: u64, order: Order) -> Result<(), Failure> {
        let end = frame.checked_add(order.frames().get());
        if let Some(managed) = self.managed
            && end.is_none_or(|end| end > managed)
        {
            return Err(Failure::Outside { frame, managed });
        }
        if self.aligned && !freehold::Pfn::new(frame).is_aligned(order) {
            return Err(Failure::Misaligned { frame, order });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Order = Order::ZERO;
    const HUGE: Order = Order::PAGEBLOCK;

    fn claim(book: &Book, blocks: &[(u64, Order)]) -> Result<(), Failure> {
        book.claim(blocks.iter().copied())
    }

    fn release(book: &Book, blocks: &[(u64, Order)]) -> Result<(), Failure> {
        book.release(blocks.iter().copied())
    }

    #[test]
    fn what_is_released_may_be_claimed_again() {
        let book = Book::new(Some(2 * PAGE_FRAMES), true);
        let blocks = [(0, FRAME), (5, FRAME), (512, HUGE), (PAGE_FRAMES, HUGE)];
        for _ in 0..3 {
            assert_eq!(claim(&book, &blocks), Ok(()));
            assert_eq!(release(&book, &blocks), Ok(()));
        }
    }

    #[test]
    fn a_frame_held_twice_is_found_alone_and_inside_a_block() {
        let book = Book::new(None, true);
        assert_eq!(claim(&book, &[(1 << 40, FRAME), (1024, HUGE)]), Ok(()));
        assert_eq!(claim(&book, &[(1 << 40, FRAME)]), Err(Failure::Twice { frame: 1 << 40 }));
        assert_eq!(claim(&book, &[(1030, FRAME)]), Err(Failure::Twice { frame: 1030 }));
        assert_eq!(release(&book, &[(7, FRAME)]), Err(Failure::Twice { frame: 7 }));
    }

    #[test]
    fn a_frame_that_is_not_there_and_a_block_out_of_line_are_found() {
        let book = Book::new(Some(1024), true);
        let outside = |frame| Err(Failure::Outside { frame, managed: 1024 });
        assert_eq!(claim(&book, &[(1024, FRAME)]), outside(1024));
        assert_eq!(claim(&book, &[(u64::MAX, FRAME)]), outside(u64::MAX));
        assert_eq!(claim(&book, &[(1000, HUGE)]), outside(1000));
        let misaligned = Err(Failure::Misaligned { frame: 3, order: HUGE });
        assert_eq!(claim(&book, &[(3, HUGE)]), misaligned);
        assert_eq!(claim(&Book::new(None, false), &[(3, HUGE)]), Ok(()));
    }

    #[test]
    fn a_block_over_the_end_of_a_page_is_entered_in_both() {
        let book = Book::new(None, false);
        let block = (PAGE_FRAMES - 100, HUGE);
        assert_eq!(claim(&book, &[block]), Ok(()));
        for frame in [PAGE_FRAMES - 100, PAGE_FRAMES - 1, PAGE_FRAMES, PAGE_FRAMES + 411] {
            assert_eq!(claim(&book, &[(frame, FRAME)]), Err(Failure::Twice { frame }));
        }
        assert_eq!(claim(&book, &[(PAGE_FRAMES + 412, FRAME)]), Ok(()));
    }
}
