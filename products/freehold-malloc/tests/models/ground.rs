//! An arena under loom: what page heaps use of the crate.

use std::cell::Cell;
use std::ops::Deref;
use std::{fmt, io};

use freehold::designs::Freehold;
use freehold::platform::{LockClass, Platform, RawLock, SharedCell};
use freehold::{
    Config, Design, Error, FrameCount, FrameSize, MemoryRange, NodeId, Order, PageAllocator, Pfn,
    Request,
};
use freehold_host::HostError;

use crate::loom_platform::{LoomCell, LoomLock};
use crate::machine::Machine;

thread_local! {
    // Not loom's: its threads are one for the machine, and have one clock.
    static CLOCK_MS: Cell<u64> = const { Cell::new(0) };
}

/// The clock of a model.
pub(crate) fn now_ms() -> u64 {
    CLOCK_MS.get()
}

pub(crate) fn set_clock(ms: u64) {
    CLOCK_MS.set(ms);
}

/// So many frames, and what each contains.
pub(crate) struct FrameArena<P: Platform, D: Design<P> = Freehold<P>> {
    pub(crate) allocator: Machine<P, D>,
    pub(crate) contents: Vec<LoomCell<u32>>,
    pub(crate) extent: Extent,
    pub(crate) gate: ForkMutex<()>,
    /// Whether the machine takes no memory back.
    pub(crate) refuses: bool,
}

/// The parts of an arena: one.
pub(crate) struct Extent {
    pub(crate) parts: ForkMutex<[Part; 1]>,
}

pub(crate) struct Part {
    pub(crate) start: Pfn,
    pub(crate) frames: FrameCount,
}

impl<P: Platform + Default, D: Design<P>> FrameArena<P, D> {
    /// All are free, and two CPUs use them.
    pub(crate) fn new(frames: u64, refuses: bool) -> Self {
        let (start, count) = (Pfn::new(0), FrameCount::new(frames));
        let (ranges, nodes) = ([MemoryRange::new(start, count)], [NodeId::new(0); 2]);
        let config = Config::new(&ranges, &nodes).min_free(FrameCount::ZERO);
        FrameArena {
            allocator: Machine::new(P::default(), &config, &Default::default()),
            contents: (0..frames).map(|_| LoomCell::new(0)).collect(),
            gate: ForkMutex::new(()),
            extent: Extent { parts: ForkMutex::new([Part { start, frames: count }]) },
            refuses,
        }
    }
}

impl<P: Platform, D: Design<P>> FrameArena<P, D> {
    pub(crate) fn allocator(&self) -> &PageAllocator<P, D> {
        &self.allocator
    }

    pub(crate) fn frame_size(&self) -> FrameSize {
        FrameSize::default()
    }

    pub(crate) fn total_frames(&self) -> FrameCount {
        FrameCount::new(self.contents.len() as u64)
    }

    pub(crate) fn capacity_bytes(&self) -> usize {
        self.frame_size().bytes_of(self.total_frames())
    }

    pub(crate) fn is_new_memory(&self) -> bool {
        true
    }

    pub(crate) fn page_order(&self) -> Order {
        Order::ZERO
    }

    pub(crate) fn alloc(&self, request: Request) -> Result<Pfn, Error> {
        self.allocator.alloc(request)
    }

    pub(crate) fn free(&self, pfn: Pfn, order: Order) -> Result<(), Error> {
        self.allocator.free(pfn, order)
    }

    pub(crate) fn extent(&self) -> &Extent {
        &self.extent
    }

    pub(crate) fn forks_wait(&self) -> ForkGuard<'_, ()> {
        self.gate.lock()
    }

    /// No process forks here.
    pub(crate) fn ensure_repaired(&self) {}

    /// What an arena without room to grow may come to have.
    pub(crate) fn room(&self, nth: usize) -> Option<(Pfn, Pfn)> {
        let part = self.extent.parts.lock();
        part.get(nth).map(|part| (part.start, part.start + part.frames))
    }

    pub(crate) fn grow_by(
        &self,
        bytes: usize,
        _added: impl FnMut(MemoryRange),
    ) -> Result<(), HostError> {
        Err(HostError::CapacityExceeded { bytes, left: 0 })
    }

    pub(crate) fn discard(&self, first: Pfn, frames: FrameCount) -> Result<(), HostError> {
        self.discard_all(&[(first, frames)], true).map(drop)
    }

    /// The frames are zero then: a write, which loom does not let race with their users.
    pub(crate) fn discard_all(
        &self,
        stretches: &[(Pfn, FrameCount)],
        _at_once: bool,
    ) -> Result<u64, HostError> {
        if self.refuses {
            let source = io::Error::other("the machine refuses");
            return Err(HostError::Advise { advice: "to take memory back", source });
        }
        for &(first, frames) in stretches {
            let first = first.get() as usize;
            self.contents[first..][..frames.get() as usize].iter().for_each(|it| it.set(0));
        }
        Ok(1)
    }
}

impl<P: Platform, D: Design<P>> fmt::Debug for FrameArena<P, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrameArena").finish_non_exhaustive()
    }
}

/// A mutex over what does not change.
pub(crate) struct ForkMutex<T> {
    lock: LoomLock<true>,
    value: T,
}

impl<T> ForkMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        ForkMutex { lock: LoomLock::new(LockClass::Owner), value }
    }

    pub(crate) fn lock(&self) -> ForkGuard<'_, T> {
        self.hold();
        ForkGuard(self)
    }

    pub(crate) fn hold(&self) {
        self.lock.lock();
    }

    pub(crate) fn release(&self) {
        self.lock.unlock();
    }
}

impl<T> fmt::Debug for ForkMutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ForkMutex").finish_non_exhaustive()
    }
}

pub(crate) struct ForkGuard<'a, T>(&'a ForkMutex<T>);

impl<T> Deref for ForkGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T> Drop for ForkGuard<'_, T> {
    fn drop(&mut self) {
        self.0.release();
    }
}
