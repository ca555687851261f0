//! An owner of memory with content that can move it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};

use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::{Error, FrameCount, Migrate, MigrateError, Order, PageAllocator, Pfn, Request};

const NOBODY: usize = usize::MAX;

/// Slots, each with a block or none, and the content of all memory, a word a frame.
pub(crate) struct Owner {
    slots: Vec<Mutex<Option<(Pfn, Order)>>>,
    /// Which slot holds the block that begins at a frame.
    slot_of: Vec<AtomicUsize>,
    content: Vec<AtomicU64>,
    pub(crate) moves: AtomicU64,
}

impl Owner {
    pub(crate) fn new(slots: usize, span: u64) -> Self {
        Owner {
            slots: (0..slots).map(|_| Mutex::new(None)).collect(),
            slot_of: (0..span).map(|_| AtomicUsize::new(NOBODY)).collect(),
            content: (0..span).map(|_| AtomicU64::new(0)).collect(),
            moves: AtomicU64::new(0),
        }
    }

    /// The content of a frame of a slot's block.
    fn word(slot: usize, frame: u64) -> u64 {
        (slot as u64 + 1) << 16 | frame
    }

    /// Allocates a block for an empty slot and fills it.
    pub(crate) fn alloc<P: Platform, D: Design<P>>(
        &self,
        frames: &PageAllocator<P, D>,
        slot: usize,
        request: Request,
    ) -> Result<Pfn, Error> {
        let mut held = self.slots[slot].lock().unwrap();
        assert!(held.is_none(), "slot {slot} is taken");
        let pfn = frames.alloc(request)?;
        self.fill(slot, pfn, request.order());
        *held = Some((pfn, request.order()));
        Ok(pfn)
    }

    fn fill(&self, slot: usize, pfn: Pfn, order: Order) {
        for frame in 0..order.frames().get() {
            let before =
                self.content[(pfn.get() + frame) as usize].swap(Self::word(slot, frame), SeqCst);
            assert_eq!(before, 0, "{pfn}, frame {frame} is in two hands");
        }
        assert_eq!(self.slot_of[pfn.get() as usize].swap(slot, SeqCst), NOBODY);
    }

    fn clear(&self, slot: usize, pfn: Pfn, order: Order) {
        for frame in 0..order.frames().get() {
            let before = self.content[(pfn.get() + frame) as usize].swap(0, SeqCst);
            assert_eq!(before, Self::word(slot, frame), "{pfn}, frame {frame} of slot {slot}");
        }
        assert_eq!(self.slot_of[pfn.get() as usize].swap(NOBODY, SeqCst), slot);
    }

    /// Frees the block of a slot, if it has one, after checking its content.
    pub(crate) fn free<P: Platform, D: Design<P>>(
        &self,
        frames: &PageAllocator<P, D>,
        slot: usize,
    ) {
        let block = self.slots[slot].lock().unwrap().take();
        if let Some((pfn, order)) = block {
            self.clear(slot, pfn, order);
            frames.free(pfn, order).expect("the block is held");
        }
    }

    /// The block of a slot.
    pub(crate) fn block(&self, slot: usize) -> Option<(Pfn, Order)> {
        *self.slots[slot].lock().unwrap()
    }

    /// How many frames are held, after checking the content of all of them.
    pub(crate) fn check(&self) -> u64 {
        let mut held = 0;
        for (slot, of) in self.slots.iter().enumerate() {
            if let Some((pfn, order)) = *of.lock().unwrap() {
                for frame in 0..order.frames().get() {
                    let word = self.content[(pfn.get() + frame) as usize].load(SeqCst);
                    assert_eq!(word, Self::word(slot, frame), "{pfn} of slot {slot}");
                }
                held += order.frames().get();
            }
        }
        let filled = self.content.iter().filter(|word| word.load(SeqCst) != 0).count();
        assert_eq!(filled as u64, held, "content without a user");
        held
    }

    /// How many slots there are.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }
}

impl Migrate for Owner {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        let slot = self.slot_of[from.get() as usize].load(SeqCst);
        if slot == NOBODY {
            return Err(MigrateError::Busy);
        }
        let mut held = self.slots[slot].try_lock().map_err(|_| MigrateError::Busy)?;
        if *held != Some((from, order)) {
            return Err(MigrateError::Busy);
        }
        self.clear(slot, from, order);
        self.fill(slot, to, order);
        *held = Some((to, order));
        self.moves.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// An owner that examines each move first, and may refuse it.
pub(crate) struct Picky<'a, F>(pub(crate) &'a Owner, pub(crate) F);

impl<F: Fn(Pfn, Pfn, Order) -> Result<(), MigrateError>> Migrate for Picky<'_, F> {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        (self.1)(from, to, order)?;
        self.0.migrate(from, to, order)
    }
}

/// Checks the invariants, and that users hold so many frames.
pub(crate) fn check_books<P: Platform, D: Design<P>>(frames: &PageAllocator<P, D>, held: u64) {
    let census = frames.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(census.isolated, FrameCount::ZERO, "nothing stays isolated");
    assert_eq!(census.allocated.get(), held, "nothing is lost");
    assert_eq!(
        census.managed,
        census.free + census.per_cpu + census.allocated,
        "every frame is somewhere"
    );
    let events = frames.events();
    assert_eq!(events.allocated.get() - events.freed.get(), held);
    let came = events.refilled + events.freed + events.allocated_directly;
    let left = events.drained + events.freed_directly + events.allocated + census.per_cpu;
    assert_eq!(came, left, "{events:?}");
}

// Not every binary uses everything here.
const _: () = {
    let _ = Picky::<()>;
};
const _: fn(&Owner) -> u64 = Owner::check;
const _: fn(&Owner, usize) -> Option<(Pfn, Order)> = Owner::block;
const _: fn(&Owner) -> usize = Owner::slots;

/// Returns all free memory to the zones and merges it completely; nothing moves.
pub(crate) fn settle<P: Platform, D: Design<P>>(frames: &PageAllocator<P, D>) {
    frames.drain_all();
    assert_eq!(frames.compact(&freehold::Immovable).migrated, FrameCount::ZERO);
}
