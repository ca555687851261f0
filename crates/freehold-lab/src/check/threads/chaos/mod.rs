//! The page allocator on a platform that delays its threads at any step: real threads, so that
//! whatever the machine does happens too, and far more of it than the machine would do by itself.

use std::fmt;
use std::mem::MaybeUninit;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use freehold::{
    Config, Design, FrameCount, MemoryRange, Metadata, NodeId, PageAllocator, Settings,
};

use super::{Case, Count, Crew, Result, ThreadsTally, check_none, join_all, play_on};
use crate::check::scenario::{draw_memory, draw_settings, span};
use crate::designs::{DesignName, with_design};
use crate::host::tasks::start;
pub(super) use fights::FIGHT;
use platform::{Chaos, Weather, enter};
pub(super) use storm::STEPS;
use storm::Storm;

mod fights;
mod platform;
mod storm;

/// What a seed draws.
pub(super) struct Plan {
    ranges: Vec<MemoryRange>,
    /// Memory that is not there when the allocator is built.
    late: Option<MemoryRange>,
    nodes: u16,
    min_free: Option<FrameCount>,
    weather: Weather,
    pub(super) crew: Crew,
}

/// Memory has more frames: with less, most calls fail.
const FRAMES_MIN: u64 = 3000;

impl Plan {
    pub(super) fn of(case: &Case) -> Self {
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
    fn build<D: Design<Chaos>>(&self, settings: &D::Settings) -> Result<PageAllocator<Chaos, D>> {
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

/// The scenario of a case, in words.
pub(super) fn describe(case: &Case) -> String {
    let mut text = format!("chaos: {}", Plan::of(case));
    with_design!(case.design, Chaos, D => {
        let settings: <D as Design<Chaos>>::Settings = draw_settings(case.seed);
        settings.for_each(&mut |name, value| text += &format!(", {name}={value}"));
    });
    text
}

/// Plays a case to its end.
pub(super) fn play(case: &Case) -> Result<ThreadsTally> {
    with_design!(case.design, Chaos, D => play_design::<D>(case))
}

fn play_design<D: Design<Chaos> + Sync>(case: &Case) -> Result<ThreadsTally> {
    platform::clear();
    let plan = Plan::of(case);
    let settings = draw_settings(case.seed);
    let allocator = plan
        .build::<D>(&settings)
        .with_context(|| format!("the scenario itself is wrong: {plan}"))?;
    let storm = Storm::new(&plan, allocator, &settings)?;
    let play = || {
        let _inside = enter(Weather::CALM, case.seed);
        play_on(case, &plan.crew, &storm)
    };
    let mut panics = Vec::new();
    let played = thread::scope(|scope| join_all(vec![start(scope, play)], &mut panics));
    check_none(&panics)?;
    let mut tally = ThreadsTally::default();
    for of_case in played {
        tally.add(&of_case?);
    }
    tally.leased = u64::from(case.design == DesignName::Freehold);
    Ok(tally)
}
