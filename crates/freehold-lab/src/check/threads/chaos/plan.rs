//! The plan of a case: memory, machine and threads that a seed draws.

use std::fmt;
use std::mem::MaybeUninit;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use freehold::{Config, Design, FrameCount, MemoryRange, Metadata, NodeId, PageAllocator};

use super::super::crew::Crew;
use super::platform::{Chaos, Weather};
use crate::check::case::Case;
use crate::check::scenario::{draw_memory, span};

/// What a seed draws.
pub(in super::super) struct Plan {
    pub(super) ranges: Vec<MemoryRange>,
    /// Memory that is not there when the allocator is built.
    pub(super) late: Option<MemoryRange>,
    pub(super) nodes: u16,
    min_free: Option<FrameCount>,
    pub(super) weather: Weather,
    pub(in super::super) crew: Crew,
}

/// Memory has more frames: with less, most calls fail.
const FRAMES_MIN: u64 = 3000;

impl Plan {
    pub(in super::super) fn of(case: &Case) -> Self {
        let mut rng = Rng::with_seed(case.seed ^ 0x00c4_a05c);
        let nodes = rng.u16(1..=2);
        let mut memory = || draw_memory(&mut rng, nodes.into());
        let (mut ranges, mut late) = memory();
        while ranges.iter().map(|range| range.frames).sum::<FrameCount>().get() < FRAMES_MIN {
            (ranges, late) = memory();
        }
        let workers = rng.usize(2..=5);
        let mut crew = Crew {
            workers,
            disturbers: rng.usize(2..=3),
            pause: Duration::ZERO,
            slots: [16, 64, 128, 512][rng.usize(..4)],
            rounds: rng.usize(1..=2),
            operations: rng.usize(2_000..20_000) / workers,
        };
        crew.cut(&case.cuts);
        Plan {
            ranges,
            late,
            nodes,
            min_free: [None, Some(0), Some(50)][rng.usize(..3)].map(FrameCount::new),
            weather: Weather {
                is_rough: true,
                accesses: [30, 100, 300, 2_000][rng.usize(..4)],
                cpus: rng.u32(2..=5),
                canary: case.canary,
            },
            crew,
        }
    }

    /// An allocator for this memory, but for what comes late.
    pub(super) fn build<D: Design<Chaos>>(
        &self,
        settings: &D::Settings,
    ) -> Result<PageAllocator<Chaos, D>> {
        let cpu_nodes: Vec<_> =
            (0..self.weather.cpus).map(|cpu| NodeId::new(cpu as u16 % self.nodes)).collect();
        let config = Config::new(&self.ranges, &cpu_nodes)
            .span(span(&self.ranges, self.late))
            .min_free(self.min_free);
        let bytes = PageAllocator::<Chaos, D>::layout(&config, settings)?.size_unaligned();
        // It stays until the process ends: some 100 KiB a seed, and batches have four seeds.
        let metadata = Metadata::from_static(vec![MaybeUninit::uninit(); bytes].leak());
        Ok(PageAllocator::new(Chaos, &config, settings, metadata)?)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { ranges, nodes, weather, crew, .. } = self;
        let frames: FrameCount = ranges.iter().chain(&self.late).map(|range| range.frames).sum();
        write!(
            f,
            "{frames} in {} ranges on {nodes} nodes, {} CPUs, one of {} accesses delayed, {crew}",
            ranges.len() + usize::from(self.late.is_some()),
            weather.cpus,
            weather.accesses
        )
    }
}
