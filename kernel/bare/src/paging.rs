//! Page tables, of four levels, whose frames come from the allocator.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use freehold::designs::Design;
use freehold::{Error, MemoryRange, MigrateType, PageAllocator, Pfn, Request, ZoneKind};

use crate::arch::{self, entry};
use crate::boot::{Image, SIZE};
use crate::direct_map;
use crate::platform::Platform;

/// What may be done with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read and executed.
    Code,
    /// Read.
    ReadOnly,
    /// Read and written.
    Data,
    /// Registers of a device: read and written past the caches.
    Device,
}

/// The tables of an address space.
pub(crate) struct Tables<'a, D: Design<Platform>> {
    allocator: &'a PageAllocator<Platform, D>,
    root: u64,
    frames: usize,
}

const PAGE: u64 = SIZE.bytes() as u64;
const LARGE_PAGE: u64 = 2 << 20;
const ENTRIES: u64 = 512;

/// Tables of pages, of large ones, and the two levels above.
const LEVEL_PAGES: u32 = 0;
const LEVEL_LARGE: u32 = 1;
const LEVEL_ROOT: u32 = 3;

unsafe extern "C" {
    // Of `link.ld`.
    safe static image_start: u8;
    safe static rodata_start: u8;
    safe static data_start: u8;
    safe static image_end: u8;
}

/// Where the parts of the kernel are.
pub(crate) fn image() -> Image {
    let address = |symbol: &u8| core::ptr::from_ref(symbol).addr() as u64;
    Image {
        start: address(&image_start),
        rodata: address(&rodata_start),
        data: address(&data_start),
        end: address(&image_end),
    }
}

/// The address space of the kernel: its image where it was linked, each part with the access that
/// it needs; and the direct map of all memory and of devices.
pub(crate) fn kernel_tables<'a, D: Design<Platform>>(
    allocator: &'a PageAllocator<Platform, D>,
    memory: &[MemoryRange],
) -> Result<Tables<'a, D>, Error> {
    let mut tables = Tables::new(allocator)?;
    let image = image();
    for (start, end, access) in [
        (image.start, image.rodata, Access::Code),
        (image.rodata, image.data, Access::ReadOnly),
        (image.data, image.end, Access::Data),
    ] {
        tables.map(start, start, end - start, access)?;
    }
    for range in memory {
        let start = range.start.address(SIZE).expect("memory has an address");
        let bytes = SIZE.bytes_of(range.frames) as u64;
        tables.map(direct_map::BASE + start, start, bytes, Access::Data)?;
    }
    for (start, bytes) in arch::DEVICES {
        tables.map(direct_map::BASE + start, start, bytes, Access::Device)?;
    }
    Ok(tables)
}

impl<'a, D: Design<Platform>> Tables<'a, D> {
    fn new(allocator: &'a PageAllocator<Platform, D>) -> Result<Self, Error> {
        let mut tables = Tables { allocator, root: 0, frames: 0 };
        tables.root = tables.new_table()?;
        Ok(tables)
    }

    /// The address of the highest table.
    pub(crate) fn root(&self) -> u64 {
        self.root
    }

    /// How many frames the tables take.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// An empty table. Starting CPUs reach only low memory, and tables stay where they are.
    fn new_table(&mut self) -> Result<u64, Error> {
        let request =
            Request::default().migratetype(MigrateType::Unmovable).zone_limit(ZoneKind::Dma32);
        let frame: Pfn = self.allocator.alloc(request)?;
        // SAFETY: a frame of our own, which the direct map has.
        unsafe { direct_map::of_frame::<[u64; ENTRIES as usize]>(frame).write([0; _]) };
        self.frames += 1;
        Ok(frame.address(SIZE).expect("a frame of memory"))
    }

    /// Maps bytes, in pages as large as addresses and length permit.
    fn map(&mut self, at: u64, to: u64, bytes: u64, access: Access) -> Result<(), Error> {
        let mut done = 0;
        while done < bytes {
            let (at, to) = (at + done, to + done);
            let is_large = (at | to).is_multiple_of(LARGE_PAGE) && bytes - done >= LARGE_PAGE;
            let level = if is_large { LEVEL_LARGE } else { LEVEL_PAGES };
            let place = self.entry(at, level)?;
            // Relaxed: the tables are not in use yet.
            place.store(entry::page(to, access, is_large), Relaxed);
            done += if is_large { LARGE_PAGE } else { PAGE };
        }
        Ok(())
    }

    /// The entry for an address in the table of this level, with all tables above it.
    fn entry(&mut self, at: u64, level: u32) -> Result<&'a AtomicU64, Error> {
        let mut table = self.root;
        for upper in (level + 1..=LEVEL_ROOT).rev() {
            let place = entry_of(table, at, upper);
            // Relaxed: as in `map`.
            table = match entry::table_of(place.load(Relaxed)) {
                Some(table) => table,
                None => {
                    let table = self.new_table()?;
                    place.store(entry::table(table), Relaxed);
                    table
                }
            };
        }
        Ok(entry_of(table, at, level))
    }

    /// Makes this CPU use the tables.
    ///
    /// # Safety
    ///
    /// They map what is in use: the running code, its stack, and the direct map.
    pub(crate) unsafe fn activate(&self) {
        // SAFETY: as the caller promises.
        unsafe { arch::activate(self.root) };
    }
}

fn entry_of<'a>(table: u64, at: u64, level: u32) -> &'a AtomicU64 {
    let nth = at >> (12 + 9 * level) & (ENTRIES - 1);
    // SAFETY: a table of ours, which the direct map has, and which is never freed. Entries are
    // accessed as atomics alone, but by the CPU itself.
    unsafe { &*direct_map::at::<AtomicU64>(table + nth * 8) }
}
