//! The jemalloc of `tikv-jemalloc-sys` on an arena: what it allocates lies there, and goes back.
#![expect(unsafe_code, reason = "calls jemalloc")]

use core::ffi::{c_uint, c_void};
use core::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use draws::draws;
use freehold_host::{Arena, FrameCount};
use freehold_malloc::jemalloc::{ExtentHooks, Hooks, Jemalloc, LARGE_BYTES};
use freehold_malloc::{HeapSettings, PurgeAges};
use tikv_jemalloc_sys as sys;

#[path = "common/draws.rs"]
mod draws;

freehold_malloc::malloc_conf!("narenas:4,muzzy_decay_ms:5");

const MIB: usize = 1 << 20;

/// Frames that went to the machine while threads were at work.
static PURGED: AtomicU64 = AtomicU64::new(0);

/// `MALLOCX_ARENA` and `MALLOCX_TCACHE_NONE` of jemalloc.h.
const fn flags(arena: c_uint) -> i32 {
    ((arena + 1) << 20) as i32 | 1 << 8
}

fn control<T: Copy>(name: &str, old: Option<&mut T>, new: Option<T>) {
    let name = std::ffi::CString::new(name).unwrap();
    let mut len = size_of::<T>();
    let (old, len) = old.map_or((null_mut(), null_mut()), |old| (old as *mut T as _, &raw mut len));
    let mut new = new;
    let (new, new_len) =
        new.as_mut().map_or((null_mut(), 0), |new| (new as *mut T as _, size_of::<T>()));
    // SAFETY: the callers name types as jemalloc documents them.
    let errno = unsafe { sys::mallctl(name.as_ptr(), old, len, new, new_len) };
    assert_eq!(errno, 0, "{name:?}");
}

fn call(name: &str) {
    control::<u8>(name, None, None);
}

/// One test, since the process has one jemalloc.
#[test]
fn jemalloc_lives_in_the_arena_and_gives_it_back() {
    let arena = Arena::builder().bytes(64 * MIB).capacity_bytes(512 * MIB).cpus(2).nodes(1);
    let arena = arena.min_free(FrameCount::ZERO);
    let hooks = Hooks::new(arena, HeapSettings::default()).unwrap().leak();
    let heap = hooks.heap();
    let on_used = hooks.install_on_used(&Jemalloc::TIKV, false).unwrap();
    let for_large = hooks.install_on_used(&Jemalloc::TIKV, true).unwrap();
    assert!(on_used < 5 && for_large == on_used + 1, "{on_used} and {for_large}");
    // SAFETY: stays allocated.
    let large = unsafe { sys::malloc(LARGE_BYTES) };
    assert!(heap.contains(large), "the one for large blocks has the hooks");
    assert_eq!(hooks.install(&Jemalloc::TIKV), Ok(5), "four, and the one for large allocations");
    assert_eq!(hooks.install(&Jemalloc::TIKV), Ok(5), "again");
    Jemalloc::TIKV.set_dirty_decay(Duration::from_millis(10)).unwrap();

    thread::scope(|scope| {
        for seed in 1..=6_usize {
            scope.spawn(move || churn(hooks, seed));
        }
    });

    // An arena of the program's own: destroyed, it leaves nothing behind.
    call("thread.tcache.flush");
    Jemalloc::TIKV.purge().unwrap();
    let used_before = used(hooks);
    let mut own: c_uint = 0;
    let table: *mut ExtentHooks = hooks.table().as_ptr();
    let mut len = size_of::<c_uint>();
    // SAFETY: documented: reads an `unsigned`, writes a pointer to hooks.
    let errno = unsafe {
        let table = (&raw const table).cast_mut().cast();
        sys::mallctl(
            c"arenas.create".as_ptr(),
            (&raw mut own).cast(),
            &mut len,
            table,
            size_of_val(&table),
        )
    };
    assert_eq!(errno, 0);
    for size in [1, 100, 5000, 70_000, 3 * MIB, 40 * MIB] {
        // SAFETY: a size, and flags of an arena that exists; zeroed, so it must be.
        let memory = unsafe { sys::mallocx(size, flags(own) | 0x40) }.cast::<u8>();
        assert!(heap.contains(memory), "{size} bytes");
        // SAFETY: it is that long.
        let content = unsafe { std::slice::from_raw_parts_mut(memory, size) };
        assert!(content.iter().all(|byte| *byte == 0), "{size} bytes");
        content.fill(0xaa);
        assert!(used(hooks) >= size as u64 / 4096, "{size} bytes");
        if size % 2 == 0 {
            // SAFETY: allocated above.
            unsafe { sys::dallocx(memory.cast(), flags(own)) };
        }
    }
    // What is not written takes no memory, though it was written before.
    let mut pages = vec![0_u8; 39 * MIB / 4096];
    // SAFETY: as above; and a byte for each page. Blocks begin anywhere in a page.
    let told = unsafe {
        let memory = sys::mallocx(40 * MIB, flags(own) | 0x40);
        libc::mincore(memory.map_addr(|at| at.next_multiple_of(4096)), 39 * MIB, pages.as_mut_ptr())
    };
    let resident = pages.iter().filter(|page| **page & 1 != 0).count();
    assert!(told == 0 && resident < 100, "{resident} pages");
    call(&format!("arena.{own}.destroy"));
    assert!(used(hooks) <= used_before, "{} and {used_before} frames", used(hooks));

    // What is large returns at once. Other blocks that are freed stay with jemalloc while nothing
    // calls it, longer than its decay.
    Jemalloc::TIKV.purge().unwrap();
    let used_before = used(hooks);
    // SAFETY: sizes; freed below.
    let burst = |size| [size; 40].map(|size| unsafe { sys::mallocx(size, 0) });
    // SAFETY: allocated by the other.
    let free = |block| unsafe { sys::dallocx(block, 0) };
    let large = burst(MIB);
    assert!(used(hooks) > used_before + 40 * 256);
    large.into_iter().for_each(free);
    assert!(used(hooks) < used_before + 256, "{} frames, {used_before} before", used(hooks));
    burst(MIB / 2).into_iter().for_each(free);
    thread::sleep(Duration::from_millis(50));
    assert!(used(hooks) > used_before + 20 * 128, "{} frames, {used_before} before", used(hooks));
    // By and by: what was freed since the last call is not due yet.
    let mut calls = 0;
    while used(hooks) >= used_before + 256 {
        assert!(calls < 100, "{} frames, {used_before} before", used(hooks));
        thread::spawn(|| Jemalloc::TIKV.decay().unwrap()).join().unwrap();
        thread::sleep(Duration::from_millis(10));
        calls += 1;
    }

    // More than the arena has comes from the machine.
    // SAFETY: a size; freed below.
    let large: *mut c_void = unsafe { sys::mallocx(700 * MIB, 0) };
    assert!(!large.is_null() && !heap.contains(large));
    // SAFETY: allocated above.
    unsafe { sys::dallocx(large, 0) };

    // Decayed, all of it is free in the heap but for jemalloc's own data, and goes to the machine.
    Jemalloc::TIKV.purge().unwrap();
    assert!(used(hooks) < 6000, "{} frames", used(hooks));
    let purged = heap.purge(PurgeAges::ALL).unwrap().frames.get() + PURGED.load(Relaxed);
    assert!(purged > 1000, "{purged} frames");
    heap.validate().unwrap();
}

fn used(hooks: &Hooks) -> u64 {
    hooks.heap().validate().unwrap().allocated.get()
}

/// Blocks of many sizes, which grow, shrink and are freed, all of them in the arena.
fn churn(hooks: &Hooks, seed: usize) {
    let mut blocks: Vec<(*mut u8, usize, u8)> = Vec::new();
    let draws = draws(seed, 4 * MIB).take(20_000);
    for (step, (random, size)) in draws.enumerate() {
        let stamp = (step % 251) as u8;
        if blocks.len() < 40 {
            // SAFETY: a size that is not 0.
            let memory = unsafe { sys::malloc(size) }.cast::<u8>();
            assert!(hooks.heap().contains(memory), "{size} bytes at {memory:?}");
            stamp_ends(memory, size, stamp);
            blocks.push((memory, size, stamp));
            continue;
        }
        let (memory, old, mark) = blocks.swap_remove(random / 64 % 40);
        // SAFETY: a block of this thread, of that size.
        let content = unsafe { std::slice::from_raw_parts(memory, old) };
        assert_eq!((content[0], content[old - 1]), (mark, mark));
        if (random / 8).is_multiple_of(4) {
            // SAFETY: a block of this thread, and a size that is not 0.
            let memory = unsafe { sys::realloc(memory.cast(), size) }.cast::<u8>();
            // SAFETY: as above: what was at the beginning stays.
            assert_eq!(unsafe { memory.read() }, mark);
            stamp_ends(memory, size, stamp);
            blocks.push((memory, size, stamp));
        } else {
            // SAFETY: a block of this thread, which forgets it.
            unsafe { sys::free(memory.cast()) };
        }
        if step % 1000 == 0 {
            let purged = hooks.heap().purge(PurgeAges { whole: 0, part: Some(1) }).unwrap();
            PURGED.fetch_add(purged.frames.get(), Relaxed);
        }
    }
    for (memory, ..) in blocks {
        // SAFETY: as above.
        unsafe { sys::free(memory.cast()) };
    }
}

fn stamp_ends(memory: *mut u8, size: usize, stamp: u8) {
    for at in [0, size - 1] {
        let byte = memory.wrapping_add(at);
        // SAFETY: a byte of a block of the calling thread.
        unsafe { byte.write(stamp) };
    }
}
