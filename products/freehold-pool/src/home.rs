//! The tables of a pool on this machine.
#![expect(unsafe_code, reason = "lends a buffer to the allocator as its metadata")]

use core::ptr::NonNull;

use freehold::designs::Freehold;
use freehold::{Config, Error, FrameCount, Metadata, NodeId, PageAllocator};
use freehold_host::Host;

use crate::slots::{CpuRecord, SlotRecord, SlotsSettings, Tables};

/// What the metadata is made of, so that it is aligned as the allocator wants it.
#[repr(C, align(4096))]
#[derive(Clone)]
struct Page([u8; 4096]);

/// The tables of a pool, in memory of their own.
pub(crate) struct Home {
    // Fields are dropped in this order: the allocator goes before the memory of its metadata.
    frames: PageAllocator<Host, Freehold<Host>>,
    cpus: Box<[CpuRecord<Host>]>,
    slots: Box<[SlotRecord<Host>]>,
    /// Keeps the metadata alive.
    _metadata: Vec<Page>,
}

impl Home {
    /// Tables for so many CPUs.
    ///
    /// # Errors
    ///
    /// Those of [`PageAllocator::new`].
    pub(crate) fn new(host: Host, settings: SlotsSettings, cpus: usize) -> Result<Self, Error> {
        let ranges = settings.frames(cpus);
        let nodes = vec![NodeId::new(0); cpus];
        let config = Config::new(&ranges, &nodes).min_free(FrameCount::ZERO);
        let layout = PageAllocator::<Host, Freehold<Host>>::layout(&config, &Default::default())?;
        assert!(layout.align() <= align_of::<Page>(), "metadata is aligned to a page at most");
        let mut metadata = vec![Page([0; 4096]); layout.size().div_ceil(size_of::<Page>())];
        let start = NonNull::new(metadata.as_mut_ptr()).expect("a vector is not at address 0");
        let bytes = metadata.len() * size_of::<Page>();
        // SAFETY: The buffer is new, is not used through the vector, and lives as long as `Self`,
        // which drops the allocator first.
        let buffer = unsafe { Metadata::from_raw_parts(start.cast(), bytes) };
        Ok(Home {
            frames: PageAllocator::new(host, &config, &Default::default(), buffer)?,
            cpus: (0..cpus).map(|_| CpuRecord::new()).collect(),
            slots: (0..settings.slots).map(|_| SlotRecord::new()).collect(),
            _metadata: metadata,
        })
    }
}

impl Tables<Host> for Home {
    fn frames(&self) -> &PageAllocator<Host, Freehold<Host>> {
        &self.frames
    }

    fn cpus(&self) -> &[CpuRecord<Host>] {
        &self.cpus
    }

    fn slots(&self) -> &[SlotRecord<Host>] {
        &self.slots
    }
}
