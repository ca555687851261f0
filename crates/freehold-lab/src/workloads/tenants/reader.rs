//! What a tenant reads next.

use fastrand::Rng;

use super::tenancy::{Sort, Tenancy};

/// So many blocks are read ahead of one that is read in order: 128 KiB, as in Linux.
const READAHEAD: u64 = 32;

/// One in so many reads of a noisy tenant is of a block that it read recently.
const AGAIN_EVERY: u64 = 16;

/// Draws rank `i` with a probability in proportion to `1 / (i + 1)`. In whole numbers, so that all
/// hosts draw the same.
pub(super) struct Zipf {
    sums: Vec<u64>,
}

impl Zipf {
    pub(super) fn new(ranks: u64) -> Self {
        let add = |sum: &mut u64, rank| {
            *sum += (1 << 32) / rank;
            Some(*sum)
        };
        Zipf { sums: (1..=ranks).scan(0, add).collect() }
    }

    fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.u64(..self.sums.last().copied().unwrap_or(1));
        self.sums.partition_point(|&sum| sum <= at) as u64
    }
}

/// One read of a tenant's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) block: u64,
    /// Whether the disk is waited for if the block is not cached: not if it was read ahead.
    pub(super) waits: bool,
}

/// One task's reads.
pub(super) struct Reader<'a> {
    sort: Sort,
    rng: Rng,
    popular: &'a Zipf,
    hot: u64,
    cold: u64,
    share: u64,
    /// How many blocks it has read in order.
    read: u64,
}

impl<'a> Reader<'a> {
    /// The reads of the `nth` task of a tenant, whose hot set is as large as `popular` has ranks.
    /// The tasks of one tenant are at different places of its file.
    pub(super) fn new(
        tenancy: &Tenancy,
        sort: Sort,
        nth: usize,
        popular: &'a Zipf,
        rng: Rng,
    ) -> Self {
        let (hot, cold) = (tenancy.hot_blocks(sort), tenancy.cold_blocks(sort));
        let share = tenancy.share_frames;
        // Multiples of an irrational part of the file are apart, however many there are.
        let read = nth as u64 * (cold * 382 / 1000 / READAHEAD * READAHEAD);
        Reader { sort, rng, popular, hot, cold, share, read }
    }

    pub(super) fn next(&mut self) -> Step {
        match self.sort {
            Sort::Hot => self.hot(),
            Sort::Scan if self.rng.bool() => self.hot(),
            Sort::Noisy if self.read > 0 && self.rng.u64(..AGAIN_EVERY) == 0 => {
                let back = self.rng.u64(1..=self.share.min(self.read));
                Step { block: (self.read - back) % self.cold, waits: true }
            }
            Sort::Scan | Sort::Noisy => {
                let nth = self.read;
                self.read += 1;
                let waits = nth.is_multiple_of(READAHEAD);
                Step { block: self.hot + nth % self.cold, waits }
            }
        }
    }

    fn hot(&mut self) -> Step {
        Step { block: self.popular.draw(&mut self.rng), waits: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANCY: Tenancy = Tenancy { tenants: 4, noisy: 1, share_frames: 64 };

    fn reads(sort: Sort, nth: usize, count: usize) -> Vec<Step> {
        let popular = Zipf::new(TENANCY.hot_blocks(sort).max(1));
        let mut reader = Reader::new(&TENANCY, sort, nth, &popular, Rng::with_seed(1));
        (0..count).map(|_| reader.next()).collect()
    }

    #[test]
    fn ranks_are_drawn_by_their_popularity() {
        let (zipf, mut rng) = (Zipf::new(4), Rng::with_seed(7));
        let mut counts = [0_u32; 4];
        (0..25_000).for_each(|_| counts[zipf.draw(&mut rng) as usize] += 1);
        // 1 + 1/2 + 1/3 + 1/4 is 25/12.
        for (count, expected) in counts.into_iter().zip([12_000, 6_000, 4_000, 3_000]) {
            assert!(count.abs_diff(expected) < expected / 10, "{counts:?}");
        }
    }

    #[test]
    fn a_hot_tenant_reads_its_set_and_a_scanning_one_half_of_the_time() {
        assert!(reads(Sort::Hot, 0, 1000).iter().all(|step| step.block < 48 && step.waits));
        let scan = reads(Sort::Scan, 0, 1000);
        let (hot, cold): (Vec<Step>, Vec<Step>) = scan.iter().partition(|step| step.block < 32);
        assert!((400..600).contains(&hot.len()));
        for (nth, step) in (0..).zip(cold) {
            assert_eq!(step, Step { block: 32 + nth % 512, waits: nth % 32 == 0 });
        }
    }

    #[test]
    fn a_noisy_tenant_reads_most_blocks_once() {
        let steps = reads(Sort::Noisy, 0, 500);
        let mut blocks: Vec<_> = steps.iter().map(|step| step.block).collect();
        blocks.sort_unstable();
        blocks.dedup();
        assert!((450..490).contains(&blocks.len()), "{}", blocks.len());
    }

    #[test]
    fn tasks_of_one_tenant_are_at_different_places() {
        let first = |nth| reads(Sort::Noisy, nth, 3).iter().find(|step| !step.waits).unwrap().block;
        assert_eq!(first(0), 1);
        assert!(first(1) > 100 && first(2) > first(1) + 100, "{} {}", first(1), first(2));
    }
}
