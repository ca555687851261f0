//! How the last free slots are found, under loom: all interleavings with a bounded
//! number of preemptions, and all values that the memory orderings allow a load to see.
//!
//! The models run the pool's slots and the real allocator, on two CPUs with one or two slots. What
//! a slot contains is a cell, so that loom panics if two of its users are not ordered.
//!
//! `LOOM_MAX_PREEMPTIONS` explores further. Each model prints how many executions it took
//! (`cargo test -- --nocapture`).

use freehold::designs::Freehold;
use freehold::platform::{Platform, SharedCell};
use freehold::{Config, FrameCount, NodeId, PageAllocator};
use freehold_pool::slots::{
    CpuRecord, Exhausted, Left, Reset, SlotIndex, SlotRecord, Slots, SlotsSettings, Tables, Taken,
};
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};

use loom_platform::{LoomCell, LoomPlatform, run_on};
use loom_runs::explore;
use machine::Machine;

#[path = "../../../../crates/freehold/tests/common/loom_platform.rs"]
mod loom_platform;
#[path = "../../../../crates/freehold/tests/common/loom_runs.rs"]
mod loom_runs;
#[path = "../../../../crates/freehold/tests/common/machine.rs"]
mod machine;

const CPUS: usize = 2;

/// The platform as it is, and one on which no access to a word orders others.
type Sound = LoomPlatform;
type Unordered = LoomPlatform<true, true, false>;

struct Home<P: Platform> {
    frames: Machine<P, Freehold<P>>,
    cpus: [CpuRecord<P>; CPUS],
    slots: Vec<SlotRecord<P>>,
}

impl<P: Platform> Tables<P> for Home<P> {
    fn frames(&self) -> &PageAllocator<P, Freehold<P>> {
        &self.frames
    }

    fn cpus(&self) -> &[CpuRecord<P>] {
        &self.cpus
    }

    fn slots(&self) -> &[SlotRecord<P>] {
        &self.slots
    }
}

/// What slots contain: how often each was written to since it was reset.
struct Contents(Vec<LoomCell<u32>>);

impl Contents {
    /// Uses a slot that was just taken.
    fn touch(&self, taken: Taken) -> SlotIndex {
        let content = &self.0[taken.slot.index()];
        assert_eq!(content.get(), 0, "{} is not clean", taken.slot);
        content.set(1);
        taken.slot
    }
}

impl Reset for Contents {
    fn reset(&self, slots: &[SlotIndex], _lost: &mut dyn FnMut(SlotIndex)) -> u64 {
        slots.iter().for_each(|slot| self.0[slot.index()].set(0));
        1
    }
}

/// Slots, what they contain, and calls on them.
struct Pool<P: Platform> {
    slots: Slots<P, Home<P>>,
    contents: Contents,
}

impl<P: Platform + Default + Send + Sync> Pool<P> {
    /// So many slots, of which none is reset before all are dirty. There are no warm ones.
    fn new(slots: u32) -> Arc<Self> {
        let batch_slots = slots as usize + 1;
        let settings = SlotsSettings { slots, batch_slots, warm_slots_max: 0 };
        let (ranges, nodes) = (settings.frames(CPUS), [NodeId::new(0); CPUS]);
        let config = Config::new(&ranges, &nodes).min_free(FrameCount::ZERO);
        let home = Home {
            frames: Machine::new(P::default(), &config, &Default::default()),
            cpus: [CpuRecord::new(), CpuRecord::new()],
            slots: (0..slots).map(|_| SlotRecord::new()).collect(),
        };
        let contents = Contents((0..slots).map(|_| LoomCell::new(0)).collect());
        Arc::new(Pool { slots: Slots::new(P::default(), settings, home), contents })
    }

    /// The same, all of them dirty, on CPU 0.
    fn dirty(slots: u32) -> Arc<Self> {
        let pool = Self::new(slots);
        let taken: Vec<_> = (0..slots).map(|_| pool.take().expect("all are free")).collect();
        taken.into_iter().for_each(|slot| pool.put(slot, Left::Dirty));
        assert_eq!(pool.slots.stats().dirty_slots, u64::from(slots));
        pool
    }

    fn take(&self) -> Result<SlotIndex, Exhausted> {
        Ok(self.contents.touch(self.slots.take(None, &self.contents)?))
    }

    fn put(&self, slot: SlotIndex, left: Left) {
        if left == Left::Clean {
            self.contents.0[slot.index()].set(0);
        }
        self.slots.put(slot, None, left, &self.contents);
    }
}

/// Runs `other` on CPU 1.
fn beside<P: Platform + Send + Sync, R: 'static>(
    pool: &Arc<Pool<P>>,
    other: impl FnOnce(&Pool<P>) -> R + 'static,
) -> JoinHandle<R> {
    let pool = Arc::clone(pool);
    thread::spawn(move || {
        run_on(1);
        other(&pool)
    })
}

fn join<R>(thread: JoinHandle<R>) -> R {
    thread.join().expect("the thread is well")
}

/// Nothing uses the only slot, which another call resets meanwhile. So it is in no list and not in
/// the allocator for a time, and the call that wants it must not fail.
fn take_what_is_reset<P: Platform + Default + Send + Sync>(preemptions: usize) {
    explore(preemptions, || {
        let pool = Pool::<P>::dirty(1);
        let taker = beside(&pool, |pool| pool.take().expect("nothing uses it").get());
        pool.slots.reset_all(&pool.contents);
        assert_eq!(join(taker), 0);
        assert_eq!(pool.take(), Err(Exhausted));
    });
}

#[test]
fn a_slot_that_is_being_reset_is_waited_for() {
    take_what_is_reset::<Sound>(3);
}

/// The models would notice words whose accesses order nothing, in the pool or the allocator.
#[test]
#[should_panic]
fn words_that_order_nothing_are_caught() {
    take_what_is_reset::<Unordered>(3);
}

/// Two calls want a slot each, and both slots are dirty. The first takes both in hand and keeps
/// one: the other call must find the rest.
#[test]
fn two_calls_that_are_short_of_slots_find_one_each() {
    explore(2, || {
        let pool = Pool::<Sound>::dirty(2);
        let other = beside(&pool, |pool| pool.take().expect("two are free"));
        let mine = pool.take().expect("two are free");
        assert_ne!(mine, join(other));
        assert_eq!(pool.take(), Err(Exhausted));
    });
}

/// The only slot comes back while another call looks for it: that call gets it or fails, in any
/// case returns, and the slot can be had after.
fn take_what_comes_back(left: Left) {
    explore(3, move || {
        let pool = Pool::<Sound>::new(1);
        let slot = pool.take().expect("it is free");
        let taker = beside(&pool, |pool| pool.take());
        pool.put(slot, left);
        match join(taker) {
            Ok(taken) => assert_eq!((taken, pool.take()), (slot, Err(Exhausted))),
            Err(Exhausted) => assert_eq!(pool.take(), Ok(slot)),
        }
    });
}

#[test]
fn a_clean_slot_that_comes_back_is_had_once() {
    take_what_comes_back(Left::Clean);
}

#[test]
fn a_dirty_slot_that_comes_back_is_had_once() {
    take_what_comes_back(Left::Dirty);
}
