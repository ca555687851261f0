//! The table of hooks, as jemalloc lays it out.

use core::ffi::{c_uint, c_void};

/// Allocates an extent: `(hooks, new_addr, size, alignment, zero, commit, arena_ind)`.
pub(crate) type Alloc = unsafe extern "C" fn(
    *mut ExtentHooks,
    *mut c_void,
    usize,
    usize,
    *mut bool,
    *mut bool,
    c_uint,
) -> *mut c_void;
/// Deallocates one: `(hooks, addr, size, committed, arena_ind)`. As for all that follow, `true` is
/// a refusal.
pub(crate) type Dalloc =
    unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, bool, c_uint) -> bool;
/// Deallocates one for good: `(hooks, addr, size, committed, arena_ind)`.
pub(crate) type Destroy = unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, bool, c_uint);
/// Commits, decommits or purges a part: `(hooks, addr, size, offset, length, arena_ind)`.
pub(crate) type Part =
    unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, usize, c_uint) -> bool;
/// Splits one: `(hooks, addr, size, size_a, size_b, committed, arena_ind)`.
pub(crate) type Split =
    unsafe extern "C" fn(*mut ExtentHooks, *mut c_void, usize, usize, usize, bool, c_uint) -> bool;
/// Merges two: `(hooks, addr_a, size_a, addr_b, size_b, committed, arena_ind)`.
pub(crate) type Merge = unsafe extern "C" fn(
    *mut ExtentHooks,
    *mut c_void,
    usize,
    *mut c_void,
    usize,
    bool,
    c_uint,
) -> bool;

/// jemalloc's `extent_hooks_t`, the same since jemalloc 5.0. All but `alloc` may be missing, which
/// is as if they refused. Source: jemalloc(3), `arena.<i>.extent_hooks`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct ExtentHooks {
    pub(crate) alloc: Option<Alloc>,
    pub(crate) dalloc: Option<Dalloc>,
    pub(crate) destroy: Option<Destroy>,
    pub(crate) commit: Option<Part>,
    pub(crate) decommit: Option<Part>,
    pub(crate) purge_lazy: Option<Part>,
    pub(crate) purge_forced: Option<Part>,
    pub(crate) split: Option<Split>,
    pub(crate) merge: Option<Merge>,
}
