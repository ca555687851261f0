//! The orders and types of `mixed`: recorded, not invented.

use fastrand::Rng;
use freehold::{MigrateType, Order};

/// Number of orders in the table, from 0.
pub(super) const ORDERS: u8 = 4;

/// Of 10000 requests of the workload `build`, how many have each type and orders 0, 1, 2 and 3.
/// Recorded by the test below, which fails if the workload's requests differ.
const RECORDED: [(MigrateType, [u32; ORDERS as usize]); MigrateType::COUNT] = [
    (MigrateType::Unmovable, [851, 139, 151, 52]),
    (MigrateType::Movable, [7552, 150, 149, 153]),
    (MigrateType::Reclaimable, [403, 199, 120, 80]),
];

/// Draws requests by the table, the same for the same seed, as long as they ask for no more than so
/// many frames together.
pub(super) fn draw(frames: usize, seed: u64) -> Vec<(Order, MigrateType)> {
    let kinds: Vec<_> = kinds().collect();
    let all = kinds.iter().map(|(_, share)| share).sum::<u32>();
    let mut rng = Rng::with_seed(seed);
    let mut drawn = Vec::new();
    let mut left = frames as u64;
    loop {
        let mut point = rng.u32(..all);
        let kind = kinds.iter().find(|(_, share)| {
            let found = point < *share;
            point = point.wrapping_sub(*share);
            found
        });
        let &((order, migratetype), _) = kind.expect("the point lies below the sum");
        let Some(rest) = left.checked_sub(order.frames().get()) else {
            return drawn;
        };
        left = rest;
        drawn.push((order, migratetype));
    }
}

/// The kinds of requests, with their shares.
fn kinds() -> impl Iterator<Item = ((Order, MigrateType), u32)> {
    RECORDED.into_iter().flat_map(|(migratetype, shares)| {
        let orders = Order::ZERO.to(Order::new(ORDERS - 1));
        orders.zip(shares).map(move |(order, share)| ((order, migratetype), share))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use freehold::{
        BulkFreeError, Census, Compaction, Error, Events, FrameCount, Migrate, Pfn, RangeRequest,
        Request, Violation, ZoneLevel, ZoneStats,
    };
    use freehold_host::{ArenaBuilder, FrameArena, Host, Snapshot};
    use freehold_linux::zone_lock::ZoneLock;

    use super::*;
    use crate::frames::Frames;
    use crate::settings::Assignments;
    use crate::task::lru::{AnyLru, ReclaimingFrames};
    use crate::task::run_one;
    use crate::task::workload::{Setup, TaskWorkload};
    use crate::workloads::build::Build;

    /// Records the requests to an arena.
    struct Recorder {
        arena: FrameArena<ZoneLock<Host>>,
        asked: Mutex<HashMap<(Order, MigrateType), u32>>,
    }

    impl Frames for Recorder {
        fn alloc(&self, request: Request) -> Result<Pfn, Error> {
            let like =
                |kind: &&MigrateType| Request::new(request.order()).migratetype(**kind) == request;
            let kind = MigrateType::ALL.iter().find(like).expect("a plain request");
            *self.asked.lock().unwrap().entry((request.order(), *kind)).or_default() += 1;
            self.arena.allocator().alloc(request)
        }
        fn alloc_bulk(&self, _: Request, _: &mut [Pfn]) -> Result<usize, Error> {
            unreachable!("the workload allocates block by block")
        }
        fn alloc_compacting(&self, _: Request, _: &dyn Migrate) -> Result<Pfn, Error> {
            unreachable!("the workload does not compact")
        }
        fn compact_proactively(&self, _: u32, _: &dyn Migrate) -> Compaction {
            unreachable!("the workload does not compact")
        }
        fn alloc_range(&self, _: RangeRequest, _: &dyn Migrate) -> Result<Pfn, Error> {
            unreachable!("the workload takes no ranges")
        }
        fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
            self.arena.allocator().free(pfn, order)
        }
        fn free_bulk(&self, blocks: &[Pfn], order: Order) -> Result<(), BulkFreeError> {
            self.arena.allocator().free_bulk(blocks, order)
        }
        fn free_range(&self, _: Pfn, _: FrameCount) -> Result<(), Error> {
            unreachable!("the workload takes no ranges")
        }
        fn drain_all(&self) {
            self.arena.allocator().drain_all();
        }
        fn levels(&self) -> Vec<ZoneLevel> {
            self.arena.allocator().levels().collect()
        }
        fn zones(&self) -> Vec<ZoneStats> {
            self.arena.allocator().zones().collect()
        }
        fn events(&self) -> Events {
            self.arena.allocator().events()
        }
        fn snapshot(&self) -> Snapshot {
            Snapshot::of(self.arena.allocator())
        }
        fn validate(&self) -> Result<Census, Violation> {
            self.arena.allocator().validate()
        }
    }

    impl ReclaimingFrames for Recorder {
        fn alloc_or_reclaim(&self, _: Request, _: AnyLru<'_, '_>) -> Result<Pfn, Error> {
            unreachable!("the workload has no LRU")
        }
    }

    #[test]
    fn the_table_is_what_build_asks_for() {
        let given = ["jobs=100".to_owned()];
        let given = Assignments::parse(&given, &[Build::SETTINGS.1]).unwrap();
        let build = Build::new(&Setup { given: &given, tasks: 1, simulated: false }).unwrap();
        let arena = ArenaBuilder::new().bytes(64 << 20).build_frames().unwrap();
        let recorder = Recorder { arena, asked: Mutex::default() };
        run_one(&recorder.arena, &recorder, &build).unwrap();

        let asked = recorder.asked.into_inner().unwrap();
        let all: u32 = asked.values().sum();
        let of_10000 = |count: u32| (f64::from(count) * 1e4 / f64::from(all)).round() as u32;
        let recorded = RECORDED.map(|(migratetype, _)| {
            let orders: Vec<_> = Order::ZERO.to(Order::new(ORDERS - 1)).collect();
            let share = |&order: &Order| asked.get(&(order, migratetype)).copied();
            let shares = orders.iter().map(|order| of_10000(share(order).unwrap_or(0)));
            (migratetype, <[u32; ORDERS as usize]>::try_from(shares.collect::<Vec<_>>()).unwrap())
        });
        assert!(asked.keys().all(|(order, _)| order.get() < ORDERS), "{asked:?}");
        assert_eq!(recorded, RECORDED, "as RECORDED should say");
    }

    #[test]
    fn drawn_requests_follow_the_table() {
        let drawn = draw(100_000, 1);
        let frames: u64 = drawn.iter().map(|(order, _)| order.frames().get()).sum();
        assert!((100_000 - 8..=100_000).contains(&frames), "{frames}");
        for (kind, share) in kinds() {
            let count = drawn.iter().filter(|&&of| of == kind).count();
            let expected = drawn.len() as f64 * f64::from(share) / 1e4;
            assert!((count as f64 - expected).abs() < 6.0 * expected.sqrt() + 5.0, "{kind:?}");
        }
        assert!(draw(1000, 2) == draw(1000, 2) && draw(1000, 2) != draw(1000, 3));
    }
}
