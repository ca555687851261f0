//! A pool of equal, large slots of memory: taken, used, reset and taken again, as WebAssembly
//! runtimes do with the memories of instances. No lock is shared by all threads.
//!
//! ```
//! use freehold_pool::{ModuleKey, Pool};
//!
//! let pool = Pool::builder().slots(100).slot_bytes(16 << 20).guard_bytes(1 << 20).build()?;
//! let module = ModuleKey::new(1);
//!
//! let mut memory = pool.take(module)?; // Zero, however often it was used before.
//! memory.set_accessible(64 << 10)?;
//! memory.bytes_mut()[..5].copy_from_slice(b"hello");
//! memory.grow(128 << 10)?;
//! drop(memory); // Reset later, in a batch; then warm for the module.
//!
//! let mut memory = pool.take(module)?;
//! memory.set_accessible(64 << 10)?;
//! assert!(memory.bytes().iter().all(|byte| *byte == 0));
//! memory.keep(); // As it is: only the module's next instance may see it.
//! println!("{:?}", pool.stats());
//! # Ok::<(), freehold_pool::PoolError>(())
//! ```
//!
//! | what you want | use |
//! |---|---|
//! | slots that are zero | [`Pool::take`], drop |
//! | slots that have the content of a file or of bytes at first | [`Pool::take_with`], [`Image`] |
//! | slots that need no system call | [`PoolBuilder::keep_resident_bytes`]; [`Slot::keep`] |
//! | slots that outlive a borrow of the pool | [`Pool::take_owned`] |
//! | a memory that grows | [`Slot::grow`], [`Slot::set_accessible`] |
//! | fewer system calls | [`PoolBuilder::batch_slots`] |
//! | free slots without their memory, on any platform | [`slots`] |
//!
//! # What a user finds in a slot
//!
//! | how the slot comes | its content | how much is accessible |
//! |---|---|---|
//! | neither warm nor kept | zero, or the image | anything from nothing to all of it |
//! | [warm](Slot::is_warm) | the same | as much as the last user had, who had the same key |
//! | warm and [kept](Slot::is_kept) | as that user left it | the same |
//!
//! Of a slot that is taken with an image, at least the image is accessible, unless it is kept.
//!
//! Whatever was accessible to a user is zero for the next, or the image that this one asks for,
//! unless that user kept the slot, and both have the same key and the same image. So keys are who
//! may see each other's content, and modules of different owners must have different ones. A slot
//! without a key is never kept.
//!
//! # What calls wait for
//!
//! Taking a slot and giving it back take the lock of one CPU's lists for a few steps, and wait for
//! what [`alloc`](freehold::PageAllocator::alloc) and [`free`](freehold::PageAllocator::free) wait
//! for. Nothing is reset under a lock. When no slot is clean, a call looks at the lists of other
//! CPUs, and waits for those that have slots in hand to reset them; it fails only if at some moment
//! all slots were in use.
//!
//! Signal handlers must not call a pool. The child of a `fork` must not use its parent's pool: a
//! lock may be held there by a thread that does not exist. Its slots are copies, though, so nothing
//! that it does reaches the parent's.

#![deny(unsafe_code)]

mod builder;
#[cfg(test)]
#[expect(unsafe_code, reason = "forks")]
#[path = "../../../crates/freehold-host/tests/common/mod.rs"]
mod children;
mod content;
mod error;
mod home;
mod image;
mod key;
mod pool;
mod reserved;
pub mod slots;
mod stat;

pub use builder::PoolBuilder;
pub use error::PoolError;
pub use image::Image;
pub use key::{ModuleKey, SlotIndex};
pub use pool::{Pool, PoolRef, Slot};
pub use slots::BATCH_SLOTS_MAX;
pub use stat::PoolStats;

/// The examples of the README and of the guide, compiled and run as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../docs/pool.md")]
struct Guide;
