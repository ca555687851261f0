//! The mimalloc of `libmimalloc-sys` in an arena that it manages.
#![expect(unsafe_code, reason = "calls mimalloc")]

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use draws::draws;
use freehold_host::{Arena, FrameCount, FrameSize, HostError};
use freehold_malloc::mimalloc::{ManageError, Managed, Mimalloc};
use freehold_malloc::{HeapSettings, PurgeAges};
use libmimalloc_sys as sys;

#[path = "common/draws.rs"]
mod draws;

const MIB: usize = 1 << 20;

/// Frames that went to the machine while threads were at work.
static PURGED: AtomicU64 = AtomicU64::new(0);

/// An arena that begins with 4 MiB.
fn managed(bytes: usize) -> &'static Managed {
    let arena = Arena::builder().bytes(4 * MIB).capacity_bytes(bytes).cpus(2).nodes(1);
    let arena = arena.min_free(FrameCount::ZERO).map_as_it_grows(true);
    Managed::new(arena, HeapSettings::default()).unwrap().leak()
}

/// One test, since the process has one mimalloc.
#[test]
fn mimalloc_lives_in_the_arena_and_gives_it_back() {
    // SAFETY: sets the option of this number, before any other call.
    unsafe { sys::mi_option_set(40, 1) };
    let managed = managed(4096 * MIB);
    assert_eq!(managed.manage(&Mimalloc::SYS), Err(ManageError::CommitsOnDemand));
    // SAFETY: as above.
    unsafe { sys::mi_option_set(40, 0) };
    let small = self::managed(4 * MIB);
    assert!(matches!(small.manage(&Mimalloc::SYS), Err(ManageError::Refused { .. })));
    assert_eq!(small.manage(&Mimalloc::SYS), Err(ManageError::Again), "it may have a part");
    managed.manage(&Mimalloc::SYS).unwrap();
    assert_eq!(managed.manage(&Mimalloc::SYS), Err(ManageError::Again));
    thread::scope(|scope| {
        for seed in 1..=6_usize {
            scope.spawn(move || churn(managed, seed));
        }
    });
    // SAFETY: frees what nothing uses, of this thread and of those that ended.
    unsafe { sys::mi_collect(true) };
    let heap = managed.heap();
    let census = heap.validate().unwrap();
    assert!(census.allocated.get() < 64 << 8, "{census:?}: 64 MiB are mimalloc's");
    let purged = heap.purge(PurgeAges::ALL).unwrap().frames.get() + PURGED.load(Relaxed);
    assert!(purged > 1000, "{purged} frames");
    churn(managed, 7);
    let has_mib = || heap.total_frames().get() >> 8;
    assert!(has_mib() < 512, "{} MiB for what is used", has_mib());
    // More than it was given at first: it is given more. Nothing touches it.
    for nth in 0..80 {
        // SAFETY: stays allocated.
        let block = unsafe { sys::mi_malloc(20 * MIB) };
        assert!(heap.contains(block), "block {nth}");
    }
    assert!(has_mib() > 1600, "{} MiB", has_mib());
}

/// A slice of mimalloc's is never a part of a frame, of which the rest is in use.
#[test]
fn frames_are_no_larger_than_what_mimalloc_decommits() {
    let of = |kib: usize| {
        let size = FrameSize::new(kib << 10).unwrap();
        let arena = Arena::builder().bytes(256 * MIB).cpus(2).nodes(1).frame_size(size);
        Managed::new(arena, HeapSettings::default()).map(drop)
    };
    of(64).unwrap();
    let error = of(128).unwrap_err();
    assert!(matches!(error, HostError::BadSetting { setting: "frame_size", .. }), "{error}");
}

/// Blocks of many sizes, zeroed and not, all of them in the arena.
fn churn(managed: &Managed, seed: usize) {
    let mut blocks: Vec<(*mut u8, usize, u8)> = Vec::new();
    let draws = draws(seed, 2 * MIB).take(20_000);
    for (step, (random, size)) in draws.enumerate() {
        let stamp = (step % 251) as u8;
        if blocks.len() < 30 {
            // SAFETY: sizes that are not 0.
            let memory = unsafe { sys::mi_calloc(1, size) }.cast::<u8>();
            assert!(managed.heap().contains(memory), "{size} bytes at {memory:?}");
            // SAFETY: it is that long.
            let content = unsafe { std::slice::from_raw_parts_mut(memory, size) };
            assert!(content.iter().all(|byte| *byte == 0), "{size} bytes at {memory:?}");
            content.fill(stamp);
            blocks.push((memory, size, stamp));
            continue;
        }
        let (memory, size, mark) = blocks.swap_remove(random / 64 % 30);
        // SAFETY: a block of this thread, of that size.
        let content = unsafe { std::slice::from_raw_parts(memory, size) };
        assert_eq!((content[0], content[size - 1]), (mark, mark));
        // SAFETY: a block of this thread, which forgets it.
        unsafe { sys::mi_free(memory.cast()) };
        if step % 500 == 0 {
            // SAFETY: any thread may have unused memory returned.
            unsafe { sys::mi_collect(true) };
            let purged = managed.heap().purge(PurgeAges { whole: 0, part: Some(1) }).unwrap();
            PURGED.fetch_add(purged.frames.get(), Relaxed);
        }
    }
    for (memory, ..) in blocks {
        // SAFETY: as above.
        unsafe { sys::mi_free(memory.cast()) };
    }
}
