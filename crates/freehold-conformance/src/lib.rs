//! Checks of a page-frame allocator where it runs: in a kernel, on its memory, CPUs and interrupts.
//!
//! * [`suite::run`] allocates and frees in all ways on an allocator that is otherwise idle, and
//!   checks what each call promises. It returns the first [`Failure`]. Compaction, hotplug and
//!   leases are left to the tests of the core.
//! * [`Torture`] lets CPUs allocate blocks, hand them to each other and free them, in threads and
//!   in interrupt handlers, while stamps in the frames tell who owns them.
//!
//! No heap and no unsafe code: what is checked is a [`Subject`], which every
//! [`PageAllocator`](freehold::PageAllocator) is, and how the words of a frame are reached is up to
//! the embedder's [`Stamps`].
//!
//! # Example
//!
//! ```
//! use core::mem::MaybeUninit;
//! use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
//! use freehold::designs::Freehold;
//! use freehold::platform::{Native, OneCpu};
//! use freehold::{Config, FrameCount, MemoryRange, Metadata, NodeId, PageAllocator, Pfn};
//! use freehold_conformance::{Stamps, Torture, Worker, suite};
//!
//! struct DirectMap(Vec<AtomicU64>);
//!
//! impl Stamps for DirectMap {
//!     fn read(&self, frame: Pfn) -> u64 {
//!         self.0[frame.get() as usize].load(Relaxed)
//!     }
//!     fn write(&self, frame: Pfn, stamp: u64) {
//!         self.0[frame.get() as usize].store(stamp, Relaxed);
//!     }
//! }
//!
//! type Frames = PageAllocator<Native<OneCpu>, Freehold<Native<OneCpu>>>;
//!
//! let memory = [MemoryRange::new(Pfn::new(0), FrameCount::new(8192))];
//! let cpus = [NodeId::new(0)];
//! let config = Config::new(&memory, &cpus);
//! let size = Frames::layout(&config, &Default::default())?.size_unaligned();
//! let metadata = Metadata::from_static(vec![MaybeUninit::uninit(); size].leak());
//! let frames = Frames::new(Native(OneCpu), &config, &Default::default(), metadata)?;
//! let map = DirectMap((0..8192).map(|_| AtomicU64::new(7)).collect());
//!
//! let report = suite::run(&frames, &map, &mut [Pfn::new(0); 256]).expect("it conforms");
//! assert_eq!(report.free, FrameCount::new(8192));
//!
//! let slots = [const { AtomicU64::new(0) }; 64];
//! let torture = Torture::new(&frames, &map, &slots);
//! let free = torture.prepare().expect("nothing else is under way");
//! let (mut thread, mut handler) = (Worker::new(1), Worker::new(2));
//! for _ in 0..1000 {
//!     torture.step(&mut thread);
//!     torture.interrupt(&mut handler); // in a kernel, the handler of a timer calls this
//! }
//! torture.finish(&mut [thread, handler], free).expect("all frames are back");
//! # Ok::<(), freehold::Error>(())
//! ```

#![no_std]
#![forbid(unsafe_code)]

pub use failure::{Check, Failure, Outcome};
pub use stamps::Stamps;
pub use subject::{Counts, Subject};
pub use torture::{Tally, Torture, Worker};

pub mod suite;

mod failure;
mod pile;
mod random;
mod stamps;
mod subject;
mod torture;

/// The example of the README, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
