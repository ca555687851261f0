//! Explicit leases.
//!
//! A lease in Rust borrows its allocator. A handle in C cannot, so it keeps the arena alive, and
//! the lease itself parked between calls.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::Arc;

use freehold::designs::{Lease, ParkedLease};
use freehold::platform::Platform;
use freehold::{CpuId, Error, Request};
use freehold_host::Host;

use crate::error::Result;
use crate::error::freehold_error::*;
use crate::freehold_arena;

/// Caches for the calls of one thread, which uses them without a locked step. Other calls take them
/// back if they need what the caches hold; calls through the lease then do what those of the arena
/// do, until freehold_lease_renew.
#[expect(non_camel_case_types, reason = "its name in C")]
pub struct freehold_lease {
    arena: Arc<freehold_arena>,
    /// Absent while in use, so that a signal handler that interrupts a call finds none.
    parked: Cell<Option<ParkedLease>>,
    owner: usize,
}

thread_local! {
    static MARK: u8 = const { 0 };
}

/// A number that no other thread has that runs.
#[inline]
fn this_thread() -> usize {
    MARK.with(|mark| std::ptr::from_ref(mark).addr())
}

impl freehold_lease {
    /// Leases the first caches that no other lease has, from those of the CPU that runs the caller
    /// on.
    pub(crate) fn begin(arena: Arc<freehold_arena>) -> Result<Self> {
        let allocator = arena.frames.allocator();
        let here = allocator.platform().cpu().get() % arena.cpus;
        let begun = (here..arena.cpus).chain(0..here).find_map(|cpu| {
            match allocator.lease(CpuId::new(cpu)).map(Lease::park) {
                Err(Error::Leased) => None,
                begun => Some(begun),
            }
        });
        let parked = Cell::new(Some(begun.unwrap_or(Err(Error::Leased))?));
        Ok(freehold_lease { arena, parked, owner: this_thread() })
    }

    fn check_owner(&self) -> Result<()> {
        if self.owner == this_thread() { Ok(()) } else { Err(FREEHOLD_ETHREAD) }
    }

    /// Calls `with` with the lease; with `None` if a call that this one has interrupted uses it.
    #[inline]
    fn with<T>(&self, with: impl FnOnce(Option<&mut Lease<'_, Host>>) -> T) -> T {
        let parked = self.parked.take();
        let mut lease = parked.and_then(|parked| self.arena.frames.allocator().resume(parked).ok());
        let result = with(lease.as_mut());
        if let Some(lease) = lease {
            self.parked.set(Some(lease.park()));
        }
        result
    }

    #[inline]
    pub(crate) fn alloc(&self, request: Request) -> Result<*mut c_void> {
        self.check_owner()?;
        let pfn = self.with(|lease| match lease {
            Some(lease) => lease.alloc(request),
            None => self.arena.frames.allocator().alloc(request),
        })?;
        Ok(self.arena.give(pfn, request.order()))
    }

    #[inline]
    pub(crate) fn free(&self, address: *const c_void) -> Result<()> {
        self.check_owner()?;
        self.arena.free_by(address, |pfn, order| {
            self.with(|lease| match lease {
                Some(lease) => lease.free(pfn, order),
                None => self.arena.frames.allocator().free(pfn, order),
            })
        })
    }

    pub(crate) fn renew(&self) -> Result<()> {
        self.check_owner()?;
        self.with(|lease| lease.map(|lease| lease.renew()));
        Ok(())
    }
}

impl Drop for freehold_lease {
    fn drop(&mut self) {
        if let Some(parked) = self.parked.take() {
            drop(self.arena.frames.allocator().resume(parked));
        }
    }
}
