//! The scenario of a seed.

use std::fmt;

use fastrand::Rng;
use freehold::{Config, CpuId, FrameCount, MemoryRange, NodeId, Order, Pfn, Settings, ZoneKind};
use freehold_sim::{Departure, Faults, Key, Schedule, Spec, Stop, preset};

use super::case::Cuts;
use crate::cli::Failure;

/// A machine, its memory, its failures, and how much work is done on it.
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) spec: Spec,
    pub(super) ranges: Vec<MemoryRange>,
    /// Memory that is added while work goes on.
    pub(super) late: Option<MemoryRange>,
    pub(super) cpu_nodes: Vec<NodeId>,
    pub(super) frame_record_bytes: usize,
    pub(super) min_free: Option<FrameCount>,
    pub(super) schedule: Schedule,
    pub(super) faults: Faults,
    /// Kinds of steps that are left out.
    pub(super) without: Vec<String>,
    /// CPUs that do nothing.
    pub(super) idle_cpus: Vec<usize>,
    /// Changes the schedule alone.
    pub(super) schedule_seed: u64,
    /// Rounds of work; after each, CPUs race to free blocks.
    pub(super) rounds: usize,
    /// Operations of each CPU in a round.
    pub(super) operations: usize,
    /// Whether a frame is lost at the end, and no count shows it: a planted bug.
    pub(super) loses_a_frame: bool,
}

/// The kind of step in which a CPU takes all memory for a while.
const HOG: &str = "hog";

/// The longest that a scenario's virtual time may be, for drawing when CPUs leave.
const WITHIN_NS: u32 = 200_000;

impl Scenario {
    /// The scenario of a seed: always the same. If `failures` is not empty, exactly these are set.
    /// If `needs_others`, there is more than one CPU.
    pub(super) fn draw(seed: u64, failures: &[Failure], needs_others: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut spec = draw_machine(&mut rng);
        if needs_others && spec.cpus() == 1 {
            spec.set(Key::CoresPerLlc, 2.0, "one CPU is not enough");
        }
        let (ranges, late) = draw_memory(&mut rng, spec.nodes());
        let cpus = spec.cpus();
        let mut cpu_nodes: Vec<_> =
            (0..cpus).map(|cpu| spec.node_of(CpuId::new(cpu as u32))).collect();
        // Now and then fewer slots than CPUs, so that some share one.
        if rng.u8(..4) == 0 {
            cpu_nodes.truncate(rng.usize(1..=cpus));
        }
        let switches_per_million = *pick(&mut rng, &[1_000_000, 300_000, 50_000]);
        let by_time = rng.u8(..4) == 0;
        let mut scenario = Scenario {
            seed,
            spec,
            ranges,
            late,
            cpu_nodes,
            frame_record_bytes: *pick(&mut rng, &[0, 16, 64]),
            min_free: *pick(&mut rng, &[None, Some(0), Some(50)].map(|n| n.map(FrameCount::new))),
            schedule: if by_time {
                Schedule::ByTime
            } else {
                Schedule::Random { switches_per_million }
            },
            faults: match failures {
                [] => Faults::swarm(seed, cpus, WITHIN_NS),
                _ => set_failures(&mut rng, failures, cpus),
            },
            without: match failures.is_empty() || failures.contains(&Failure::Memory) {
                true => vec![],
                false => vec![HOG.to_owned()],
            },
            idle_cpus: Vec::new(),
            schedule_seed: 0,
            rounds: rng.usize(1..=3),
            operations: rng.usize(20..=120),
            loses_a_frame: false,
        };
        if failures.is_empty() && rng.bool() {
            scenario.faults.interrupts_per_million = *pick(&mut rng, &[100, 3_000, 100_000]);
        }
        scenario
    }

    /// Leaves something out.
    pub(super) fn cut(&mut self, cuts: &Cuts) {
        self.schedule_seed = cuts.schedule;
        self.rounds = cuts.rounds.map_or(self.rounds, |most| self.rounds.min(most));
        self.operations = cuts.operations.map_or(self.operations, |most| self.operations.min(most));
        self.idle_cpus.clone_from(&cuts.idle_cpus);
        self.without.extend(cuts.steps.iter().cloned());
        for failure in &cuts.failures {
            match failure {
                Failure::Preempt => {
                    self.faults.holder_stopped = None;
                    self.faults.stopped = None;
                }
                Failure::TryLock => self.faults.try_lock_refused_per_million = 0,
                Failure::CpuHint => self.faults.cpu_hint_wrong_per_million = 0,
                Failure::Memory => self.without.push(HOG.to_owned()),
                Failure::Leave => self.faults.departures.clear(),
                Failure::Interrupt => self.faults.interrupts_per_million = 0,
            }
        }
    }

    /// The allocator's configuration.
    pub(super) fn config(&self) -> Config<'_> {
        Config::new(&self.ranges, &self.cpu_nodes)
            .span(span(&self.ranges, self.late))
            .frame_record_bytes(self.frame_record_bytes)
            .min_free(self.min_free)
    }

    /// The message if the allocator or the LRU refuses the scenario.
    pub(super) fn wrong(&self) -> String {
        format!("the scenario itself is wrong: {self}")
    }

    /// Settings of a design.
    pub(super) fn settings<S: Settings>(&self) -> S {
        draw_settings(self.seed)
    }
}

/// From the first frame to the last one of memory, and of some that is added later.
pub(super) fn span(now: &[MemoryRange], late: Option<MemoryRange>) -> (Pfn, FrameCount) {
    let all = || now.iter().chain(&late);
    let end = |range: &MemoryRange| range.start.offset(range.frames).get();
    let first = all().map(|range| range.start).min().unwrap_or_default();
    let last = all().map(end).max().unwrap_or_default();
    (first, FrameCount::new(last - first.get()))
}

/// Settings of a design, drawn from the values in its table.
pub(super) fn draw_settings<S: Settings>(seed: u64) -> S {
    let mut rng = Rng::with_seed(seed ^ 0x5e77_1465);
    let mut settings = S::default();
    for setting in S::TABLE {
        let words: Vec<_> = setting.values.split('|').collect();
        let numbers = ["1", "2", "7", "31", "63", "186"];
        let value =
            if words.len() > 1 { *pick(&mut rng, &words) } else { *pick(&mut rng, &numbers) };
        // A value that a setting refuses leaves it as it was.
        let mut changed = settings.clone();
        if changed.set(setting.name, value).is_ok() && changed.contradiction().is_none() {
            settings = changed;
        }
    }
    settings
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let frames: FrameCount = self.ranges.iter().map(|range| range.frames).sum();
        write!(
            f,
            "{} CPUs with {} slots on {} nodes, {frames} in {} ranges{}, {} rounds of {} \
             operations, {:?}, {:?}",
            self.spec.cpus(),
            self.cpu_nodes.len(),
            self.spec.nodes(),
            self.ranges.len(),
            if self.late.is_some() { " and one added later" } else { "" },
            self.rounds,
            self.operations,
            self.schedule,
            self.faults,
        )
    }
}

/// Exactly these failures, often enough that every seed meets them.
fn set_failures(rng: &mut Rng, failures: &[Failure], cpus: usize) -> Faults {
    let has = |failure| failures.contains(&failure);
    let stop = |ns_max| has(Failure::Preempt).then_some(Stop { per_million: 20_000, ns_max });
    let rate = |failure| if has(failure) { 200_000 } else { 0 };
    let leavers = if has(Failure::Leave) { rng.choose_multiple(0..cpus, cpus / 2) } else { vec![] };
    let mut departures: Vec<_> = leavers
        .into_iter()
        .map(|cpu| Departure { cpu, at_ns: rng.u64(..u64::from(WITHIN_NS)) })
        .collect();
    departures.sort_unstable_by_key(|departure| departure.cpu);
    Faults {
        holder_stopped: stop(1_000_000),
        stopped: stop(10_000),
        try_lock_refused_per_million: rate(Failure::TryLock),
        cpu_hint_wrong_per_million: rate(Failure::CpuHint),
        interrupts_per_million: if has(Failure::Interrupt) { 20_000 } else { 0 },
        departures,
        ..Faults::default()
    }
}

fn pick<'a, T>(rng: &mut Rng, choices: &'a [T]) -> &'a T {
    &choices[rng.usize(..choices.len())]
}

/// One to three sockets of one to three cores, with or without SMT.
fn draw_machine(rng: &mut Rng) -> Spec {
    let mut spec = preset("uma-2").expect("a preset exists").renamed("drawn", "drawn from a seed");
    for (key, most) in [(Key::Sockets, 3), (Key::CoresPerLlc, 3), (Key::ThreadsPerCore, 2)] {
        spec.set(key, f64::from(rng.u32(1..=most)), "drawn from the seed");
    }
    spec
}

/// A zone or two on each node: most with unaligned ends and holes in between, some of which meet
/// the next one at the border of a pageblock, so that the buddy of a free block may be in another
/// zone.
pub(super) fn draw_memory(rng: &mut Rng, nodes: usize) -> (Vec<MemoryRange>, Option<MemoryRange>) {
    let mut ranges = Vec::new();
    let mut at = rng.u64(0..100_000);
    let mut next = |rng: &mut Rng, node: usize, kind: ZoneKind| {
        // Blocks of several pageblocks want some room.
        let frames = if rng.u8(..4) == 0 { rng.u64(1500..4500) } else { rng.u64(40..1500) };
        let (pageblock, mut end) = (Order::PAGEBLOCK.frames().get(), at + frames);
        let meets_next = rng.u8(..3) == 0;
        // The next zone begins in another pageblock.
        let next_pageblock = end.next_multiple_of(pageblock);
        let mut hole = rng.u64(0..700);
        if meets_next {
            (end, hole) = (next_pageblock, 0);
        }
        let range = MemoryRange::new(Pfn::new(at), FrameCount::new(end - at))
            .on_node(NodeId::new(node as u16))
            .in_zone(kind);
        at = next_pageblock + hole;
        range
    };
    for node in 0..nodes {
        ranges.push(next(rng, node, ZoneKind::Normal));
        match rng.u8(..4) {
            0 => ranges.push(next(rng, node, ZoneKind::Normal)),
            1 => ranges.push(next(rng, node, ZoneKind::Movable)),
            2 if node == 0 => ranges.push(next(rng, node, ZoneKind::Dma32)),
            _ => {}
        }
    }
    let late = (rng.u8(..2) == 0).then(|| next(rng, 0, ZoneKind::Normal));
    (ranges, late)
}
