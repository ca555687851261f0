//! An arena on this machine: what it allocates is real, owned, and exclusive.
#![expect(unsafe_code, reason = "takes back a block that was leaked")]

use std::sync::Arc;

use freehold::{
    Error, FrameCount, FrameStatus, MigrateType, NodeId, Order, Pfn, RangeRequest, Request,
};
use freehold_host::{Arena, ArenaBuilder, FrameArena, HostError, PageRange, Pages, Topology};

const MIB: usize = 1 << 20;

fn builder(bytes: usize) -> ArenaBuilder {
    Arena::builder().bytes(bytes).cpus(2).nodes(1)
}

/// Takes blocks of one order until none is left, and writes each one's index all over it.
fn take_all(arena: &Arena, order: Order) -> Vec<Pages<'_>> {
    let mut blocks = Vec::new();
    while let Ok(mut pages) = arena.allocate(order) {
        for word in pages.chunks_exact_mut(8) {
            word.copy_from_slice(&blocks.len().to_le_bytes());
        }
        blocks.push(pages);
    }
    blocks
}

#[test]
fn all_of_the_memory_is_handed_out_once() {
    let arena = builder(32 * MIB).build().unwrap();
    for order in [0, 3, 9, 10].map(Order::new) {
        let blocks = take_all(&arena, order);
        let bytes: usize = blocks.iter().map(|pages| pages.len()).sum();
        // Watermarks reserve a little, and a block of 4 MiB is a lot of a small arena.
        assert!((24 * MIB..=32 * MIB).contains(&bytes), "{order}: {bytes} bytes");
        for (index, pages) in blocks.iter().enumerate() {
            assert_eq!(pages.len(), 4096 << order.get());
            assert_eq!(pages.as_ptr().addr() % pages.len(), 0, "{order}: misaligned");
            assert!(pages.chunks_exact(8).all(|word| word == index.to_le_bytes()), "{order}");
        }
        drop(blocks);
        arena.drain();
        let census = arena.validate().unwrap();
        assert_eq!(census.free, arena.total_frames(), "{order}");
    }
}

#[test]
fn zeroed_pages_are_zero_whatever_the_last_owner_left() {
    let arena = builder(4 * MIB).build().unwrap();
    drop(take_all(&arena, Order::ZERO));
    let zeroed: Vec<_> = std::iter::from_fn(|| arena.allocate_zeroed(Order::new(2)).ok()).collect();
    assert!(!zeroed.is_empty());
    assert!(zeroed.iter().all(|pages| pages.iter().all(|byte| *byte == 0)));
}

#[test]
fn requests_are_passed_on() {
    let arena = builder(8 * MIB).build().unwrap();
    let request = Request::new(Order::new(2)).migratetype(MigrateType::Unmovable);
    assert_eq!(arena.allocate_with(request).unwrap().order(), Order::new(2));
    let elsewhere = Request::new(Order::ZERO).node(NodeId::new(1));
    assert_eq!(arena.allocate_with(elsewhere).unwrap_err(), Error::UnknownNode);
    assert_eq!(arena.allocate(Order::new(40)).unwrap_err(), Error::OrderTooLarge);
}

#[test]
fn one_cpu_serves_threads_of_all() {
    let arena = Arc::new(builder(8 * MIB).cpus(1).build().unwrap());
    let threads: Vec<_> = (0..4u8)
        .map(|byte| {
            let arena = Arc::clone(&arena);
            std::thread::spawn(move || {
                for _ in 0..1000 {
                    let mut pages = arena.allocate(Order::ZERO).unwrap();
                    pages.fill(byte);
                    assert!(pages.iter().all(|seen| *seen == byte));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn an_arena_of_this_machine_needs_no_wishes_but_its_size() {
    let topology = Topology::discover().unwrap();
    let arena = Arena::builder().bytes(32 * MIB).build().unwrap();
    assert!(arena.total_frames().get() >= 8192);
    for node in topology.nodes().iter().filter(|node| node.has_memory).map(|node| node.id) {
        assert!(arena.allocate_with(Request::new(Order::ZERO).node(node)).is_ok(), "{node}");
    }
}

#[test]
fn more_cpus_than_any_machine_has() {
    let arena = builder(64 * MIB).cpus(1024).build().unwrap();
    assert!(arena.allocate(Order::ZERO).is_ok());
}

#[test]
fn huge_pages_are_asked_for() {
    if !std::path::Path::new("/sys/kernel/mm/transparent_hugepage").exists() {
        let error = builder(8 * MIB).huge_pages(true).build().unwrap_err();
        assert!(matches!(error, HostError::Advise { .. }), "{error}");
        return;
    }
    let arena = builder(8 * MIB).huge_pages(true).build().unwrap();
    let mut pages = arena.allocate(Order::PAGEBLOCK).unwrap();
    pages.fill(1);
    // The kernel lists the flag `hg` for memory with that advice.
    let address = pages.as_ptr().addr();
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_inside = false;
    let mut flags = None;
    for line in smaps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        if let Some((first, end)) = range {
            let parse = |text| usize::from_str_radix(text, 16);
            if let (Ok(first), Ok(end)) = (parse(first), parse(end)) {
                is_inside = (first..end).contains(&address);
            }
        }
        if is_inside && line.starts_with("VmFlags:") {
            flags = Some(line);
        }
    }
    assert!(flags.is_some_and(|flags| flags.split(' ').any(|flag| flag == "hg")), "{flags:?}");
}

#[test]
fn wishes_that_cannot_be_met_say_so() {
    let no_size = Arena::builder().cpus(1).nodes(1).build().unwrap_err();
    assert!(no_size.to_string().starts_with("bytes:"), "{no_size}");
    let no_cpu = builder(MIB).cpus(0).build().unwrap_err();
    assert!(no_cpu.to_string().starts_with("cpus:"), "{no_cpu}");
    let too_large = builder(usize::MAX).build().unwrap_err();
    assert!(matches!(too_large, HostError::Allocator(Error::SpanTooLarge)), "{too_large}");
}

#[test]
fn arenas_and_their_pages_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>() {}
    is_shared::<Arena>();
    is_shared::<FrameArena>();
    is_shared::<Pages<'_>>();
}

#[test]
fn blocks_are_split_trimmed_leaked_and_come_back() {
    let arena: &'static Arena = Box::leak(Box::new(builder(16 * MIB).build().unwrap()));
    let (total, single) = (arena.total_frames(), Order::ZERO);
    let in_use = || arena.validate().unwrap().allocated;
    let mut block = arena.allocate_zeroed(Order::new(3)).unwrap();
    block[5 * 4096] = 5;
    let (lower, mut upper) = block.split().unwrap();
    assert_eq!((lower.order(), upper.order()), (Order::new(2), Order::new(2)));
    assert_eq!((upper.pfn() - lower.pfn(), upper[4096]), (Order::new(2).frames(), 5));
    drop(lower);
    assert_eq!(in_use().get(), 4);
    upper.trim(Order::new(9));
    assert_eq!(upper.len(), 4 * 4096, "it is not larger than that");
    upper.trim(Order::new(1));
    assert_eq!((in_use().get(), upper.len(), upper[4096]), (2, 2 * 4096, 5));
    let (one, other) = upper.split().unwrap();
    assert_eq!(other[0], 5);
    let one = one.split().unwrap_err();
    let pfn = one.pfn();
    let leaked = one.leak();
    leaked.fill(9);
    assert_eq!(arena.pfn_of(leaked.as_ptr()), Some(pfn));
    // SAFETY: it was leaked, and its slice is not used any more.
    let back = unsafe { Pages::from_raw(arena, pfn, single) };
    assert!(back.as_ref().iter().all(|byte: &u8| *byte == 9));
    drop((back, other));
    assert_eq!((in_use().get(), arena.total_frames()), (0, total));
}

#[test]
fn ranges_of_any_size_are_owned_split_and_trimmed() {
    let arena = Arc::new(builder(3 << 30).min_free(FrameCount::ZERO).build().unwrap());
    let in_use = || arena.validate().unwrap().allocated.get();
    let frames = FrameCount::new;
    // Beyond the largest order, 1 GiB.
    let large = RangeRequest::new(frames((3 << 18) - 512)).at(Pfn::new(512));
    let mut large = arena.allocate_range_owned(large).unwrap();
    assert_eq!((large.pfn(), large.len()), (Pfn::new(512), (3 << 30) - 2 * MIB));
    let last = large.len() - 1;
    (large[0], large[last]) = (1, 2);
    let huge = arena.allocate(Order::new(9)).unwrap();
    let refused = arena.allocate_range(RangeRequest::new(frames(1000)));
    assert_eq!(refused.unwrap_err(), Error::OutOfMemory);
    large = large.split_at(frames(0)).unwrap_err();
    let all = large.frames();
    large = large.split_at(all).unwrap_err();
    let (mut lower, upper) = large.split_at(frames(777)).unwrap();
    assert_eq!((lower.frames(), lower[0]), (frames(777), 1));
    assert_eq!((upper.pfn(), upper[upper.len() - 1]), (Pfn::new(512 + 777), 2));
    drop(upper);
    lower.trim(frames(1000));
    assert_eq!(in_use(), 777 + 512);
    lower.trim(frames(0));
    assert_eq!((in_use(), lower.frames()), (1 + 512, frames(1)));
    let mut parts: PageRange<'_> = huge.into();
    parts.fill(3);
    parts.discard_part(frames(7), frames(2)).unwrap();
    let zero = (0..512).filter(|frame| parts[frame * 4096] == 0).collect::<Vec<_>>();
    assert_eq!(zero, [7, 8]);
    assert_eq!(arena.ranges().len(), 1);
    parts.trim(frames(100));
    let range = arena.allocate_range(RangeRequest::new(frames(300)).at(Pfn::new(100)));
    assert_eq!(range.as_ref().map(|range| range.frames()), Ok(frames(300)));
    drop((lower, parts, range));
    assert_eq!(in_use(), 0);
}

#[test]
fn owned_blocks_keep_their_arena_and_panics_cross_it() {
    let arena = Arc::new(builder(16 * MIB).build().unwrap());
    let mut blocks: Vec<_> =
        (0..4).map(|_| arena.allocate_owned(Request::default()).unwrap()).collect();
    let weak = Arc::downgrade(&arena);
    let panicked = std::panic::catch_unwind(|| {
        let _page = arena.allocate(Order::ZERO).unwrap();
        panic!("with a page in hand");
    });
    assert!(panicked.is_err());
    assert_eq!(arena.validate().unwrap().allocated.get(), 4, "the page was freed");
    drop(arena);
    std::thread::spawn(move || {
        blocks.iter_mut().for_each(|block| block.as_mut().fill(1));
        let (first, _) = blocks.remove(0).into_raw();
        assert!(weak.upgrade().is_some_and(|arena| {
            let of = FrameStatus::Allocated { first, order: Order::ZERO };
            arena.status(first) == of
        }));
        drop(blocks);
        assert!(weak.upgrade().is_none(), "the arena went with its last block");
    })
    .join()
    .unwrap();
}
