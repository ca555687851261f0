//! Purges, and memory, that the kernel refuses.

use freehold_host::{Arena, Error, FrameCount, HostError, Pfn};
use freehold_malloc::{HeapSettings, PageHeap, PurgeAges};

use crate::refuse::{refuse, refusing};

#[test]
fn a_page_heap_purges_later_what_was_refused() {
    let arena = Arena::builder().bytes(8 << 20).cpus(2).nodes(1).min_free(FrameCount::ZERO);
    let heap = PageHeap::build(arena, HeapSettings::default()).unwrap();
    let (count, one) = (FrameCount::new(1024), FrameCount::new(1));
    let write_and_free = || {
        let first = heap.alloc(count, one).unwrap().first;
        (0..count.get()).for_each(|nth| heap.arena().store_byte(first + FrameCount::new(nth), 1));
        heap.free(first, count).unwrap();
        first
    };
    // By age as well: the first purge only makes it older, the second is refused.
    for (ages, before) in [(PurgeAges::ALL, 0), (PurgeAges::default(), 1)] {
        let first = write_and_free();
        for _ in 0..before {
            assert_eq!(heap.purge(ages).unwrap().frames, FrameCount::ZERO);
        }
        // However it is asked to take private memory back.
        let advice = refuse(libc::SYS_madvise, libc::EINVAL).with(2, libc::MADV_DONTNEED);
        let no_discards = [advice, refuse(libc::SYS_process_madvise, libc::EPERM)];
        let Some(purged) = refusing(&no_discards, || heap.purge(ages)) else { return };
        assert!(matches!(purged, Err(HostError::Advise { .. })), "{purged:?}");
        heap.arena().allocator().validate().expect("the books are in order");
        assert!(!heap.is_zeroed(first, count));
        assert_eq!(heap.purge(ages).unwrap().frames, count, "due again");
        assert!(heap.is_zeroed(first, count));
    }
    heap.alloc(heap.arena().total_frames(), one).expect("nothing is lost");
}

/// Not as frames that come free in a moment: mimalloc asks for those again and again.
#[test]
fn a_place_that_cannot_be_mapped_is_foreign() {
    let arena = Arena::builder().bytes(4 << 20).capacity_bytes(64 << 20).map_as_it_grows(true);
    let arena = arena.cpus(2).nodes(1).min_free(FrameCount::ZERO);
    let heap = PageHeap::build(arena, HeapSettings::default()).unwrap();
    let (beyond, one) = (Pfn::new(4096), FrameCount::new(1));
    let take = || heap.alloc_at(beyond, one).map(|span| span.first);
    let Some(taken) = refusing(&[refuse(libc::SYS_mmap, libc::ENOMEM)], take) else { return };
    assert_eq!(taken, Err(Error::ForeignFrame));
    assert_eq!(take(), Ok(beyond));
}
