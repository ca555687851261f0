//! Purges that calls make by themselves: at intervals, and when use falls.

use std::thread;
use std::time::Duration;

use freehold_host::{FrameCount, Pfn};
use freehold_malloc::{HeapSettings, PurgeAges, Purged};

use crate::spans::{MIB, PAGEBLOCK, fill, frames, heap_with};

/// Calls purge by themselves once it is time to, and make memory as much older as time has passed.
#[test]
fn calls_purge_at_intervals() {
    let ages = PurgeAges { whole: 3, part: None };
    let interval = Duration::from_millis(200);
    let settings = HeapSettings { purge_every: Some((interval, ages)), ..Default::default() };
    let heap = heap_with(16 * MIB, 0, settings);
    let span = heap.alloc(PAGEBLOCK, PAGEBLOCK).unwrap();
    fill(&heap, span.first, PAGEBLOCK, 5);
    heap.free(span.first, PAGEBLOCK).unwrap();
    assert_eq!(heap.purged(), Purged::default());
    // Four intervals at least, in one.
    thread::sleep(5 * interval);
    let other = heap.alloc(frames(1), frames(1)).unwrap();
    assert_eq!(heap.purged().frames, PAGEBLOCK);
    assert_eq!(heap.arena().load_byte(span.first), 0);
    heap.free(other.first, frames(1)).unwrap();
}

/// A program may stop to call once it has freed much, so that goes at once: but not a little, and
/// not what comes and goes within an interval.
#[test]
fn what_memory_in_use_falls_by_goes_at_once() {
    let never = Duration::from_secs(3600);
    let settings =
        HeapSettings { purge_every: Some((never, PurgeAges::default())), ..Default::default() };
    let (mib, count) = (frames(MIB as u64 / 4096), frames(50));
    // The least, and a sixteenth where that is more; what stays in use, and what is purged of it.
    for (used_mib, freed_mib, least_mib) in [(64, 31, 0), (64, 40, 32), (640, 39, 0), (640, 48, 40)]
    {
        let heap = heap_with(1024 * MIB, 0, settings);
        let spans_of = |mibs: u64| {
            let wanted = mibs * mib.get() / count.get();
            let spans = (0..wanted).map(|_| heap.alloc(count, frames(1)).unwrap().first);
            spans.inspect(|&first| heap.arena().store_byte(first, 1)).collect::<Vec<_>>()
        };
        let _stay = spans_of(used_mib - freed_mib);
        for round in 0..3 {
            let fall = spans_of(freed_mib);
            fall.into_iter().for_each(|first| heap.free(first, count).unwrap());
            let purged = heap.purged();
            assert_eq!(purged.frames, purged.whole, "no part of a pageblock that is in use");
            // All but the two pageblocks at the edges, and those in which the rests of spans lie.
            let (low, high) = (least_mib * mib.get() * 3 / 4, freed_mib * mib.get() * 2);
            let found = purged.frames.get();
            match least_mib {
                0 => assert_eq!(found, 0, "{freed_mib} of {used_mib} MiB, round {round}"),
                _ => assert!((low..=high).contains(&found), "{found} frames, round {round}"),
            }
        }
    }
}

/// Pageblocks of which a frame stays in use go at a fall, too, where that is wanted.
#[test]
fn parts_of_what_memory_in_use_falls_by_go_where_that_is_wanted() {
    for parts_at_falls in [true, false] {
        let purge_every = Some((Duration::from_secs(3600), PurgeAges::default()));
        let settings = HeapSettings { purge_every, parts_at_falls, ..Default::default() };
        let heap = heap_with(128 * MIB, 0, settings);
        let spans: Vec<Pfn> =
            (0..20).map(|_| heap.alloc(PAGEBLOCK, PAGEBLOCK).unwrap().first).collect();
        for &first in &spans {
            fill(&heap, first, PAGEBLOCK, 5);
            heap.free(first + frames(1), FrameCount::new(PAGEBLOCK.get() - 1)).unwrap();
        }
        let purged = heap.purged();
        assert_eq!(purged.whole, FrameCount::ZERO);
        // What has come free when 32 MiB have been counted.
        let range = if parts_at_falls { 15 * 511..=20 * 511 } else { 0..=0 };
        assert!(range.contains(&purged.frames.get()), "{purged:?}");
    }
}
