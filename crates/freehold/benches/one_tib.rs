//! Sets up the design `freehold` for 1 TiB of fictitious memory, and prints the size of its
//! metadata: `cargo bench -p freehold --bench one_tib`.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ptr::NonNull;
use std::time::Instant;

use freehold::designs::Freehold;
use freehold::platform::{Native, OneCpu};
use freehold::{
    Config, FrameCount, MemoryRange, Metadata, NodeId, Order, PageAllocator, Pfn, Request,
};

type Machine = Native<OneCpu>;
type Frames = PageAllocator<Machine, Freehold<Machine>>;

fn main() -> Result<(), freehold::Error> {
    const NODE_FRAMES: FrameCount = FrameCount::new(1 << 27);
    let node = |number: u16| {
        let start = Pfn::new(u64::from(number) * NODE_FRAMES.get());
        MemoryRange::new(start, NODE_FRAMES).on_node(NodeId::new(number))
    };
    let ranges = [node(0), node(1)];
    let cpus: Vec<_> = (0..112).map(|cpu| NodeId::new(cpu / 56)).collect();
    let config = Config::new(&ranges, &cpus);

    let layout = Frames::layout(&config, &Default::default())?;
    let wanted = Layout::from_size_align(layout.size(), layout.align()).expect("sizes are sane");
    // SAFETY: the size is not zero: there is at least a table of zones.
    let buffer = unsafe { alloc_zeroed(wanted) };
    let base = NonNull::new(buffer).unwrap_or_else(|| handle_alloc_error(wanted));
    // SAFETY: the buffer was just allocated with this size and zeroed, is never freed, and is used
    // for nothing else.
    let metadata = unsafe { Metadata::from_zeroed_raw_parts(base, layout.size()) };

    let start = Instant::now();
    let frames = Frames::new(Native(OneCpu), &config, &Default::default(), metadata)?;
    let setup = start.elapsed();

    let total: u64 = frames.zones().map(|zone| zone.managed.get()).sum();
    println!("memory        {} GiB, 2 nodes, {} CPUs", total >> 18, cpus.len());
    println!("metadata      {} MiB", layout.size() >> 20);
    println!("a frame       {:.4} bytes", layout.size() as f64 / total as f64);
    println!("set up in     {:.3} s (measured on this host)", setup.as_secs_f64());
    let gib = frames.alloc(Request::new(Order::new(18)))?;
    println!("first GiB at  {gib}");
    frames.free(gib, Order::new(18))
}
