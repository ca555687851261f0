//! The hooks, called as jemalloc calls them, against a map of the extents that it would have.
#![expect(unsafe_code, reason = "calls hooks as C does")]

use core::ffi::{c_uint, c_void};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::Release;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use freehold_host::{Arena, FrameCount, Numa};

use super::{ExtentHooks, Hooks};
use crate::{HeapSettings, PurgeAges};
use two_nodes::two_nodes;

#[path = "../../../../crates/freehold-host/tests/common/two_nodes.rs"]
mod two_nodes;

const PAGE: usize = 4096;
const MIB: usize = 1 << 20;

fn hooks(bytes: usize) -> &'static Hooks {
    let builder = Arena::builder().bytes(bytes).cpus(2).nodes(1).min_free(FrameCount::ZERO);
    Hooks::new(builder, HeapSettings::default()).unwrap().leak()
}

/// The table of some hooks, called with it.
struct Caller(NonNull<ExtentHooks>);

/// What a hook for allocation answers: the address, and whether it is zeroed.
type Extent = Option<(usize, bool)>;

impl Caller {
    fn table(&self) -> ExtentHooks {
        // SAFETY: the table of leaked hooks.
        unsafe { self.0.read() }
    }

    fn alloc(&self, at: usize, size: usize, align: usize, zero: bool) -> Extent {
        let (mut zeroed, mut committed) = (zero, false);
        let hook = self.table().alloc.unwrap();
        let at = at as *mut c_void;
        // SAFETY: as jemalloc calls it.
        let found =
            unsafe { hook(self.0.as_ptr(), at, size, align, &mut zeroed, &mut committed, 0) };
        if found.is_null() {
            assert_eq!((zeroed, committed), (zero, false), "a refusal changes nothing");
            return None;
        }
        assert!(committed && (!zero || zeroed));
        Some((found.addr(), zeroed))
    }

    fn dalloc(&self, at: usize, size: usize) -> bool {
        // SAFETY: as jemalloc calls it, as all that follow.
        unsafe { self.table().dalloc.unwrap()(self.0.as_ptr(), at as _, size, true, 0) }
    }

    fn part(&self, what: Part, at: usize, size: usize, offset: usize, length: usize) -> bool {
        let table = self.table();
        let hook = match what {
            Part::Commit => table.commit,
            Part::Decommit => table.decommit,
            Part::PurgeLazy => table.purge_lazy,
            Part::PurgeForced => table.purge_forced,
        };
        // SAFETY: as above.
        unsafe { hook.unwrap()(self.0.as_ptr(), at as _, size, offset, length, 0) }
    }

    fn split(&self, at: usize, a: usize, b: usize) -> bool {
        // SAFETY: as above.
        unsafe { self.table().split.unwrap()(self.0.as_ptr(), at as _, a + b, a, b, true, 0) }
    }

    fn merge(&self, a: usize, size_a: usize, b: usize, size_b: usize) -> bool {
        let hook = self.table().merge.unwrap();
        // SAFETY: as above.
        unsafe { hook(self.0.as_ptr(), a as _, size_a, b as _, size_b, true, 0) }
    }
}

/// The hooks for a part of an extent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Commit,
    Decommit,
    PurgeLazy,
    PurgeForced,
}

fn pages(at: usize, size: usize) -> impl Iterator<Item = *mut u8> {
    (at..at + size).step_by(PAGE).map(|page| page as *mut u8)
}

fn fill(at: usize, size: usize, stamp: u8) {
    for page in pages(at, size) {
        // SAFETY: an extent that this test alone has, here and below.
        unsafe { page.write(stamp) };
    }
}

fn all_are(at: usize, size: usize, wanted: impl Fn(u8) -> bool) -> bool {
    // SAFETY: as above.
    pages(at, size).all(|page| wanted(unsafe { page.read() }))
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn extents_keep_their_content_and_the_rules_of_each_hook() {
    for seed in 1..=10_u64 {
        let hooks = hooks(16 * MIB);
        let caller = Caller(hooks.table());
        let mut random = seed * 0x9e37_79b9_7f4a;
        // By address: size and stamp. Stamp 0: zero, or what was there.
        let mut extents = BTreeMap::<usize, (usize, u8)>::new();
        for step in 0..4000_u64 {
            let choice = next_random(&mut random);
            let stamp = 1 + (step % 255) as u8;
            let nth = (choice >> 40) as usize % extents.len().max(1);
            let picked = extents.iter().nth(nth).map(|(at, &(size, stamp))| (*at, size, stamp));
            match (choice % 12, picked) {
                (0..5, _) => {
                    let size =
                        PAGE * (1 + (choice >> 8) as usize % if step % 50 == 0 { 900 } else { 20 });
                    let align = PAGE << ((choice >> 20) % 12).saturating_sub(7);
                    let Some((at, zeroed)) = caller.alloc(0, size, align, choice >> 30 & 1 == 1)
                    else {
                        continue;
                    };
                    assert!(at.is_multiple_of(align) && hooks.heap().contains(at as *const u8));
                    assert!(!zeroed || all_are(at, size, |byte| byte == 0));
                    fill(at, size, stamp);
                    assert_eq!(extents.insert(at, (size, stamp)), None);
                }
                (5..7, Some((at, size, stamp))) => {
                    assert!(all_are(at, size, |byte| byte == stamp));
                    assert!(!caller.dalloc(at, size));
                    extents.remove(&at);
                }
                (7, Some((at, size, stamp))) if size > PAGE => {
                    let a = PAGE * (1 + (choice >> 8) as usize % (size / PAGE - 1));
                    assert!(!caller.split(at, a, size - a));
                    extents.insert(at, (a, stamp));
                    extents.insert(at + a, (size - a, stamp));
                }
                (8, Some((at, size, stamp))) => {
                    if let Some(&(next, _)) = extents.get(&(at + size)) {
                        assert!(!caller.merge(at, size, at + size, next));
                        fill(at + size, next, stamp);
                        extents.remove(&(at + size));
                        extents.insert(at, (size + next, stamp));
                    }
                }
                // In place, behind an extent.
                (9, Some((at, size, stamp))) => {
                    if let Some((found, zeroed)) = caller.alloc(at + size, PAGE * 3, PAGE, true) {
                        assert_eq!(found, at + size);
                        assert!(zeroed && all_are(found, PAGE * 3, |byte| byte == 0));
                        fill(found, PAGE * 3, stamp);
                        extents.insert(at, (size + PAGE * 3, stamp));
                    }
                }
                (10, Some((at, size, stamp))) => {
                    let offset = PAGE * ((choice >> 8) as usize % (size / PAGE));
                    let length = size - offset;
                    let what = [Part::Decommit, Part::PurgeLazy, Part::PurgeForced]
                        [(choice >> 30) as usize % 3];
                    assert!(!caller.part(what, at, size, offset, length));
                    let is_kept = |byte| byte == stamp && what == Part::PurgeLazy || byte == 0;
                    assert!(all_are(at + offset, length, is_kept));
                    assert!(!caller.part(Part::Commit, at, size, offset, length));
                    assert!(
                        what == Part::PurgeLazy || all_are(at + offset, length, |byte| byte == 0)
                    );
                    assert!(all_are(at, offset, |byte| byte == stamp));
                    fill(at, size, stamp);
                }
                _ => {
                    hooks.heap().purge(PurgeAges::ALL).unwrap();
                }
            }
        }
        for (at, (size, stamp)) in extents {
            assert!(all_are(at, size, |byte| byte == stamp));
            let destroy = caller.table().destroy.unwrap();
            // SAFETY: as jemalloc calls it.
            unsafe { destroy(caller.0.as_ptr(), at as _, size, true, 0) };
        }
        let census = hooks.heap().validate().unwrap();
        assert_eq!(census.allocated, FrameCount::ZERO, "seed {seed}");
    }
}

/// Hooks that jemalloc had before, which count their calls: one for each kind.
static CALLS: [AtomicUsize; 9] = [const { AtomicUsize::new(0) }; 9];

fn note(which: usize) {
    CALLS[which].fetch_add(1, Relaxed);
}

unsafe extern "C" fn alloc_before(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: *mut bool,
    _: *mut bool,
    _: c_uint,
) -> *mut c_void {
    note(0);
    null_mut()
}

unsafe extern "C" fn dalloc_before(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    note(1);
    false
}

unsafe extern "C" fn destroy_before(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) {
    note(2);
}

unsafe extern "C" fn part_before<const WHICH: usize>(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: c_uint,
) -> bool {
    note(WHICH);
    false
}

unsafe extern "C" fn split_before(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: usize,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    note(7);
    false
}

unsafe extern "C" fn merge_before(
    _: *mut ExtentHooks,
    _: *mut c_void,
    _: usize,
    _: *mut c_void,
    _: usize,
    _: bool,
    _: c_uint,
) -> bool {
    note(8);
    false
}

/// Extents of before are passed on, as is an allocation for which there is no room; without such
/// hooks, both are refused. An extent of before is never merged with one of the arena.
#[test]
fn what_is_not_in_the_arena_is_passed_on() {
    let hooks = hooks(4 * MIB);
    let caller = Caller(hooks.table());
    let foreign = 0x10_0000;
    let call_all = || {
        let destroy = caller.table().destroy.unwrap();
        // SAFETY: the hooks of before touch nothing.
        unsafe { destroy(caller.0.as_ptr(), foreign as _, PAGE, true, 0) };
        let answers = [
            caller.dalloc(foreign, PAGE),
            caller.part(Part::Commit, foreign, PAGE, 0, PAGE),
            caller.part(Part::Decommit, foreign, PAGE, 0, PAGE),
            caller.part(Part::PurgeLazy, foreign, PAGE, 0, PAGE),
            caller.part(Part::PurgeForced, foreign, PAGE, 0, PAGE),
            caller.split(foreign, PAGE, PAGE),
            caller.merge(foreign, PAGE, foreign + PAGE, PAGE),
        ];
        assert_eq!(caller.alloc(foreign, PAGE, PAGE, false), None);
        assert_eq!(caller.alloc(0, 64 * MIB, PAGE, false), None);
        answers
    };
    assert_eq!(call_all(), [true; 7], "no hooks, no answer but a refusal");
    let before = Box::leak(Box::new(ExtentHooks {
        alloc: Some(alloc_before),
        dalloc: Some(dalloc_before),
        destroy: Some(destroy_before),
        commit: Some(part_before::<3>),
        decommit: Some(part_before::<4>),
        purge_lazy: Some(part_before::<5>),
        purge_forced: Some(part_before::<6>),
        split: Some(split_before),
        merge: Some(merge_before),
    }));
    hooks.before.store(before, Release);
    assert_eq!(call_all(), [false; 7]);
    let counts = CALLS.each_ref().map(|count| count.load(Relaxed));
    assert_eq!(counts, [2, 1, 1, 1, 1, 1, 1, 1, 1]);
    let (ours, _) = caller.alloc(0, PAGE, PAGE, false).unwrap();
    assert!(caller.merge(foreign, PAGE, ours, PAGE) && caller.merge(ours, PAGE, foreign, PAGE));
    // What lies behind an extent of the arena is not asked of others.
    caller.alloc(0, PAGE, PAGE, false).unwrap();
    assert_eq!(caller.alloc(ours, PAGE, PAGE, false), None);
    assert_eq!(CALLS[0].load(Relaxed), 2);
}

/// Extents of two nodes are not merged: a span is freed as a whole, which is for one node's frames.
#[test]
fn extents_of_two_nodes_stay_apart() {
    let builder = Arena::builder().bytes(16 * MIB).topology(two_nodes());
    let arena = builder.numa(Numa::Machine).min_free(FrameCount::ZERO);
    let hooks = Hooks::new(arena, HeapSettings::default()).unwrap().leak();
    let caller = Caller(hooks.table());
    let arena = hooks.heap.arena();
    let [first, second] = arena.ranges()[..] else { panic!("{:?}", arena.ranges()) };
    assert_eq!(first.start + first.frames, second.start, "neighbours");
    let border = arena.address_of(second.start).addr().get();
    for at in [border - 2 * PAGE, border - PAGE, border, border + PAGE] {
        assert!(caller.alloc(at, PAGE, PAGE, false).is_some(), "{at:#x}");
    }
    assert!(!caller.merge(border - 2 * PAGE, PAGE, border - PAGE, PAGE));
    assert!(caller.merge(border - PAGE, PAGE, border, PAGE));
    assert!(!caller.merge(border, PAGE, border + PAGE, PAGE));
    assert!(!caller.dalloc(border - 2 * PAGE, 2 * PAGE) && !caller.dalloc(border, 2 * PAGE));
    arena.allocator().validate().unwrap();
}
