//! System calls that fail: each call names what failed, no slot shows what its last user wrote, and
//! all goes on once the machine no longer refuses.

use std::error::Error as _;

use freehold_pool::{Image, ModuleKey, Pool, PoolError, Slot};
use libc::{EINVAL, ENFILE, ENOMEM, ENOSPC, EPERM};

use crate::refuse::{Refused, refuse, refusing};

const PAGE: usize = 64 << 10;

fn pool(slots: u32, resident_pages: usize) -> Pool {
    let builder = Pool::builder().slots(slots).slot_bytes(4 * PAGE).guard_bytes(PAGE).cpus(1);
    builder.keep_resident_bytes(resident_pages * PAGE).build().unwrap()
}

/// The first byte of each page that is accessible.
fn pages(slot: &Slot<&Pool>) -> Vec<u8> {
    slot.bytes().chunks(PAGE).map(|page| page[0]).collect()
}

fn names(error: &PoolError, what: &str, errno: i32) {
    assert!(error.to_string().contains(what), "{error}");
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    assert_eq!(source.and_then(std::io::Error::raw_os_error), Some(errno), "{error}");
}

/// Memory is not taken back, however the kernel is asked; as if it were locked.
fn no_discards() -> [Refused; 2] {
    let one = refuse(libc::SYS_madvise, EINVAL).with(2, libc::MADV_DONTNEED);
    [one, refuse(libc::SYS_process_madvise, EPERM)]
}

/// No part of a pool is mapped anew.
fn no_mappings() -> Refused {
    refuse(libc::SYS_mmap, ENOMEM).with_bits(3, libc::MAP_FIXED, libc::MAP_FIXED)
}

/// Images are not mapped, memory is.
fn no_images() -> Refused {
    refuse(libc::SYS_mmap, ENOMEM).with_bits(3, libc::MAP_ANONYMOUS, 0)
}

#[test]
fn what_cannot_be_made_is_named() {
    let no_addresses = refuse(libc::SYS_mmap, ENOMEM).with(2, libc::PROT_NONE);
    let build = || Pool::builder().slots(2).slot_bytes(PAGE).cpus(1).build().map(drop);
    let Some(built) = refusing(&[no_addresses], build) else { return };
    names(&built.unwrap_err(), "cannot reserve", ENOMEM);
    build().unwrap();
    for (call, errno) in [
        (refuse(libc::SYS_memfd_create, ENFILE), ENFILE),
        (refuse(libc::SYS_ftruncate, ENOSPC), ENOSPC),
        (refuse(libc::SYS_pwrite64, ENOSPC), ENOSPC),
        (refuse(libc::SYS_fcntl, EPERM).with(1, libc::F_ADD_SEALS), EPERM),
        (no_images(), ENOMEM),
    ] {
        let image = refusing(&[call], || Image::new(0, b"hello").map(drop));
        names(&image.expect("there are filters").unwrap_err(), "an image of 5 bytes", errno);
        Image::new(0, b"hello").unwrap();
    }
}

#[test]
fn a_slot_that_cannot_grow_or_shrink_stays_as_it_is() {
    let pool = pool(1, 0);
    let mut slot = pool.take(None).unwrap();
    slot.grow(2 * PAGE).unwrap();
    slot.bytes_mut().fill(7);
    let to_grow = refuse(libc::SYS_mprotect, ENOMEM);
    for (bytes, refused) in [(3 * PAGE, to_grow), (PAGE, to_grow.with(2, libc::PROT_NONE))] {
        let Some(changed) = refusing(&[refused], || slot.set_accessible(bytes)) else { return };
        names(&changed.unwrap_err(), "cannot change how much of", ENOMEM);
        assert_eq!(pages(&slot), [7, 7]);
    }
    slot.set_accessible(PAGE).unwrap();
    slot.set_accessible(3 * PAGE).unwrap();
    assert_eq!(pages(&slot), [7, 7, 0]);
}

#[test]
fn after_a_reset_that_was_refused_nothing_is_shown_to_others() {
    let (pool, key) = (pool(1, 1), ModuleKey::new(1));
    for keeps in [false, true] {
        let mut slot = pool.take(key).unwrap();
        slot.set_accessible(3 * PAGE).unwrap();
        slot.bytes_mut().fill(7);
        let [one, many] = no_discards();
        let Some(reset) = refusing(&[one, many, no_mappings()], || slot.reset()) else { return };
        names(&reset.unwrap_err(), "cannot reset", ENOMEM);
        // What is resident was restored.
        assert_eq!(pages(&slot), [0, 7, 7]);
        slot.bytes_mut().fill(9);
        if keeps {
            slot.keep();
        } else {
            slot.reset().unwrap();
            assert_eq!(pages(&slot), [0; 3]);
            slot.bytes_mut().fill(9);
            drop(slot);
        }
        let mut other = pool.take(ModuleKey::new(2)).unwrap();
        other.grow(4 * PAGE).unwrap();
        assert_eq!(pages(&other), [0; 4], "kept: {keeps}");
    }
    assert_eq!((pool.stats().lost_slots, pool.unused_slots()), (0, 1));
}

#[test]
fn a_slot_that_loses_its_image_shows_nothing_to_others() {
    let (pool, key) = (pool(1, 1), ModuleKey::new(1));
    let image = Image::new(PAGE, &[5; PAGE]).unwrap();
    let mut slot = pool.take_with(key, &image).unwrap();
    slot.bytes_mut().fill(7);
    let [one, many] = no_discards();
    let Some(reset) = refusing(&[one, many, no_images()], || slot.reset()) else { return };
    names(&reset.unwrap_err(), "cannot change the image", ENOMEM);
    assert!(pages(&slot).iter().all(|&byte| byte == 0), "{:?}", pages(&slot));
    slot.bytes_mut().fill(9);
    drop(slot);
    let slot = pool.take_with(key, &image).unwrap();
    assert_eq!(pages(&slot), [0, 5]);
}

#[test]
fn a_slot_that_cannot_have_an_image_goes_back() {
    let pool = pool(1, 0);
    let images = [5, 6].map(|byte| Image::new(PAGE, &[byte; PAGE]).unwrap());
    drop(pool.take_with(None, &images[0]).unwrap());
    let take = || pool.take_with(None, &images[1]).map(drop);
    let Some(taken) = refusing(&[no_mappings()], take) else { return };
    names(&taken.unwrap_err(), "cannot change the image", ENOMEM);
    assert_eq!(pool.unused_slots(), 1);
    assert_eq!(pages(&pool.take_with(None, &images[1]).unwrap()), [0, 6]);
    let mut slot = pool.take(None).unwrap();
    slot.grow(2 * PAGE).unwrap();
    assert_eq!(pages(&slot), [0, 0]);
}

#[test]
fn slots_that_cannot_be_reset_are_counted_and_not_handed_out() {
    let pool = pool(3, 0);
    let take = || {
        let mut slot = pool.take(None)?;
        slot.grow(PAGE)?;
        slot.bytes_mut().fill(7);
        Ok::<_, PoolError>(slot)
    };
    let slots: Vec<_> = (0..2).map(|_| take().unwrap()).collect();
    drop(slots);
    let [one, many] = no_discards();
    // Many at a time are refused, and one at a time is not: no slot is lost.
    let Some(()) = refusing(&[many], || pool.reset_all()) else { return };
    assert_eq!(pool.stats().lost_slots, 0);
    drop((0..2).map(|_| take().unwrap()).collect::<Vec<_>>());
    refusing(&[one, many, no_mappings()], || pool.reset_all());
    assert_eq!((pool.stats().lost_slots, pool.unused_slots()), (2, 1));
    let mut slot = pool.take(None).unwrap();
    slot.grow(PAGE).unwrap();
    assert_eq!(pages(&slot), [0]);
    assert!(matches!(pool.take(None), Err(PoolError::Exhausted { .. })));
}

#[test]
fn a_slot_that_cannot_be_made_inaccessible_is_reset_all_the_same() {
    let pool = Pool::builder().slots(1).slot_bytes(4 * PAGE).cpus(1).max_accessible_slots(0);
    let pool = pool.build().unwrap();
    let no_unmapping = refuse(libc::SYS_munmap, ENOMEM);
    // One mapping too many, and a kernel that refuses all.
    for (refused, left) in [(&[no_mappings()][..], &[][..]), (&[no_mappings(), no_unmapping], &[0])]
    {
        let mut slot = pool.take(None).unwrap();
        slot.set_accessible(PAGE).unwrap();
        slot.bytes_mut().fill(7);
        drop(slot);
        let Some(()) = refusing(refused, || pool.reset_all()) else { return };
        assert_eq!(pages(&pool.take(None).unwrap()), left);
    }
    pool.reset_all();
    assert_eq!(pages(&pool.take(None).unwrap()), []);
    assert_eq!(pool.stats().lost_slots, 0);
}
