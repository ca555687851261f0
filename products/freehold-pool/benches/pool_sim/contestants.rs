//! The pool, and the baseline: free lists under locks.

use std::cell::RefCell;

use freehold::CpuId;
use freehold::platform::{LockClass, Platform, RawLock, SharedCell};
use freehold_pool::slots::{Left, ModuleKey, Reset, SlotIndex, Slots, SlotsSettings};
use freehold_sim::{Home, Machine, Sim, SimTable};

use crate::OnCpu;
use crate::index::{Index, Taken};
use crate::settings::Settings;
use crate::sim_home::SimHome;

/// Who hands out slots.
pub(crate) trait Contestant {
    fn take(&self, cpu: &OnCpu<'_>, module: u64) -> SlotIndex;
    fn put(&self, cpu: &OnCpu<'_>, slot: SlotIndex, module: u64);
}

/// The settings of a pool for so many CPUs.
fn of_pool(settings: Settings, cpus: usize) -> SlotsSettings {
    let slots = settings.live + settings.spare_slots_a_cpu;
    SlotsSettings {
        slots: slots as u32 * cpus as u32,
        batch_slots: settings.batch_slots as usize,
        warm_slots_max: settings.warm_slots_a_cpu as usize * cpus,
    }
}

/// The pool as it is.
pub(crate) struct Ours {
    slots: Slots<Sim, SimHome>,
    left: Left,
}

impl Ours {
    pub(crate) fn new(machine: &mut Machine, settings: Settings, cpus: usize) -> Self {
        let of_pool = of_pool(settings, cpus);
        let slots = Slots::new(Sim, of_pool, SimHome::new(machine, of_pool, cpus));
        Ours { slots, left: if settings.kept > 0 { Left::Kept } else { Left::Dirty } }
    }
}

impl Contestant for Ours {
    fn take(&self, cpu: &OnCpu<'_>, module: u64) -> SlotIndex {
        let taken = self.slots.take(Some(ModuleKey::new(module)), cpu);
        taken.expect("there are enough slots").slot
    }

    fn put(&self, cpu: &OnCpu<'_>, slot: SlotIndex, module: u64) {
        self.slots.put(slot, Some(ModuleKey::new(module)), self.left, cpu);
    }
}

/// What wasmtime has: a lock around the free list, and one around the queue of slots to be reset,
/// for each of a number of shards. Each thread has a shard, for as long as it has free slots; a
/// slot returns to the shard that it is of. With one shard, as wasmtime was until it had shards.
///
/// Under a lock, few lines of memory are charged: those of the list's ends and of the slot, none of
/// the map of modules and of neighbours. Locks are queued spin locks, which do better than those
/// of the standard library, whose waiters sleep.
pub(crate) struct Locked {
    shards: Vec<RefCell<Shard>>,
    locks: SimTable<ShardLocks>,
    records: SimTable<SlotLine>,
    settings: Settings,
}

struct Shard {
    free: Index<()>,
    queue: Vec<(u32, u64)>,
}

/// The locks of a shard, each with the line that it guards.
#[repr(C, align(128))]
struct ShardLocks {
    free: GuardedLine,
    queue: GuardedLine,
}

#[repr(C, align(64))]
struct GuardedLine {
    lock: <Sim as Platform>::Lock,
    ends: <Sim as Platform>::Cell<u64>,
}

#[repr(C, align(64))]
struct SlotLine(<Sim as Platform>::Cell<u64>);

impl GuardedLine {
    fn new() -> Self {
        GuardedLine { lock: RawLock::new(LockClass::Zone), ends: SharedCell::new(0) }
    }

    /// Does something under the lock, which also changes a slot's line.
    fn with<R>(
        &self,
        slot_line: impl FnOnce(&R) -> Option<usize>,
        lines: &SimTable<SlotLine>,
        act: impl FnOnce() -> R,
    ) -> R {
        self.lock.lock();
        self.ends.set(self.ends.get() + 1);
        let result = act();
        if let Some(slot) = slot_line(&result) {
            lines[slot].0.set(lines[slot].0.get() + 1);
        }
        self.lock.unlock();
        result
    }
}

impl Locked {
    pub(crate) fn new(
        machine: &mut Machine,
        settings: Settings,
        cpus: usize,
        shards: usize,
    ) -> Self {
        let of_pool = of_pool(settings, cpus);
        let shards = shards.min(cpus);
        let node = machine.spec().node_of(CpuId::new(0));
        let locks = |_| {
            let locks = ShardLocks { free: GuardedLine::new(), queue: GuardedLine::new() };
            (locks, Home::Node(node))
        };
        let locks = SimTable::new(machine, "locks", shards, locks);
        let line = |_| (SlotLine(SharedCell::new(0)), Home::FirstTouch);
        let records = SimTable::new(machine, "slots", of_pool.slots as usize, line);
        let each = (of_pool.slots as usize).div_ceil(shards);
        let shard = |_| {
            let free = Index::new((0..each).map(|_| ()), of_pool.warm_slots_max / shards);
            RefCell::new(Shard { free, queue: Vec::new() })
        };
        Locked { shards: (0..shards).map(shard).collect(), locks, records, settings }
    }

    fn own_shard(&self, cpu: &OnCpu<'_>) -> usize {
        cpu.handle.cpu().index() % self.shards.len()
    }

    /// A slot's number in its shard, and the shard.
    fn shard_of(&self, slot: SlotIndex) -> (usize, usize) {
        (slot.index() / self.shards.len(), slot.index() % self.shards.len())
    }

    fn free(&self, slot: SlotIndex, module: u64) {
        let (number, shard) = self.shard_of(slot);
        self.locks[shard].free.with(
            |()| Some(slot.index()),
            &self.records,
            || self.shards[shard].borrow_mut().free.put(number, Some(module), ()),
        );
    }
}

impl Contestant for Locked {
    fn take(&self, cpu: &OnCpu<'_>, module: u64) -> SlotIndex {
        let (own, shards) = (self.own_shard(cpu), self.shards.len());
        let found = (own..shards).chain(0..own).find_map(|shard| {
            let index = |number: usize| number * shards + shard;
            let Taken { number, content: (), is_foreign } = self.locks[shard].free.with(
                |taken: &Option<Taken<()>>| taken.as_ref().map(|taken| index(taken.number)),
                &self.records,
                || self.shards[shard].borrow_mut().free.take(Some(module)),
            )?;
            Some((SlotIndex::new(index(number) as u32), is_foreign))
        });
        let (slot, is_foreign) = found.expect("there are enough slots");
        if is_foreign && self.settings.kept > 0 {
            cpu.reset(&[slot], &mut |slot| unreachable!("{slot}"));
        }
        slot
    }

    fn put(&self, cpu: &OnCpu<'_>, slot: SlotIndex, module: u64) {
        if self.settings.kept > 0 {
            return self.free(slot, module);
        }
        let own = self.own_shard(cpu);
        let full = self.locks[own].queue.with(
            |_| None,
            &self.records,
            || {
                let queue = &mut self.shards[own].borrow_mut().queue;
                queue.push((slot.get(), module));
                let is_full = queue.len() >= self.settings.batch_slots as usize;
                if is_full { std::mem::take(queue) } else { Vec::new() }
            },
        );
        if full.is_empty() {
            return;
        }
        let mut slots: Vec<_> = full.iter().map(|&(slot, _)| SlotIndex::new(slot)).collect();
        slots.sort_unstable();
        cpu.reset(&slots, &mut |slot| unreachable!("{slot}"));
        full.into_iter().for_each(|(slot, module)| self.free(SlotIndex::new(slot), module));
    }
}
