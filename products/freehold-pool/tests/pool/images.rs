//! Slots with images on real memory: what users see after each kind of change, and what it costs.

use std::ops::Range;

use fastrand::Rng;
use freehold_pool::{Image, ModuleKey, Pool, PoolBuilder, PoolError, Slot};

const PAGE: usize = 64 << 10;
const SLOT: usize = 8 * PAGE;

fn builder(slots: u32) -> PoolBuilder {
    Pool::builder().slots(slots).slot_bytes(SLOT).guard_bytes(PAGE).cpus(1)
}

/// An image whose bytes are all the same.
struct Filled {
    image: Image,
    byte: u8,
}

fn image(pages: Range<usize>, byte: u8) -> Filled {
    let image = Image::new(pages.start * PAGE, &vec![byte; pages.len() * PAGE]).unwrap();
    Filled { image, byte }
}

/// What a slot contains at some place after a reset.
fn expected(image: Option<&Filled>, at: usize) -> u8 {
    image.filter(|filled| filled.image.range().contains(&at)).map_or(0, |filled| filled.byte)
}

/// Checks that a slot contains its image, and zero elsewhere.
fn assert_new(slot: &Slot<&Pool>, image: Option<&Filled>, what: &str) {
    let range = image.map_or(0..0, |filled| filled.image.range());
    let is = |part: &[u8], byte| part.iter().all(|&found| found == byte);
    let bytes = slot.bytes();
    let inside = &bytes[range.clone()];
    assert!(is(inside, image.map_or(0, |filled| filled.byte)), "{what}: {range:?} in {slot:?}");
    let (before, after) = (&bytes[..range.start], &bytes[range.end..]);
    assert!(is(before, 0) && is(after, 0), "{what}: around {range:?} in {slot:?}");
}

/// Images that overlap in all ways: equal, within, around, over one end, apart; and none.
fn images() -> Vec<Option<Filled>> {
    let ranges = [0..2, 0..2, 1..3, 0..4, 5..6, 6..8];
    let images = ranges.into_iter().zip(10..).map(|(range, byte)| Some(image(range, byte)));
    std::iter::once(None).chain(images).collect()
}

/// Takes a slot with an image, or without.
fn take<'p>(pool: &'p Pool, key: Option<ModuleKey>, image: Option<&Filled>) -> Slot<&'p Pool> {
    match image {
        Some(filled) => pool.take_with(key, &filled.image).unwrap(),
        None => pool.take(key).unwrap(),
    }
}

/// How the first user leaves the slot.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Leaves {
    Untouched,
    Written,
    Shrunk,
    Kept,
    Reset,
}

const WAYS: [Leaves; 5] =
    [Leaves::Untouched, Leaves::Written, Leaves::Shrunk, Leaves::Kept, Leaves::Reset];

fn leave(mut slot: Slot<&Pool>, leaves: Leaves, what: &str, image: Option<&Filled>) {
    if leaves == Leaves::Untouched {
        return;
    }
    slot.grow(7 * PAGE).unwrap();
    slot.bytes_mut().fill(99);
    match leaves {
        Leaves::Shrunk => slot.set_accessible(PAGE).unwrap(),
        Leaves::Kept => slot.keep(),
        Leaves::Reset => {
            slot.reset().unwrap();
            assert_new(&slot, image, what);
        }
        Leaves::Untouched | Leaves::Written => {}
    }
}

/// How many system calls a change takes at most: to take the old image out, to make what lies
/// before the new one accessible, and to map that.
fn calls(old: Option<&Filled>, new: Option<&Filled>, accessible: usize) -> u64 {
    let old = old.map(|filled| filled.image.range());
    let Some(new) = new.map(|filled| filled.image.range()) else { return 1 };
    let covers = |old: Range<usize>| new.start <= old.start && old.end <= new.end;
    let removed = old.clone().is_some_and(|old| !covers(old));
    // An image of which not all was accessible is taken out with what lies behind its start.
    let cut = old
        .filter(|old| removed && old.end > accessible)
        .map_or(accessible, |old| old.start.min(accessible));
    u64::from(removed) + u64::from(cut < new.start) + 1
}

#[test]
fn each_change_of_images_shows_the_new_one_alone() {
    let images = images();
    let (one, other) = (ModuleKey::new(1), ModuleKey::new(2));
    for resident_pages in [0, 3, 8] {
        for leaves in WAYS {
            for (from, old) in images.iter().enumerate() {
                for (to, new) in images.iter().enumerate() {
                    for key in [Some(one), Some(other)] {
                        let what = format!("{resident_pages} {leaves:?} {from} to {to} {key:?}");
                        let pool = builder(1).keep_resident_bytes(resident_pages * PAGE);
                        // The slot is reset as it comes back, and warm for its key.
                        let pool = pool.batch_slots(1).build().unwrap();
                        let slot = take(&pool, Some(one), old.as_ref());
                        assert_new(&slot, old.as_ref(), &what);
                        leave(slot, leaves, &what, old.as_ref());
                        let (before, accessible) = (pool.stats(), accessible(leaves, old));
                        let mut slot = take(&pool, key, new.as_ref());
                        let stats = pool.stats();
                        assert_eq!(slot.is_warm(), key == Some(one), "{what}");
                        let is_kept = leaves == Leaves::Kept && key == Some(one) && from == to;
                        assert_eq!(slot.is_kept(), is_kept, "{what}");
                        let changes = u64::from(from != to);
                        assert_eq!(stats.image_changes - before.image_changes, changes, "{what}");
                        let calls = changes * calls(old.as_ref(), new.as_ref(), accessible);
                        assert_eq!(stats.image_calls - before.image_calls, calls, "{what}");
                        if is_kept {
                            assert!(slot.bytes().iter().all(|byte| *byte == 99), "{what}");
                            assert_eq!(slot.accessible_bytes(), accessible, "{what}");
                            continue;
                        }
                        let image_end = new.as_ref().map_or(0, |new| new.image.range().end);
                        assert!(slot.accessible_bytes() >= image_end, "{what}");
                        slot.grow(SLOT).unwrap();
                        assert_new(&slot, new.as_ref(), &what);
                    }
                }
            }
        }
    }
}

/// How much is accessible after a user of this image has left the slot.
fn accessible(leaves: Leaves, image: &Option<Filled>) -> usize {
    let end = image.as_ref().map_or(0, |filled| filled.image.range().end);
    match leaves {
        Leaves::Untouched => end,
        Leaves::Shrunk => PAGE,
        Leaves::Written | Leaves::Kept | Leaves::Reset => end.max(7 * PAGE),
    }
}

#[test]
fn a_warm_slot_of_an_image_needs_no_mapping_and_no_copying() {
    let (image, key) = (image(0..4, 7), ModuleKey::new(1));
    for (resident_pages, expected_calls) in [(0, 100), (4, 0)] {
        let pool = builder(4).batch_slots(1).keep_resident_bytes(resident_pages * PAGE);
        let pool = pool.build().unwrap();
        for round in 0..100 {
            let mut slot = pool.take_with(key, &image.image).unwrap();
            assert_eq!((slot.is_warm(), slot.accessible_bytes()), (round > 0, 4 * PAGE));
            assert_new(&slot, Some(&image), "warm");
            slot.bytes_mut().fill(1);
        }
        let stats = pool.stats();
        assert_eq!((stats.image_changes, stats.image_calls), (1, 1), "mapped once");
        assert_eq!(stats.system_calls, expected_calls, "{resident_pages} pages resident");
    }
}

#[test]
fn a_batch_of_slots_with_images_is_reset_by_one_call() {
    let pool = builder(4).batch_slots(4).build().unwrap();
    let (low, high, key) = (image(0..2, 1), image(4..6, 2), ModuleKey::new(1));
    let slots: Vec<_> = [&low, &high, &low, &high]
        .map(|image| take(&pool, Some(key), Some(image)))
        .into_iter()
        .collect();
    slots.into_iter().for_each(|slot| leave(slot, Leaves::Written, "", None));
    let stats = pool.stats();
    assert_eq!((stats.batches, stats.reset_slots, stats.system_calls), (1, 4, 1));
    for _ in 0..2 {
        assert_new(&take(&pool, Some(key), Some(&high)), Some(&high), "after the batch");
    }
}

/// Each key has two images, and none; users of all keys meet in the same slots.
#[test]
fn no_user_sees_what_others_left_whatever_images_they_have() {
    let images: Vec<Vec<Option<Filled>>> = (0..4)
        .map(|key: u8| {
            vec![
                None,
                Some(image(0..2, 10 * key + 1)),
                Some(image(usize::from(key)..5, 10 * key + 2)),
            ]
        })
        .collect();
    let base = || builder(24).cpus(2).max_unused_warm_slots(10);
    for (name, pool) in [
        ("as it is", base()),
        ("resident", base().keep_resident_bytes(PAGE)),
        ("all resident", base().keep_resident_bytes(SLOT).batch_slots(4)),
        ("single calls", base().single_calls(true).guard_bytes(0).batch_slots(5)),
        ("one by one", base().batch_slots(1).max_unused_warm_slots(0)),
    ] {
        let pool = pool.build().unwrap();
        std::thread::scope(|scope| {
            let threads = [0, 1, 2].map(|thread| {
                let (pool, images) = (&pool, &images);
                scope.spawn(move || {
                    let mut rng = Rng::with_seed(thread);
                    let mut held = Vec::new();
                    for _ in 0..150 {
                        let (number, which) = (rng.usize(..4), rng.usize(..3));
                        // Users of key 0 have none.
                        let key = (number > 0).then(|| ModuleKey::new(number as u64));
                        let image = images[number][which].as_ref();
                        let mut slot = take(pool, key, image);
                        slot.grow(rng.usize(1..9) * PAGE).unwrap();
                        let own = 200 + number as u8;
                        let is_right = |(at, &byte): (usize, &u8)| {
                            byte == expected(image, at) || slot.is_kept() && byte == own
                        };
                        let wrong = slot.bytes().iter().enumerate().position(|it| !is_right(it));
                        let found = wrong.map(|at| (at, slot.bytes()[at]));
                        assert_eq!(found, None, "{name}: {slot:?}, image {which}");
                        let from = rng.usize(..slot.accessible_bytes());
                        slot.bytes_mut()[from..].fill(own);
                        held.push(slot);
                        while held.len() > 5 {
                            let slot = held.swap_remove(rng.usize(..held.len()));
                            if rng.bool() { slot.keep() } else { drop(slot) }
                        }
                    }
                })
            });
            // ThreadSanitizer does not see that the end of a scope waits for them.
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        });
        assert_eq!(pool.unused_slots(), 24, "{name}");
        assert!(pool.stats().image_changes > 50, "{name}: {:?}", pool.stats());
    }
}

#[test]
fn an_image_that_no_slot_can_have_is_named() {
    for (offset, bytes, expected) in [
        (0, 0, "image: it has no bytes"),
        (1, 1, "image: its offset 1 is not made of pages"),
        (usize::MAX & !(PAGE - 1), PAGE, "end beyond all addresses"),
    ] {
        let message = Image::new(offset, &vec![0; bytes]).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
    }
    let (pool, large) = (builder(1).build().unwrap(), image(7..9, 1));
    let error = pool.take_with(None, &large.image).unwrap_err();
    assert!(matches!(error, PoolError::TooLarge { bytes, .. } if bytes == 9 * PAGE), "{error}");
    assert_eq!(pool.stats().taken, 0);
}

#[test]
fn the_last_page_of_an_image_ends_with_zeroes() {
    let (pool, image) = (builder(1).build().unwrap(), Image::new(0, b"hello").unwrap());
    let slot = pool.take_with(None, &image).unwrap();
    assert_eq!(slot.bytes()[..5], *b"hello");
    assert!(slot.bytes()[5..].iter().all(|byte| *byte == 0));
    assert_eq!(slot.accessible_bytes(), image.range().len());
}
