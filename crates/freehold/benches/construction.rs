//! The time to build an allocator, by design: with many CPUs and next to no memory, with many
//! nodes, and with a large span that is nearly empty.
//!
//! `cargo bench -p freehold --bench construction`
//!
//! The times are those of `PageAllocator::layout` and `new` together, the best of a few tries,
//! without the page faults of fresh metadata.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use freehold::designs::Freehold;
use freehold::platform::{Native, OneCpu};
use freehold::{
    Config, Design, Error, FrameCount, MemoryRange, Metadata, NodeId, PageAllocator, Pfn,
};
use freehold_linux::{BlockOwner, Cluster, LazyMerge, MergeAhead, ZoneLock};
use freehold_llfree::Llfree;

type Machine = Native<OneCpu>;

/// Frames in a pageblock.
const PAGEBLOCK: u64 = 512;

/// The machine that an allocator is built for.
struct Case {
    name: &'static str,
    cpus: usize,
    /// Each has one pageblock of memory.
    nodes: u16,
    /// In frames, if it is more than the memory.
    span: Option<u64>,
}

const CASES: [Case; 6] = [
    Case { name: "64 CPUs", cpus: 64, nodes: 1, span: None },
    Case { name: "4096 CPUs", cpus: 4096, nodes: 1, span: None },
    Case { name: "65534 CPUs", cpus: 65_534, nodes: 1, span: None },
    Case { name: "100 nodes, 64 CPUs", cpus: 64, nodes: 100, span: None },
    Case { name: "100 nodes, 4096 CPUs", cpus: 4096, nodes: 100, span: None },
    Case { name: "span of 16 GiB, 64 CPUs", cpus: 64, nodes: 1, span: Some(1 << 22) },
];

/// Builds an allocator once; returns how long that took, its layout included, and how many bytes of
/// metadata it has.
fn build<D: Design<Machine>>(case: &Case) -> Result<(Duration, usize), Error> {
    let of_node = |node: u16| {
        let start = Pfn::new(u64::from(node) * PAGEBLOCK);
        MemoryRange::new(start, FrameCount::new(PAGEBLOCK)).on_node(NodeId::new(node))
    };
    let ranges: Vec<_> = (0..case.nodes).map(of_node).collect();
    let cpus: Vec<_> =
        (0..case.cpus).map(|cpu| NodeId::new((cpu % usize::from(case.nodes)) as u16)).collect();
    let span = case.span.map(|frames| (Pfn::new(0), FrameCount::new(frames)));
    let config = Config::new(&ranges, &cpus).span(span);

    let begin = Instant::now();
    let layout = PageAllocator::<Machine, D>::layout(&config, &Default::default())?;
    let planned = begin.elapsed();
    let wanted = Layout::from_size_align(layout.size(), layout.align()).expect("sizes are sane");
    // SAFETY: the size is not zero: there is at least a table of zones.
    let buffer = unsafe { alloc(wanted) };
    let base = NonNull::new(buffer).unwrap_or_else(|| handle_alloc_error(wanted));
    // SAFETY: the buffer was just allocated with this size.
    unsafe { base.write_bytes(0, layout.size()) };
    // SAFETY: the buffer is used for nothing else, and is freed after the allocator was dropped.
    let metadata = unsafe { Metadata::from_raw_parts(base, layout.size()) };
    let begin = Instant::now();
    let built =
        PageAllocator::<Machine, D>::new(Native(OneCpu), &config, &Default::default(), metadata);
    let time = planned + begin.elapsed();
    let done = built.map(drop);
    // SAFETY: the buffer came from `alloc` with this layout, and the allocator on it is gone.
    unsafe { dealloc(base.as_ptr(), wanted) };
    done.map(|()| (time, layout.size()))
}

fn report<D: Design<Machine>>(case: &Case) -> Result<(), Error> {
    const TRIES: usize = 5;
    let (mut time, bytes) = build::<D>(case)?;
    for _ in 1..TRIES {
        time = time.min(build::<D>(case)?.0);
    }
    let millis = time.as_secs_f64() * 1e3;
    println!("{:24} {:12} {millis:9.2} ms {:9} KiB", case.name, D::NAME, bytes >> 10);
    Ok(())
}

fn main() -> Result<(), Error> {
    for case in &CASES {
        report::<ZoneLock<Machine>>(case)?;
        report::<LazyMerge<Machine>>(case)?;
        report::<Cluster<Machine>>(case)?;
        report::<MergeAhead<Machine>>(case)?;
        report::<BlockOwner<Machine>>(case)?;
        report::<Llfree<Machine>>(case)?;
        report::<Freehold<Machine>>(case)?;
    }
    Ok(())
}
