//! A recording as what each CPU is to do: blocks by number in place of frames, with the time
//! between calls.

use std::collections::HashMap;

use freehold::{MigrateType, Order};
use freehold_trace::{Event, Freed, Live, What};
use serde::Serialize;

/// A block that the recording allocates and frees, whatever frames a replay has for it.
pub(crate) type Slot = u32;

/// What the CPUs of a recording did.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// One a CPU, in the order of their numbers.
    pub(crate) cpus: Vec<OfCpu>,
    /// How many blocks there are.
    pub(crate) slots: usize,
    /// Which of them another CPU frees than the one that allocates them.
    shared: Vec<bool>,
    /// From the start of the recording to the last event that is replayed.
    pub(crate) elapsed_ns: u64,
    /// The most frames that are allocated at one time, if those from before are until the end.
    pub(crate) frames_max: u64,
    pub(crate) tally: Tally,
}

impl Plan {
    /// Whether another CPU frees a block than the one that allocates it.
    pub(crate) fn is_shared(&self, slot: Slot) -> bool {
        self.shared[slot as usize]
    }
}

/// What one CPU did.
#[derive(Debug, Default)]
pub(crate) struct OfCpu {
    /// Blocks from before the recording that this CPU frees, in the order of their frames.
    pub(crate) before: Vec<(Slot, Order)>,
    pub(crate) steps: Vec<Step>,
    /// Frames that are freed together, for [`Do::FreeBulk`].
    pub(crate) bulk: Vec<Part>,
    /// What is still allocated at the end of what this CPU has allocated.
    pub(crate) left: Vec<Part>,
}

/// One step of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The time since the CPU's step before; of the first, since the start.
    pub(crate) after_ns: u64,
    pub(crate) what: Do,
}

/// A call of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Do {
    Alloc {
        slot: Slot,
        order: Order,
        migratetype: MigrateType,
    },
    Free(Part),
    /// So many single frames, from this place in [`OfCpu::bulk`].
    FreeBulk {
        first: u32,
        count: u32,
    },
}

/// A block, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) slot: Slot,
    /// Where it begins, in frames from the start of the block.
    pub(crate) offset: u32,
    pub(crate) order: Order,
}

/// What a replay does not have from the recording as it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) allocations: u64,
    pub(crate) frees: u64,
    /// Frees that a kernel made in groups, and a replay in bulk.
    pub(crate) frees_in_bulk: u64,
    /// Frees of blocks from before the recording: they are allocated before it begins.
    pub(crate) frees_from_before: u64,
    /// Blocks that are allocated again without a free: they are freed just before.
    pub(crate) frees_supplied: u64,
    /// Allocations that the kernel refused: they are left out.
    pub(crate) allocations_refused: u64,
    /// Events with blocks larger than the largest here: they are left out.
    pub(crate) too_large: u64,
    /// Places at which events were lost.
    pub(crate) gaps: u64,
    /// Events that the limit left out.
    pub(crate) left_out: u64,
}

/// What is known of a block while the plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    slot: Slot,
    first_pfn: u64,
    /// The place of the CPU that allocated it.
    by: usize,
}

/// Makes a plan, event by event.
pub(crate) struct Planner {
    plan: Plan,
    /// The place of each CPU.
    places: HashMap<u32, usize>,
    /// When the CPU made its last call.
    last_ns: Vec<u64>,
    live: Live<Known>,
    /// Frees of single frames that a group may name, by CPU: the frame and the place of the step.
    recent: Vec<Vec<(u64, usize)>>,
    /// Steps that are part of a group, by CPU.
    grouped: Vec<Vec<usize>>,
    /// Blocks from before that each CPU frees, with their frames.
    before: Vec<Vec<(u64, Slot, Order)>>,
    events_left: u64,
}

/// How many frees a kernel makes before it names those of a group: a folio batch has 31.
const GROUP_MAX: usize = 64;

impl Planner {
    /// A plan for the CPUs with these numbers, of at most so many events.
    pub(crate) fn new(cpus: &[u32], events_max: u64) -> Self {
        let count = cpus.len();
        Planner {
            plan: Plan { cpus: (0..count).map(|_| OfCpu::default()).collect(), ..Plan::default() },
            places: cpus.iter().enumerate().map(|(place, cpu)| (*cpu, place)).collect(),
            last_ns: vec![0; count],
            live: Live::default(),
            recent: vec![Vec::new(); count],
            grouped: vec![Vec::new(); count],
            before: vec![Vec::new(); count],
            events_left: events_max,
        }
    }

    /// Adds an event. Those of CPUs that the recording does not name are left out.
    pub(crate) fn add(&mut self, event: &Event) {
        let Some(&cpu) = self.places.get(&event.cpu) else { return };
        if self.events_left == 0 {
            self.plan.tally.left_out += 1;
            return;
        }
        self.events_left -= 1;
        match event.what {
            What::Alloc { pfn, order, migratetype, .. } => match (pfn, block_order(order)) {
                (None, _) => self.plan.tally.allocations_refused += 1,
                (_, None) => self.plan.tally.too_large += 1,
                (Some(pfn), Some(of_block)) => {
                    for (pfn, order, known) in self.live.alloc(pfn, order, self.known(pfn, cpu)) {
                        self.plan.tally.frees_supplied += 1;
                        self.plan.shared[known.slot as usize] |= known.by != cpu;
                        self.step(cpu, event.time_ns, Do::Free(part(pfn, order, known)));
                    }
                    let slot = self.new_slot();
                    let migratetype = content(migratetype);
                    self.plan.tally.allocations += 1;
                    self.step(cpu, event.time_ns, Do::Alloc { slot, order: of_block, migratetype });
                }
            },
            What::Free { pfn, order } => self.free(cpu, event.time_ns, pfn, order),
            What::FreeBatched { pfn } => self.batched(cpu, pfn),
            What::Lost { .. } => self.plan.tally.gaps += 1,
            What::PcpuDrain { .. } | What::ZoneLocked { .. } => {}
        }
        self.plan.frames_max = self.plan.frames_max.max(self.live.frames());
    }

    fn free(&mut self, cpu: usize, time_ns: u64, pfn: u64, order: u8) {
        let Some(of_block) = block_order(order) else {
            self.plan.tally.too_large += 1;
            return;
        };
        let part = match self.live.free(pfn, order) {
            Freed::Whole(known) | Freed::Part(known) => {
                self.plan.shared[known.slot as usize] |= known.by != cpu;
                part(pfn, order, known)
            }
            Freed::Unknown => {
                let slot = self.new_slot();
                self.before[cpu].push((pfn, slot, of_block));
                self.plan.tally.frees_from_before += 1;
                Part { slot, offset: 0, order: of_block }
            }
        };
        self.plan.tally.frees += 1;
        let place = self.step(cpu, time_ns, Do::Free(part));
        if order == 0 {
            let recent = &mut self.recent[cpu];
            if recent.len() == GROUP_MAX {
                recent.remove(0);
            }
            recent.push((pfn, place));
        }
    }

    /// A frame that was freed just now was one of a group.
    fn batched(&mut self, cpu: usize, pfn: u64) {
        let recent = &mut self.recent[cpu];
        if let Some(at) = recent.iter().rposition(|(freed, _)| *freed == pfn) {
            let (_, place) = recent.remove(at);
            self.grouped[cpu].push(place);
        }
    }

    fn known(&self, first_pfn: u64, cpu: usize) -> Known {
        Known { slot: self.plan.slots as Slot, first_pfn, by: cpu }
    }

    fn new_slot(&mut self) -> Slot {
        self.plan.slots += 1;
        self.plan.shared.push(false);
        (self.plan.slots - 1) as Slot
    }

    /// Appends a step; returns its place.
    fn step(&mut self, cpu: usize, time_ns: u64, what: Do) -> usize {
        let after_ns = time_ns - self.last_ns[cpu];
        self.last_ns[cpu] = time_ns;
        self.plan.elapsed_ns = time_ns;
        let steps = &mut self.plan.cpus[cpu].steps;
        steps.push(Step { after_ns, what });
        steps.len() - 1
    }
}

impl Planner {
    /// The plan.
    pub(crate) fn finish(self) -> Plan {
        let Planner { mut plan, live, grouped, before, .. } = self;
        for (cpu, mut before) in plan.cpus.iter_mut().zip(before) {
            before.sort_unstable_by_key(|(pfn, ..)| *pfn);
            let frames = before.iter().map(|(_, _, order)| order.frames().get());
            plan.frames_max += frames.sum::<u64>();
            cpu.before = before.into_iter().map(|(_, slot, order)| (slot, order)).collect();
        }
        for (cpu, grouped) in plan.cpus.iter_mut().zip(grouped) {
            plan.tally.frees_in_bulk += cpu.join(grouped);
        }
        for (pfn, order, known) in live.into_blocks() {
            plan.cpus[known.by].left.push(part(pfn, order, known));
        }
        for cpu in &mut plan.cpus {
            cpu.left.sort_unstable_by_key(|part| (part.slot, part.offset));
        }
        plan
    }
}

impl OfCpu {
    /// Makes one free of each run of grouped ones, at the time of the last; returns how many frees
    /// became part of a larger one.
    fn join(&mut self, mut grouped: Vec<usize>) -> u64 {
        grouped.sort_unstable();
        let mut grouped = grouped.into_iter().peekable();
        let mut steps: Vec<Step> = Vec::with_capacity(self.steps.len());
        let mut joined = 0;
        let mut open = false;
        for (place, step) in std::mem::take(&mut self.steps).into_iter().enumerate() {
            let is_grouped = grouped.next_if_eq(&place).is_some();
            let Step { after_ns, what: Do::Free(part) } = step else {
                open = false;
                steps.push(step);
                continue;
            };
            if !is_grouped {
                open = false;
                steps.push(step);
                continue;
            }
            self.bulk.push(part);
            joined += 1;
            let last = steps.last_mut().filter(|_| open);
            if let Some(Step { after_ns: since, what: Do::FreeBulk { count, .. } }) = last {
                *since += after_ns;
                *count += 1;
            } else {
                let first = (self.bulk.len() - 1) as u32;
                steps.push(Step { after_ns, what: Do::FreeBulk { first, count: 1 } });
            }
            open = true;
        }
        self.steps = steps;
        joined
    }
}

/// A block of the recording as a part of the one that was allocated.
fn part(pfn: u64, order: u8, known: Known) -> Part {
    let order = block_order(order).expect("larger ones are left out");
    Part { slot: known.slot, offset: (pfn - known.first_pfn) as u32, order }
}

/// An order that designs have.
fn block_order(order: u8) -> Option<Order> {
    (order <= Order::BUDDY_MAX.get()).then(|| Order::new(order))
}

/// The content of an allocation. What is held back for atomic allocations cannot move; what is CMA
/// can.
fn content(migratetype: freehold_trace::MigrateType) -> MigrateType {
    match migratetype {
        freehold_trace::MigrateType::MOVABLE | freehold_trace::MigrateType::CMA => {
            MigrateType::Movable
        }
        freehold_trace::MigrateType::RECLAIMABLE => MigrateType::Reclaimable,
        _ => MigrateType::Unmovable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_trace::{Context, Gfp};

    fn plan_of(whats: &[(u32, What)]) -> Plan {
        let mut planner = Planner::new(&[0, 3], u64::MAX);
        for (time_ns, &(cpu, what)) in (0..).step_by(10).zip(whats) {
            planner.add(&Event { time_ns, cpu, pid: 1, context: Context::Task, what });
        }
        planner.finish()
    }

    fn alloc(pfn: u64, order: u8) -> What {
        let migratetype = freehold_trace::MigrateType::MOVABLE;
        What::Alloc { pfn: Some(pfn), order, gfp: Gfp::NONE, migratetype }
    }

    fn free(pfn: u64, order: u8) -> What {
        What::Free { pfn, order }
    }

    fn whole(slot: Slot, order: u8) -> Part {
        Part { slot, offset: 0, order: Order::new(order) }
    }

    #[test]
    fn frees_find_their_blocks_on_any_cpu() {
        let plan =
            plan_of(&[(0, alloc(64, 2)), (3, free(66, 0)), (3, free(64, 1)), (0, alloc(9, 0))]);
        assert_eq!(plan.slots, 2);
        let [one, other] = &plan.cpus[..] else { panic!("two CPUs") };
        let part = Part { slot: 0, offset: 2, order: Order::ZERO };
        assert_eq!(other.steps[0], Step { after_ns: 10, what: Do::Free(part) });
        assert_eq!(other.steps[1], Step { after_ns: 10, what: Do::Free(whole(0, 1)) });
        assert_eq!(one.steps[1].after_ns, 30);
        let left = Part { slot: 0, offset: 3, order: Order::ZERO };
        assert_eq!(one.left, [left, whole(1, 0)], "the last frame of the block, and the other");
        assert_eq!(plan.frames_max, 4);
    }

    #[test]
    fn what_the_recording_does_not_show_is_supplied() {
        let plan = plan_of(&[
            (0, free(700, 3)),
            (0, free(600, 0)),
            (0, alloc(8, 0)),
            (0, alloc(8, 0)),
            (0, What::Lost { events: 0 }),
            (
                0,
                What::Alloc {
                    pfn: None,
                    order: 0,
                    gfp: Gfp::NONE,
                    migratetype: freehold_trace::MigrateType::MOVABLE,
                },
            ),
            (7, alloc(1, 0)),
            (0, free(1 << 20, 12)),
        ]);
        let cpu = &plan.cpus[0];
        assert_eq!(cpu.before, [(1, Order::ZERO), (0, Order::new(3))], "in the order of frames");
        let whats: Vec<_> = cpu.steps.iter().map(|step| step.what).collect();
        let alloc =
            |slot| Do::Alloc { slot, order: Order::ZERO, migratetype: MigrateType::Movable };
        let expected = [
            Do::Free(whole(0, 3)),
            Do::Free(whole(1, 0)),
            alloc(2),
            Do::Free(whole(2, 0)),
            alloc(3),
        ];
        assert_eq!(whats, expected);
        let tally = Tally {
            allocations: 2,
            frees: 2,
            frees_from_before: 2,
            frees_supplied: 1,
            allocations_refused: 1,
            too_large: 1,
            gaps: 1,
            ..Tally::default()
        };
        assert_eq!(plan.tally, tally);
    }

    #[test]
    fn frees_of_a_group_are_one_call() {
        let batched = |pfn| What::FreeBatched { pfn };
        let plan = plan_of(&[
            (0, alloc(5, 0)),
            (0, alloc(6, 0)),
            (0, alloc(7, 0)),
            (0, free(5, 0)),
            (0, free(6, 0)),
            (0, batched(6)),
            (0, batched(5)),
            (0, free(7, 0)),
        ]);
        let cpu = &plan.cpus[0];
        let last: Vec<_> = cpu.steps[3..].iter().map(|step| (step.after_ns, step.what)).collect();
        let bulk = Do::FreeBulk { first: 0, count: 2 };
        assert_eq!(last, [(20, bulk), (30, Do::Free(whole(2, 0)))]);
        assert_eq!(cpu.bulk, [whole(0, 0), whole(1, 0)]);
        assert_eq!((plan.tally.frees, plan.tally.frees_in_bulk), (3, 2));
    }

    #[test]
    fn a_limit_leaves_out_the_rest() {
        let mut planner = Planner::new(&[0], 1);
        for (time_ns, what) in [(5, alloc(1, 0)), (6, free(1, 0))] {
            planner.add(&Event { time_ns, cpu: 0, pid: 1, context: Context::Task, what });
        }
        let plan = planner.finish();
        assert_eq!((plan.cpus[0].steps.len(), plan.tally.left_out, plan.elapsed_ns), (1, 1, 5));
    }

    /// Whatever a recording says, a block is allocated once, and each of its frames is freed once,
    /// later or never.
    #[test]
    fn no_frame_is_freed_twice() {
        for seed in 0..300 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut whats = Vec::new();
            for _ in 0..300 {
                let order = rng.u8(0..4);
                let pfn = rng.u64(0..40) >> order << order;
                let what = match rng.u8(0..10) {
                    0..4 => alloc(pfn, order),
                    4..8 => free(pfn, order),
                    8 => What::FreeBatched { pfn },
                    _ => What::Lost { events: 1 },
                };
                whats.push((rng.u32(0..2) * 3, what));
            }
            check(&plan_of(&whats), seed);
        }
    }

    fn check(plan: &Plan, seed: u64) {
        let mut sizes = HashMap::new();
        let mut freed = std::collections::HashSet::new();
        let mut free = |part: Part| {
            for frame in 0..part.order.frames().get() {
                let of_block = u64::from(part.offset) + frame;
                assert!(freed.insert((part.slot, of_block)), "seed {seed}: {part:?} again");
            }
        };
        for cpu in &plan.cpus {
            sizes.extend(cpu.before.iter().map(|&(slot, order)| (slot, order)));
            for step in &cpu.steps {
                match step.what {
                    Do::Alloc { slot, order, .. } => {
                        assert!(sizes.insert(slot, order).is_none(), "seed {seed}: {slot} twice");
                    }
                    Do::Free(part) => free(part),
                    Do::FreeBulk { first, count } => {
                        cpu.bulk[first as usize..][..count as usize]
                            .iter()
                            .copied()
                            .for_each(&mut free);
                    }
                }
            }
            cpu.left.iter().copied().for_each(&mut free);
        }
        let frames: u64 = sizes.values().map(|order| order.frames().get()).sum();
        assert_eq!(freed.len() as u64, frames, "seed {seed}: every frame is freed or left");
    }
}
