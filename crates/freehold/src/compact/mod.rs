//! Compaction: what the allocator asks of the owners of content, and what it reports.

use core::fmt;

use crate::units::{FrameCount, Order, Pfn};

pub mod state;

/// The largest order that allocations commonly ask for and that should rarely fail: Linux's
/// `PAGE_ALLOC_COSTLY_ORDER`.
pub const COSTLY_ORDER: Order = Order::new(3);

/// An owner of movable memory that can move its content.
///
/// # The protocol
///
/// The allocator asks; the owner moves content and handle, or refuses. During the call both blocks
/// are allocated, with the same order, `to` as movable, and the allocator holds no lock: the owner
/// may call it, and other CPUs proceed.
///
/// * `Ok`: the owner now holds `to`, and no longer `from`, which the allocator frees, unless
///   [`Migrate::frees_source`]. The owner may free `to` from the moment it has switched, even
///   before the call returns.
/// * `Err`: nothing has moved. The owner still holds `from`, or freed it itself, and does not hold
///   `to`, which the allocator frees.
/// * An owner that has freed `from`, or does so concurrently, must return [`MigrateError::Busy`].
///   So it must look `from` up under the same lock under which it releases blocks.
/// * A panic counts as an `Err`: the allocator frees `to` while the stack unwinds.
///
/// Only blocks of [`MigrateType::Movable`](crate::MigrateType::Movable) are passed, and those of
/// which [`Migrate::can_move`] says so, each with the order that it was allocated with, or that
/// frees of its parts have left it.
pub trait Migrate {
    /// Moves the content of the block of `order` at `from` to the one at `to`.
    ///
    /// # Errors
    ///
    /// [`MigrateError`] if nothing has moved.
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError>;

    /// Whether the owner itself frees `from` when its content has moved, at once or later: as
    /// Linux's `migrate_pages` does, where others may hold a page for a while. Then it may also
    /// move content in parts, free what is left of `to`, and keep what is left of `from`.
    fn frees_source(&self) -> bool {
        false
    }

    /// Whether the owner knows of each block whether its content can move, whatever type it was
    /// allocated as: Linux allocates the cached pages of a disk as unmovable, and moves them. Then
    /// [`Migrate::can_move`] is worth asking in pageblocks where nothing else can move.
    fn knows_content(&self) -> bool {
        false
    }

    /// Whether the content of the block of `order` at `block` can move, though it was allocated as
    /// unmovable or reclaimable, or lies so near to such content that the allocator cannot tell. By
    /// default it cannot.
    ///
    /// Asked for each block of the places that compaction and ranges consider, without a lock: the
    /// block may be freed already, or not yet known. A wrong answer costs an attempt.
    fn can_move(&self, _block: Pfn, _order: Order) -> bool {
        false
    }

    /// Gets rid of the content of the block of `order` at `from`, and frees it, at once or later:
    /// the owner moves it to memory that it has elsewhere, or discards it. Asked where a range must
    /// become free, if there is no target or the content cannot be moved there. By default the
    /// owner cannot.
    ///
    /// # Errors
    ///
    /// [`MigrateError`] if nothing has moved.
    fn evict(&self, _from: Pfn, _order: Order) -> Result<(), MigrateError> {
        Err(MigrateError::Failed)
    }
}

/// Why an owner did not move content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrateError {
    /// The block is in use, or is being freed: a later attempt may succeed.
    Busy,
    /// The content cannot be moved.
    Failed,
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MigrateError::Busy => "the block is in use or being freed",
            MigrateError::Failed => "the content of the block cannot be moved",
        })
    }
}

impl core::error::Error for MigrateError {}

/// An owner whose content never moves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Immovable;

impl Migrate for Immovable {
    fn migrate(&self, _from: Pfn, _to: Pfn, _order: Order) -> Result<(), MigrateError> {
        Err(MigrateError::Failed)
    }
}

/// What a compaction did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compaction {
    /// Pageblocks scanned for content to move.
    pub pageblocks: u64,
    /// Frames whose content was moved.
    pub migrated: FrameCount,
    /// Blocks that stayed because their owner returned [`MigrateError::Busy`].
    pub busy: u64,
    /// Blocks that stayed because their owner returned [`MigrateError::Failed`], or claimed to have
    /// moved what it did not hold.
    pub failed: u64,
    /// Blocks that stayed because no free block of their size was left to move them to.
    pub without_target: u64,
    /// Frames merged because a free had deferred it.
    pub merged_late: FrameCount,
}

impl Compaction {
    /// Adds another compaction's counts to this one.
    pub fn add(&mut self, other: &Compaction) {
        self.pageblocks += other.pageblocks;
        self.migrated += other.migrated;
        self.busy += other.busy;
        self.failed += other.failed;
        self.without_target += other.without_target;
        self.merged_late += other.merged_late;
    }
}
