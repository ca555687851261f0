//! The hooks: what jemalloc asks of its memory, and how the heap answers.
#![expect(unsafe_code, reason = "is called by C, and calls C")]

use core::ffi::{c_uint, c_void};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::Acquire};

use freehold_host::designs::Freehold;
use freehold_host::{ArenaBuilder, Design, Error, FrameArena, FrameCount, Host, HostError, Pfn};

use super::table::ExtentHooks;
use crate::{HeapSettings, HeapView, PageHeap};

/// From this length on, zeroes come from the machine, as jemalloc has them without hooks: what is
/// never written then takes no memory.
const DISCARDED_BYTES_MIN: usize = 1 << 20;

/// Hooks that serve jemalloc's extents from a [`PageHeap`].
///
/// Each call is lock-free as far as the heap's design is, and uses no heap of the process.
#[derive(Debug)]
#[repr(C)]
pub struct Hooks<D: Design<Host> = Freehold<Host>> {
    /// First, so that a pointer to it, which is what jemalloc passes, is one to the whole.
    table: ExtentHooks,
    pub(crate) heap: PageHeap<D>,
    /// The first frame of each node's part. Extents of two parts are never merged: a span is freed
    /// as a whole, and that is for frames of one node.
    parts: Box<[Pfn]>,
    /// The hooks that jemalloc had before, for what is not in the arena; null until installed.
    pub(crate) before: AtomicPtr<ExtentHooks>,
}

impl<D: Design<Host>> Hooks<D> {
    /// Hooks over a heap of their own. Nothing but jemalloc gets at its frames:
    ///
    /// ```compile_fail,E0599
    /// # use freehold_malloc::{freehold_host::{FrameCount, Pfn}, jemalloc::Hooks};
    /// fn discard(hooks: &'static Hooks, first: Pfn) {
    ///     hooks.heap().arena().discard(first, FrameCount::new(1)).unwrap();
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`PageHeap::build`].
    pub fn new(arena: ArenaBuilder<D>, settings: HeapSettings) -> Result<Self, HostError> {
        let heap = PageHeap::build(arena, settings)?;
        let table = ExtentHooks {
            alloc: Some(alloc::<D>),
            dalloc: Some(dalloc::<D>),
            destroy: Some(destroy::<D>),
            commit: Some(commit::<D>),
            decommit: Some(decommit::<D>),
            purge_lazy: Some(purge_lazy::<D>),
            purge_forced: Some(purge_forced::<D>),
            split: Some(split::<D>),
            merge: Some(merge::<D>),
        };
        let parts = heap.arena().ranges().iter().map(|range| range.start).collect();
        Ok(Hooks { table, heap, parts, before: AtomicPtr::new(null_mut()) })
    }

    /// The hooks for good: jemalloc uses them as long as the process lives.
    pub fn leak(self) -> &'static Self {
        Box::leak(Box::new(self))
    }

    /// The heap, to purge it and to report on it.
    pub fn heap(&self) -> HeapView<'_, D> {
        self.heap.view()
    }

    /// What jemalloc is given: a pointer that it never writes through. For a jemalloc that
    /// [`Hooks::install`] takes: its pages are the arena's frames, and it retains no memory.
    pub fn table(&'static self) -> NonNull<ExtentHooks> {
        NonNull::from(self).cast()
    }

    /// The frames of an extent, if it lies in the arena.
    fn frames_of(&self, address: *mut c_void, bytes: usize) -> Option<(Pfn, FrameCount)> {
        let arena = self.heap.arena();
        Some((arena.pfn_of(address)?, FrameCount::from_bytes(bytes, arena.frame_size())))
    }

    fn alloc(&self, at: *mut c_void, bytes: usize, align: usize, zero: &mut bool) -> *mut c_void {
        let arena = self.heap.arena();
        let size = arena.frame_size();
        let frames = FrameCount::from_bytes(bytes, size);
        let span = match self.frames_of(at, bytes) {
            Some((first, _)) => self.heap.alloc_at(first, frames),
            None => self.heap.alloc(frames, FrameCount::from_bytes(align.max(size.bytes()), size)),
        };
        let Ok(span) = span else { return null_mut() };
        let start = arena.address_of(span.first);
        if !start.addr().get().is_multiple_of(align) {
            // Aligned in the arena, which itself is less aligned than that.
            let _freed = self.release(span.first, frames);
            return null_mut();
        }
        let is_zeroed = span.is_zeroed
            || *zero && bytes >= DISCARDED_BYTES_MIN && arena.discard(span.first, frames).is_ok();
        if *zero && !is_zeroed {
            // SAFETY: the span is ours, and that long: no safe code reaches frames of the heap.
            unsafe { start.write_bytes(0, bytes) };
        }
        *zero |= is_zeroed;
        start.as_ptr().cast()
    }

    /// Frees an extent, or a part of one.
    fn release(&self, first: Pfn, frames: FrameCount) -> Result<(), Error> {
        let freed = self.heap.free(first, frames);
        debug_assert_eq!(freed, Ok(()), "an extent of {frames} at {first}");
        freed
    }

    fn is_mergeable(&self, one: Pfn, other: Pfn) -> bool {
        let part = |pfn| self.parts.partition_point(|start| *start <= pfn);
        part(one) == part(other)
    }
}

/// What jemalloc passes to each hook.
///
/// # Safety
///
/// `hooks` is what [`Hooks::table`] has returned.
unsafe fn of<'a, D: Design<Host>>(hooks: *mut ExtentHooks) -> &'a Hooks<D> {
    // SAFETY: the table is the first field, and the value is there for good.
    unsafe { &*hooks.cast() }
}

/// Passes a call on to the hooks that jemalloc had before; `$refusal` if it had none.
macro_rules! pass_on {
    ($hooks:expr, $hook:ident, $refusal:expr, $($argument:expr),*) => {{
        // Acquire: pairs with the installation, which has seen the table's content.
        let before = $hooks.before.load(Acquire);
        // SAFETY: jemalloc's own table, which is there for good; or one that unsafe code gave its
        // arenas, and has to leave there, as `Hooks::install` says.
        match unsafe { before.as_ref() }.and_then(|table| table.$hook) {
            // SAFETY: jemalloc's call as it is, of the hook that is for it.
            Some(hook) => unsafe { hook(before, $($argument),*) },
            None => $refusal,
        }
    }};
}

unsafe extern "C" fn alloc<D: Design<Host>>(
    hooks: *mut ExtentHooks,
    new_addr: *mut c_void,
    size: usize,
    alignment: usize,
    zero: *mut bool,
    commit: *mut bool,
    arena_ind: c_uint,
) -> *mut c_void {
    // SAFETY: jemalloc calls with the table that it was given.
    let this: &Hooks<D> = unsafe { of(hooks) };
    if new_addr.is_null() || this.heap.arena().contains(new_addr) {
        // SAFETY: jemalloc's variable, here and below.
        let found = this.alloc(new_addr, size, alignment, unsafe { &mut *zero });
        if !found.is_null() {
            // SAFETY: as above.
            unsafe { *commit = true };
            return found;
        }
        if !new_addr.is_null() {
            return null_mut();
        }
    }
    pass_on!(this, alloc, null_mut(), new_addr, size, alignment, zero, commit, arena_ind)
}

unsafe extern "C" fn dalloc<D: Design<Host>>(
    hooks: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    committed: bool,
    arena_ind: c_uint,
) -> bool {
    // SAFETY: as in `alloc`.
    let this: &Hooks<D> = unsafe { of(hooks) };
    match this.frames_of(addr, size) {
        Some((first, frames)) => this.release(first, frames).is_err(),
        None => pass_on!(this, dalloc, true, addr, size, committed, arena_ind),
    }
}

unsafe extern "C" fn destroy<D: Design<Host>>(
    hooks: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    committed: bool,
    arena_ind: c_uint,
) {
    // SAFETY: as in `alloc`.
    let this: &Hooks<D> = unsafe { of(hooks) };
    match this.frames_of(addr, size) {
        // Refused, it stays allocated: jemalloc does not ask for more here.
        Some((first, frames)) => drop(this.release(first, frames)),
        None => pass_on!(this, destroy, (), addr, size, committed, arena_ind),
    }
}

/// A hook for a part of an extent: `$answer` is whether it refuses, for the frames of the part.
macro_rules! part_hook {
    ($(#[$doc:meta])* $hook:ident, $answer:expr) => {
        $(#[$doc])*
        unsafe extern "C" fn $hook<D: Design<Host>>(
            hooks: *mut ExtentHooks,
            addr: *mut c_void,
            size: usize,
            offset: usize,
            length: usize,
            arena_ind: c_uint,
        ) -> bool {
            // SAFETY: as in `alloc`.
            let this: &Hooks<D> = unsafe { of(hooks) };
            let answer: fn(&FrameArena<D>, Pfn, FrameCount) -> bool = $answer;
            match this.frames_of(addr.wrapping_byte_add(offset), length) {
                Some((first, frames)) => answer(this.heap.arena(), first, frames),
                None => pass_on!(this, $hook, true, addr, size, offset, length, arena_ind),
            }
        }
    };
}

part_hook! {
    /// Memory of the arena is always committed: what [`decommit`] has taken reads as zero.
    commit, |_, _, _| false
}
part_hook!(decommit, |arena, first, frames| arena.discard(first, frames).is_err());
part_hook!(purge_lazy, |arena, first, frames| arena.discard_lazily(first, frames).is_err());
part_hook!(purge_forced, |arena, first, frames| arena.discard(first, frames).is_err());

/// Spans need no splitting: any part of one can be freed.
unsafe extern "C" fn split<D: Design<Host>>(
    hooks: *mut ExtentHooks,
    addr: *mut c_void,
    size: usize,
    size_a: usize,
    size_b: usize,
    committed: bool,
    arena_ind: c_uint,
) -> bool {
    // SAFETY: as in `alloc`.
    let this: &Hooks<D> = unsafe { of(hooks) };
    match this.frames_of(addr, size) {
        Some(_) => false,
        None => pass_on!(this, split, true, addr, size, size_a, size_b, committed, arena_ind),
    }
}

/// Neighbours can be freed together, as long as both are of the arena, and of one node.
unsafe extern "C" fn merge<D: Design<Host>>(
    hooks: *mut ExtentHooks,
    addr_a: *mut c_void,
    size_a: usize,
    addr_b: *mut c_void,
    size_b: usize,
    committed: bool,
    arena_ind: c_uint,
) -> bool {
    // SAFETY: as in `alloc`.
    let this: &Hooks<D> = unsafe { of(hooks) };
    match (this.frames_of(addr_a, size_a), this.frames_of(addr_b, size_b)) {
        (Some((a, _)), Some((b, _))) => !this.is_mergeable(a, b),
        (None, None) => {
            pass_on!(this, merge, true, addr_a, size_a, addr_b, size_b, committed, arena_ind)
        }
        _ => true,
    }
}
