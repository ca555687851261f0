//! An arena in a static, built on first use.

use core::alloc::Layout;
use core::ptr::NonNull;
use std::sync::OnceLock;

use freehold::designs::Freehold;
use freehold::{Design, FrameCount};

use freehold_host::{ArenaBuilder, FrameArena, Host, HostError, Leases};

mod bump;
mod first;
mod mapped;

use bump::Bump;
use first::First;
use mapped::{Mapped, page_bytes, this_thread};

/// An arena in a static, which is built on first use: for allocators that a program has from its
/// start to its end, such as a `malloc`.
///
/// While an arena is built, the standard library allocates a few KiB. If it gets these from the
/// allocator that the arena is for, [`StaticArena::get`] returns `None` on the thread that builds,
/// and the allocator serves these calls by [`StaticArena::bootstrap`], or by other means.
///
/// A `#[global_allocator]` whose large blocks come from an arena. It finds a block by its address,
/// so a free needs no table beside it.
///
/// ```
/// use std::alloc::{GlobalAlloc, Layout, System};
/// use freehold_malloc::StaticArena;
/// use freehold_malloc::freehold_host::{Order, Request};
///
/// /// Large blocks from the arena; small ones from size classes, for which `System` stands here.
/// struct Malloc;
///
/// static ARENA: StaticArena =
///     StaticArena::new(256 << 20).configure(|builder| builder.guard_pages(true));
///
/// const LARGE_BYTES: usize = 32 << 10;
///
/// // SAFETY: blocks of the arena are as large and as aligned as their order says, and do not
/// // overlap.
/// unsafe impl GlobalAlloc for Malloc {
///     unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
///         // `None` while the arena is being built, which allocates too. Without another heap,
///         // such as `System` here, `ARENA.bootstrap` serves those calls.
///         if layout.size() >= LARGE_BYTES && let Some(frames) = ARENA.get() {
///             let bytes = layout.size().max(layout.align());
///             let order = Order::from_bytes(bytes, frames.frame_size());
///             if let Ok(pfn) = frames.alloc(Request::new(order)) {
///                 return frames.address_of(pfn).as_ptr();
///             }
///         }
///         // SAFETY: as the caller promises.
///         unsafe { System.alloc(layout) }
///     }
///     unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
///         let of = ARENA.get().and_then(|frames| Some((frames, frames.pfn_of(pointer)?)));
///         match of {
///             Some((frames, pfn)) => {
///                 let order = frames.allocator().order_of(pfn);
///                 let freed = order.map(|order| frames.free(pfn, order));
///                 debug_assert_eq!(freed, Some(Ok(())), "a block that this allocator gave out");
///             }
///             // SAFETY: as the caller promises.
///             None => unsafe { System.dealloc(pointer, layout) },
///         }
///     }
/// }
///
/// #[global_allocator]
/// static MALLOC: Malloc = Malloc;
///
/// let large = vec![1u8; 100_000];
/// assert!(ARENA.get().is_some_and(|frames| frames.contains(large.as_ptr())));
/// let frames = ARENA.get().unwrap();
/// let pfn = frames.pfn_of(large.as_ptr()).unwrap();
/// assert_eq!(frames.allocator().order_of(pfn), Some(Order::new(5)));
/// drop(large);
/// let small = Box::new(7);
/// assert!(!frames.contains(&raw const *small));
/// ```
#[derive(Debug)]
pub struct StaticArena<D: Design<Host> = Freehold<Host>> {
    bytes: usize,
    capacity_bytes: usize,
    leases: Leases,
    configure: fn(ArenaBuilder<D>) -> ArenaBuilder<D>,
    arena: First<OnceLock<Result<FrameArena<D>, HostError>>>,
    bootstrap: Bootstrap,
}

/// How much memory there is for building: an arena for 65,534 CPUs takes half of it. What is not
/// used is never touched.
const BOOTSTRAP_BYTES: usize = 1 << 20;

/// Memory for calls of the building itself, mapped by the first of them.
#[derive(Debug)]
struct Bootstrap {
    memory: OnceLock<Option<Mapped>>,
    used: Bump,
}

impl StaticArena {
    /// An arena of so many bytes. See [`ArenaBuilder::bytes`].
    pub const fn new(bytes: usize) -> Self {
        StaticArena::with_design(bytes)
    }
}

impl<D: Design<Host>> StaticArena<D> {
    /// An arena of any design.
    pub const fn with_design(bytes: usize) -> Self {
        StaticArena {
            bytes,
            capacity_bytes: 0,
            leases: Leases::Off,
            configure: core::convert::identity,
            arena: First::new(),
            bootstrap: Bootstrap { memory: OnceLock::new(), used: Bump::new() },
        }
    }

    /// How large it can grow. See [`ArenaBuilder::capacity_bytes`].
    #[must_use]
    pub const fn capacity_bytes(mut self, bytes: usize) -> Self {
        self.capacity_bytes = bytes;
        self
    }

    /// Whether threads get leases. See [`ArenaBuilder::leases`].
    #[must_use]
    pub const fn leases(mut self, leases: Leases) -> Self {
        self.leases = leases;
        self
    }

    /// Sets what else is to be set, just before the arena is built, such as
    /// `|builder| builder.huge_pages(true).numa(Numa::Interleave)`.
    #[must_use]
    pub const fn configure(mut self, configure: fn(ArenaBuilder<D>) -> ArenaBuilder<D>) -> Self {
        self.configure = configure;
        self
    }

    /// The arena. The first call builds it, which takes milliseconds; calls of other threads wait
    /// for that. `None` on the thread that builds it, while it does, and for good if it could not
    /// be built: [`StaticArena::error`] says why.
    ///
    /// The child of a fork that another thread makes meanwhile waits for ever: where threads may
    /// fork, call this before the second one starts.
    #[inline]
    pub fn get(&self) -> Option<&FrameArena<D>> {
        match self.arena.get() {
            Some(built) => built.as_ref().ok(),
            None => self.build(),
        }
    }

    #[cold]
    fn build(&self) -> Option<&FrameArena<D>> {
        let build = || {
            // All of it can be allocated: nothing reclaims memory for an allocator.
            let builder = ArenaBuilder::new().min_free(FrameCount::ZERO).leases(self.leases);
            let builder = builder.bytes(self.bytes).capacity_bytes(self.capacity_bytes);
            (self.configure)(builder).build_frames()
        };
        self.arena.build(this_thread(), build)?.as_ref().ok()
    }

    /// Memory for an allocation while [`get`](StaticArena::get) returns `None`: 1 MiB in all, which
    /// is far more than the building takes. It is never given out again, so a free of what
    /// [`is_bootstrap`](StaticArena::is_bootstrap) tells has nothing to do. `None` if there is no
    /// more, or the alignment is above a page.
    pub fn bootstrap(&self, layout: Layout) -> Option<NonNull<u8>> {
        let map = || Mapped::new(BOOTSTRAP_BYTES);
        let memory = self.bootstrap.memory.get_or_init(map).as_ref()?;
        if layout.align() > page_bytes() {
            return None;
        }
        // Nothing is a byte: at the very end, it would begin beyond the memory.
        let some = Layout::from_size_align(layout.size().max(1), layout.align()).ok()?;
        let start = self.bootstrap.used.take(some, BOOTSTRAP_BYTES)?;
        NonNull::new(memory.base().as_ptr().wrapping_add(start))
    }

    /// Whether memory came from [`bootstrap`](StaticArena::bootstrap).
    pub fn is_bootstrap<T: ?Sized>(&self, memory: *const T) -> bool {
        let mapped = self.bootstrap.memory.get().and_then(Option::as_ref);
        mapped.is_some_and(|mapped| {
            let start = mapped.base().addr().get();
            (start..start + BOOTSTRAP_BYTES).contains(&memory.addr())
        })
    }

    /// Why it could not be built, if a call has tried.
    pub fn error(&self) -> Option<&HostError> {
        self.arena.get()?.as_ref().err()
    }
}

const _: () = {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<StaticArena>();
};
