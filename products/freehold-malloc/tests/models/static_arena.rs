//! The first use of a static arena, and the memory for building it.

use core::alloc::Layout;
use core::num::NonZeroU32;

use freehold::platform::{LockClass, RawLock, SharedCell, Word};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use loom::thread;

use crate::bump::Bump;
use crate::first::{First, Once};
use crate::loom_platform::{LoomCell, LoomLock, LoomWord};
use crate::loom_runs::explore;

/// Words as they are, and such as change in two steps.
type Number = LoomWord<AtomicU32, true, true>;
type Count = LoomWord<AtomicU64, true, true>;
type CountInTwoSteps = LoomWord<AtomicU64, false, true>;

/// `OnceLock` as the standard library promises it. Without `ORDERED`, it publishes nothing.
struct LoomOnce<const ORDERED: bool, T> {
    is_there: AtomicBool,
    lock: LoomLock<true>,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, by the holder of the lock, and loom panics before a read that
// is not ordered after that.
unsafe impl<const ORDERED: bool, T: Send + Sync> Sync for LoomOnce<ORDERED, T> {}

impl<const ORDERED: bool, T> LoomOnce<ORDERED, T> {
    fn new() -> Self {
        let (is_there, value) = (AtomicBool::new(false), UnsafeCell::new(None));
        LoomOnce { is_there, lock: LoomLock::new(LockClass::Owner), value }
    }
}

impl<const ORDERED: bool, T> Once<T> for LoomOnce<ORDERED, T> {
    fn get(&self) -> Option<&T> {
        if !self.is_there.load(if ORDERED { Acquire } else { Relaxed }) {
            return None;
        }
        // SAFETY: loom has checked that the write comes before, and there is no other.
        self.value.with(|value| unsafe { (*value).as_ref() })
    }

    fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        self.lock.lock();
        if self.get().is_none() {
            let value = init();
            // SAFETY: no other call writes while this one has the lock, and none reads before
            // the value is there.
            self.value.with_mut(|place| unsafe { *place = Some(value) });
            self.is_there.store(true, if ORDERED { Release } else { Relaxed });
        }
        self.lock.unlock();
        self.get().expect("it is there")
    }
}

/// A value that takes memory while it is built, and that memory.
struct Arena<const ORDERED: bool, W: Word<u64>> {
    first: First<LoomOnce<ORDERED, LoomCell<u32>>, Number>,
    bump: Bump<W>,
    bytes: Vec<LoomCell<u8>>,
}

const BYTES: usize = 4;

impl<const ORDERED: bool, W: Word<u64>> Arena<ORDERED, W> {
    fn new() -> Self {
        Arena {
            first: First::of(LoomOnce::new(), Number::new(0)),
            bump: Bump::of(W::new(0)),
            bytes: (0..BYTES).map(|_| LoomCell::new(0)).collect(),
        }
    }

    /// Takes so many bytes, which no other caller has, and writes to them.
    fn take(&self, bytes: usize) -> Option<usize> {
        let layout = Layout::from_size_align(bytes, 1).expect("it is small");
        let start = self.bump.take(layout, BYTES)?;
        for byte in &self.bytes[start..start + bytes] {
            assert_eq!(byte.get(), 0, "it has a user");
            byte.set(1);
        }
        Some(start)
    }

    /// The value, as the thread of this number asks for it.
    fn get(&self, here: NonZeroU32) -> u32 {
        if let Some(built) = self.first.get() {
            return built.get();
        }
        let build = || {
            // An allocation of the building itself.
            assert!(self.first.get().is_none());
            assert!(self.first.build(here, || panic!("it is being built")).is_none());
            assert!(self.take(2).is_some());
            LoomCell::new(here.get())
        };
        self.first.build(here, build).expect("this thread does not build it").get()
    }
}

fn threads(numbers: [u32; 2]) -> [NonZeroU32; 2] {
    numbers.map(|number| NonZeroU32::new(number).expect("not 0"))
}

/// Two threads come first at once: one builds, the other one waits, both have the same value.
fn come_first<const ORDERED: bool>(numbers: [u32; 2]) {
    explore(3, move || {
        let arena = Arc::new(Arena::<ORDERED, Count>::new());
        let [here, there] = threads(numbers);
        let same = Arc::clone(&arena);
        let other = thread::spawn(move || same.get(there));
        let mine = arena.get(here);
        assert_eq!(other.join().expect("the thread is well"), mine);
        assert!([here.get(), there.get()].contains(&mine));
        assert_eq!(arena.take(2), Some(2), "it has been built once");
    });
}

#[test]
fn of_two_threads_that_come_first_one_builds() {
    come_first::<true>([1, 2]);
}

/// The model would notice a thread that takes another one's number for its own.
#[test]
#[should_panic]
fn threads_of_one_number_are_caught() {
    come_first::<true>([1, 1]);
}

/// The model would notice a place that does not publish what is in it.
#[test]
#[should_panic]
fn a_place_that_orders_nothing_is_caught() {
    come_first::<false>([1, 2]);
}

/// Two threads take memory at once, a third of which is left over.
fn take_at_once<W: Word<u64> + Send + Sync + 'static>() {
    explore(3, || {
        let arena = Arc::new(Arena::<true, W>::new());
        let same = Arc::clone(&arena);
        let other = thread::spawn(move || (same.take(1), same.take(1)));
        let mine = arena.take(3);
        let (first, second) = other.join().expect("the thread is well");
        assert!(first.is_some());
        assert!(mine.is_some() != second.is_some(), "what is left is for one of them");
    });
}

#[test]
fn no_two_callers_get_the_same_bytes() {
    take_at_once::<Count>();
}

#[test]
#[should_panic]
fn bytes_that_are_taken_in_two_steps_are_caught() {
    take_at_once::<CountInTwoSteps>();
}
