//! What jobs ask for, and for how long: kinds of blocks by their shares.

use fastrand::Rng;
use freehold::MigrateType;

/// How long a block lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// Until a few more blocks have been allocated.
    Scratch,
    /// Until the end of the job.
    Job,
    /// Until the cache is full of newer ones.
    Cache,
    /// Until there is too much of it, and it is drawn to go.
    Lasting,
}

/// A kind of blocks.
pub(super) struct Kind {
    /// Of all allocations, by the sum of the shares.
    pub(super) share: u32,
    pub(super) migratetype: MigrateType,
    /// Of 100 blocks, how many have order 0, 1, 2 and 3.
    pub(super) orders: [u32; 4],
    pub(super) life: Life,
    /// Whether it is memory of a process, which is faulted in.
    pub(super) faulted: bool,
}

pub(super) const CHOSEN: &[Kind] = &[
    // Heaps of compilers, part of which is freed at once.
    kind(20, MigrateType::Movable, [100, 0, 0, 0], Life::Scratch, true),
    kind(45, MigrateType::Movable, [100, 0, 0, 0], Life::Job, true),
    // Sources, headers, objects.
    kind(15, MigrateType::Movable, [70, 10, 10, 10], Life::Cache, false),
    // Directory entries and inodes.
    kind(8, MigrateType::Reclaimable, [50, 25, 15, 10], Life::Cache, false),
    // Page tables, stacks, buffers of pipes.
    kind(10, MigrateType::Unmovable, [70, 10, 15, 5], Life::Job, false),
    // What the kernel keeps for long.
    kind(2, MigrateType::Unmovable, [80, 20, 0, 0], Life::Lasting, false),
];

/// As in `examples/traces/compile.fht`, a recording of `cargo build`: `freehold trace info` says
/// that of 78,577 allocations 71,640 were for processes, 5,546 for cached files and 1,391 for the
/// kernel, 99.7 % of order 0. What part is freed early, and what lasts, it does not say: both are
/// as in [`CHOSEN`].
pub(super) const RECORDED: &[Kind] = &[
    kind(281, MigrateType::Movable, [100, 0, 0, 0], Life::Scratch, true),
    kind(631, MigrateType::Movable, [100, 0, 0, 0], Life::Job, true),
    kind(70, MigrateType::Movable, [100, 0, 0, 0], Life::Cache, false),
    kind(15, MigrateType::Unmovable, [85, 5, 5, 5], Life::Job, false),
    kind(3, MigrateType::Unmovable, [80, 20, 0, 0], Life::Lasting, false),
];

const fn kind(
    share: u32,
    migratetype: MigrateType,
    orders: [u32; 4],
    life: Life,
    faulted: bool,
) -> Kind {
    Kind { share, migratetype, orders, life, faulted }
}

/// Draws one of several by their weights.
pub(super) fn drawn(rng: &mut Rng, weights: impl Iterator<Item = u32> + Clone) -> usize {
    let mut point = rng.u32(..weights.clone().sum::<u32>());
    for (index, weight) in weights.enumerate() {
        match point.checked_sub(weight) {
            Some(rest) => point = rest,
            None => return index,
        }
    }
    unreachable!("the point lies below the sum of the weights")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_decide() {
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 4];
        for _ in 0..10_000 {
            counts[drawn(&mut rng, [70, 0, 20, 10].into_iter())] += 1;
        }
        assert_eq!(counts[1], 0);
        assert!((6_700..7_300).contains(&counts[0]) && counts[2] > counts[3], "{counts:?}");
        let shares = |kinds: &[Kind]| kinds.iter().map(|kind| kind.share).sum::<u32>();
        assert_eq!((shares(CHOSEN), shares(RECORDED)), (100, 1000));
    }
}
