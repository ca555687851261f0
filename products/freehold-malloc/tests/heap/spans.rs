//! Heaps of pages: spans that do not overlap, zeroes where they are claimed, purges by age.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use freehold_host::{Arena, Error, FrameCount, FrameStatus, HostError, Order, Pfn};
use freehold_malloc::{HeapSettings, PageHeap, PurgeAges, Purged, Span};

use crate::common::in_child;

pub(crate) const MIB: usize = 1 << 20;
pub(crate) const PAGEBLOCK: FrameCount = Order::PAGEBLOCK.frames();

pub(crate) fn frames(count: u64) -> FrameCount {
    FrameCount::new(count)
}

fn heap(bytes: usize, capacity_bytes: usize) -> PageHeap {
    heap_with(bytes, capacity_bytes, HeapSettings::default())
}

pub(crate) fn heap_with(bytes: usize, capacity_bytes: usize, settings: HeapSettings) -> PageHeap {
    let builder = Arena::builder().bytes(bytes).capacity_bytes(capacity_bytes).cpus(2).nodes(1);
    PageHeap::build(builder.min_free(FrameCount::ZERO), settings).unwrap()
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Each frame by itself, as far as its first byte tells.
fn bytes_of(heap: &PageHeap, first: Pfn, count: FrameCount) -> impl Iterator<Item = u8> {
    (0..count.get()).map(move |nth| heap.arena().load_byte(first + frames(nth)))
}

pub(crate) fn fill(heap: &PageHeap, first: Pfn, count: FrameCount, stamp: u8) {
    (0..count.get()).for_each(|nth| heap.arena().store_byte(first + frames(nth), stamp));
}

/// Checks what a new span claims, and writes to all of it.
fn receive(heap: &PageHeap, span: Span, count: FrameCount, stamp: u8) {
    if span.is_zeroed {
        assert!(bytes_of(heap, span.first, count).all(|byte| byte == 0), "{span:?}");
    }
    fill(heap, span.first, count, stamp);
}

/// Checks that nobody else wrote to a span.
fn check(heap: &PageHeap, first: Pfn, count: FrameCount, stamp: u8) {
    assert!(bytes_of(heap, first, count).all(|byte| byte == stamp), "{count} from {first}");
}

/// Random spans, split, joined with their neighbours, grown in place and freed in part, against a
/// map of what is allocated.
#[test]
fn spans_are_as_long_and_as_aligned_as_asked_for_and_never_overlap() {
    for seed in 1..=20 {
        let heap = heap(8 * MIB, 40 * MIB);
        let (mut random, mut spans) =
            (seed * 0x9e37_79b9, BTreeMap::<Pfn, (FrameCount, u8)>::new());
        for step in 0..3000_u64 {
            let choice = next_random(&mut random);
            let stamp = 1 + (step % 255) as u8;
            let nth = (choice >> 32) as usize % spans.len().max(1);
            let picked =
                spans.iter().nth(nth).map(|(first, &(count, stamp))| (*first, count, stamp));
            match (choice % 16, picked) {
                (0..8, _) => {
                    let count = frames(match choice >> 8 & 7 {
                        0 => 1 + (choice >> 16) % 1500,
                        1..4 => 1 + (choice >> 16) % 100,
                        _ => 1 + (choice >> 16) % 9,
                    });
                    let align = frames(1 << ((choice >> 40) % 11).saturating_sub(6));
                    if let Ok(span) = heap.alloc(count, align) {
                        assert!(span.first.get().is_multiple_of(align.get()), "{span:?}, {align}");
                        let end = span.first + count;
                        let below = spans.range(..end).next_back();
                        let is_apart =
                            below.is_none_or(|(first, (count, _))| *first + *count <= span.first);
                        assert!(is_apart, "{span:?} of {count} lies in {below:?}");
                        receive(&heap, span, count, stamp);
                        spans.insert(span.first, (count, stamp));
                    }
                }
                (8..11, Some((first, count, old))) => {
                    check(&heap, first, count, old);
                    heap.free(first, count).unwrap();
                    spans.remove(&first);
                }
                // A part of it: the head, the tail, or the middle.
                (11..13, Some((first, count, old))) if count > frames(2) => {
                    let cut = frames(1 + (choice >> 16) % (count.get() - 2));
                    let rest = count - cut;
                    check(&heap, first, count, old);
                    let kept = if choice >> 60 & 1 == 0 {
                        heap.free(first, cut).unwrap();
                        (first + cut, rest)
                    } else {
                        heap.free(first + rest, cut).unwrap();
                        (first, rest)
                    };
                    spans.remove(&first);
                    spans.insert(kept.0, (kept.1, old));
                }
                (13, Some((first, count, old))) => {
                    let more = frames(1 + (choice >> 16) % 20);
                    let next = first + count;
                    if let Ok(span) = heap.alloc_at(next, more) {
                        assert_eq!(span.first, next);
                        receive(&heap, span, more, old);
                        spans.insert(first, (count + more, old));
                    }
                }
                // Neighbours together.
                (14, Some((first, count, old))) => {
                    let next = spans.get(&(first + count)).copied();
                    let (more, stamp) = next.unwrap_or((FrameCount::ZERO, old));
                    check(&heap, first, count, old);
                    check(&heap, first + count, more, stamp);
                    heap.free(first, count + more).unwrap();
                    spans.remove(&(first + count));
                    spans.remove(&first);
                }
                _ => {
                    let part = (choice >> 16 & 1 == 0).then_some((choice >> 17) as u8 % 4);
                    heap.purge(PurgeAges { whole: (choice >> 20) as u8 % 3, part }).unwrap();
                }
            }
        }
        spans.iter().for_each(|(first, (count, stamp))| check(&heap, *first, *count, *stamp));
        spans.iter().for_each(|(first, (count, _))| heap.free(*first, *count).unwrap());
        let census = heap.arena().allocator().validate().unwrap();
        assert_eq!(census.allocated, FrameCount::ZERO, "seed {seed}");
    }
}

#[test]
fn a_heap_grows_to_its_capacity_and_no_further() {
    let heap = heap(4 * MIB, 64 * MIB);
    let spans: Vec<_> = std::iter::from_fn(|| heap.alloc(frames(64), frames(1)).ok()).collect();
    assert_eq!(heap.arena().total_frames(), frames(64 * MIB as u64 / 4096));
    assert_eq!(spans.len() as u64 * 64, heap.arena().total_frames().get());
    assert!(spans.iter().all(|span| span.is_zeroed));
    assert!(heap.alloc(PAGEBLOCK, frames(1)).is_err());
    // Larger than all that is free, and than what an eighth would add.
    let large = self::heap(4 * MIB, 64 * MIB).alloc(frames(48 << 8), frames(1)).unwrap();
    assert!(large.is_zeroed);
}

/// For users that choose places themselves, in all of the capacity.
#[test]
fn a_place_beyond_what_a_heap_has_is_added() {
    for maps in [false, true] {
        let builder = Arena::builder().bytes(4 * MIB).capacity_bytes(64 * MIB).cpus(2).nodes(1);
        let builder = builder.min_free(FrameCount::ZERO).map_as_it_grows(maps);
        let heap = PageHeap::build(builder, HeapSettings::default()).unwrap();
        let place = Pfn::new(5000);
        assert_eq!(heap.alloc_at(place, frames(10)).map(|span| span.first), Ok(place));
        assert_eq!(heap.alloc_at(place, frames(1)), Err(Error::RangeBusy));
        let has = heap.arena().total_frames().get();
        assert!((5010..6000).contains(&has), "{has} frames");
        let last = Pfn::new(16 * 1024 - 1);
        heap.alloc_at(last, frames(1)).unwrap();
        assert_eq!(heap.alloc_at(last, frames(2)), Err(Error::BadRange));
        heap.free(place, frames(10)).unwrap();
        heap.arena().allocator().validate().unwrap();
    }
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let heap = heap(8 * MIB, 0);
    assert_eq!(heap.alloc(FrameCount::ZERO, frames(1)), Err(Error::BadRange));
    assert_eq!(heap.alloc(frames(3), frames(3)), Err(Error::BadAlignment));
    let span = heap.alloc(frames(5), frames(1)).unwrap();
    assert_eq!(heap.free(span.first, FrameCount::ZERO), Err(Error::BadRange));
    assert_eq!(heap.free(Pfn::new(u64::MAX), frames(1)), Err(Error::BadRange));
    assert_eq!(heap.free(Pfn::new(u64::MAX - 1), frames(2)), Err(Error::BadRange));
    assert_eq!(heap.free(span.first, frames(6)), Err(Error::DoubleFree));
    assert_eq!(heap.alloc_at(span.first, frames(1)), Err(Error::RangeBusy));
    assert_eq!(heap.alloc_at(span.first, FrameCount::ZERO), Err(Error::BadRange));
    heap.free(span.first, frames(5)).unwrap();
    assert_eq!(heap.free(span.first, frames(5)), Err(Error::DoubleFree));
}

/// What is claimed to be zero: never too much, and all that a purge has given back.
#[test]
fn zeroes_are_known_until_a_free_and_again_after_a_purge() {
    let heap = heap(16 * MIB, 0);
    let all = heap.arena().total_frames();
    let first = heap.alloc(all, frames(1)).unwrap().first;
    fill(&heap, first, all, 7);
    // Half of it goes back, and half of that to the machine.
    let (half, quarter) = (frames(all.get() / 2), frames(all.get() / 4));
    heap.free(first, quarter).unwrap();
    let purged = heap.purge(PurgeAges::ALL).unwrap();
    assert_eq!((purged.frames, purged.whole), (quarter, quarter));
    heap.free(first + quarter, quarter).unwrap();
    assert!(heap.is_zeroed(first, quarter));
    assert!(!heap.is_zeroed(first + quarter, frames(1)));
    assert!(heap.alloc_at(first, quarter).unwrap().is_zeroed);
    assert!(bytes_of(&heap, first, quarter).all(|byte| byte == 0));
    // One frame that is not is enough.
    heap.free(first + (quarter - frames(1)), frames(1)).unwrap();
    assert!(!heap.alloc_at(first + (quarter - frames(1)), frames(2)).unwrap().is_zeroed);
    check(&heap, first + half, half, 7);
}

#[test]
fn memory_of_a_file_is_not_known_to_be_zero() {
    let file = tempfile::tempfile().unwrap();
    let backing = freehold_host::Backing::file(file);
    let arena = Arena::builder().bytes(8 * MIB).cpus(1).nodes(1).backing(backing);
    let heap = PageHeap::new(arena.build_frames().unwrap(), HeapSettings::default()).unwrap();
    assert!(!heap.alloc(frames(1), frames(1)).unwrap().is_zeroed);
}

/// Whole pageblocks go at one age, parts of others at a higher one.
#[test]
fn memory_goes_by_age_and_whole_pageblocks_first() -> Result<(), HostError> {
    // A 64th of it, which a purge has in hand at a time, is two pageblocks.
    let heap = heap(256 * MIB, 0);
    let ages = PurgeAges { whole: 2, part: Some(4) };
    let pageblock = |nth: u64| Pfn::new(nth * PAGEBLOCK.get());
    let first = heap.alloc(frames(8 * PAGEBLOCK.get()), PAGEBLOCK)?.first;
    assert_eq!(first, pageblock(0));
    fill(&heap, first, frames(8 * PAGEBLOCK.get()), 1);
    heap.free(pageblock(1), frames(2 * PAGEBLOCK.get()))?; // Whole, and neighbours.
    heap.free(pageblock(4), PAGEBLOCK)?; // Whole.
    heap.free(pageblock(6), frames(100))?; // In part.
    heap.free(pageblock(6) + frames(200), frames(10))?;

    let nothing = Purged::default();
    assert_eq!(heap.purge(ages)?, nothing, "all of it is young");
    // That one of them is used, and freed again, does not make it younger.
    heap.alloc_at(pageblock(4), frames(1))?;
    heap.free(pageblock(4), frames(1))?;
    let whole = frames(3 * PAGEBLOCK.get());
    let purged = heap.purge(ages)?;
    assert_eq!((purged.frames, purged.whole, purged.stretches), (whole, whole, 2));
    assert!(purged.calls >= 1);
    assert_eq!(heap.purge(ages)?, nothing, "parts are not old enough");
    heap.free(pageblock(6) + frames(150), frames(1))?;
    let purged = heap.purge(ages)?;
    assert_eq!((purged.frames, purged.whole, purged.stretches), (frames(111), FrameCount::ZERO, 3));
    for _ in 0..10 {
        assert_eq!(heap.purge(ages)?, nothing, "nothing goes twice");
    }
    // Without an age for parts, they stay.
    heap.free(pageblock(6) + frames(300), frames(50))?;
    for _ in 0..300 {
        assert_eq!(heap.purge(PurgeAges { whole: 0, part: None })?, nothing);
    }
    assert_eq!(heap.purge(PurgeAges::ALL)?.frames, frames(50));
    for used in [0, 3, 5, 7] {
        check(&heap, pageblock(used), PAGEBLOCK, 1);
    }
    check(&heap, pageblock(6) + frames(100), frames(50), 1);
    assert!(matches!(heap.arena().allocator().status(pageblock(4)), FrameStatus::Free));
    Ok(())
}

/// What a purge may not take, since a watermark keeps it for others, is left for the next one.
#[test]
fn a_purge_comes_again_to_what_it_could_not_take() {
    let min_free = frames(300);
    let builder = Arena::builder().bytes(8 * MIB).cpus(2).nodes(1).min_free(min_free);
    let heap = PageHeap::build(builder, HeapSettings::default()).unwrap();
    let spans = [(); 3].map(|()| {
        let span = heap.alloc(PAGEBLOCK, PAGEBLOCK).unwrap();
        receive(&heap, span, PAGEBLOCK, 1);
        span.first
    });
    heap.alloc(PAGEBLOCK - min_free, frames(1)).unwrap();
    heap.free(spans[0], frames(400)).unwrap();
    assert_eq!(heap.purge(PurgeAges::ALL).unwrap().frames, FrameCount::ZERO);
    heap.free(spans[1], PAGEBLOCK).unwrap();
    heap.free(spans[2], PAGEBLOCK).unwrap();
    assert_eq!(heap.purge(PurgeAges::ALL).unwrap().frames, frames(400) + PAGEBLOCK + PAGEBLOCK);
}

/// More stretches than go by one call, and more memory than a purge has in hand.
#[test]
fn a_purge_of_many_stretches_gives_back_all_of_them() {
    let heap = heap(64 * MIB, 0);
    let all = heap.arena().total_frames();
    let first = heap.alloc(all, frames(1)).unwrap().first;
    fill(&heap, first, all, 9);
    let every_other = (0..all.get()).step_by(2);
    every_other.clone().for_each(|nth| heap.free(first + frames(nth), frames(1)).unwrap());
    let purged = heap.purge(PurgeAges::ALL).unwrap();
    let half = all.get() / 2;
    assert_eq!((purged.frames, purged.stretches), (frames(half), half));
    assert!(purged.calls <= half, "{purged:?}");
    for nth in every_other {
        assert!(heap.is_zeroed(first + frames(nth), frames(1)));
        assert_eq!(heap.arena().load_byte(first + frames(nth)), 0);
        assert_eq!(heap.arena().load_byte(first + frames(nth + 1)), 9);
    }
}

/// Calls `act` while another thread purges all the time; returns how much that gave back.
fn while_purged(heap: &PageHeap, act: impl FnOnce()) -> FrameCount {
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let purges = scope.spawn(|| {
            let mut purged = FrameCount::ZERO;
            while !stop.load(Relaxed) {
                purged += heap.purge(PurgeAges::ALL).unwrap().frames;
            }
            purged
        });
        let stopping = Stop(&stop);
        act();
        drop(stopping);
        purges.join().unwrap()
    })
}

#[test]
fn threads_and_purges_do_not_disturb_each_other() {
    let heap = heap(32 * MIB, 32 * MIB);
    let work = |seed: u64| {
        let (mut random, mut own) = (seed * 0x1234_5678_9abc, Vec::new());
        for _ in 0..6000 {
            let choice = next_random(&mut random);
            if choice & 1 == 0 && own.len() < 60 {
                let count = frames(1 + (choice >> 8) % 40);
                if let Ok(span) = heap.alloc(count, frames(1)) {
                    receive(&heap, span, count, seed as u8);
                    own.push((span.first, count));
                }
            } else if !own.is_empty() {
                let (first, count) = own.swap_remove((choice >> 8) as usize % own.len());
                check(&heap, first, count, seed as u8);
                heap.free(first, count).unwrap();
            }
        }
        own.into_iter().for_each(|(first, count)| heap.free(first, count).unwrap());
    };
    let purged = while_purged(&heap, || {
        thread::scope(|scope| {
            for seed in 1..=3 {
                scope.spawn(move || work(seed));
            }
        });
    });
    assert!(purged > FrameCount::ZERO);
    heap.arena().allocator().validate().unwrap();
}

/// A user that chooses places gets them, also while a purge has them in hand.
#[test]
fn a_place_that_is_purged_can_be_had() {
    let heap = heap(8 * MIB, 0);
    let place = heap.alloc(frames(64), frames(64)).unwrap().first;
    let purged = while_purged(&heap, || {
        for nth in 0..3000 {
            fill(&heap, place, frames(64), 0xee);
            heap.free(place, frames(64)).unwrap();
            // Long enough for a purge to be anywhere in its work.
            (0..nth % 500 * 10).for_each(|_| std::hint::spin_loop());
            heap.alloc_at(place, frames(64)).unwrap();
        }
    });
    assert!(purged > FrameCount::ZERO);
}

/// Neighbours in one pageblock keep each other out for a moment only.
#[test]
fn neighbours_that_threads_choose_can_be_had_at_the_same_time() {
    let heap = heap(2 * MIB, 0);
    let all = heap.alloc(PAGEBLOCK, PAGEBLOCK).unwrap().first;
    thread::scope(|scope| {
        for nth in 0..4 {
            let (heap, place) = (&heap, all + frames(nth * 64));
            scope.spawn(move || {
                for _ in 0..2000 {
                    heap.free(place, frames(64)).unwrap();
                    heap.alloc_at(place, frames(64)).unwrap();
                }
            });
        }
    });
}

/// A purge has frames in hand for a moment: a fork waits for that, so the child has all of them.
#[test]
fn a_child_has_all_frames_whatever_a_purge_was_doing() {
    let heap = heap(32 * MIB, 0);
    let count = frames(4 * PAGEBLOCK.get());
    while_purged(&heap, || {
        for _ in 0..100 {
            let span = heap.alloc(count, frames(1)).unwrap();
            fill(&heap, span.first, count, 3);
            heap.free(span.first, count).unwrap();
            let ended = in_child(|| {
                let census = heap.arena().allocator().validate().unwrap();
                assert_eq!(census.allocated, FrameCount::ZERO, "lost");
                let span = heap.alloc(count, frames(1)).unwrap();
                fill(&heap, span.first, count, 4);
                heap.free(span.first, count).unwrap();
                assert!(heap.purge(PurgeAges::ALL).unwrap().frames >= count);
            });
            ended.unwrap();
        }
    });
}

#[test]
fn each_stretch_has_a_call_of_its_own_where_that_is_wanted() {
    for single_calls in [true, false] {
        let heap = heap_with(8 * MIB, 0, HeapSettings { single_calls, ..Default::default() });
        let spans: Vec<Pfn> =
            (0..600).map(|_| heap.alloc(frames(1), frames(1)).unwrap().first).collect();
        spans.iter().for_each(|&first| fill(&heap, first, frames(1), 5));
        spans.iter().step_by(2).for_each(|&first| heap.free(first, frames(1)).unwrap());
        let purged = heap.purge(PurgeAges::ALL).unwrap();
        assert!(purged.stretches >= 200, "{purged:?}");
        let at_once = !single_calls && freehold_host::discards_at_once();
        assert_eq!(purged.calls == purged.stretches, !at_once, "{purged:?}");
    }
}

#[test]
fn what_was_not_found_is_refused_until_it_comes_free_or_for_a_time() {
    // Long enough that no search is due while the test runs, but for the last one.
    let time = Duration::from_secs(2);
    let settings = HeapSettings { refuse_for: Some(time), ..Default::default() };
    let heap = heap_with(8 * MIB, 0, settings);
    let all = heap.arena().total_frames();
    let start = heap.alloc(all, frames(1)).unwrap().first;
    let refused = |count| heap.alloc(frames(count), frames(1)) == Err(Error::OutOfMemory);
    assert!(refused(8));
    // What is smaller was not searched for.
    heap.free(start, frames(4)).unwrap();
    let small = heap.alloc(frames(4), frames(1)).unwrap().first;
    assert_eq!(small, start);
    // A span that would do is found at once.
    heap.free(start + frames(64), frames(8)).unwrap();
    assert_eq!(heap.alloc(frames(8), frames(1)).unwrap().first, start + frames(64));
    // Neighbours that are smaller are found once the time is over, and other threads need not free.
    assert!(refused(8));
    heap.free(start + frames(128), frames(4)).unwrap();
    heap.free(start + frames(132), frames(4)).unwrap();
    assert!(refused(8) && refused(500), "smaller ones have joined");
    assert_eq!(heap.alloc(frames(7), frames(1)).unwrap().first, start + frames(128));
    heap.free(start + frames(128), frames(7)).unwrap();
    thread::sleep(time + Duration::from_millis(100));
    assert_eq!(heap.alloc(frames(8), frames(1)).unwrap().first, start + frames(128));
    // An aligned span says little about those that may lie anywhere.
    heap.free(start + frames(200), frames(10)).unwrap();
    assert_eq!(heap.alloc(frames(4), frames(512)), Err(Error::RangeBusy));
    assert!(heap.alloc(frames(10), frames(1)).is_ok());
}
