//! A guest's memory in an arena.
#![expect(unsafe_code, reason = "shares memory by a file")]

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use freehold_adapters::{GuestRegion, GuestRegionError};
use freehold_host::{Arena, Backing, FrameCount, OwnedPageRange, Pfn, RangeRequest};
use vm_memory::bitmap::{Bitmap, WithBitmapSlice};
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryRegion, GuestRegionCollection,
    MemoryRegionAddress,
};

const MIB: usize = 1 << 20;

fn arena() -> Arc<Arena> {
    let builder = Arena::builder().bytes(32 * MIB).cpus(1).nodes(1).backing(Backing::Memfd);
    // SAFETY: nothing here writes the file, or makes it shorter.
    Arc::new(unsafe { builder.min_free(FrameCount::ZERO).build_shared() }.expect("a small arena"))
}

fn range(arena: &Arc<Arena>, first: u64, frames: u64) -> OwnedPageRange {
    let request = RangeRequest::new(FrameCount::new(frames)).at(Pfn::new(first));
    arena.allocate_range_owned(request).expect("it is free")
}

fn allocated(arena: &Arena) -> u64 {
    arena.validate().expect("the books are right").allocated.get()
}

#[test]
fn regions_are_a_guests_memory_and_return_to_their_arena() {
    let arena = arena();
    let low = GuestRegion::new(range(&arena, 100, 10), GuestAddress(0), ()).unwrap();
    let high = GuestRegion::new(range(&arena, 1000, 777), GuestAddress(10 << 12), ()).unwrap();
    let offset = high.file_offset().expect("of the memfd");
    assert_eq!(offset.start(), 1000 << 12);
    let file = Arc::clone(offset.arc());
    let memory = GuestRegionCollection::from_regions(vec![low, high]).unwrap();
    assert_eq!((memory.num_regions(), memory.last_addr()), (2, GuestAddress((787 << 12) - 1)));
    // Across the border of the regions.
    let text = b"a guest's memory";
    memory.write_slice(text, GuestAddress((10 << 12) - 5)).unwrap();
    let mut read = [0; 16];
    memory.read_slice(&mut read, GuestAddress((10 << 12) - 5)).unwrap();
    assert_eq!(&read, text);
    let mut shared = [0; 11];
    file.read_exact_at(&mut shared, 1000 << 12).unwrap();
    assert_eq!(shared, text[5..], "processes that map the file see it");
    let host = memory.get_host_address(GuestAddress(3)).unwrap();
    assert_eq!(arena.pfn_of(host), Some(Pfn::new(100)));
    assert_eq!(allocated(&arena), 787);

    assert!(memory.write_obj(1_u64, GuestAddress((787 << 12) - 7)).is_err());
    let region = memory.find_region(GuestAddress(5000)).unwrap();
    let beyond = MemoryRegionAddress(10 << 12);
    assert!(region.get_host_address(beyond).is_err());
    assert!(region.get_slice(MemoryRegionAddress(0), 10 << 12).is_ok());
    assert!(region.get_slice(MemoryRegionAddress(1), 10 << 12).is_err());
    assert!(region.get_slice(MemoryRegionAddress(u64::MAX), 1).is_err());

    // A balloon takes pages.
    let region = memory.find_region(GuestAddress(10 << 12)).unwrap();
    region.write_obj(7_u8, MemoryRegionAddress(5 << 12)).unwrap();
    region.write_obj(8_u8, MemoryRegionAddress(6 << 12)).unwrap();
    region.discard(MemoryRegionAddress(3 << 12), 3 << 12).unwrap();
    assert_eq!(region.read_obj::<u8>(MemoryRegionAddress(5 << 12)).unwrap(), 0);
    assert_eq!(region.read_obj::<u8>(MemoryRegionAddress(6 << 12)).unwrap(), 8);
    for (offset, bytes) in [(1, 4096), (4096, 1), (776 << 12, 2 << 12), (u64::MAX << 12, 4096)] {
        let error = region.discard(MemoryRegionAddress(offset), bytes).unwrap_err();
        assert!(matches!(error, GuestRegionError::BadPart), "{error}");
    }

    // The second half is unplugged.
    let (rest, high) = memory.remove_region(GuestAddress(10 << 12), 777 << 12).unwrap();
    drop(memory);
    let mut unplugged = Arc::into_inner(high).expect("nobody else has it").into_range();
    assert_eq!(unplugged[..11], text[5..]);
    unplugged.discard().unwrap();
    assert_eq!(unplugged[..11], [0; 11]);
    drop(unplugged);
    assert_eq!(allocated(&arena), 10);
    drop(rest);
    assert_eq!(allocated(&arena), 0);
}

#[test]
fn a_region_beyond_the_guests_address_space_is_refused() {
    let arena = arena();
    let last = u64::MAX - (1 << 12) + 1;
    let fits = GuestRegion::new(range(&arena, 0, 1), GuestAddress(last), ());
    assert_eq!(fits.unwrap().last_addr(), GuestAddress(u64::MAX));
    let error = GuestRegion::new(range(&arena, 0, 2), GuestAddress(last), ()).unwrap_err();
    assert!(matches!(error, GuestRegionError::BeyondAddressSpace), "{error}");
    assert_eq!(allocated(&arena), 0);
}

/// Sums up the bytes that were written, and remembers where the last write was.
#[derive(Clone, Debug, Default)]
struct Written {
    base: usize,
    counts: Arc<[AtomicUsize; 2]>,
}

impl WithBitmapSlice<'_> for Written {
    type S = Written;
}

impl vm_memory::bitmap::BitmapSlice for Written {}

impl Bitmap for Written {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.counts[0].fetch_add(len, Relaxed);
        self.counts[1].store(self.base + offset, Relaxed);
    }
    fn dirty_at(&self, _: usize) -> bool {
        false
    }
    fn slice_at(&self, offset: usize) -> Written {
        Written { base: self.base + offset, counts: Arc::clone(&self.counts) }
    }
}

#[test]
fn writes_are_tracked_where_they_happen() {
    let (arena, written) = (arena(), Written::default());
    let region = GuestRegion::new(range(&arena, 5, 9), GuestAddress(1 << 20), written.clone());
    let memory = GuestRegionCollection::from_regions(vec![region.unwrap()]).unwrap();
    memory.write_slice(&[1; 100], GuestAddress((1 << 20) + 7000)).unwrap();
    let _read: u32 = memory.read_obj(GuestAddress(1 << 20)).unwrap();
    let written = || [0, 1].map(|at| written.counts[at].load(Relaxed));
    assert_eq!(written(), [100, 7000]);
    let region = memory.find_region(GuestAddress(1 << 20)).unwrap();
    region.discard(MemoryRegionAddress(2 << 12), 3 << 12).unwrap();
    assert_eq!(written(), [100 + (3 << 12), 2 << 12]);
}

#[test]
fn many_regions_share_one_open_file() {
    let arena = arena();
    let first = GuestRegion::new(range(&arena, 0, 1), GuestAddress(0), ()).unwrap();
    let file = Arc::clone(first.file_offset().expect("of the memfd").arc());
    let other = range(&arena, 7, 2);
    let other = GuestRegion::with_file(other, GuestAddress(1 << 12), (), Some(Arc::clone(&file)));
    let offset = other
        .unwrap()
        .file_offset()
        .map(|offset| (offset.start(), Arc::ptr_eq(offset.arc(), &file)));
    assert_eq!(offset, Some((7 << 12, true)));
}
