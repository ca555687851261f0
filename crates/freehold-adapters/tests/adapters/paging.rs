//! Page tables built of an allocator's frames, by the crate that kernels build them with. An arena
//! is the physical memory.
#![expect(unsafe_code, reason = "the crate's interfaces are unsafe")]

use freehold_adapters::PagingFrames;
use freehold_host::{Arena, FrameArena, FrameCount, MigrateType, Order, Pfn, Request};
use x86_64::structures::paging::mapper::{MapToError, TranslateResult};
use x86_64::structures::paging::{
    FrameAllocator, FrameDeallocator, Mapper, OffsetPageTable, Page, PageSize, PageTable,
    PageTableFlags, PhysFrame, Size1GiB, Size2MiB, Size4KiB, Translate,
};
use x86_64::{PhysAddr, VirtAddr};

/// Physical memory, of which only page tables are touched.
fn memory() -> FrameArena {
    let builder = Arena::builder().bytes(3 << 30).cpus(1).nodes(1).min_free(FrameCount::ZERO);
    builder.build_frames().expect("address space of 3 GiB")
}

fn frames(
    memory: &FrameArena,
) -> PagingFrames<'_, freehold_host::Host, freehold_host::designs::Freehold<freehold_host::Host>> {
    // SAFETY: these tests free nothing that is in use.
    unsafe { PagingFrames::new(memory.allocator()) }
}

fn allocated(memory: &FrameArena) -> u64 {
    memory.allocator().validate().expect("the books are right").allocated.get()
}

/// Page tables, of which the root is in a new frame.
fn tables(memory: &FrameArena, root: PhysFrame) -> OffsetPageTable<'_> {
    let pfn = Pfn::from_address(root.start_address().as_u64(), memory.frame_size());
    let mut table = memory.address_of(pfn).cast::<PageTable>();
    // SAFETY: the frame is the caller's alone, and large and aligned enough.
    unsafe { table.write(PageTable::new()) };
    // SAFETY: initialised just now, and used nowhere else.
    let table = unsafe { table.as_mut() };
    let offset = VirtAddr::from_ptr(memory.base().as_ptr());
    // SAFETY: all tables lie in the arena, at this offset.
    unsafe { OffsetPageTable::new(table, offset) }
}

/// Maps a page of a size at `at`, and checks that the tables translate it.
fn map<S: PageSize + std::fmt::Debug>(
    memory: &FrameArena,
    tables: &mut OffsetPageTable<'_>,
    at: u64,
) -> PhysFrame<S>
where
    for<'a> OffsetPageTable<'a>: Mapper<S>,
{
    let mut from = frames(memory);
    let frame: PhysFrame<S> = from.allocate_frame().expect("there is memory");
    let page = Page::<S>::from_start_address(VirtAddr::new(at)).expect("it is aligned");
    let flags = PageTableFlags::PRESENT | PageTableFlags::WRITABLE;
    // SAFETY: nothing uses these tables but this test.
    let mapped = unsafe { tables.map_to(page, frame, flags, &mut from) };
    mapped.expect("nothing is mapped there").ignore();
    let within = VirtAddr::new(at + S::SIZE - 1);
    assert_eq!(tables.translate_addr(within), Some(frame.start_address() + (S::SIZE - 1)));
    assert!(frame.start_address().is_aligned(S::SIZE));
    frame
}

#[test]
fn page_tables_of_all_sizes_are_made_of_its_frames() {
    let memory = memory();
    let mut from = frames(&memory);
    let root = from.allocate_frame().expect("there is memory");
    let mut tables = tables(&memory, root);
    let small: PhysFrame<Size4KiB> = map(&memory, &mut tables, 0x1000);
    let large: PhysFrame<Size2MiB> = map(&memory, &mut tables, 2 << 20);
    let huge: PhysFrame<Size1GiB> = map(&memory, &mut tables, 4 << 30);
    // Tables of four levels, three of them for the small page.
    assert_eq!(allocated(&memory), 4 + 1 + 512 + (512 << 9));
    assert!(matches!(tables.translate(VirtAddr::new(8 << 30)), TranslateResult::NotMapped));
    assert_eq!(memory.allocator().order_of(from.pfn_of(large)), Some(Order::PAGEBLOCK));
    // SAFETY: the page is not mapped in any processor.
    unsafe { from.deallocate_frame(small) };
    // SAFETY: as above.
    unsafe { from.deallocate_frame(large) };
    // SAFETY: as above.
    unsafe { from.deallocate_frame(huge) };
    assert_eq!(allocated(&memory), 4);
}

#[test]
fn what_runs_out_is_none_and_a_mapping_says_so() {
    let memory = memory();
    let mut from = frames(&memory).with_request(Request::new(Order::new(7)));
    let huge: Vec<PhysFrame<Size1GiB>> = std::iter::from_fn(|| from.allocate_frame()).collect();
    assert_eq!(huge.len(), 3, "of no order but theirs");
    // SAFETY: nothing uses it.
    unsafe { from.deallocate_frame(huge[1]) };
    let small: Vec<PhysFrame<Size4KiB>> = std::iter::from_fn(|| from.allocate_frame()).collect();
    assert_eq!(small.len(), 1 << 18);
    let root = small[0];
    let mut tables = tables(&memory, root);
    let page = Page::<Size4KiB>::containing_address(VirtAddr::new(0x5000));
    let frame = PhysFrame::containing_address(PhysAddr::new(0));
    // SAFETY: as above.
    let mapped = unsafe { tables.map_to(page, frame, PageTableFlags::PRESENT, &mut from) };
    assert!(matches!(mapped, Err(MapToError::FrameAllocationFailed)));
}

#[test]
fn page_tables_are_unmovable_by_default() {
    let memory = memory();
    let count = |of: MigrateType| {
        let free = memory.allocator().free_by_type(0).expect("the first zone");
        free.pageblocks[of.index()]
    };
    let unmovable = count(MigrateType::Unmovable);
    let mut from = frames(&memory);
    let _table: PhysFrame<Size4KiB> = from.allocate_frame().expect("there is memory");
    assert_eq!(count(MigrateType::Unmovable), unmovable + 1);
}

#[test]
#[should_panic(expected = "no frame of this size is allocated there")]
fn a_frame_that_is_freed_twice_is_noticed() {
    let memory = memory();
    let mut from = frames(&memory);
    let frame: PhysFrame<Size2MiB> = from.allocate_frame().expect("there is memory");
    for _ in 0..2 {
        // SAFETY: nothing uses it.
        unsafe { from.deallocate_frame(frame) };
    }
}
