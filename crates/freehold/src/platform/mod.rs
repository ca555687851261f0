//! The interface between the allocator and the machine it runs on.
//!
//! Core names no atomic type, no lock and no CPU register. It is generic over one [`Platform`], so
//! the same source runs at full speed on a real machine, under a model checker, and on a simulated
//! machine, all in one binary. Every access to memory that another CPU can see goes through one of
//! three kinds of storage:
//!
//! * a [`Word`] is an atomic: any CPU may access it at any time, with a memory ordering stated at
//!   each site;
//! * a [`Platform::Cell`] is memory that a lock guards: plain reads and writes, which a model
//!   checker can check for races and a simulated machine can charge for;
//! * a [`Platform::LocalCell`] is guarded too, but by a lock of one CPU that others rarely take.

use core::marker::PhantomData;
use core::ops::{BitAnd, BitOr};
use core::sync::atomic::Ordering;

use crate::units::CpuId;

pub use machine::{CpuNumbers, Machine, Native, OneCpu};
pub use pin::Pinned;
#[doc(hidden)]
pub use pin::{CriticalSection, IrqsOff, Pin};

mod machine;
pub mod native;
mod pin;

/// An integer that the storage of a platform can hold.
pub trait Scalar:
    Copy
    + Eq
    + BitAnd<Output = Self>
    + BitOr<Output = Self>
    + core::fmt::Debug
    + private::Sealed
    + 'static
{
    /// The atomic type of the same size, on which [`native`] storage is built.
    type Atomic: Word<Self>;
    /// The sum, wrapping around.
    fn wrapping_sum(self, other: Self) -> Self;
}

mod private {
    /// Restricts [`super::Scalar`] to the integers that every platform supports.
    pub trait Sealed {}
}

macro_rules! scalar {
    ($($int:ty => $atomic:ident),*) => {$(
        impl private::Sealed for $int {}
        impl Scalar for $int {
            type Atomic = core::sync::atomic::$atomic;
            fn wrapping_sum(self, other: Self) -> Self { self.wrapping_add(other) }
        }
    )*};
}
scalar!(u8 => AtomicU8, u16 => AtomicU16, u32 => AtomicU32, u64 => AtomicU64);

/// Evidence that zero bytes are a valid `T` that holds zero and owns nothing. Only the storage of
/// this crate has it: the atomics of the standard library, and the cells made of them.
pub struct ZeroBytes<T: ?Sized>(PhantomData<*mut T>);

impl<T: ?Sized> ZeroBytes<T> {
    /// `T` is an atomic integer of the standard library, or has the layout of one.
    const fn of_atomic() -> Self {
        ZeroBytes(PhantomData)
    }
}

impl<T> ZeroBytes<T> {
    /// What is known of an array of `T`.
    pub(crate) const fn array<const N: usize>(known: Option<Self>) -> Option<ZeroBytes<[T; N]>> {
        match known {
            Some(_) => Some(ZeroBytes(PhantomData)),
            None => None,
        }
    }
}

impl<T: ?Sized> Clone for ZeroBytes<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: ?Sized> Copy for ZeroBytes<T> {}

impl<T: ?Sized> core::fmt::Debug for ZeroBytes<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("ZeroBytes")
    }
}

/// An atomic integer, with just the operations that core uses.
pub trait Word<T> {
    /// Whether a word of zero bytes holds zero: then tables of such words in zeroed memory need not
    /// be written; see [`Metadata::from_zeroed_raw_parts`](crate::Metadata::from_zeroed_raw_parts).
    /// Default: unknown.
    const ZERO_BYTES: Option<ZeroBytes<Self>> = None;
    /// A word holding `value`.
    fn new(value: T) -> Self;
    /// Reads the word.
    fn load(&self, order: Ordering) -> T;
    /// Writes the word.
    fn store(&self, value: T, order: Ordering);
    /// Writes the word and returns what it held.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Adds to the word, wrapping around, and returns what it held.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Sets bits of the word and returns what it held.
    fn fetch_or(&self, bits: T, order: Ordering) -> T;
    /// Keeps only these bits of the word and returns what it held.
    fn fetch_and(&self, bits: T, order: Ordering) -> T;
    /// Writes `new` if the word holds `current`; returns what it held, as `Err` if that differs.
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;
}

/// Memory guarded by a lock: plain reads and writes through a shared reference.
///
/// Access without the lock is a defect of the allocator, but never undefined behaviour: a native
/// cell is a relaxed atomic, which compiles to the same plain move, and a model checker's cell
/// reports the race.
pub trait SharedCell<T> {
    /// Whether a cell of zero bytes holds zero; as [`Word::ZERO_BYTES`].
    const ZERO_BYTES: Option<ZeroBytes<Self>> = None;
    /// A cell holding `value`.
    fn new(value: T) -> Self;
    /// Reads the cell. The caller holds the lock that guards it.
    fn get(&self) -> T;
    /// Writes the cell. The caller holds the lock that guards it.
    fn set(&self, value: T);
}

/// What a lock guards, so that a platform can account for waiting by kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LockClass {
    /// The lock of a zone: its free lists, its block types, its counters.
    Zone,
    /// The lock of one CPU's lists in one zone.
    Pcp,
    /// The lock over the caches of one CPU in all zones: the pageblocks that it holds.
    CpuCache,
    /// The lock over a zone's compaction state.
    Compaction,
    /// The lock taken to add memory.
    Hotplug,
    /// The lock over lists of recently used frames: of a node, or of one group on it.
    Lru,
    /// The lock of one CPU's batches of frames on their way to such lists.
    LruBatch,
    /// The lock over the tree of memory groups.
    LruGroups,
    /// A lock of the library's user, such as the owner of cached content.
    Owner,
}

impl LockClass {
    /// The name in reports, such as `zone_lock`.
    pub const fn name(self) -> &'static str {
        match self {
            LockClass::Zone => "zone_lock",
            LockClass::Pcp => "pcp_lock",
            LockClass::CpuCache => "cpu_cache_lock",
            LockClass::Compaction => "compaction_lock",
            LockClass::Hotplug => "hotplug_lock",
            LockClass::Lru => "lru_lock",
            LockClass::LruBatch => "lru_batch_lock",
            LockClass::LruGroups => "lru_groups_lock",
            LockClass::Owner => "owner_lock",
        }
    }
}

/// A lock without data or guard. Core wraps it in its own guards.
///
/// Taking the lock has acquire semantics and releasing it release semantics: a holder sees all
/// writes of the previous ones.
///
/// If copies of the metadata are used, as after a `fork`, a lock must not remember who waits for it
/// (tickets, a queue): in the copy there are no waiters, and it would stay taken.
pub trait RawLock {
    /// A free lock.
    fn new(class: LockClass) -> Self;
    /// Waits until the lock is free and takes it. Not recursive.
    fn lock(&self);
    /// Takes the lock if it is free, without waiting; returns whether it did. May fail spuriously.
    fn try_lock(&self) -> bool;
    /// Releases the lock. The caller holds it.
    fn unlock(&self);
}

/// The machine that the allocator runs on.
///
/// # Implementing one
///
/// [`Native`] is one for any machine that Rust has atomics for; it asks only for the number of the
/// CPU. A kernel with a lock of its own implements this trait, with the words and cells of
/// [`native`]. No method may allocate frames from the
/// allocator that it serves.
pub trait Platform: 'static {
    /// An atomic 32-bit word.
    type U32: Word<u32>;
    /// An atomic 64-bit word.
    type U64: Word<u64>;
    /// Memory that a lock guards.
    type Cell<T: Scalar>: SharedCell<T>;
    /// Memory guarded by the lock of one CPU, and accessed nearly always by this CPU only.
    type LocalCell<T: Scalar>: SharedCell<T>;
    /// The lock of zones and of per-CPU lists.
    type Lock: RawLock;
    /// What [`Platform::pin`] has to remember: `()` where a count of the CPU does that, a register
    /// of flags where pinning disables interrupts.
    type PinState: Copy;
    /// What [`Platform::irq_save`] has to remember.
    type IrqState: Copy;

    /// The CPU that runs the caller: a hint, which may be stale when it returns. Correctness never
    /// depends on it, so any number is fine, and one too large is folded into the range.
    fn cpu(&self) -> CpuId;

    /// Keeps the caller on its CPU until [`Platform::unpin`], where the machine can; returns that
    /// CPU, and what to restore then. In a kernel this disables preemption, or interrupts.
    ///
    /// Every lock is taken by a caller that is pinned, or has disabled interrupts, so a holder is
    /// not preempted. Pins nest: the one that began last ends first.
    fn pin(&self) -> Pinned<Self::PinState>;

    /// As [`Platform::pin`], for a caller that need not know its CPU. Default: that.
    #[inline(always)]
    fn pin_anywhere(&self) -> Self::PinState {
        self.pin().state
    }

    /// Ends what [`Platform::pin`] began, given the state that it returned.
    fn unpin(&self, state: Self::PinState);

    /// Waits briefly for another CPU to finish a few steps that take no lock. If threads can be
    /// preempted at any time, yield the processor here.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// The light half of an asymmetric fence: a `light_barrier` and a [`Platform::heavy_barrier`]
    /// on another CPU are ordered like two sequentially consistent fences. Whatever precedes the
    /// first of the two is visible after the second. Two light ones are not ordered.
    ///
    /// The frequent side uses the light half and the rare side the heavy one, which makes all other
    /// CPUs execute a full fence, so that the light half need only stop the compiler. Examples:
    /// Linux's `membarrier(2)` with `MEMBARRIER_CMD_PRIVATE_EXPEDITED`, and the asymmetric fences
    /// of folly. Default: a sequentially consistent fence.
    fn light_barrier(&self) {
        core::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The heavy half; returns whether the machine has one. If not, nothing is ordered, and there
    /// are no new leases. Those that exist cannot be revoked: drains and allocations that run out
    /// of memory leave them what they hold. Default: `false`.
    fn heavy_barrier(&self) -> bool {
        false
    }

    /// Disables interrupts on this CPU, where the machine has any; returns the previous state. It
    /// pins the caller too, even where handlers allocate nothing and interrupts may stay on.
    fn irq_save(&self) -> Self::IrqState;

    /// Restores the state that [`Platform::irq_save`] returned.
    fn irq_restore(&self, state: Self::IrqState);
}
