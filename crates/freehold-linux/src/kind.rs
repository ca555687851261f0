//! What a request asks for: a block of an order, for content of a migratetype.

use freehold::request::Request;
use freehold::units::{MigrateType, Order};

/// The order of a block, and the migratetype of its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub(crate) order: Order,
    pub(crate) migratetype: MigrateType,
}

impl Kind {
    /// What a request asks for.
    #[inline(always)]
    pub(crate) fn of(request: &Request) -> Self {
        Kind { order: request.order(), migratetype: request.content() }
    }

    /// A block for movable content.
    pub(crate) const fn movable(order: Order) -> Self {
        Kind { order, migratetype: MigrateType::Movable }
    }
}
