//! Which slots are free, warm and dirty, without their memory: the same source on the host and on
//! simulated machines.
//!
//! | a slot is | where it is |
//! |---|---|
//! | clean, and not in use | free in a page-frame allocator, as a frame |
//! | warm | in the lists of a CPU, by key and by age |
//! | dirty | on the stack of a CPU, until there is a batch of them |
//!
//! Clean slots have nothing that makes one better than another, so they are left to the allocator,
//! which keeps a stock of them for each CPU and has no lock that all share. What makes a slot
//! better is known of warm ones only; these have lists here, newest first.
//!
//! Each CPU's lists have a lock of their own, which other CPUs take only when slots are scarce, or
//! for a warm slot of which a hint tells.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::Ordering::Relaxed;

use freehold::designs::Freehold;
use freehold::platform::{Platform, Word};
use freehold::{FrameCount, MemoryRange, Order, PageAllocator, Request};

pub use crate::key::{ModuleKey, SlotIndex};
use crate::stat::PoolStats;
use layout::Layout;
use lists::{InHand, Lists, Parked};
pub use record::{CpuRecord, SlotRecord};

mod batch;
mod layout;
mod lists;
mod record;
mod scarce;

/// The most slots that a batch can have.
pub const BATCH_SLOTS_MAX: usize = 128;

/// How [`Slots`] manages slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsSettings {
    /// How many slots there are: at least 1, and less than `u32::MAX`.
    pub slots: u32,
    /// How many dirty slots a CPU collects before it resets them: 1 to [`BATCH_SLOTS_MAX`].
    pub batch_slots: usize,
    /// How many warm slots there are at most while nothing uses them. Each CPU has an equal share.
    pub warm_slots_max: usize,
}

/// Where the tables of [`Slots`] are. All CPUs of a pool use them.
pub trait Tables<P: Platform> {
    /// An allocator whose memory is [`SlotsSettings::frames`], with
    /// [`min_free`](freehold::Config::min_free) 0, of which nothing is allocated.
    fn frames(&self) -> &PageAllocator<P, Freehold<P>>;
    /// A new record for each CPU.
    fn cpus(&self) -> &[CpuRecord<P>];
    /// A new record for each slot.
    fn slots(&self) -> &[SlotRecord<P>];
}

/// What resets the content of slots.
pub trait Reset {
    /// Resets slots, sorted by number, none of which is in use. Returns how many system calls it
    /// made. Calls `lost` for each slot that may still have its old content.
    fn reset(&self, slots: &[SlotIndex], lost: &mut dyn FnMut(SlotIndex)) -> u64;
}

/// What is in a slot that comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Something: it must be reset before it is used again.
    Dirty,
    /// Nothing: it is as if reset.
    Clean,
    /// Something that other users of the same key may see. Without a key the same as dirty.
    Kept,
}

/// A slot that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The slot.
    pub slot: SlotIndex,
    /// Whether its last user had the same key.
    pub warm: bool,
    /// Whether it has the content that this user left. Otherwise it is clean.
    pub kept: bool,
}

/// All slots are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exhausted;

impl SlotsSettings {
    /// The frames that stand for slots, for so many CPUs.
    pub fn frames(&self, cpus: usize) -> Vec<MemoryRange> {
        Layout::new(self.slots, cpus).ranges()
    }
}

/// The slots of a pool, by number.
///
/// A slot that is taken belongs to the caller until it is put back, once. What a caller did with a
/// slot before it put it back happens before what the next one does.
pub struct Slots<P: Platform, T: Tables<P>> {
    pub(crate) platform: P,
    tables: T,
    layout: Layout,
    settings: SlotsSettings,
    types: PhantomData<fn() -> P>,
}

impl<P: Platform, T: Tables<P>> Slots<P, T> {
    /// Manages slots in `tables`, all of them clean and free.
    ///
    /// # Panics
    ///
    /// If a setting is out of its range, or the tables are not those for these settings.
    pub fn new(platform: P, settings: SlotsSettings, tables: T) -> Self {
        assert!((1..=BATCH_SLOTS_MAX).contains(&settings.batch_slots), "batch_slots");
        assert!((1..u32::MAX).contains(&settings.slots), "slots");
        assert!(tables.slots().len() == settings.slots as usize, "a record for each slot");
        assert!(!tables.cpus().is_empty(), "a record for each CPU");
        let layout = Layout::new(settings.slots, tables.cpus().len());
        Slots { platform, tables, layout, settings, types: PhantomData }
    }

    /// The settings.
    pub fn settings(&self) -> SlotsSettings {
        self.settings
    }

    /// Counts a slot that is never put back.
    pub fn lose(&self) {
        count::<P>(&self.tables.cpus()[self.cpu()].counts.lost, 1);
    }

    /// Takes a slot: the newest warm one of the key on this CPU or, by a hint, on another; or else
    /// a clean one. If there is none, resets dirty ones and takes one of them, or takes the oldest
    /// warm one of another key: of this CPU, and then of the others.
    ///
    /// Cost: without a system call, unless slots are scarce: see [`PoolStats::scarce`].
    ///
    /// # Errors
    ///
    /// [`Exhausted`]: at some moment of the call, all slots were in use, on their way back in a
    /// call of another thread that had not returned, or lost.
    pub fn take(&self, key: Option<ModuleKey>, reset: &impl Reset) -> Result<Taken, Exhausted> {
        let own = self.cpu();
        let counts = &self.tables.cpus()[own].counts;
        let warm = key.and_then(|key| self.take_warm(own, key));
        let taken = match warm {
            Some(parked) => {
                count::<P>(&counts.warm, 1);
                Taken { slot: parked.slot, warm: true, kept: parked.kept }
            }
            None => match self.take_clean() {
                Some(slot) => Taken { slot, warm: false, kept: false },
                None => self.take_scarce(own, reset)?,
            },
        };
        count::<P>(&counts.taken, 1);
        Ok(taken)
    }

    fn take_warm(&self, own: usize, key: ModuleKey) -> Option<Parked> {
        if self.settings.warm_slots_max == 0 {
            return None;
        }
        self.lists(own).take_warm(key).or_else(|| self.take_warm_elsewhere(own, key))
    }

    /// Follows the hint where a slot of the key may be, without waiting.
    fn take_warm_elsewhere(&self, own: usize, key: ModuleKey) -> Option<Parked> {
        let hint = self.hint(key);
        // Relaxed, here and below: a hint, by which nothing is found but under a lock.
        let seen = hint.load(Relaxed);
        let cpu = (seen as usize).checked_sub(1)?;
        if cpu != own {
            let tables = (&self.tables.cpus()[cpu], self.tables.slots());
            let found = Lists::try_lock(tables.0, tables.1)?.take_warm(key);
            if found.is_some() {
                count::<P>(&self.tables.cpus()[own].counts.warm_elsewhere, 1);
                return found;
            }
        }
        let _changed = hint.compare_exchange(seen, 0, Relaxed, Relaxed);
        None
    }

    /// Where a CPU is noted that has slots of a key. It is written only if none is noted, so that
    /// CPUs with slots of one key do not write to one line in turns.
    fn hint(&self, key: ModuleKey) -> &P::U32 {
        &self.tables.slots()[key.hash() % self.tables.slots().len()].hint
    }

    fn take_clean(&self) -> Option<SlotIndex> {
        let frame = self.tables.frames().alloc(Request::default()).ok()?;
        Some(self.layout.slot(frame))
    }

    /// Puts a slot back that was taken, with the key of its user.
    ///
    /// Cost: without a system call, unless it completes a batch of dirty slots.
    ///
    /// # Panics
    ///
    /// If there is no such slot.
    pub fn put(&self, slot: SlotIndex, key: Option<ModuleKey>, left: Left, reset: &impl Reset) {
        assert!(slot.get() < self.settings.slots, "there is no {slot}");
        let own = self.cpu();
        let has_room = self.warm_share(own) > 0;
        match (left, key) {
            (Left::Kept | Left::Clean, Some(key)) if has_room => {
                self.park(own, slot, key, left == Left::Kept, reset);
            }
            (Left::Clean, _) => self.free(slot),
            (Left::Kept | Left::Dirty, _) => {
                let lists = self.lists(own);
                lists.push_dirty(slot, key);
                self.reset_if_batch(own, lists, reset);
            }
        }
    }

    /// Parks a warm slot, in place of the oldest if there is no room.
    fn park(&self, own: usize, slot: SlotIndex, key: ModuleKey, kept: bool, reset: &impl Reset) {
        let lists = self.lists(own);
        let evicted = self.park_in(&lists, own, slot, key, kept);
        self.note_hint(own, key);
        self.reset_if_batch(own, lists, reset);
        if let Some((evicted, in_hand)) = evicted {
            self.free(evicted);
            drop(in_hand);
        }
    }

    /// Parks a slot in lists that have room for one at least. Returns the oldest, if that has to
    /// make room and is clean, as one in hand; a dirty one goes to the stack.
    fn park_in<'a>(
        &self,
        lists: &Lists<'a, P>,
        own: usize,
        slot: SlotIndex,
        key: ModuleKey,
        kept: bool,
    ) -> Option<(SlotIndex, InHand<'a, P>)> {
        let full = lists.warm_slots() >= self.warm_share(own);
        let evicted = if full { lists.take_oldest() } else { None };
        lists.park(slot, key, kept);
        let evicted = evicted?;
        if evicted.kept {
            lists.push_dirty(evicted.slot, evicted.key);
            return None;
        }
        Some((evicted.slot, lists.take_in_hand()))
    }

    fn note_hint(&self, own: usize, key: ModuleKey) {
        let hint = self.hint(key);
        // Relaxed: see `take_warm_elsewhere`.
        if hint.load(Relaxed) == 0 {
            hint.store(own as u32 + 1, Relaxed);
        }
    }

    /// Frees a clean slot.
    fn free(&self, slot: SlotIndex) {
        let freed = self.tables.frames().free(self.layout.frame(slot), Order::ZERO);
        assert!(freed.is_ok(), "{slot} was put back twice");
    }

    /// How many slots are free, warm or dirty: none of them in use. Exact while no call is under
    /// way.
    pub fn unused_slots(&self) -> u64 {
        let frames = self.tables.frames();
        frames.drain_all();
        let clean: FrameCount = frames.zones().map(|zone| zone.free).sum();
        let stats = self.stats();
        clean.get() + stats.dirty_slots + stats.warm_slots
    }

    /// What has happened so far. Takes the lock of each CPU, one after the other.
    pub fn stats(&self) -> PoolStats {
        let mut stats = PoolStats::default();
        for cpu in 0..self.tables.cpus().len() {
            let lists = self.lists(cpu);
            stats.dirty_slots += lists.dirty_slots() as u64;
            stats.warm_slots += lists.warm_slots() as u64;
            lists.cpu.counts.add_to(&mut stats);
        }
        stats
    }

    fn cpu(&self) -> usize {
        self.platform.cpu().index() % self.tables.cpus().len()
    }

    fn lists(&self, cpu: usize) -> Lists<'_, P> {
        Lists::lock(&self.tables.cpus()[cpu], self.tables.slots())
    }

    /// How many warm slots a CPU may have.
    fn warm_share(&self, cpu: usize) -> usize {
        let (all, cpus) = (self.settings.warm_slots_max, self.tables.cpus().len());
        all / cpus + usize::from(cpu < all % cpus)
    }
}

impl<P: Platform, T: Tables<P>> fmt::Debug for Slots<P, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("settings", &self.settings)
            .field("cpus", &self.tables.cpus().len())
            .field("stats", &self.stats())
            .finish()
    }
}

/// Counts events.
fn count<P: Platform>(word: &P::U64, events: u64) {
    // Relaxed: a statistic, by which nothing is decided.
    word.fetch_add(events, Relaxed);
}

/// Reads a count.
fn count_of<P: Platform>(word: &P::U64) -> u64 {
    // Relaxed: as in `count`.
    word.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::Home;
    use freehold_host::Host;

    /// A reset that has nothing to do.
    pub(super) struct Nothing;

    impl Reset for Nothing {
        fn reset(&self, _slots: &[SlotIndex], _lost: &mut dyn FnMut(SlotIndex)) -> u64 {
            1
        }
    }

    pub(super) fn pool(settings: SlotsSettings, cpus: usize) -> Slots<Host, Home> {
        let host = Host::new();
        Slots::new(host, settings, Home::new(host, settings, cpus).unwrap())
    }

    #[test]
    fn a_slot_that_made_room_is_in_hand_until_it_is_free() {
        let settings = SlotsSettings { slots: 2, batch_slots: 1, warm_slots_max: 1 };
        let pool = pool(settings, 1);
        let slots = [0, 1].map(|_| pool.take(None, &Nothing).unwrap().slot);
        let key = ModuleKey::new(1);
        let lists = pool.lists(0);
        assert!(pool.park_in(&lists, 0, slots[0], key, false).is_none());
        let (evicted, in_hand) = pool.park_in(&lists, 0, slots[1], key, false).unwrap();
        assert_eq!(evicted, slots[0]);
        assert_eq!(lists.take_warm(key).unwrap().slot, slots[1]);
        assert_eq!(lists.changes_if_empty(), None, "one slot is free");
        drop(in_hand);
        assert!(lists.changes_if_empty().is_some());
    }

    #[test]
    fn warm_slots_are_shared_out() {
        let settings = SlotsSettings { slots: 9, batch_slots: 1, warm_slots_max: 5 };
        let pool = pool(settings, 3);
        assert_eq!([0, 1, 2].map(|cpu| pool.warm_share(cpu)), [2, 2, 1]);
    }

    #[test]
    fn a_warm_slot_on_another_cpu_is_found_by_the_hint_and_the_hint_forgotten_after() {
        let settings = SlotsSettings { slots: 9, batch_slots: 1, warm_slots_max: 8 };
        let pool = pool(settings, 4);
        let (own, other) = (pool.cpu(), (pool.cpu() + 1) % 4);
        let (key, slot) = (ModuleKey::new(7), pool.take(None, &Nothing).unwrap().slot);
        pool.park(other, slot, key, false, &Nothing);
        assert_eq!(pool.take_warm(own, key).unwrap().slot, slot);
        assert!(pool.take_warm(own, key).is_none());
        pool.park(own, slot, key, false, &Nothing);
        assert_eq!(pool.take_warm(other, key).unwrap().slot, slot);
        assert_eq!(pool.stats().warm_hits_elsewhere, 2);
    }

    /// A reset that does not succeed for slot 1.
    struct LosesOne;

    impl Reset for LosesOne {
        fn reset(&self, slots: &[SlotIndex], lost: &mut dyn FnMut(SlotIndex)) -> u64 {
            slots.iter().filter(|slot| slot.get() == 1).for_each(|&slot| lost(slot));
            2
        }
    }

    #[test]
    fn a_slot_that_cannot_be_reset_is_never_handed_out() {
        let pool = pool(SlotsSettings { slots: 4, batch_slots: 3, warm_slots_max: 2 }, 1);
        let all = || std::iter::from_fn(|| pool.take(None, &LosesOne).ok()).collect::<Vec<_>>();
        for taken in all() {
            pool.put(taken.slot, Some(ModuleKey::new(3)), Left::Dirty, &LosesOne);
        }
        pool.reset_all(&LosesOne);
        let stats = pool.stats();
        assert_eq!((stats.lost_slots, stats.reset_slots, stats.system_calls), (1, 3, 4));
        assert_eq!((stats.warm_slots, pool.unused_slots()), (2, 3));
        let mut slots: Vec<u32> = all().iter().map(|taken| taken.slot.get()).collect();
        slots.sort_unstable();
        assert_eq!(slots, [0, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "slot 0 was put back twice")]
    fn a_slot_that_is_put_back_twice_is_noticed() {
        let pool = pool(SlotsSettings { slots: 1, batch_slots: 1, warm_slots_max: 0 }, 1);
        let slot = pool.take(None, &Nothing).unwrap().slot;
        pool.put(slot, None, Left::Clean, &Nothing);
        pool.put(slot, None, Left::Clean, &Nothing);
    }
}
