//! When free memory goes back to the machine: by age, whole pageblocks first, many at a time.

use freehold::{Design, FrameCount, Immovable, Pfn, RangeRequest, Watermark};

use super::{ForkGuard, Host, HostError, PageHeap};

/// How much of the arena a purge has in hand at a time: a 64th, and at least a pageblock, or a huge
/// page.
const SHARE: u64 = 64;

/// How many stretches a purge has in hand: as many as go to the kernel by one call.
const BATCH_MAX: usize = 64;

/// Which free memory a purge gives back.
///
/// The age of a pageblock is the number of purges since a frame of it was freed, the first one
/// since it was purged. Later frees do not make it younger: otherwise a pageblock in which
/// something is freed now and then would keep all else that is free there.
///
/// Of memory in [huge pages](freehold_host::Backing::HugeTlb) only whole ones go back. Those that
/// are larger than a pageblock have an age each, in place of their pageblocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PurgeAges {
    /// From which age on pageblocks go that are free as a whole.
    pub whole: u8,
    /// From which age on the free frames of others go. That breaks the huge page of the pageblock,
    /// and what is given back comes in small pieces: higher than `whole`, or `None` for never.
    pub part: Option<u8>,
}

impl PurgeAges {
    /// All that is free.
    pub const ALL: PurgeAges = PurgeAges { whole: 0, part: Some(0) };
}

impl Default for PurgeAges {
    /// Whole pageblocks at the second purge after a free, others at the third.
    fn default() -> Self {
        PurgeAges { whole: 2, part: Some(3) }
    }
}

/// What a purge has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Frames given back. Those that were known to be zero already are not counted, nor given back.
    pub frames: FrameCount,
    /// Of these, frames of pageblocks that were free as a whole.
    pub whole: FrameCount,
    /// Contiguous stretches that they made.
    pub stretches: u64,
    /// System calls.
    pub calls: u64,
}

impl<D: Design<Host>> PageHeap<D> {
    /// Gives free memory back to the machine that is old enough, and makes the rest one older. Call
    /// it at intervals, from a thread of your own or from one that has just freed memory.
    ///
    /// No call of other threads is given a frame while it is purged, and they find at most a 64th
    /// of the arena less meanwhile. Where the kernel takes many stretches by one call (Linux 6.14,
    /// private memory) it gets up to 64 at a time: see [`HeapSettings`](crate::HeapSettings). Uses
    /// no heap. If another purge is under way, waits for it; a fork waits for the stretches in
    /// hand.
    ///
    /// Costs a look at the age of each pageblock, and at each frame of pageblocks that are in use
    /// in part and old enough.
    ///
    /// # Errors
    ///
    /// [`HostError::Advise`] if the kernel refuses, for example because the memory is locked. All
    /// frames are free again then, and due for the next purge.
    pub fn purge(&self, ages: PurgeAges) -> Result<Purged, HostError> {
        self.purge_after(1, ages)
    }

    /// The units in which there is memory.
    fn units(&self) -> impl Iterator<Item = usize> + '_ {
        let unit = self.ages.unit().frames().get();
        let mut behind = 0;
        (0..).map_while(|nth| self.arena.part(nth)).flat_map(move |(first, end)| {
            // Units larger than a pageblock may lie in two parts.
            let from = behind.max(first.get() / unit);
            behind = end.get().div_ceil(unit);
            (from..behind).map(|nth| nth as usize)
        })
    }

    /// A purge that comes instead of so many, and makes memory as much older.
    pub(super) fn purge_after(&self, purges: u8, ages: PurgeAges) -> Result<Purged, HostError> {
        self.arena.ensure_repaired();
        let mut drained = false;
        let unit = self.ages.unit();
        let share = FrameCount::new(self.arena.total_frames().get() / SHARE).max(unit.frames());
        let mut batch = Batch::new(self, share);
        for nth in self.units() {
            let Some(age) = self.ages.pass(nth, purges, ages.whole) else { continue };
            if !drained {
                // Frames on the lists of CPUs go back first, so that pageblocks become whole.
                self.arena.allocator().drain_all();
                drained = true;
            }
            let first = Pfn::new(nth as u64 * unit.frames().get());
            batch.age = age;
            if self.arena.seems_free(first, unit) && batch.take(first, unit.frames())? {
                continue;
            }
            let takes_parts = ages.part.is_some_and(|part| age > part.into());
            if !takes_parts || !batch.take_parts(first)? {
                self.ages.restore(first, FrameCount::new(1), age);
            }
        }
        batch.give_back()?;
        Ok(batch.purged)
    }
}

/// Stretches that a purge has taken out of the allocator, to be given back by one call.
struct Batch<'a, D: Design<Host>> {
    heap: &'a PageHeap<D>,
    stretches: [(Pfn, FrameCount); BATCH_MAX],
    /// The highest age among the units of each.
    stretch_ages: [u32; BATCH_MAX],
    /// The age of the unit that is looked at.
    age: u32,
    count: usize,
    frames: FrameCount,
    frames_max: FrameCount,
    /// While there are any, so that no fork comes between.
    alone: Option<ForkGuard<'a, ()>>,
    purged: Purged,
}

impl<'a, D: Design<Host>> Batch<'a, D> {
    fn new(heap: &'a PageHeap<D>, frames_max: FrameCount) -> Self {
        Batch {
            heap,
            stretches: [(Pfn::new(0), FrameCount::ZERO); BATCH_MAX],
            stretch_ages: [0; BATCH_MAX],
            age: 0,
            count: 0,
            frames: FrameCount::ZERO,
            frames_max,
            alone: None,
            purged: Purged::default(),
        }
    }

    /// Takes frames that seem to be free, unless all of them are zero already. Returns whether
    /// nothing is left to do there: not if one of them is in use.
    fn take(&mut self, first: Pfn, frames: FrameCount) -> Result<bool, HostError> {
        // They may be others' by now: then it is others' bits that are seen, and looking suffices.
        if !self.heap.written.any(first, frames) {
            return Ok(true);
        }
        if self.alone.is_none() {
            self.alone = Some(self.heap.arena.forks_wait());
        }
        let request = RangeRequest::new(frames).at(first).watermark(Watermark::Low);
        if self.heap.arena.allocator().alloc_range(request, &Immovable).is_err() {
            if self.count == 0 {
                self.alone = None;
            }
            return Ok(false);
        }
        match self.stretches[..self.count].last_mut() {
            Some((start, before)) if *start + *before == first => *before += frames,
            _ => {
                self.stretches[self.count] = (first, frames);
                self.stretch_ages[self.count] = 0;
                self.count += 1;
            }
        }
        let age = &mut self.stretch_ages[self.count - 1];
        *age = self.age.max(*age);
        self.frames += frames;
        if frames == self.heap.ages.unit().frames() {
            self.purged.whole += frames;
        }
        if self.count == BATCH_MAX || self.frames >= self.frames_max {
            self.give_back()?;
        }
        Ok(true)
    }

    /// Takes what is free of a unit. Returns whether nothing is left to do there.
    fn take_parts(&mut self, first: Pfn) -> Result<bool, HostError> {
        let mut is_all = true;
        let unit = self.heap.ages.unit().frames();
        let end = (first + unit).min(Pfn::new(self.heap.capacity().get()));
        let mut at = first;
        while let Some((first, frames)) = self.heap.arena.free_run(at, end) {
            at = first + frames;
            // What is left of huge pages waits for the next free there.
            let (first, frames) = self.heap.arena.whole_pages(first, frames);
            if frames > FrameCount::ZERO {
                // If a frame of it is in use by now, or a watermark keeps it, the rest waits for a
                // later purge.
                is_all &= self.take(first, frames)?;
            }
        }
        Ok(is_all)
    }

    /// Gives the stretches in hand back to the machine, and to the allocator.
    fn give_back(&mut self) -> Result<(), HostError> {
        let stretches = &self.stretches[..self.count];
        let calls = match stretches {
            [] => Ok(0),
            _ => self.heap.arena.discard_all(stretches, !self.heap.single_calls),
        };
        for (&(first, frames), &age) in stretches.iter().zip(&self.stretch_ages) {
            if calls.is_ok() {
                self.heap.written.clear(first, frames);
            } else {
                // Due again, or no later purge would look there.
                self.heap.ages.restore(first, frames, age);
            }
            let freed = self.heap.arena.allocator().free_range(first, frames);
            debug_assert_eq!(freed, Ok(()), "freeing {frames} from {first}");
        }
        let (count, frames) = (self.count as u64, self.frames);
        (self.count, self.frames, self.alone) = (0, FrameCount::ZERO, None);
        self.purged.calls += calls?;
        self.purged.frames += frames;
        self.purged.stretches += count;
        Ok(())
    }
}
