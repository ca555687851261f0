//! What is in a recording.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::event::{Context, Event, Kind, What};
use crate::gfp::Gfp;
use crate::live::{Freed, Live};

/// Counts over the events of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Summary {
    /// Events by the name of their kind.
    pub events: BTreeMap<&'static str, u64>,
    /// Events by CPU.
    pub events_by_cpu: BTreeMap<u32, u64>,
    /// Events that interrupts caused.
    pub events_in_interrupts: u64,
    /// Allocations that were served, by order.
    pub allocations_by_order: Vec<u64>,
    /// The same by the name of the migratetype.
    pub allocations_by_type: BTreeMap<&'static str, u64>,
    /// The same by GFP flags.
    pub allocations_by_gfp: BTreeMap<String, u64>,
    /// Allocations that were refused.
    pub allocations_failed: u64,
    /// Frees by order.
    pub frees_by_order: Vec<u64>,
    /// Frees that were part of a group.
    pub frees_batched: u64,
    /// Frees of blocks that were allocated before the recording, or whose allocation was lost.
    pub frees_of_unknown: u64,
    /// Blocks that were allocated again without a free: it was lost.
    pub allocations_of_live: u64,
    /// The most frames that were allocated at one time, of those allocated in the recording.
    pub live_frames_max: u64,
    /// Frames that were allocated in the recording and not freed in it.
    pub live_frames_at_end: u64,
    /// Blocks that a zone gave to per-CPU lists.
    pub blocks_refilled: u64,
    /// Blocks that a zone gave past per-CPU lists.
    pub blocks_past_lists: u64,
    /// Blocks that per-CPU lists gave back to a zone.
    pub blocks_drained: u64,
    /// Processes and threads.
    pub processes: usize,
    /// Places in which events were lost.
    pub gaps: u64,
}

/// Sums up a recording, event by event.
#[derive(Debug, Default)]
pub struct Summing {
    summary: Summary,
    kinds: [u64; Kind::ALL.len()],
    gfps: BTreeMap<Gfp, u64>,
    pids: BTreeSet<u32>,
    live: Live<()>,
}

impl Summing {
    /// Counts an event.
    pub fn add(&mut self, event: &Event) {
        let summary = &mut self.summary;
        self.kinds[event.what.kind() as usize] += 1;
        *summary.events_by_cpu.entry(event.cpu).or_default() += 1;
        summary.events_in_interrupts += u64::from(event.context != Context::Task);
        self.pids.insert(event.pid);
        match event.what {
            What::Alloc { pfn: None, .. } => summary.allocations_failed += 1,
            What::Alloc { pfn: Some(pfn), order, gfp, migratetype } => {
                count(&mut summary.allocations_by_order, order);
                *summary.allocations_by_type.entry(migratetype.name()).or_default() += 1;
                *self.gfps.entry(gfp).or_default() += 1;
                summary.allocations_of_live += self.live.alloc(pfn, order, ()).len() as u64;
                summary.live_frames_max = summary.live_frames_max.max(self.live.frames());
            }
            What::Free { pfn, order } => {
                count(&mut summary.frees_by_order, order);
                let unknown = self.live.free(pfn, order) == Freed::Unknown;
                summary.frees_of_unknown += u64::from(unknown);
            }
            What::FreeBatched { .. } => summary.frees_batched += 1,
            What::PcpuDrain { .. } => summary.blocks_drained += 1,
            What::ZoneLocked { refill: true, .. } => summary.blocks_refilled += 1,
            What::ZoneLocked { refill: false, .. } => summary.blocks_past_lists += 1,
            What::Lost { .. } => summary.gaps += 1,
        }
    }

    /// The sums.
    pub fn finish(self) -> Summary {
        let kinds = Kind::ALL.iter().zip(self.kinds).filter(|(_, count)| *count > 0);
        let gfps = self.gfps.into_iter().map(|(gfp, count)| (gfp.to_string(), count));
        Summary {
            events: kinds.map(|(kind, count)| (kind.name(), count)).collect(),
            allocations_by_gfp: gfps.collect(),
            live_frames_at_end: self.live.frames(),
            processes: self.pids.len(),
            ..self.summary
        }
    }
}

fn count(by_order: &mut Vec<u64>, order: u8) {
    let order = usize::from(order);
    if by_order.len() <= order {
        by_order.resize(order + 1, 0);
    }
    by_order[order] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::MigrateType;

    #[test]
    fn what_a_recording_does_not_know_is_counted() {
        let alloc = |pfn, order| What::Alloc {
            pfn,
            order,
            gfp: Gfp::ZERO,
            migratetype: MigrateType::MOVABLE,
        };
        let mut summing = Summing::default();
        let events = [
            alloc(Some(8), 2),
            alloc(None, 9),
            What::Free { pfn: 100, order: 0 },
            alloc(Some(8), 1),
            What::Free { pfn: 8, order: 1 },
            alloc(Some(9), 0),
            What::Lost { events: 0 },
        ];
        for (time_ns, what) in (0..).zip(events) {
            summing.add(&Event { time_ns, cpu: 1, pid: 5, context: Context::Task, what });
        }
        let summary = summing.finish();
        assert_eq!(summary.allocations_by_order, [1, 1, 1]);
        assert_eq!((summary.allocations_failed, summary.gaps), (1, 1));
        assert_eq!((summary.frees_of_unknown, summary.allocations_of_live), (1, 1));
        assert_eq!((summary.live_frames_max, summary.live_frames_at_end), (4, 1));
        assert_eq!(summary.allocations_by_gfp["__GFP_ZERO"], 3);
        assert_eq!(summary.events["mm_page_alloc"], 4);
    }
}
