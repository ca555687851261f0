//! Frames of 4, 16 and 64 KiB on this machine, measured by the memory that an arena has. On a
//! machine with larger pages, the sizes that it can have.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use freehold::designs::{Design, Freehold};
use freehold::{FrameCount, FrameSize, Order, Pfn, Request};
use freehold_host::{Arena, ArenaBuilder, Host, Pages};
use freehold_linux::ZoneLock;

const MIB: usize = 1 << 20;

/// The memory that an arena has, in pages of the machine. Other tests run in this process.
fn resident_pages(arena: &Arena<impl Design<Host>>) -> usize {
    let (page, entry) = (rustix::param::page_size(), size_of::<u64>());
    let mut entries = vec![0; arena.capacity_bytes() / page * entry];
    let pagemap = File::open("/proc/self/pagemap").unwrap();
    let first = arena.base().as_ptr().addr() / page * entry;
    pagemap.read_exact_at(&mut entries, first as u64).unwrap();
    // Bit 63: the page is in memory.
    entries.chunks_exact(entry).filter(|bytes| bytes[entry - 1] & 0x80 != 0).count()
}

fn builder<D: Design<Host>>(frame_size: FrameSize) -> ArenaBuilder<D> {
    ArenaBuilder::new().frame_size(frame_size).cpus(2).nodes(1)
}

/// What a frame of a block holds in each of its words.
fn stamp(pages: &Pages<'_, impl Design<Host>>, frame: u64) -> [u8; 8] {
    (pages.pfn().get() + frame + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes()
}

/// Writes every frame of a block full, and says what it has overwritten of others if it has.
fn fill<D: Design<Host>>(pages: &mut Pages<'_, D>, frame_bytes: usize) {
    let stamps: Vec<_> = (0..pages.order().frames().get()).map(|at| stamp(pages, at)).collect();
    for (frame, stamp) in pages.chunks_exact_mut(frame_bytes).zip(stamps) {
        frame.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&stamp));
    }
}

fn is_intact<D: Design<Host>>(pages: &Pages<'_, D>, frame_bytes: usize) -> bool {
    let mut frames = pages.chunks_exact(frame_bytes).enumerate();
    frames.all(|(at, frame)| frame.chunks_exact(8).all(|word| word == stamp(pages, at as u64)))
}

fn owned_memory<D: Design<Host>>(frame_size: FrameSize) {
    let arena = builder::<D>(frame_size).bytes(96 * MIB).build().unwrap();
    let frame_bytes = frame_size.bytes();
    assert_eq!(arena.frame_size(), frame_size);
    let total = arena.total_frames();
    let pageblock = Order::PAGEBLOCK.frames().get();
    let expected = (96 * MIB / frame_bytes) as u64;
    assert_eq!(total.get(), expected.next_multiple_of(pageblock), "whole pageblocks");

    let mut blocks = Vec::new();
    for order in [3, 0, 1, 5, 0].map(Order::new).into_iter().cycle() {
        let Ok(mut pages) = arena.allocate(order) else { break };
        assert_eq!(pages.len(), frame_bytes << order.get());
        assert!(pages.as_ptr().addr().is_multiple_of(pages.len()), "{pages:?} is misaligned");
        fill(&mut pages, frame_bytes);
        blocks.push(pages);
    }
    let taken: usize = blocks.iter().map(|pages| pages.len()).sum();
    assert!(taken > 64 * MIB, "{taken} bytes");

    // Each lies at its place, and the next one behind all of it.
    let base = arena.address_of(Pfn::new(0)).as_ptr().addr();
    let places: BTreeMap<_, _> =
        blocks.iter().map(|pages| (pages.as_ptr().addr(), pages)).collect();
    let mut behind = base;
    for (start, pages) in places {
        assert_eq!(start, base + pages.pfn().get() as usize * frame_bytes);
        assert!(start >= behind, "{pages:?} overlaps the block before it");
        behind = start + pages.len();
        assert!(is_intact(pages, frame_bytes), "{pages:?}");
    }
    assert!(behind <= base + frame_size.bytes_of(total), "the last block ends in the arena");

    // One block given back to the machine is all of it, and nothing else.
    let before = resident_pages(&arena);
    let mut discarded = blocks.swap_remove(blocks.len() / 2);
    discarded.discard().unwrap();
    assert!(discarded.iter().all(|&byte| byte == 0), "{discarded:?} reads as zero");
    assert!(blocks.iter().all(|pages| is_intact(pages, frame_bytes)));
    drop(discarded);
    drop(blocks);
    let purged = arena.purge().unwrap();
    let pages_in_a_frame = frame_bytes / rustix::param::page_size();
    let gone = before - resident_pages(&arena);
    assert!(purged.get() * 10 > total.get() * 7, "{purged} of {total}");
    let touched = taken / frame_bytes * pages_in_a_frame;
    assert!(before >= touched && gone >= touched * 9 / 10, "{gone} pages of {before}");
    arena.drain();
    assert_eq!(arena.validate().unwrap().free, total);
}

fn bare_frames<D: Design<Host>>(frame_size: FrameSize) {
    let frame_bytes = frame_size.bytes();
    let grain = frame_bytes << Order::PAGEBLOCK.get();
    let built = builder::<D>(frame_size).bytes(1).capacity_bytes(4 * grain).build_frames();
    let frames = built.unwrap();
    assert_eq!(frames.total_frames(), Order::PAGEBLOCK.frames());
    assert_eq!(frames.grow(1).unwrap()[0].frames, Order::PAGEBLOCK.frames(), "a pageblock");

    let order = Order::new(2);
    let take = || frames.alloc(Request::new(order)).unwrap();
    let (from, to, beyond) = (take(), take(), take());
    let behind = |pfn: Pfn, at| pfn.offset(FrameCount::new(at));
    let content = |at: u64| -> Vec<u8> {
        (0..frame_bytes).map(|byte| (byte as u64 * 7 + at * 31 + 1) as u8).collect()
    };
    (0..4).for_each(|at| frames.write_frame(behind(from, at), &content(at)));
    frames.copy_block(from, to, order);
    let mut found = vec![0; frame_bytes];
    for at in 0..4 {
        frames.read_frame(behind(to, at), &mut found);
        assert!(found == content(at), "frame {at} of the copy");
        let address = frames.address_of(behind(to, at)).as_ptr().addr();
        assert_eq!(address, frames.address_of(to).as_ptr().addr() + at as usize * frame_bytes);
    }
    assert_eq!(frames.load_byte(beyond), 0, "and nothing behind it");
    [from, to, beyond].into_iter().for_each(|block| frames.free(block, order).unwrap());
}

#[test]
fn frames_of_4_16_and_64_kib_are_as_large_as_they_say() {
    let sizes = [4, 16, 64].map(|kib| FrameSize::new(kib << 10).unwrap());
    let machines = FrameSize::new(rustix::param::page_size()).unwrap();
    for size in sizes.into_iter().filter(|&size| size >= machines) {
        owned_memory::<Freehold<Host>>(size);
        owned_memory::<ZoneLock<Host>>(size);
        bare_frames::<Freehold<Host>>(size);
        bare_frames::<ZoneLock<Host>>(size);
    }
    let default = ArenaBuilder::<Freehold<Host>>::new().bytes(MIB).build_frames().unwrap();
    assert_eq!(default.frame_size(), machines.max(FrameSize::DEFAULT));
}
