//! What is known of slots, against their memory.

use super::reset::Dirty;
use super::*;
use crate::children::in_child;
use crate::reserved::page_bytes;
use crate::slots::{BATCH_SLOTS_MAX, Reset};

/// Slots of eight pages with a guard of one, of which the first three pages were written to.
fn used(slots: &[u32], keep_resident_pages: usize, single_calls: bool) -> Content {
    let (page, keep) = (page_bytes(), keep_resident_pages * page_bytes());
    let content = Content::new(10, 9 * page, keep, usize::MAX, single_calls).unwrap();
    for slot in slots.iter().copied().map(SlotIndex::new) {
        content.begin_use(slot);
        // SAFETY: No other code has a slot.
        unsafe { content.set_accessible(slot, 3 * page) }.unwrap();
        let all = content.range(slot, 0..3 * page);
        // SAFETY: As above.
        unsafe { content.reserved.bytes_mut(all) }.fill(1);
    }
    content
}

fn indexes(slots: &[u32]) -> Vec<SlotIndex> {
    slots.iter().copied().map(SlotIndex::new).collect()
}

fn is_zero(content: &Content, slot: u32) -> bool {
    let slot = SlotIndex::new(slot);
    content.reserved.open(content.range(slot, 0..3 * page_bytes())).unwrap();
    // SAFETY: Accessible, and nothing writes to it.
    let bytes = unsafe { content.reserved.bytes(content.range(slot, 0..3 * page_bytes())) };
    bytes.iter().all(|byte| *byte == 0)
}

#[test]
fn neighbours_are_one_stretch_unless_pages_are_to_stay() {
    let page = page_bytes();
    let slots = [0, 1, 2, 5, 7, 8];
    let mut found: [Dirty; BATCH_SLOTS_MAX] = std::array::from_fn(|_| Dirty::default());
    let content = used(&slots, 0, false);
    assert_eq!(content.dirty(&indexes(&slots), &mut found), 3);
    assert_eq!(found[0].bytes, 0..21 * page);
    assert_eq!((&found[1].bytes, &found[1].slots), (&(45 * page..48 * page), &(3..4)));
    assert_eq!((&found[2].bytes, &found[2].slots), (&(63 * page..75 * page), &(4..6)));

    let content = used(&slots, 1, false);
    for slot in indexes(&slots) {
        // SAFETY: It is not in use.
        assert!(!unsafe { content.restore_resident(slot) });
    }
    assert_eq!(content.dirty(&indexes(&slots), &mut found), 6);
    assert_eq!(found[1].bytes, 10 * page..12 * page);
}

#[test]
fn a_batch_is_one_system_call_where_the_kernel_takes_it() {
    let slots = [0, 1, 3, 9];
    for single_calls in [false, true] {
        let content = used(&slots, 0, single_calls);
        let calls = content.reset(&indexes(&slots), &mut |slot| panic!("{slot} is lost"));
        let at_once = !single_calls && freehold_host::discards_at_once();
        // Slots 0 and 1 are one stretch.
        assert_eq!(calls, if at_once { 1 } else { 3 });
        assert!(slots.iter().all(|&slot| is_zero(&content, slot)));
    }
}

/// A page that is not there makes the kernel stop half way. In a child, which has no other thread
/// that could get that page.
#[test]
fn a_change_that_is_refused_half_way_leaves_no_more_accessible_than_it_says() {
    in_child(change_with_a_hole).unwrap();
}

fn change_with_a_hole() {
    let (page, slot) = (page_bytes(), SlotIndex::new(1));
    for (from, to) in [(6, 1), (1, 6)] {
        let content = used(&[1], 0, false);
        // SAFETY: No other code has a slot.
        unsafe { content.set_accessible(slot, from * page) }.unwrap();
        // SAFETY: As above.
        assert!(unsafe { content.reset_one(slot) }.is_ok());
        let hole = content.reserved.at(content.range(slot, 4 * page..0).start);
        // SAFETY: As above.
        unsafe { rustix::mm::munmap(hole.as_ptr().cast(), page) }.unwrap();
        // SAFETY: As above.
        unsafe { content.set_accessible(slot, to * page) }.unwrap_err();
        assert_eq!(content.accessible(slot), page);
        // What was opened may have been written to.
        assert!(to == 1 || content.rest(slot).end == 6 * page);
    }
}

#[test]
fn a_slot_of_which_others_have_a_part_is_not_used() {
    let (page, slot) = (page_bytes(), SlotIndex::new(1));
    let content = used(&[1], 0, false);
    let refused = |left| NotMapped { source: io::ErrorKind::OutOfMemory.into(), left };
    // SAFETY: No other code has a slot.
    let note = |left| unsafe { content.note_refusal(slot, page, refused(left)) };
    for (left, accessible) in [(Left::Same, 3), (Left::Empty, 1), (Left::Lost, 0)] {
        note(left);
        assert_eq!(content.accessible(slot), accessible * page);
        assert_eq!(content.is_lost(slot), left == Left::Lost);
    }
    // SAFETY: As above.
    unsafe { content.set_accessible(slot, page) }.unwrap_err();
    // SAFETY: As above.
    assert!(unsafe { content.reset_one(slot) }.is_err());
}

#[test]
fn locked_memory_is_mapped_anew() {
    let (slots, page) = ([0, 1, 3], page_bytes());
    for single_calls in [false, true] {
        let content = used(&slots, 0, single_calls);
        let start = content.reserved.at(content.range(SlotIndex::new(1), 0..0).start);
        // SAFETY: Locks pages of our own.
        if unsafe { rustix::mm::mlock(start.as_ptr().cast(), page) }.is_err() {
            return; // Not permitted here (`ulimit -l`).
        }
        content.reset(&indexes(&slots), &mut |slot| panic!("{slot} is lost"));
        let accessible = slots.map(|slot| content.accessible(SlotIndex::new(slot)));
        assert_eq!(accessible, [3 * page, 0, 3 * page]);
        assert!(slots.iter().all(|&slot| is_zero(&content, slot)));
    }
}

/// A reset that cannot discard takes the image out with the mapping, all of it, wherever the
/// locked page is; the slot gets it again by the next `set_image`.
#[test]
fn locked_memory_with_an_image_is_mapped_anew_without_it() {
    let (page, slot) = (page_bytes(), SlotIndex::new(1));
    let image = Image::new(page, &vec![5; 2 * page]).unwrap();
    for (locked, keep_resident_pages) in [(0, 0), (2, 0), (3, 0), (3, 2)] {
        let content = used(&[1], keep_resident_pages, false);
        // SAFETY: No other code has a slot, here and below.
        unsafe { content.reset_one(slot) }.unwrap();
        // SAFETY: As above.
        unsafe { content.set_image(slot, Some(&image)) }.unwrap();
        // SAFETY: As above.
        unsafe { content.set_accessible(slot, 4 * page) }.unwrap();
        content.begin_use(slot);
        // SAFETY: As above.
        unsafe { content.reserved.bytes_mut(content.range(slot, 0..4 * page)) }.fill(9);
        let at = content.reserved.at(content.range(slot, locked * page..0).start);
        // SAFETY: Locks a page of our own.
        if unsafe { rustix::mm::mlock(at.as_ptr().cast(), page) }.is_err() {
            return; // Not permitted here (`ulimit -l`).
        }
        // SAFETY: As above.
        assert!(!unsafe { content.restore_resident(slot) });
        content.reset(&[slot], &mut |slot| panic!("{slot} is lost"));
        // SAFETY: As above.
        assert!(unsafe { content.image(slot) }.is_none());
        assert!(is_zero(&content, 1), "page {locked} is locked");
        // SAFETY: As above.
        unsafe { content.set_image(slot, Some(&image)) }.unwrap();
        // SAFETY: Accessible, and nothing writes to it.
        let bytes = unsafe { content.reserved.bytes(content.range(slot, 0..3 * page)) };
        let first: Vec<u8> = bytes.chunks(page).map(|page| page[0]).collect();
        assert_eq!(first, [0, 5, 5]);
    }
}
