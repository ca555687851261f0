//! What two threads do with a page heap. One module for each machine that the heap is on.

use freehold::designs::Freehold;
use freehold::platform::SharedCell;
use freehold::{FrameCount, Pfn};
use loom::sync::Arc;
use loom::thread::{self, JoinHandle};
use std::time::Duration;

use super::page_heap::{PageHeap, PurgeAges};
use super::{FrameArena, Host};
use crate::ground::set_clock;
use crate::loom_platform::run_on;
use crate::loom_runs::explore;

type Heap = PageHeap<Freehold<Host>>;

const ONE: FrameCount = FrameCount::new(1);

/// A heap of two frames that have been written to. The first is free; the second too, or in use.
fn build(is_held: bool, refuses: bool) -> Heap {
    let heap = PageHeap::new(FrameArena::new(2, refuses)).expect("all is in order");
    let all = heap.alloc(FrameCount::new(2), ONE).expect("both are free");
    assert!(all.is_zeroed);
    heap.arena().contents.iter().for_each(|content| content.set(1));
    let frames = if is_held { ONE } else { FrameCount::new(2) };
    heap.free(all.first, frames).expect("they are held");
    heap
}

/// Runs `other` on CPU 1.
fn beside<R: 'static>(
    heap: &Arc<Heap>,
    other: impl FnOnce(&Heap) -> R + 'static,
) -> JoinHandle<R> {
    let heap = Arc::clone(heap);
    thread::spawn(move || {
        run_on(1);
        other(&heap)
    })
}

fn join<R>(thread: JoinHandle<R>) -> R {
    thread.join().expect("the thread is well")
}

/// Uses a frame as its owner does, and frees it.
fn use_and_free(heap: &Heap, frame: Pfn, is_zeroed: bool) {
    let content = &heap.arena().contents[frame.get() as usize];
    assert!(!is_zeroed || content.get() == 0, "{frame} is said to be zero");
    content.set(2);
    heap.free(frame, ONE).expect("it is held");
}

/// What is said to be zero is, and all is free.
fn check(heap: &Heap) {
    for (frame, content) in (0..).zip(&heap.arena().contents) {
        let is_zeroed = heap.is_zeroed(Pfn::new(frame), ONE);
        assert!(!is_zeroed || content.get() == 0, "{frame} is said to be zero");
    }
    let allocator = heap.arena().allocator();
    allocator.drain_all();
    let census = allocator.validate().unwrap_or_else(|violation| panic!("{violation}"));
    assert_eq!(census.free, census.managed);
}

/// A frame is had and used while a purge takes what is free; which the machine may refuse.
pub(crate) fn alloc_beside_a_purge(refuses: bool) {
    explore(1, move || {
        let heap = Arc::new(build(false, refuses));
        let user = beside(&heap, |heap| {
            if let Ok(span) = heap.alloc(ONE, ONE) {
                use_and_free(heap, span.first, span.is_zeroed);
            }
        });
        assert_eq!(heap.purge(PurgeAges::ALL).is_err(), refuses);
        join(user);
        check(&heap);
        if refuses {
            // Nothing is forgotten.
            assert!(heap.purge(PurgeAges::ALL).is_err());
        }
    });
}

/// The neighbour of a frame is used and freed while that frame is purged.
pub(crate) fn free_beside_a_purge() {
    explore(1, || {
        let heap = Arc::new(build(true, false));
        let user = beside(&heap, |heap| use_and_free(heap, Pfn::new(1), false));
        heap.purge(PurgeAges::ALL).expect("the machine takes it");
        join(user);
        check(&heap);
    });
}

/// A frame that is being purged is wanted, and is had.
pub(crate) fn place_beside_a_purge() {
    explore(1, || {
        let heap = Arc::new(build(false, false));
        let user = beside(&heap, |heap| {
            let span = heap.alloc_at(Pfn::new(0), ONE).expect("nothing uses it");
            use_and_free(heap, span.first, span.is_zeroed);
        });
        heap.purge(PurgeAges::ALL).expect("the machine takes it");
        join(user);
        check(&heap);
    });
}

/// Two purges at once give back what is free, each frame once.
pub(crate) fn two_purges() {
    explore(1, || {
        let heap = Arc::new(build(false, false));
        let purge = |heap: &Heap| heap.purge(PurgeAges::ALL).expect("the machine takes it").frames;
        let other = beside(&heap, purge);
        assert_eq!(purge(&heap) + join(other), FrameCount::new(2));
        check(&heap);
    });
}

/// Two calls come when a purge is due. One makes it: after two, the frame would have been purged.
pub(crate) fn two_calls_when_a_purge_is_due() {
    explore(2, || {
        set_clock(0);
        let ages = PurgeAges { whole: 2, part: Some(2) };
        let heap = build(true, false).purge_every(Duration::from_millis(10), ages);
        let heap = Arc::new(heap);
        set_clock(10);
        let call = |heap: &Heap| heap.alloc(FrameCount::new(2), ONE).is_err();
        let other = beside(&heap, call);
        assert!(call(&heap) && join(other));
        assert_eq!(heap.purged().frames, FrameCount::ZERO);
        set_clock(30);
        assert!(call(&heap));
        assert_eq!(heap.purged().frames, ONE);
    });
}
