//! What safe code may do with the heap under a malloc.

use freehold::designs::Freehold;
use freehold::{Census, Design, Events, FrameCount, Violation};

use freehold_host::{ArenaBuilder, Host, HostError, Snapshot};

use crate::{HeapSettings, PageHeap, PurgeAges, Purged};

/// A look at a [`PageHeap`] whose frames are the memory of a malloc, and so of all code of the
/// program. The heap itself frees, discards and writes any frame that safe code names; with this it
/// can be purged and reported on, and no frame that is in use changes.
#[derive(Debug)]
pub struct HeapView<'a, D: Design<Host> = Freehold<Host>>(&'a PageHeap<D>);

impl<D: Design<Host>> Clone for HeapView<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Design<Host>> Copy for HeapView<'_, D> {}

impl<D: Design<Host>> PageHeap<D> {
    /// A heap that nothing has touched yet, of memory that nothing else reaches: the ground under a
    /// malloc.
    ///
    /// # Errors
    ///
    /// As for [`ArenaBuilder::build`].
    pub fn build(arena: ArenaBuilder<D>, settings: HeapSettings) -> Result<Self, HostError> {
        arena.refuse_shared("a heap's memory is for this process alone")?;
        PageHeap::new(arena.late_repair(true).build_frames()?, settings)
    }

    /// The heap for code that is not to touch its frames.
    pub fn view(&self) -> HeapView<'_, D> {
        HeapView(self)
    }
}

impl<D: Design<Host>> HeapView<'_, D> {
    /// Gives free memory back to the machine. See [`PageHeap::purge`].
    ///
    /// # Errors
    ///
    /// As for [`PageHeap::purge`].
    pub fn purge(self, ages: PurgeAges) -> Result<Purged, HostError> {
        self.0.purge(ages)
    }

    /// For what serves a program's calls of `malloc`: notes that the program has so many bytes more
    /// in blocks of a frame or more, or less if negative. Returns whether that has fallen by much,
    /// as [`HeapSettings::purge_every`] says, to one of the threads that notice it: then the malloc
    /// should return what it does not use, for the program may be done, and call it no more.
    pub fn note_blocks(self, bytes: i64) -> bool {
        self.0.note_blocks(bytes)
    }

    /// What the purges that calls make have done so far. See [`PageHeap::purged`].
    pub fn purged(self) -> Purged {
        self.0.purged()
    }

    /// What the allocator knows of itself.
    pub fn snapshot(self) -> Snapshot {
        Snapshot::of(self.0.arena().allocator())
    }

    /// What has happened since the arena was built.
    pub fn events(self) -> Events {
        self.0.arena().allocator().events()
    }

    /// Checks the allocator's books. See [`Arena::validate`](freehold_host::Arena::validate).
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found: a defect of the allocator.
    pub fn validate(self) -> Result<Census, Violation> {
        self.0.arena().allocator().validate()
    }

    /// How much memory the arena manages now, free or not.
    pub fn total_frames(self) -> FrameCount {
        self.0.arena().total_frames()
    }

    /// The size of a frame in bytes.
    pub fn frame_bytes(self) -> usize {
        self.0.arena().frame_size().bytes()
    }

    /// Whether an address lies in the arena's address space.
    pub fn contains<T: ?Sized>(self, address: *const T) -> bool {
        self.0.arena().contains(address)
    }
}
