//! An allocator together with the buffer for its metadata.

use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

use freehold::designs::Design;
use freehold::platform::Platform;
use freehold::{Config, Error, Metadata, PageAllocator};

/// One cache line of the buffer, which gives it its alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([MaybeUninit<u8>; 64]);

/// The initial content of the buffer, which the allocator must not interpret.
const GARBAGE: Line = Line([MaybeUninit::new(0xa5); 64]);

/// An allocator that owns its metadata, so that thousands of test cases leak nothing.
pub(crate) struct Machine<P: Platform, D: Design<P>> {
    // Declared before the buffer, and so dropped before it.
    allocator: PageAllocator<P, D>,
    _buffer: Vec<Line>,
}

impl<P: Platform, D: Design<P>> Machine<P, D> {
    /// An allocator for `config`, or the error for it.
    pub(crate) fn try_new(
        platform: P,
        config: &Config<'_>,
        settings: &D::Settings,
    ) -> Result<Self, Error> {
        let layout = PageAllocator::<P, D>::layout(config, settings)?;
        assert!(layout.align() <= align_of::<Line>(), "the buffer is aligned for the layout");
        let mut buffer = vec![GARBAGE; layout.size().div_ceil(size_of::<Line>())];
        let base = NonNull::from(buffer.as_mut_slice()).cast();
        // SAFETY: the buffer has at least the size of the layout, its bytes do not move when the
        // `Vec` does, nothing else accesses them, and it is dropped after the allocator.
        let metadata = unsafe { Metadata::from_raw_parts(base, layout.size()) };
        let allocator = PageAllocator::new(platform, config, settings, metadata)?;
        Ok(Machine { allocator, _buffer: buffer })
    }

    /// An allocator for a valid configuration.
    pub(crate) fn new(platform: P, config: &Config<'_>, settings: &D::Settings) -> Self {
        Self::try_new(platform, config, settings).expect("the configuration is in order")
    }
}

impl<P: Platform, D: Design<P>> Deref for Machine<P, D> {
    type Target = PageAllocator<P, D>;

    fn deref(&self) -> &PageAllocator<P, D> {
        &self.allocator
    }
}
