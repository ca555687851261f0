//! A platform on which no step is prompt: threads of this machine, which at any access to a word
//! or a cell, and at any lock, may spin, yield or sleep, and have another CPU number at any time,
//! also while they are pinned. Locks that are free refuse `try_lock` now and then.
//!
//! It also has the defects that are planted to see that they are found. Only threads inside a storm
//! meet any of that. One that waits there, or goes around in circles, gives up after a while.

use std::cell::Cell;
use std::hint::spin_loop;
use std::panic::resume_unwind;
use std::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{self, Acquire, Relaxed, Release, SeqCst},
    fence,
};
use std::thread;
use std::time::{Duration, Instant};

use freehold::CpuId;
use freehold::platform::native::NativeCell;
use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar, SharedCell, Word};

use crate::cli::Canary;

/// How rough it is.
#[derive(Clone, Copy)]
pub(super) struct Weather {
    /// Whether there is more than a delay now and then.
    pub(super) is_rough: bool,
    /// Of so many accesses, one is delayed.
    pub(super) accesses: u32,
    pub(super) cpus: u32,
    pub(super) canary: Option<Canary>,
}

impl Weather {
    /// That of a thread which looks after the others: it is delayed just often enough to notice
    /// that a call never ends.
    pub(super) const CALM: Self =
        Weather { is_rough: false, accesses: 10_000, cpus: 1, canary: None };
}

/// What a thread inside has.
#[derive(Clone, Copy)]
struct Inside {
    weather: Weather,
    /// When its call began.
    began: Instant,
}

thread_local! {
    static INSIDE: Cell<Option<Inside>> = const { Cell::new(None) };
    /// How often it was delayed or has waited in its call.
    static DELAYS: Cell<u32> = const { Cell::new(0) };
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Whether a thread has panicked inside, perhaps with a lock that others wait for.
static IS_BROKEN: AtomicBool = AtomicBool::new(false);

/// A thread inside a storm. Ends when it is dropped.
pub(super) struct Entered(());

/// A call that takes longer, and was delayed more often, never ends. A machine with much else to do
/// exceeds the one, and no call both.
const CALL_MAX: (Duration, u32) = (Duration::from_secs(30), 1_000_000);

/// Lets the calling thread in. What happens to it depends on the seed, and on the machine.
pub(super) fn enter(weather: Weather, seed: u64) -> Entered {
    fastrand::seed(seed);
    run_on(fastrand::u32(..weather.cpus));
    INSIDE.set(Some(Inside { weather, began: Instant::now() }));
    Entered(())
}

/// Notes that the calling thread begins another call.
pub(super) fn begin_call() {
    DELAYS.set(0);
    INSIDE.set(INSIDE.get().map(|inside| Inside { began: Instant::now(), ..inside }));
}

impl Drop for Entered {
    fn drop(&mut self) {
        INSIDE.set(None);
        // Relaxed, as all accesses: it only says when to end.
        IS_BROKEN.fetch_or(thread::panicking(), Relaxed);
    }
}

/// Forgets what earlier storms have broken. No thread is inside.
pub(super) fn clear() {
    IS_BROKEN.store(false, Relaxed);
}

/// Gives the calling thread a CPU number.
pub(super) fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// Whether the calling thread is inside a storm where it is rough.
pub(super) fn is_rough() -> bool {
    INSIDE.get().is_some_and(|inside| inside.weather.is_rough)
}

/// A number below `end` that is drawn; 0 where it is not rough.
pub(super) fn draw(end: u64) -> u64 {
    if is_rough() { fastrand::u64(..end) } else { 0 }
}

/// Waits for another thread, which may be delayed. Gives up if the call never ends, or another
/// thread has panicked.
pub(super) fn wait() {
    thread::yield_now();
    if let Some(inside) = INSIDE.get() {
        inside.look_up();
    }
}

impl Inside {
    fn look_up(&self) {
        if thread::panicking() {
            // It ends what it has begun, and the others give up what it waits for.
            IS_BROKEN.store(true, Relaxed);
            return;
        }
        if IS_BROKEN.load(Relaxed) {
            // Without a message: the other one has it.
            resume_unwind(Box::new(()));
        }
        DELAYS.set(DELAYS.get() + 1);
        let never_ends = DELAYS.get() > CALL_MAX.1 && self.began.elapsed() > CALL_MAX.0;
        assert!(!never_ends, "a call has not ended after {} delays", CALL_MAX.1);
    }

    #[cold]
    fn delay(&self) {
        match fastrand::u32(..64) {
            0..24 => (0..fastrand::u32(..300)).for_each(|_| spin_loop()),
            24..56 => thread::yield_now(),
            56..62 => (0..fastrand::u32(1..=8)).for_each(|_| thread::yield_now()),
            _ => thread::sleep(Duration::from_micros(fastrand::u64(1..200))),
        }
        self.look_up();
    }
}

/// Delays the calling thread, perhaps.
fn gust() {
    if let Some(inside) = INSIDE.get()
        && fastrand::u32(..inside.weather.accesses) == 0
    {
        inside.delay();
    }
}

/// Whether this time there is the bug that is planted, one of so many times.
fn is_wrong(bug: Canary, times: u32) -> bool {
    INSIDE.get().is_some_and(|inside| inside.weather.canary == Some(bug))
        && fastrand::u32(..times) == 0
}

/// A word whose accesses are delayed.
#[derive(Debug)]
pub(super) struct GustyWord<A>(A);

impl<A> GustyWord<A> {
    fn reach(&self) -> &A {
        gust();
        &self.0
    }
}

macro_rules! words {
    ($($atomic:ident: $int:ty),*) => {$(
        impl Word<$int> for GustyWord<$atomic> {
            fn new(value: $int) -> Self { GustyWord($atomic::new(value)) }
            fn load(&self, order: Ordering) -> $int { self.reach().load(order) }
            fn store(&self, value: $int, order: Ordering) { self.reach().store(value, order) }
            fn swap(&self, value: $int, order: Ordering) -> $int { self.reach().swap(value, order) }
            fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                self.reach().fetch_add(value, order)
            }
            fn fetch_or(&self, bits: $int, order: Ordering) -> $int {
                self.reach().fetch_or(bits, order)
            }
            fn fetch_and(&self, bits: $int, order: Ordering) -> $int {
                self.reach().fetch_and(bits, order)
            }
            fn compare_exchange(
                &self, current: $int, new: $int, success: Ordering, failure: Ordering,
            ) -> Result<$int, $int> {
                let word = self.reach();
                if !is_wrong(Canary::Race, 8) {
                    return word.compare_exchange(current, new, success, failure);
                }
                let found = word.load(SeqCst);
                if found != current {
                    return Err(found);
                }
                wait();
                word.store(new, SeqCst);
                Ok(found)
            }
        }
    )*};
}
words!(AtomicU32: u32, AtomicU64: u64);

/// A cell whose accesses are delayed, less often than those of words: there are many more. One
/// during a write is noticed: the lock that guards the cell was not held.
pub(super) struct GustyCell<T: Scalar> {
    value: NativeCell<T>,
    is_being_written: AtomicBool,
}

fn gust_at_cell() {
    if fastrand::u8(..8) == 0 {
        gust();
    }
}

impl<T: Scalar> SharedCell<T> for GustyCell<T> {
    fn new(value: T) -> Self {
        GustyCell { value: NativeCell::new(value), is_being_written: AtomicBool::new(false) }
    }

    fn get(&self) -> T {
        gust_at_cell();
        assert!(!self.is_being_written.load(Relaxed), "data race: a cell is read during a write");
        self.value.get()
    }

    fn set(&self, value: T) {
        let raced = self.is_being_written.swap(true, Relaxed);
        assert!(!raced, "data race: a cell is written during a write");
        gust_at_cell();
        self.value.set(value);
        self.is_being_written.store(false, Relaxed);
    }
}

/// A lock whose holders and waiters are delayed.
pub(super) struct GustyLock(AtomicBool);

impl RawLock for GustyLock {
    fn new(_class: LockClass) -> Self {
        GustyLock(AtomicBool::new(false))
    }

    fn lock(&self) {
        gust();
        // Acquire: sees what the last holder has written.
        while self.0.swap(true, Acquire) && !is_wrong(Canary::Lock, 8) {
            wait();
        }
        gust();
    }

    fn try_lock(&self) -> bool {
        gust();
        // Acquire: as above.
        draw(50) != 1 && !self.0.swap(true, Acquire)
    }

    fn unlock(&self) {
        gust();
        // Release: shows the next holder what this one has written.
        self.0.store(false, Release);
        gust();
    }
}

/// The platform.
#[derive(Clone, Copy)]
pub(super) struct Chaos;

impl Platform for Chaos {
    type U32 = GustyWord<AtomicU32>;
    type U64 = GustyWord<AtomicU64>;
    type Cell<T: Scalar> = GustyCell<T>;
    type LocalCell<T: Scalar> = GustyCell<T>;
    type Lock = GustyLock;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        if let Some(inside) = INSIDE.get()
            && inside.weather.is_rough
            && fastrand::u32(..40) == 0
        {
            run_on(fastrand::u32(..inside.weather.cpus));
        }
        CpuId::new(CPU.get())
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, _state: ()) {
        gust();
    }

    fn relax(&self) {
        wait();
    }

    fn light_barrier(&self) {
        // Sequentially consistent: orders like the heavy one.
        fence(SeqCst);
        gust();
    }

    fn heavy_barrier(&self) -> bool {
        gust();
        // Sequentially consistent, as the light one.
        fence(SeqCst);
        true
    }

    fn irq_save(&self) {}

    fn irq_restore(&self, _state: ()) {}
}
