//! Heaps of memory that is not plain: files, and huge pages.

use freehold_host::{Arena, Backing, FrameArena, FrameCount, HostError, Order, Pfn};
use freehold_malloc::{HeapSettings, PageHeap, PurgeAges};

const ONE: FrameCount = FrameCount::new(1);

#[test]
fn what_others_can_write_is_no_memory_of_a_malloc() {
    for shared in [Backing::Memfd, Backing::file(tempfile::tempfile().unwrap())] {
        let arena = Arena::builder().bytes(4 << 20).cpus(1).nodes(1).backing(shared);
        let error = PageHeap::build(arena, HeapSettings::default()).unwrap_err();
        assert!(matches!(error, HostError::BadSetting { setting: "backing", .. }), "{error}");
    }
}

/// An arena of eight pageblocks that takes its memory for huge pages of this order.
fn huge(page: Order) -> FrameArena {
    let builder = Arena::builder().bytes(16 << 20).cpus(1).nodes(1);
    let mut frames = builder.min_free(FrameCount::ZERO).build_frames().unwrap();
    frames.pretend_huge(frames.frame_size().bytes_of(page.frames()));
    frames
}

fn is_zero(frames: &FrameArena, pfn: Pfn) -> bool {
    let found = (frames.load_byte(pfn), frames.load_word(pfn, 511));
    assert!(found == (0, 0) || found == (7, 7), "{pfn}: {found:?}");
    found == (0, 0)
}

#[test]
fn a_heap_knows_of_huge_pages_what_is_zero() {
    for page in [Order::ZERO, Order::new(4), Order::PAGEBLOCK, Order::new(10)] {
        let heap = PageHeap::new(huge(page), HeapSettings::default()).unwrap();
        let mut spans: Vec<Pfn> =
            std::iter::from_fn(|| Some(heap.alloc(ONE, ONE).ok()?.first)).collect();
        for &pfn in &spans {
            heap.arena().store_byte(pfn, 7);
            heap.arena().store_word(pfn, 511, 7);
        }
        // Three of four, and all of the second 4 MiB but for a frame.
        let stays = |pfn: &Pfn| match pfn.get() {
            1024..2048 => pfn.get() == 1030,
            other => other.is_multiple_of(4),
        };
        spans.retain(|pfn| stays(pfn) || heap.free(*pfn, ONE).is_err());
        let free = 4096 - spans.len() as u64;
        let purged = heap.purge(PurgeAges::ALL).unwrap().frames.get();
        match page.get() {
            0 => assert_eq!(purged, free),
            4 => assert_eq!(purged, 1024 - 16),
            9 => assert_eq!(purged, 512),
            _ => assert_eq!(purged, 0),
        }
        // The last one of the second 4 MiB makes them whole.
        heap.free(Pfn::new(1030), ONE).unwrap();
        let more = heap.purge(PurgeAges::ALL).unwrap();
        let unit = page.max(Order::PAGEBLOCK).frames();
        assert_eq!((more.frames, more.whole), (unit, unit));
        let mut known = 0;
        while let Ok(span) = heap.alloc(ONE, ONE) {
            assert!(!span.is_zeroed || is_zero(heap.arena(), span.first), "{page}");
            known += u64::from(span.is_zeroed);
        }
        assert_eq!(known, if page == Order::ZERO { free + 1 } else { 1024 });
    }
}
