//! What an arena says of itself.

use std::fmt::Write as _;

use freehold::{FrameCount, Violation};
use freehold_host::Snapshot;

use crate::args::{freehold_census, freehold_stats};
use crate::error::freehold_error::*;
use crate::error::{Result, explain};
use crate::freehold_arena;

/// For freehold_stats_text: the fields of freehold_stats as one JSON object, on one line.
pub const FREEHOLD_TEXT_JSON: u32 = 0;
/// For freehold_stats_text: the text format of Prometheus.
pub const FREEHOLD_TEXT_PROMETHEUS: u32 = 1;
/// For freehold_stats_text: free blocks by order, as /proc/buddyinfo has them.
pub const FREEHOLD_TEXT_BUDDYINFO: u32 = 2;
/// For freehold_stats_text: levels and watermarks, as /proc/zoneinfo has them.
pub const FREEHOLD_TEXT_ZONEINFO: u32 = 3;

impl freehold_arena {
    pub(crate) fn stats(&self) -> freehold_stats {
        let (frames, allocator) = (&self.frames, self.frames.allocator());
        let events = allocator.events();
        let mut sums = [FrameCount::ZERO; 4];
        for zone in allocator.zones() {
            let counts = [zone.managed, zone.free, zone.per_cpu, zone.isolated];
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let [managed, free, per_cpu, isolated] = sums.map(FrameCount::get);
        freehold_stats {
            size: size_of::<freehold_stats>(),
            frame_bytes: frames.frame_size().bytes() as u64,
            capacity_bytes: frames.capacity_bytes() as u64,
            metadata_bytes: frames.metadata_bytes() as u64,
            managed,
            // Counted one after the other: while calls are under way, they may not add up.
            allocated: managed.saturating_sub(free + per_cpu + isolated),
            free,
            per_cpu,
            isolated,
            allocated_total: events.allocated.get(),
            freed_total: events.freed.get(),
            refills: events.refills,
            drains: events.drains,
            ranges: events.ranges,
            double_frees_late: events.double_frees_late.get(),
            purged_total: self.purged(),
            spare_leases: frames.spare_leases() as u64,
        }
    }

    pub(crate) fn text(&self, format: u32) -> Result<String> {
        let snapshot = || Snapshot::of(self.frames.allocator());
        match format {
            FREEHOLD_TEXT_JSON => Ok(json(&self.stats())),
            FREEHOLD_TEXT_PROMETHEUS => Ok(snapshot().prometheus()),
            FREEHOLD_TEXT_BUDDYINFO => Ok(snapshot().buddyinfo()),
            FREEHOLD_TEXT_ZONEINFO => Ok(snapshot().zoneinfo()),
            _ => Err(FREEHOLD_EINVAL),
        }
    }

    pub(crate) fn census(&self) -> Result<freehold_census> {
        let census = self.frames.allocator().validate().map_err(|violation: Violation| {
            explain(violation.to_string());
            FREEHOLD_ECORRUPT
        })?;
        Ok(freehold_census {
            size: size_of::<freehold_census>(),
            managed: census.managed.get(),
            allocated: census.allocated.get(),
            free: census.free.get(),
            per_cpu: census.per_cpu.get(),
            isolated: census.isolated.get(),
        })
    }
}

/// Numbers under names of letters: no library is needed for that.
fn json(stats: &freehold_stats) -> String {
    // All fields by name, so that a new one cannot be forgotten here.
    let freehold_stats {
        size: _,
        frame_bytes,
        capacity_bytes,
        metadata_bytes,
        managed,
        allocated,
        free,
        per_cpu,
        isolated,
        allocated_total,
        freed_total,
        refills,
        drains,
        ranges,
        double_frees_late,
        purged_total,
        spare_leases,
    } = *stats;
    let fields = [
        ("frame_bytes", frame_bytes),
        ("capacity_bytes", capacity_bytes),
        ("metadata_bytes", metadata_bytes),
        ("managed", managed),
        ("allocated", allocated),
        ("free", free),
        ("per_cpu", per_cpu),
        ("isolated", isolated),
        ("allocated_total", allocated_total),
        ("freed_total", freed_total),
        ("refills", refills),
        ("drains", drains),
        ("ranges", ranges),
        ("double_frees_late", double_frees_late),
        ("purged_total", purged_total),
        ("spare_leases", spare_leases),
    ];
    let mut text = String::from("{\"schema\": \"freehold.stats/1\"");
    for (name, value) in fields {
        // Writing to a string cannot fail.
        let _ok = write!(text, ", \"{name}\": {value}");
    }
    text + "}"
}
