//! A platform whose code panics: initialised values are dropped once, and nothing else is.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar, SharedCell, Word};
use freehold::{Config, CpuId, FrameCount, MemoryRange, NodeId, Pfn, ZoneKind};

thread_local! {
    /// How many calls of the platform are left until one panics.
    pub(crate) static FUSE: Cell<u64> = const { Cell::new(u64::MAX) };
    /// How many words, cells and locks exist.
    static ALIVE: Cell<u64> = const { Cell::new(0) };
    /// Whether something was dropped that was never initialised, or dropped before.
    static WRONG_DROP: Cell<bool> = const { Cell::new(false) };
}

/// Panics if the fuse has burnt down: once, so that guards can clean up.
fn burn() {
    let left = FUSE.get();
    FUSE.set(left.wrapping_sub(1));
    assert!(left != 0, "the platform panics, as it was told to");
}

/// A value that knows whether it was initialised. Garbage, with which tests fill buffers, was not.
pub(crate) struct Token(Cell<u64>);

const MADE: u64 = 0x600d_70ce_4a11_0c8d;

impl Token {
    fn new() -> Self {
        burn();
        ALIVE.set(ALIVE.get() + 1);
        Token(Cell::new(MADE))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if self.0.replace(0) != MADE {
            WRONG_DROP.set(true);
        }
        ALIVE.set(ALIVE.get().wrapping_sub(1));
    }
}

/// Words and cells.
pub(crate) struct Stored<T> {
    _token: Token,
    value: Cell<T>,
}

impl<T: Scalar> Stored<T> {
    fn change(&self, change: impl FnOnce(T) -> T) -> T {
        burn();
        self.value.replace(change(self.value.get()))
    }
}

impl<T: Scalar> Word<T> for Stored<T> {
    fn new(value: T) -> Self {
        Stored { _token: Token::new(), value: Cell::new(value) }
    }

    fn load(&self, _order: Ordering) -> T {
        self.change(|value| value)
    }

    fn store(&self, value: T, _order: Ordering) {
        self.change(|_| value);
    }

    fn swap(&self, value: T, _order: Ordering) -> T {
        self.change(|_| value)
    }

    fn fetch_add(&self, more: T, _order: Ordering) -> T {
        self.change(|value| value.wrapping_sum(more))
    }

    fn fetch_or(&self, bits: T, _order: Ordering) -> T {
        self.change(|value| value | bits)
    }

    fn fetch_and(&self, bits: T, _order: Ordering) -> T {
        self.change(|value| value & bits)
    }

    fn compare_exchange(
        &self,
        current: T,
        new: T,
        _success: Ordering,
        _failure: Ordering,
    ) -> Result<T, T> {
        let before = self.change(|value| if value == current { new } else { value });
        if before == current { Ok(before) } else { Err(before) }
    }
}

impl<T: Scalar> SharedCell<T> for Stored<T> {
    fn new(value: T) -> Self {
        Word::new(value)
    }

    fn get(&self) -> T {
        self.change(|value| value)
    }

    fn set(&self, value: T) {
        self.change(|_| value);
    }
}

/// A lock that owns memory. It never waits: there is one thread, which may have lost the guard of a
/// lock by a panic.
pub(crate) struct Lock {
    _token: Token,
    taken: Box<Cell<bool>>,
}

impl RawLock for Lock {
    fn new(_class: LockClass) -> Self {
        Lock { _token: Token::new(), taken: Box::default() }
    }

    fn lock(&self) {
        burn();
        self.taken.set(true);
    }

    fn try_lock(&self) -> bool {
        burn();
        !self.taken.replace(true)
    }

    fn unlock(&self) {
        burn();
        self.taken.set(false);
    }
}

/// A platform any of whose calls may panic.
pub(crate) struct Fragile;

impl Platform for Fragile {
    type U32 = Stored<u32>;
    type U64 = Stored<u64>;
    type Cell<T: Scalar> = Stored<T>;
    type LocalCell<T: Scalar> = Stored<T>;
    type Lock = Lock;
    type PinState = ();
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        burn();
        CpuId::new(0)
    }

    fn pin(&self) -> Pinned<()> {
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {
        burn();
    }

    fn irq_save(&self) {
        burn();
    }

    fn irq_restore(&self, (): ()) {
        burn();
    }
}

/// Runs `act`, in which the platform's call number `at` panics if there are so many; returns how
/// many there were if not. All initialised values are gone afterwards.
pub(crate) fn survive(at: u64, act: impl FnOnce()) -> Option<u64> {
    FUSE.set(at);
    let done = catch_unwind(AssertUnwindSafe(act));
    let calls = at.wrapping_sub(FUSE.replace(u64::MAX));
    assert!(!WRONG_DROP.replace(false), "call {at}: a drop of what was not there");
    assert_eq!(ALIVE.get(), 0, "call {at}: something was not dropped");
    assert_eq!(done.is_ok(), calls <= at, "only the platform panics");
    done.is_ok().then_some(calls)
}

/// Two zones of 32 frames each, and two CPUs.
pub(crate) fn with_config<R>(act: impl FnOnce(&Config<'_>) -> R) -> R {
    let range = |start| MemoryRange::new(Pfn::new(start), FrameCount::new(32));
    let ranges = [range(100), range(600).in_zone(ZoneKind::Movable)];
    act(&Config::new(&ranges, &[NodeId::new(0); 2]).min_free(FrameCount::ZERO))
}

/// Numbers of calls to panic at: all of the first ones, and then some of the others, until `done`.
pub(crate) fn every_call(mut survive_at: impl FnMut(u64) -> Option<u64>, dense: u64, step: usize) {
    let (mut first, mut then) = (0..dense, (dense..).step_by(step));
    let mut panicked = 0;
    while let Some(at) = first.next().or_else(|| then.next()) {
        if survive_at(at).is_some() {
            break;
        }
        panicked += 1;
    }
    assert!(panicked > 100, "calls that panicked: {panicked}");
}
