//! Leases that threads get automatically: of any number of arenas, which end before or after the
//! threads, and never at the expense of others.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;

use freehold::{Order, Pfn, Request};
use freehold_host::{Arena, ArenaBuilder, FrameArena, Host, HostError, Leases};
use freehold_linux::ZoneLock;

use crate::calls::{MANY, call, call_often, request, take_all};

const MIB: usize = 1 << 20;

/// An arena of two CPUs, and so with two leases.
fn builder(bytes: usize) -> ArenaBuilder {
    Arena::builder().bytes(bytes).cpus(2).nodes(1).leases(Leases::Auto)
}

/// The same; `None` on a machine without `membarrier(2)`.
fn frames(bytes: usize) -> Option<FrameArena> {
    let frames = builder(bytes).build_frames().unwrap();
    (frames.leases() == Leases::Auto).then_some(frames)
}

fn all_free(frames: &FrameArena) -> bool {
    frames.allocator().drain_all();
    let census = frames.allocator().validate().unwrap();
    census.free == frames.total_frames()
}

#[test]
fn many_calls_get_a_lease_and_a_drain_takes_it_back() {
    let Some(frames) = frames(16 * MIB) else { return };
    call(&frames);
    assert_eq!(frames.spare_leases(), 2, "few calls get none");
    call_often(&frames);
    assert_eq!(frames.spare_leases(), 1);
    frames.allocator().drain_all();
    call(&frames);
    assert_eq!(frames.spare_leases(), 2, "the thread has noticed");
    call_often(&frames);
    assert_eq!(frames.spare_leases(), 1, "it gets another one");
    assert!(all_free(&frames));
}

#[test]
fn what_an_idle_thread_caches_is_there_for_all() {
    let Some(frames) = frames(16 * MIB) else { return };
    let frames = &frames;
    thread::scope(|scope| {
        let ((to_thread, from_test), (to_test, from_thread)) = (channel(), channel());
        scope.spawn(move || {
            call_often(frames);
            to_test.send(()).unwrap();
            let () = from_test.recv().unwrap();
            // Nothing is left for it, until the others free what they have.
            assert!(frames.alloc(request()).is_err());
            to_test.send(()).unwrap();
            let () = from_test.recv().unwrap();
            call_often(frames);
        });
        from_thread.recv().unwrap();
        assert_eq!(frames.spare_leases(), 1, "it has a lease");
        let kept = frames.allocator().zones().next().unwrap().per_cpu.get();
        assert!(kept > 500, "and keeps {kept} frames");
        let all = take_all(frames);
        assert_eq!(all.len() as u64, frames.total_frames().get(), "nothing is held back");
        to_thread.send(()).unwrap();
        from_thread.recv().unwrap();
        all.into_iter().for_each(|pfn| frames.free(pfn, Order::ZERO).unwrap());
        to_thread.send(()).unwrap();
    });
    assert!(all_free(frames));
}

#[test]
fn a_child_process_takes_back_what_threads_have_that_it_lacks() {
    let Some(frames) = frames(16 * MIB) else { return };
    let frames = &frames;
    let total = frames.total_frames().get();
    thread::scope(|scope| {
        let ((to_thread, from_test), (to_test, from_thread)) = (channel(), channel());
        scope.spawn(move || {
            call_often(frames);
            to_test.send(()).unwrap();
            let () = from_test.recv().unwrap();
            assert_eq!(frames.spare_leases(), 1, "the parent has lost nothing");
        });
        from_thread.recv().unwrap();
        // SAFETY: the child calls the allocator, which takes no lock that a thread of the parent
        // may hold: they all wait. Then it ends without any destructor.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let taken = (0..=total).take_while(|_| frames.alloc(request()).is_ok()).count() as u64;
            // SAFETY: as above.
            unsafe { libc::_exit(if taken == total { 0 } else { 1 }) };
        }
        let mut status = -1;
        // SAFETY: the status is writable, and nothing else waits for this child.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0), "the child got all frames");
        to_thread.send(()).unwrap();
    });
    assert_eq!(take_all(frames).len() as u64, total);
}

#[test]
fn a_thread_that_ends_leaves_its_lease_to_the_next() {
    let Some(frames) = frames(16 * MIB) else { return };
    for _ in 0..50 {
        let (begun, counted) = (Barrier::new(3), Barrier::new(3));
        thread::scope(|scope| {
            let threads = [(); 2].map(|()| {
                scope.spawn(|| {
                    // A thread that finds the pool locked goes on without a lease, and asks later.
                    for _ in 0..100 {
                        call_often(&frames);
                        if frames.spare_leases() == 0 {
                            break;
                        }
                    }
                    begun.wait();
                    counted.wait();
                })
            });
            begun.wait();
            let spare = frames.spare_leases();
            // Before the check: the threads would wait for ever.
            counted.wait();
            assert_eq!(spare, 0, "each has one");
            // The end of a thread's closure, which a scope waits for, comes before its
            // destructors.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(frames.spare_leases(), 2, "both are back");
    }
    assert!(all_free(&frames));
}

#[test]
fn more_threads_than_leases() {
    let Some(frames) = frames(16 * MIB) else { return };
    let owners: Vec<_> = (0..frames.total_frames().get()).map(|_| AtomicU8::new(0)).collect();
    let change = |pfn: Pfn, order: Order, from, to| {
        for owner in &owners[pfn.get() as usize..][..1 << order.get()] {
            assert_eq!(owner.swap(to, SeqCst), from, "{pfn} has changed hands");
        }
    };
    thread::scope(|scope| {
        for thread in 1..=6_usize {
            let (frames, change) = (&frames, &change);
            scope.spawn(move || {
                let mut own = Vec::new();
                for round in 0..60_000 {
                    let order = Order::new((round % 11 == 0) as u8 * 2);
                    // Together they want more than there is.
                    if let Ok(pfn) = frames.alloc(Request::new(order)) {
                        change(pfn, order, 0, thread as u8);
                        own.push((pfn, order));
                    }
                    if own.len() > 600 || round % 3 == 0 && !own.is_empty() {
                        let (pfn, order) = own.swap_remove(round * thread % own.len());
                        change(pfn, order, thread as u8, 0);
                        frames.free(pfn, order).unwrap();
                    }
                    if round % 10_000 == 5000 {
                        frames.allocator().drain_all();
                    }
                }
                for (pfn, order) in own {
                    change(pfn, order, thread as u8, 0);
                    frames.free(pfn, order).unwrap();
                }
            });
        }
    });
    assert!(all_free(&frames));
}

#[test]
fn an_arena_may_end_before_its_threads() {
    let (to_thread, arenas) = channel::<Arc<FrameArena>>();
    let (to_test, done) = channel();
    let thread = thread::spawn(move || {
        for arena in arenas {
            call_often(&arena);
            drop(arena);
            to_test.send(()).unwrap();
        }
    });
    // The second one may be mapped where the first one was.
    for _ in 0..5 {
        let Some(arena) = frames(16 * MIB).map(Arc::new) else { return };
        assert_eq!(arena.spare_leases(), 2);
        to_thread.send(Arc::clone(&arena)).unwrap();
        done.recv().unwrap();
        assert_eq!(arena.spare_leases(), 1);
        let arena = Arc::into_inner(arena).expect("the thread has dropped its own");
        assert!(all_free(&arena));
    }
    drop(to_thread);
    thread.join().unwrap();
}

#[test]
fn one_thread_has_several_arenas() {
    let (Some(first), Some(second)) = (frames(16 * MIB), frames(16 * MIB)) else { return };
    let spare = || (first.spare_leases(), second.spare_leases());
    call_often(&first);
    assert_eq!(spare(), (1, 2));
    call_often(&second);
    assert_eq!(spare(), (2, 1), "one lease at a time");
    for _ in 0..MANY {
        let held = [&first, &second].map(|frames| frames.alloc(Request::default()).unwrap());
        first.free(held[0], Order::ZERO).unwrap();
        second.free(held[1], Order::ZERO).unwrap();
        assert!(spare().0 + spare().1 >= 3);
    }
    assert!(all_free(&first) && all_free(&second));
}

thread_local! {
    static AT_THE_END: RefCell<Option<Last>> = const { RefCell::new(None) };
}

/// Calls an arena while its thread ends.
struct Last(Arc<FrameArena>);

impl Drop for Last {
    fn drop(&mut self) {
        call_often(&self.0);
    }
}

#[test]
fn a_thread_may_call_while_it_ends() {
    let Some(frames) = frames(16 * MIB).map(Arc::new) else { return };
    for with_lease in [false, true] {
        for last_first in [false, true] {
            let frames = Arc::clone(&frames);
            let thread = thread::spawn(move || {
                let set = || AT_THE_END.set(Some(Last(Arc::clone(&frames))));
                if last_first {
                    set();
                }
                if with_lease {
                    call_often(&frames);
                }
                if !last_first {
                    set();
                }
            });
            thread.join().unwrap();
        }
    }
    assert_eq!(frames.spare_leases(), 2, "none is lost");
    assert!(all_free(&frames));
}

#[test]
fn owned_pages_use_the_lease_as_well() {
    let arena = builder(16 * MIB).build().unwrap();
    let mut pages: Vec<_> = (0..MANY)
        .filter_map(|nth| {
            let mut page = arena.allocate_with(request()).ok()?;
            page[0] = nth as u8;
            Some(page)
        })
        .collect();
    assert_eq!(pages.len(), 4096);
    assert!(pages.iter().enumerate().all(|(nth, page)| page[0] == nth as u8));
    pages.truncate(1000);
    pages.extend((1000..4096).map(|_| arena.allocate_with(request()).unwrap()));
    assert!(arena.allocate_with(request()).is_err());
    drop(pages);
    arena.purge().unwrap();
    arena.drain();
    let census = arena.validate().unwrap();
    assert_eq!(census.free, census.managed);
}

#[test]
fn leases_are_off_unless_wished_for() {
    let frames = Arena::builder().bytes(16 * MIB).build_frames().unwrap();
    assert_eq!((frames.leases(), frames.spare_leases()), (Leases::Off, 0));
    let refused = ArenaBuilder::<ZoneLock<Host>>::new().bytes(MIB).leases(Leases::Auto).build();
    let refused = refused.expect_err("that design has none").to_string();
    assert_eq!(refused, "leases: the design zone-lock has none: choose `off`");
    for leases in [Leases::Off, Leases::Auto] {
        assert_eq!(leases.to_string().parse::<Leases>().unwrap(), leases);
    }
    let unknown: Result<Leases, HostError> = "on".parse();
    assert_eq!(unknown.unwrap_err().to_string(), "leases: \"on\" is neither `auto` nor `off`");
}
