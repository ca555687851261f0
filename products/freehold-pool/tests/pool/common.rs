//! A pool's slots on a simulated machine, without memory: what a slot contains is a word.

use std::cell::Cell;
use std::rc::Rc;

use freehold::platform::Platform;
use freehold_pool::slots::{Left, ModuleKey, Reset, SlotIndex, Slots, SlotsSettings, Taken};
use freehold_sim::{Machine, Sim};

use sim_home::SimHome;

#[path = "../../benches/common/sim_home.rs"]
mod sim_home;

/// What is in the slots, and who has them: the referee.
pub(crate) struct Ledger {
    /// By slot: the key whose user has written to it since it was reset, or 0.
    content: Vec<Cell<u64>>,
    taken: Vec<Cell<bool>>,
    /// How long a reset takes, in accesses of shared memory.
    touches: usize,
    word: <Sim as Platform>::U64,
}

impl Ledger {
    pub(crate) fn new(slots: u32, touches: usize) -> Self {
        Ledger {
            content: (0..slots).map(|_| Cell::new(0)).collect(),
            taken: (0..slots).map(|_| Cell::new(false)).collect(),
            touches,
            word: freehold::platform::Word::new(0),
        }
    }

    /// Checks a slot that was just taken, and writes to it.
    pub(crate) fn take(&self, taken: Taken, key: u64) {
        let slot = taken.slot.index();
        assert!(!self.taken[slot].replace(true), "{} has two users", taken.slot);
        let content = self.content[slot].replace(key);
        match taken.kept {
            true => assert_eq!(content, key, "{} was kept by another key", taken.slot),
            false => assert_eq!(content, 0, "{} is not clean", taken.slot),
        }
        assert!(taken.warm || !taken.kept);
    }

    /// Notes that the slot is on its way back.
    pub(crate) fn put(&self, slot: SlotIndex, left: Left) {
        assert!(self.taken[slot.index()].replace(false));
        if left == Left::Clean {
            self.content[slot.index()].set(0);
        }
    }
}

impl Reset for Ledger {
    fn reset(&self, slots: &[SlotIndex], _lost: &mut dyn FnMut(SlotIndex)) -> u64 {
        assert!(slots.is_sorted());
        for _ in 0..self.touches {
            // The machine may let other CPUs run here.
            freehold::platform::Word::load(&self.word, std::sync::atomic::Ordering::Relaxed);
        }
        for &slot in slots {
            assert!(!self.taken[slot.index()].get(), "{slot} is reset while it is in use");
            self.content[slot.index()].set(0);
        }
        1
    }
}

pub(crate) type SimSlots = Slots<Sim, SimHome>;

/// Slots for the first CPUs of a machine.
pub(crate) fn slots(machine: &mut Machine, settings: SlotsSettings, cpus: usize) -> Rc<SimSlots> {
    let home = SimHome::new(machine, settings, cpus);
    Rc::new(Slots::new(Sim, settings, home))
}

pub(crate) fn key(number: u64) -> Option<ModuleKey> {
    Some(ModuleKey::new(number))
}
