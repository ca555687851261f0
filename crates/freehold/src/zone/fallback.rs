//! Which migratetypes stand in for one that has run out.
//!
//! After Linux 6.12 (`fallbacks`).

use crate::units::MigrateType;

/// The types that stand in for one that has run out, best first.
pub const FALLBACKS: [[MigrateType; 2]; MigrateType::COUNT] = [
    [MigrateType::Reclaimable, MigrateType::Movable],
    [MigrateType::Reclaimable, MigrateType::Unmovable],
    [MigrateType::Unmovable, MigrateType::Movable],
];
