//! An LRU together with the buffer for its metadata.

use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

use freehold::platform::Platform;
use freehold::{Config, Error, Metadata};
use freehold_lru::{Lru, LruCensus, LruSettings, Owner};

/// One cache line of the buffer, which gives it its alignment.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([MaybeUninit<u8>; 64]);

/// The initial content of the buffer, which the LRU must not interpret.
const GARBAGE: Line = Line([MaybeUninit::new(0xa5); 64]);

/// An LRU that owns its metadata.
pub(crate) struct Room<P: Platform, O: Owner> {
    // Declared before the buffer, and so dropped before it.
    lru: Lru<P, O>,
    _buffer: Vec<Line>,
}

impl<P: Platform, O: Owner> Room<P, O> {
    /// An LRU for `config`, or the error for it.
    pub(crate) fn try_new(
        platform: P,
        config: &Config<'_>,
        settings: &LruSettings,
        owner: O,
    ) -> Result<Self, Error> {
        let layout = Lru::<P, O>::layout(config, settings)?;
        assert!(layout.align() <= align_of::<Line>(), "the buffer is aligned for the layout");
        let mut buffer = vec![GARBAGE; layout.size().div_ceil(size_of::<Line>())];
        let base = NonNull::from(buffer.as_mut_slice()).cast();
        // SAFETY: the buffer has at least the size of the layout, its bytes do not move when the
        // `Vec` does, nothing else accesses them, and it is dropped after the LRU.
        let metadata = unsafe { Metadata::from_raw_parts(base, layout.size()) };
        let lru = Lru::new(platform, config, settings, metadata, owner)?;
        Ok(Room { lru, _buffer: buffer })
    }

    /// An LRU for a valid configuration.
    pub(crate) fn new(platform: P, config: &Config<'_>, settings: &LruSettings, owner: O) -> Self {
        Self::try_new(platform, config, settings, owner).expect("the configuration is in order")
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> LruCensus {
        self.validate().unwrap_or_else(|violation| panic!("{violation}"))
    }
}

impl<P: Platform, O: Owner> Deref for Room<P, O> {
    type Target = Lru<P, O>;

    fn deref(&self) -> &Lru<P, O> {
        &self.lru
    }
}
