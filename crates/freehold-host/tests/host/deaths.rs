//! Threads that panic, forget their leases, or are cancelled.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use freehold::{CpuId, Error, FrameCount, Migrate, MigrateError, Order, Pfn, Request};
use freehold_host::{Arena, FrameArena};

use crate::calls::take_all;

const MIB: usize = 1 << 20;

fn arena() -> FrameArena {
    Arena::builder().bytes(16 * MIB).cpus(2).nodes(1).build_frames().expect("16 MiB")
}

/// Runs a thread that panics.
fn panic_in(act: impl FnOnce() + Send) {
    let ended = thread::scope(|scope| {
        let act = || {
            let panicked = catch_unwind(AssertUnwindSafe(act));
            assert!(panicked.is_err());
        };
        scope.spawn(act).join()
    });
    ended.expect("caught");
}

#[test]
fn a_panic_ends_leases_and_releases_what_they_hold() {
    let arena = arena();
    let frames = arena.allocator();
    for cpu in [0, 1].map(CpuId::new) {
        panic_in(|| {
            let Ok(lease) = frames.lease(cpu) else { panic!("no barrier") };
            let pfn = lease.alloc(Request::default()).expect("memory is free");
            lease.free(pfn, Order::ZERO).expect("it is ours");
            panic!("on purpose");
        });
        assert_ne!(frames.lease(cpu).err(), Some(Error::Leased), "it has ended");
    }
    assert_eq!(take_all(&arena).len(), 4096);
}

#[test]
fn a_lease_that_is_forgotten_can_be_revoked_and_taken_over() {
    let arena = arena();
    let (frames, cpu) = (arena.allocator(), CpuId::new(0));
    let leased = thread::scope(|scope| {
        let forgets = scope.spawn(|| {
            let Ok(lease) = frames.lease(cpu) else { return false };
            let pfn = lease.alloc(Request::default()).expect("memory is free");
            lease.free(pfn, Order::ZERO).expect("it is ours");
            forget(lease);
            true
        });
        forgets.join().expect("it is well")
    });
    if !leased {
        return;
    }
    assert_eq!(frames.lease(cpu).err(), Some(Error::Leased));
    // It is revoked, with all that its caches hold.
    let all = take_all(&arena);
    assert_eq!(all.len(), 4096);
    all.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).expect("it is ours"));
    frames.drain_all();
    frames.validate().expect("the accounting is right");
    // Its owner can be replaced.
    let parked = frames.inherit_lease(cpu).expect("it was revoked");
    let Ok(mut lease) = frames.resume(parked) else { panic!("it is of this allocator") };
    lease.renew();
    drop(lease);
    frames.lease(cpu).expect("it is free");
}

/// An owner that panics when it is asked.
struct Panics;

impl Migrate for Panics {
    fn migrate(&self, _from: Pfn, _to: Pfn, _order: Order) -> Result<(), MigrateError> {
        panic!("on purpose")
    }
}

#[test]
fn a_panic_of_an_owner_in_the_middle_of_a_call_loses_nothing() {
    let arena = arena();
    let frames = arena.allocator();
    let used: Vec<_> = take_all(&arena).into_iter().filter(|pfn| pfn.get() % 2 == 0).collect();
    let free = (0..4096).map(Pfn::new).filter(|pfn| pfn.get() % 2 == 1);
    free.for_each(|pfn| frames.free(pfn, Order::ZERO).expect("it is ours"));
    panic_in(|| _ = frames.compact(&Panics));
    let range = freehold::RangeRequest::new(FrameCount::new(1024));
    panic_in(|| _ = frames.alloc_range(range, &Panics));
    used.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).expect("it is ours"));
    frames.drain_all();
    let census = frames.validate().expect("the accounting is right");
    assert_eq!((census.allocated, census.isolated), (FrameCount::ZERO, FrameCount::ZERO));
}

type Start = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

unsafe extern "C-unwind" {
    /// Ends the thread here, by unwinding, if it has been cancelled.
    fn pthread_testcancel();
}

/// What a thread of the test below does until it is cancelled.
extern "C-unwind" fn call_until_cancelled(arena: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: The test joins the thread before it drops the arena.
    let arena = unsafe { &*arena.cast::<FrameArena>() };
    loop {
        for _ in 0..50 {
            let pfn = arena.alloc(Request::default()).expect("memory is free");
            arena.free(pfn, Order::ZERO).expect("it is ours");
            arena.allocator().drain_all();
        }
        // SAFETY: Nothing on this stack has a destructor, so it may be unwound from here.
        unsafe { pthread_testcancel() };
    }
}

/// Cancellation acts at cancellation points, and no call of an arena has one. So a thread is
/// cancelled between two calls, and what it held then stays allocated.
#[test]
fn a_thread_is_not_cancelled_in_the_middle_of_a_call() {
    let arena = arena();
    let go_on = AtomicBool::new(true);
    // SAFETY: The two types differ in whether a caller in Rust may see it unwind, and it has none.
    let start: Start = unsafe { std::mem::transmute(call_until_cancelled as *const ()) };
    thread::scope(|scope| {
        scope.spawn(|| {
            while go_on.load(Relaxed) {
                let pfn = arena.alloc(Request::default()).expect("memory is free");
                arena.free(pfn, Order::ZERO).expect("it is ours");
            }
        });
        for round in 0..20 {
            let mut thread = 0;
            let context = std::ptr::from_ref(&arena).cast_mut().cast();
            // SAFETY: The arena outlives the thread, which is joined below.
            let begun =
                unsafe { libc::pthread_create(&mut thread, std::ptr::null(), start, context) };
            assert_eq!(begun, 0);
            thread::sleep(Duration::from_micros(300 * round));
            // SAFETY: The thread has not been joined yet.
            assert_eq!(unsafe { libc::pthread_cancel(thread) }, 0);
            // SAFETY: As above; the result is not needed.
            assert_eq!(unsafe { libc::pthread_join(thread, std::ptr::null_mut()) }, 0);
        }
        go_on.store(false, Relaxed);
    });
    arena.allocator().drain_all();
    let census = arena.allocator().validate().expect("the accounting is right");
    assert_eq!(census.free, census.managed, "nothing is lost, and no lock is held");
}
