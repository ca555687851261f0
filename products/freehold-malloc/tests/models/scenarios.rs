//! What two threads do with a page heap. One module for each machine that the heap is on.

use freehold::designs::Freehold;
use freehold::platform::SharedCell;
use freehold::{Design, FrameCount, Order, Pfn, Request};
use freehold_linux::ZoneLock;
use loom::sync::Arc;
use std::time::Duration;

use super::heap::{HeapSettings, PageHeap, PurgeAges};
use super::{FrameArena, Host};
use crate::ground::set_clock;
use crate::loom_runs::explore;
use crate::loom_threads::race;

/// A heap on the design whose calls are shortest: all that they do is under a lock or two.
type Heap<D = ZoneLock<Host>> = PageHeap<D>;

const ONE: FrameCount = FrameCount::new(1);

/// A heap of three frames, the last of which is new. The first two have been written to, and are
/// free; or the second is in use.
fn build<D: Design<Host>>(is_held: bool, refuses: bool) -> Heap<D> {
    build_with(is_held, refuses, HeapSettings::default())
}

fn build_with<D: Design<Host>>(is_held: bool, refuses: bool, settings: HeapSettings) -> Heap<D> {
    let heap = PageHeap::new(FrameArena::new(3, refuses), settings).expect("all is in order");
    let pair = FrameCount::new(2);
    let first = heap.alloc(pair, ONE).expect("all are free").first;
    assert_eq!(first, Pfn::new(0));
    heap.arena().contents[..2].iter().for_each(|content| content.set(1));
    heap.free(first, if is_held { ONE } else { pair }).expect("they are held");
    heap
}

fn purge<D: Design<Host>>(heap: &Heap<D>) -> FrameCount {
    heap.purge(PurgeAges::ALL).expect("the machine takes it").frames
}

/// Allocates a frame, uses and frees it. There may be none while a purge keeps others out: then
/// this does without the searches that [`PageHeap::alloc`] makes, which take loom too long.
fn use_any<D: Design<Host>>(heap: &Heap<D>) {
    if let Ok(frame) = heap.arena().alloc(Request::default()) {
        use_and_free(heap, frame, heap.is_zeroed(frame, ONE));
    }
}

/// Uses a frame as its owner does, and frees it.
fn use_and_free<D: Design<Host>>(heap: &Heap<D>, frame: Pfn, is_zeroed: bool) {
    let content = &heap.arena().contents[frame.get() as usize];
    assert!(!is_zeroed || content.get() == 0, "{frame} is said to be zero");
    content.set(2);
    heap.free(frame, ONE).expect("it is held");
}

/// Frees the second frame if it is in use. All is free then, and what is said to be zero is.
fn check<D: Design<Host>>(heap: &Heap<D>, is_held: bool) {
    if is_held {
        heap.free(Pfn::new(1), ONE).expect("it is held");
    }
    for (frame, content) in (0..).zip(&heap.arena().contents) {
        let is_zeroed = heap.is_zeroed(Pfn::new(frame), ONE);
        assert!(!is_zeroed || content.get() == 0, "{frame} is said to be zero");
    }
    let allocator = heap.arena().allocator();
    allocator.drain_all();
    let census = allocator.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(census.free, census.managed);
}

/// A frame is had and used while a purge takes what is free.
pub(crate) fn alloc_beside_a_purge(preemptions: usize) {
    explore(preemptions, || {
        let heap = Arc::new(build::<ZoneLock<Host>>(true, false));
        race(&heap, use_any, purge);
        check(&heap, true);
    });
}

/// The same after the purge, on the design that hands frames over without locks.
pub(crate) fn alloc_after_a_purge(preemptions: usize) {
    explore(preemptions, || {
        let heap = Arc::new(build::<Freehold<Host>>(true, false));
        race(&heap, purge, use_any);
        check(&heap, true);
    });
}

/// The same as the first, while the machine takes nothing back.
pub(crate) fn alloc_beside_a_refused_purge(preemptions: usize) {
    explore(preemptions, || {
        let heap: Arc<Heap> = Arc::new(build(true, true));
        race(&heap, use_any, |heap| _ = heap.purge(PurgeAges::ALL));
        check(&heap, true);
    });
}

/// The neighbour of a frame is used and freed while that frame is purged.
pub(crate) fn free_beside_a_purge(preemptions: usize) {
    explore(preemptions, || {
        let heap: Arc<Heap> = Arc::new(build(true, false));
        race(&heap, |heap| use_and_free(heap, Pfn::new(1), false), purge);
        check(&heap, false);
    });
}

/// A frame is freed, and wanted by another thread, which is told that it has been written to.
pub(crate) fn alloc_beside_a_free(preemptions: usize) {
    explore(preemptions, || {
        let heap: Arc<Heap> = Arc::new(build(true, false));
        let user = |heap: &Heap| {
            if let Ok(span) = heap.alloc_at(Pfn::new(1), ONE) {
                use_and_free(heap, span.first, span.is_zeroed);
            }
        };
        race(&heap, |heap| use_and_free(heap, Pfn::new(1), false), user);
        check(&heap, false);
    });
}

/// A frame that is being purged is wanted, and is had.
pub(crate) fn place_beside_a_purge(preemptions: usize) {
    explore(preemptions, || {
        let heap: Arc<Heap> = Arc::new(build(true, false));
        let user = |heap: &Heap| {
            let span = heap.alloc_at(Pfn::new(0), ONE).expect("nothing uses it");
            use_and_free(heap, span.first, span.is_zeroed);
        };
        race(&heap, purge, user);
        check(&heap, true);
    });
}

/// Two purges at once give back what is free, once.
pub(crate) fn two_purges(preemptions: usize) {
    explore(preemptions, || {
        let heap: Arc<Heap> = Arc::new(build(true, false));
        let (mine, other) = race(&heap, purge, purge);
        assert_eq!(mine + other, ONE);
        check(&heap, true);
    });
}

/// Two calls come when a purge is due. One makes it: after two, the frame would have been purged.
pub(crate) fn two_calls_when_a_purge_is_due(preemptions: usize) {
    explore(preemptions, || {
        set_clock(0);
        let ages = PurgeAges { whole: 2, part: Some(2) };
        let settings = HeapSettings {
            purge_every: Some((Duration::from_millis(10), ages)),
            refuse_for: Some(Duration::from_millis(5)),
            ..Default::default()
        };
        let heap: Arc<Heap> = Arc::new(build_with(true, false, settings));
        set_clock(10);
        let call = |heap: &Heap| heap.alloc(FrameCount::new(2), ONE).is_err();
        assert_eq!(race(&heap, call, call), (true, true));
        assert_eq!(heap.purged().frames, FrameCount::ZERO);
        set_clock(30);
        assert!(call(&heap));
        assert_eq!(heap.purged().frames, ONE);
    });
}

/// One thread frees much, and another one a little more: exactly one of them is told.
pub(crate) fn two_frees_when_use_falls(preemptions: usize) {
    explore(preemptions, || {
        set_clock(0);
        let purge_every = Some((Duration::from_millis(10), PurgeAges::default()));
        let settings = HeapSettings { purge_every, ..Default::default() };
        let heap: Arc<Heap> = Arc::new(build_with(true, false, settings));
        let note = |heap: &Heap, mib: i64| heap.note_blocks(mib << 20);
        assert!(!note(&heap, 100));
        let (one, other) = race(&heap, move |heap| note(heap, -40), move |heap| note(heap, -3));
        assert_ne!(one, other);
    });
}

/// An arena without a heap is purged while a frame of it is used.
pub(crate) fn alloc_beside_a_purge_of_the_arena(preemptions: usize) {
    explore(preemptions, || {
        let heap: Arc<Heap> = Arc::new(build(false, false));
        let user = |heap: &Heap| {
            let arena = heap.arena();
            if let Ok(frame) = arena.alloc(Request::default()) {
                arena.contents[frame.get() as usize].set(3);
                arena.free(frame, Order::ZERO).expect("it is held");
            }
        };
        let purged = race(&heap, user, |heap| heap.arena().purge().expect("it is taken")).1;
        let zeroes = heap.arena().contents.iter().filter(|content| content.get() == 0);
        assert!(zeroes.count() as u64 <= purged.get() + 1, "the new one, and those");
    });
}
