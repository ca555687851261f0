//! The words of the page heap, each kind by itself.

use freehold::platform::Word;
use freehold::{CpuId, FrameCount, Order, Pfn};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;
use std::time::Duration;

use crate::ages::Ages;
use crate::bits::FrameBits;
use crate::ground::set_clock;
use crate::loom_platform::LoomWord;
use crate::loom_runs::explore;
use crate::refusal::Refusal;
use crate::used::Used;

/// Words as they are, and such as change in two steps.
type Bits = LoomWord<AtomicU64, true, true>;
type BitsInTwoSteps = LoomWord<AtomicU64, false, true>;
type Age = LoomWord<AtomicU32, true, true>;
type AgeInTwoSteps = LoomWord<AtomicU32, false, true>;

const ONE: FrameCount = FrameCount::new(1);
const FIRST: Pfn = Pfn::new(0);

/// The owners of two frames change their bits, which lie in one word.
fn neighbours<W: Word<u64> + Send + Sync + 'static>() {
    explore(3, || {
        let bits = Arc::new(FrameBits::<W>::new(FrameCount::new(2), false));
        let change = |bits: &FrameBits<W>, frame: Pfn| {
            bits.set(frame, ONE);
            assert!(bits.any(frame, ONE));
            bits.clear(frame, ONE);
            assert!(!bits.any(frame, ONE));
            bits.set(frame, ONE);
        };
        let same = Arc::clone(&bits);
        let other = thread::spawn(move || change(&same, Pfn::new(1)));
        change(&bits, FIRST);
        other.join().expect("the thread is well");
        assert!(bits.any(FIRST, ONE) && bits.any(Pfn::new(1), ONE));
    });
}

#[test]
fn the_bit_of_a_frame_is_its_owners() {
    neighbours::<Bits>();
}

#[test]
#[should_panic]
fn bits_that_change_in_two_steps_are_caught() {
    neighbours::<BitsInTwoSteps>();
}

/// Two purges come to a pageblock that is due, one of which leaves it for the next one.
fn two_purges<W: Word<u32> + Send + Sync + 'static>() {
    explore(3, || {
        let ages = Arc::new(Ages::<W>::new(Order::PAGEBLOCK.frames(), Order::PAGEBLOCK));
        ages.note_free(FIRST, ONE);
        assert_eq!(ages.pass(0, 1, 2), None);
        let same = Arc::clone(&ages);
        let other = thread::spawn(move || same.pass(0, 1, 2));
        let mine = ages.pass(0, 1, 2);
        let other = other.join().expect("the thread is well");
        assert!([(Some(3), None), (None, Some(3))].contains(&(mine, other)), "{mine:?}, {other:?}");
        assert_eq!(ages.pass(0, 1, 0), None);
    });
}

#[test]
fn of_two_purges_one_takes_the_age_of_a_pageblock() {
    two_purges::<Age>();
}

#[test]
#[should_panic]
fn an_age_that_is_taken_in_two_steps_is_caught() {
    two_purges::<AgeInTwoSteps>();
}

/// A frame is freed while a purge gives up what it could not take: the pageblock has an age after.
#[test]
fn a_pageblock_has_an_age_after_a_free_and_a_purge_that_was_refused() {
    explore(3, || {
        let ages = Arc::new(Ages::<Age>::new(Order::PAGEBLOCK.frames(), Order::PAGEBLOCK));
        ages.note_free(FIRST, ONE);
        let age = ages.pass(0, 1, 0).expect("it is due");
        let same = Arc::clone(&ages);
        let free = thread::spawn(move || same.note_free(FIRST, ONE));
        ages.restore(FIRST, ONE, age);
        free.join().expect("the thread is well");
        assert!(ages.pass(0, 1, 0).is_some());
    });
}

/// While a refusal of small spans is over and one of large spans is noted, small ones are not
/// refused: no search for them has failed.
#[test]
fn what_no_search_failed_for_is_not_refused() {
    explore(3, || {
        set_clock(0);
        let refusal = Arc::new(Refusal::<Bits>::new(Duration::from_millis(10)));
        refusal.note(FrameCount::new(5), ONE);
        assert!(refusal.holds_for(FrameCount::new(6)));
        set_clock(10);
        let same = Arc::clone(&refusal);
        let user = thread::spawn(move || assert!(!same.holds_for(FrameCount::new(6))));
        refusal.note(FrameCount::new(100), ONE);
        user.join().expect("the thread is well");
        assert!(refusal.holds_for(FrameCount::new(100)) && !refusal.holds_for(FrameCount::new(6)));
    });
}

/// Two threads count on one CPU, which one of them has left meanwhile; each fills its share.
/// Nothing is lost, and nothing counts twice.
fn two_on_a_cpu<W: Word<u64> + Send + Sync + 'static>() {
    explore(3, || {
        let used = Arc::new(Used::<W>::new(1));
        let add = |used: &Used<W>, mib: i64| used.add(CpuId::new(0), mib << 20);
        let same = Arc::clone(&used);
        let other = thread::spawn(move || {
            add(&same, 3);
            add(&same, -1);
        });
        add(&used, 1);
        add(&used, 2);
        other.join().expect("the thread is well");
        // What is left in the share comes with the next that fills it.
        assert_eq!(add(&used, 4), Some(9 << 20));
    });
}

#[test]
fn two_threads_that_meet_at_a_cpu_lose_no_count() {
    two_on_a_cpu::<Bits>();
}

#[test]
#[should_panic]
fn counts_that_change_in_two_steps_are_caught() {
    two_on_a_cpu::<BitsInTwoSteps>();
}
