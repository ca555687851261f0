//! What two threads do with a page heap. One module for each machine that the heap is on.

use freehold::designs::Freehold;
use freehold::platform::SharedCell;
use freehold::{FrameCount, Order, Pfn, Request};
use loom::sync::Arc;
use loom::thread;
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

/// Runs one part on CPU 0, which comes first, and the other one on CPU 1.
fn run<A, B: 'static>(
    heap: &Arc<Heap>,
    one: impl FnOnce(&Heap) -> A,
    other: impl FnOnce(&Heap) -> B + 'static,
) -> (A, B) {
    let same = Arc::clone(heap);
    let other = thread::spawn(move || {
        run_on(1);
        other(&same)
    });
    let done = one(heap);
    (done, other.join().expect("the thread is well"))
}

fn purge(heap: &Heap) -> FrameCount {
    heap.purge(PurgeAges::ALL).expect("the machine takes it").frames
}

/// Allocates a frame, if one can be had, uses and frees it.
fn use_any(heap: &Heap) {
    if let Ok(span) = heap.alloc(ONE, ONE) {
        use_and_free(heap, span.first, span.is_zeroed);
    }
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

/// A frame is had and used while a purge takes what is free.
pub(crate) fn alloc_beside_a_purge(is_purge_first: bool, preemptions: usize) {
    explore(preemptions, move || {
        let heap = Arc::new(build(false, false));
        if is_purge_first {
            run(&heap, purge, use_any);
        } else {
            run(&heap, use_any, purge);
        }
        check(&heap);
    });
}

/// The same, while the machine takes nothing back. The next purge comes to it again.
pub(crate) fn alloc_beside_a_refused_purge(preemptions: usize) {
    explore(preemptions, || {
        let heap = Arc::new(build(false, true));
        run(&heap, use_any, |heap| _ = heap.purge(PurgeAges::ALL));
        check(&heap);
        assert!(heap.purge(PurgeAges::ALL).is_err());
    });
}

/// The neighbour of a frame is used and freed while that frame is purged.
pub(crate) fn free_beside_a_purge(preemptions: usize) {
    explore(preemptions, || {
        let heap = Arc::new(build(true, false));
        run(&heap, |heap| use_and_free(heap, Pfn::new(1), false), purge);
        check(&heap);
    });
}

/// A frame that is being purged is wanted, and is had.
pub(crate) fn place_beside_a_purge(is_purge_first: bool, preemptions: usize) {
    explore(preemptions, move || {
        let heap = Arc::new(build(false, false));
        let user = |heap: &Heap| {
            let span = heap.alloc_at(Pfn::new(0), ONE).expect("nothing uses it");
            use_and_free(heap, span.first, span.is_zeroed);
        };
        if is_purge_first {
            run(&heap, purge, user);
        } else {
            run(&heap, user, purge);
        }
        check(&heap);
    });
}

/// Two purges at once give back what is free, each frame once.
pub(crate) fn two_purges(preemptions: usize) {
    explore(preemptions, || {
        let heap = Arc::new(build(false, false));
        let (mine, other) = run(&heap, purge, purge);
        assert_eq!(mine + other, FrameCount::new(2));
        check(&heap);
    });
}

/// Two calls come when a purge is due. One makes it: after two, the frame would have been purged.
pub(crate) fn two_calls_when_a_purge_is_due(preemptions: usize) {
    explore(preemptions, || {
        set_clock(0);
        let ages = PurgeAges { whole: 2, part: Some(2) };
        let heap = build(true, false).purge_every(Duration::from_millis(10), ages);
        let heap = Arc::new(heap.refuse_for(Duration::from_millis(5)));
        set_clock(10);
        let call = |heap: &Heap| heap.alloc(FrameCount::new(2), ONE).is_err();
        assert_eq!(run(&heap, call, call), (true, true));
        assert_eq!(heap.purged().frames, FrameCount::ZERO);
        set_clock(30);
        assert!(call(&heap));
        assert_eq!(heap.purged().frames, ONE);
    });
}

/// An arena without a heap is purged while a frame of it is used.
pub(crate) fn alloc_beside_a_purge_of_the_arena(preemptions: usize) {
    explore(preemptions, || {
        let heap = Arc::new(build(false, false));
        let user = |heap: &Heap| {
            let arena = heap.arena();
            if let Ok(frame) = arena.alloc(Request::default()) {
                arena.contents[frame.get() as usize].set(3);
                arena.free(frame, Order::ZERO).expect("it is held");
            }
        };
        let purged = run(&heap, user, |heap| heap.arena().purge().expect("it is taken")).1;
        let zeroes = heap.arena().contents.iter().filter(|content| content.get() == 0);
        assert!(zeroes.count() as u64 <= purged.get());
    });
}
