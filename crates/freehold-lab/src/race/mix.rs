//! The orders and types of `mixed`: recorded, not invented.

use fastrand::Rng;
use freehold::{MigrateType, Order};

/// Number of orders in the table, from 0.
pub(super) const ORDERS: u8 = 4;

/// Of 10000 requests of the workload `build`, how many have each type and orders 0, 1, 2 and 3: as
/// recorded of 200,000. The test below fails if the workload asks for other shares.
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
    use super::*;
    use crate::workloads::build::CHOSEN;

    /// Within three standard deviations of the shares that the workload draws by.
    #[test]
    fn the_table_is_what_build_asks_for() {
        for (migratetype, recorded) in RECORDED {
            for (order, recorded) in recorded.into_iter().enumerate() {
                let of_type = CHOSEN.iter().filter(|kind| kind.migratetype == migratetype);
                let expected: u32 = of_type.map(|kind| kind.share * kind.orders[order]).sum();
                let off = f64::from(recorded) - f64::from(expected);
                assert!(
                    off.abs() <= 3.0 * (f64::from(expected) / 20.0).sqrt(),
                    "{migratetype:?}, {order}: {recorded} of {expected}"
                );
            }
        }
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
