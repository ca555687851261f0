//! What calls cost at large sizes: one table, of metadata alone. No frame is touched.
//! `cargo bench -p freehold --bench call_costs -- --help`

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use freehold::designs::{Design, Freehold};
use freehold::platform::{Machine, Native};
use freehold::{
    Config, CpuId, FrameCount, Immovable, MemoryRange, Metadata, NodeId, Order, PageAllocator, Pfn,
    RangeRequest, Request,
};
use freehold_linux::zone_lock::ZoneLock;

const HELP: &str = "\
call_costs: what calls of the allocator cost, with metadata alone

  --gib LIST     sizes of memory in GiB               [1,64,1024]
  --cpus LIST    numbers of CPUs                      [2,4096]
  --design NAME  freehold or zone-lock                [freehold]
  --repeat N     measure all of it so often           [1]

Each figure is the first call / the fastest of up to 9 more, in us; of repetitions, the
fastest. All memory is in one zone. Memory is fresh at first, then full of single frames, then
one frame in each pageblock is free. Up to 64 GiB are compacted whole.";

const PAGEBLOCK: u64 = 512;

/// More memory than this takes too long to be compacted whole.
const COMPACTED_GIB_MAX: u64 = 64;

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// The bench says on which CPU it runs.
struct Bench;

impl Machine for Bench {
    fn cpu(&self) -> CpuId {
        CpuId::new(CPU.get())
    }

    // There is one thread, and so nothing to order.
    fn light_barrier(&self) {}

    fn heavy_barrier(&self) -> bool {
        true
    }
}

type P = Native<Bench>;

/// The command line.
struct Options {
    gib: Vec<u64>,
    cpus: Vec<usize>,
    design: String,
    repeat: u64,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let (gib, cpus) = (vec![1, 64, 1024], vec![2, 4096]);
        let mut options = Options { gib, cpus, design: "freehold".into(), repeat: 1 };
        while let Some(name) = args.next() {
            let value = args.next().ok_or(format!("{name}: a value is missing; see --help"))?;
            match name.as_str() {
                "--gib" => options.gib = numbers(&name, &value, 1..=4096)?,
                "--cpus" => {
                    let cpus = numbers(&name, &value, 1..=4096)?;
                    options.cpus = cpus.into_iter().map(|cpus| cpus as usize).collect();
                }
                "--repeat" => options.repeat = numbers(&name, &value, 1..=100)?[0],
                "--design" if ["freehold", "zone-lock"].contains(&value.as_str()) => {
                    options.design = value;
                }
                "--design" => return Err(format!("--design: no {value}; freehold or zone-lock")),
                _ => return Err(format!("{name}: no such option; see --help")),
            }
        }
        Ok(options)
    }
}

fn numbers(
    name: &str,
    list: &str,
    valid: std::ops::RangeInclusive<u64>,
) -> Result<Vec<u64>, String> {
    let number = |text: &str| {
        let number = text.parse().ok().filter(|number| valid.contains(number));
        number.ok_or(format!("{name}: {text:?} is no number from {valid:?}"))
    };
    list.split(',').map(number).collect()
}

/// The first call, and the fastest of later ones.
type Times = (Duration, Option<Duration>);

/// What was measured of one allocator.
struct Column {
    name: String,
    rows: Vec<(&'static str, Times)>,
}

impl Column {
    /// Measures a call that leaves the state as it was: 10 times, or for half a second.
    fn row<R>(&mut self, what: &'static str, mut call: impl FnMut() -> R) {
        let begin = Instant::now();
        let mut time = || {
            let start = Instant::now();
            std::hint::black_box(call());
            start.elapsed()
        };
        let first = time();
        let mut later = None;
        for _ in 0..9 {
            if begin.elapsed() > Duration::from_millis(500) {
                break;
            }
            let time = time();
            later = Some(later.unwrap_or(time).min(time));
        }
        self.rows.push((what, (first, later)));
    }

    /// Keeps the faster of two measurements of each call.
    fn merge(&mut self, other: Column) {
        for ((_, mine), (_, theirs)) in self.rows.iter_mut().zip(other.rows) {
            *mine = (mine.0.min(theirs.0), mine.1.min(theirs.1));
        }
    }

    /// Measures a call that is made once.
    fn once<R>(&mut self, what: &'static str, call: impl FnOnce() -> R) -> R {
        let start = Instant::now();
        let result = call();
        self.rows.push((what, (start.elapsed(), None)));
        result
    }
}

fn order(order: u8) -> Request {
    Request::new(Order::new(order))
}

/// Measures an allocator of so much memory; `leases` measures what this design alone has.
fn measure<D: Design<P>>(
    gib: u64,
    cpus: usize,
    leases: impl FnOnce(&PageAllocator<P, D>, &mut Column),
) -> Column {
    CPU.set(0);
    let frames = gib << 18;
    let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(frames))];
    let nodes = vec![NodeId::new(0); cpus];
    let config = Config::new(&ranges, &nodes).min_free(FrameCount::ZERO);
    let mut column = Column { name: format!("{gib} GiB, {cpus} CPUs"), rows: Vec::new() };
    let layout = PageAllocator::<P, D>::layout(&config, &D::Settings::default()).expect("it fits");
    // Never freed: the process ends soon.
    let buffer = vec![MaybeUninit::<u8>::uninit(); layout.size_unaligned()].leak();
    let all: PageAllocator<P, D> = column.once("new", || {
        let metadata = Metadata::from_static(buffer);
        PageAllocator::new(Native(Bench), &config, &D::Settings::default(), metadata)
            .expect("the layout is of this configuration")
    });
    fresh(&all, &mut column);
    leases(&all, &mut column);
    full(&all, &mut column, frames);
    scattered(&all, &mut column, gib <= COMPACTED_GIB_MAX);
    column
}

/// Calls while most memory is free.
fn fresh<D: Design<P>>(all: &PageAllocator<P, D>, column: &mut Column) {
    let free = |pfn, order| all.free(pfn, Order::new(order)).expect("it is allocated");
    for (what, of) in [("alloc + free 0", 0), ("alloc + free 9", 9), ("alloc + free 10", 10)] {
        column.row(what, || free(all.alloc(order(of)).expect("memory is free"), of));
    }
    // Other designs have no blocks of that order, and small memory has none either.
    if let Ok(block) = all.alloc(order(18)) {
        free(block, 18);
        column.row("alloc + free 18", || free(all.alloc(order(18)).expect("it was free"), 18));
    }
    let mut out = [Pfn::default(); PAGEBLOCK as usize];
    column.row("alloc_bulk + free_bulk of 512", || {
        let got = all.alloc_bulk(order(0), &mut out).expect("the request is valid");
        all.free_bulk(&out[..got], Order::ZERO).expect("they are allocated");
    });
    column.row("free from another CPU", || {
        let pfn = all.alloc(order(0)).expect("memory is free");
        CPU.set(1.min(all.cpus() as u32 - 1));
        free(pfn, 0);
        CPU.set(0);
    });
    let range = FrameCount::new(4000);
    column.row("alloc_range + free_range of 4000", || {
        let first = all.alloc_range(RangeRequest::new(range), &Immovable).expect("memory is free");
        all.free_range(first, range).expect("it is allocated");
    });
    let at = Pfn::new(1 << 17);
    column.row("remove_memory + add_memory of 128 MiB", || {
        let frames = FrameCount::new(1 << 15);
        all.remove_memory(at, frames, &Immovable).expect("it is free");
        all.add_memory(MemoryRange::new(at, frames)).expect("it was there");
    });
    reports(all, column);
}

/// Calls that report, and upkeep.
fn reports<D: Design<P>>(all: &PageAllocator<P, D>, column: &mut Column) {
    let held = all.alloc(order(9)).expect("memory is free");
    column.row("status", || all.status(Pfn::new(held.get() + 77)));
    all.free(held, Order::new(9)).expect("it is allocated");
    column.row("levels", || all.levels().count());
    column.row("zones", || all.zones().count());
    column.row("free_by_type", || all.free_by_type(0));
    column.row("numa_events", || all.numa_events(0));
    column.row("events", || all.events());
    column.row("validate", || all.validate().expect("all is well"));
    column.row("freeze + thaw", || all.thaw(all.freeze()));
    let cpu = CpuId::new(0);
    column.row("tick", || all.tick(cpu));
    column.row("drain", || all.drain(cpu));
    column.row("drain_all", || all.drain_all());
    column.row("offline_cpu", || all.offline_cpu(cpu));
}

/// Takes all memory as single frames, and measures calls that find none.
fn full<D: Design<P>>(all: &PageAllocator<P, D>, column: &mut Column, frames: u64) {
    let mut out = vec![Pfn::default(); 4096];
    let mut got = 0;
    loop {
        match all.alloc_bulk(order(0), &mut out).expect("the request is valid") {
            0 => break,
            more => got += more as u64,
        }
    }
    assert_eq!(got, frames, "all memory");
    column.row("full: alloc 0", || all.alloc(order(0)).expect_err("memory is full"));
    column.row("full: alloc 9", || all.alloc(order(9)).expect_err("memory is full"));
    for pageblock in 0..frames / PAGEBLOCK {
        all.free(Pfn::new(pageblock * PAGEBLOCK + 7), Order::ZERO).expect("it is allocated");
    }
}

/// Calls that fail while one frame in each pageblock is free.
fn scattered<D: Design<P>>(all: &PageAllocator<P, D>, column: &mut Column, compacts: bool) {
    let rows = [("scattered: alloc 1", 1), ("scattered: alloc 3", 3), ("scattered: alloc 9", 9)];
    for (what, of) in rows.into_iter().chain([("scattered: alloc 10", 10)]) {
        column.row(what, || all.alloc(order(of)).expect_err("there are single frames alone"));
    }
    column.row("scattered: alloc + free 0", || {
        let pfn = all.alloc(order(0)).expect("memory is free");
        all.free(pfn, Order::ZERO).expect("it is allocated");
    });
    column.row("scattered: zones", || all.zones().count());
    column.row("scattered: free_by_type", || all.free_by_type(0));
    column.row("scattered: events", || all.events());
    column.row("scattered: validate", || all.validate().expect("all is well"));
    column.row("scattered: drain_all", || all.drain_all());
    column.row("scattered: alloc_range of 1000", || {
        all.alloc_range(RangeRequest::new(FrameCount::new(1000)), &Immovable)
            .expect_err("nothing moves")
    });
    column.row("scattered: remove_memory of 1", || {
        all.remove_memory(Pfn::new(1), FrameCount::new(1), &Immovable).expect_err("it is in use")
    });
    if compacts {
        column.row("scattered: alloc_compacting 9", || {
            all.alloc_compacting(order(9), &Immovable).expect_err("nothing moves")
        });
        column.row("scattered: compact", || all.compact(&Immovable));
    }
}

/// What threads have for themselves.
fn leases(all: &PageAllocator<P, Freehold<P>>, column: &mut Column) {
    let cpu = CpuId::new(0);
    column.row("lease + drop", || drop(all.lease(cpu).expect("it is the only one")));
    let lease = all.lease(cpu).expect("it is the only one");
    column.row("lease: alloc + free 0", || {
        let pfn = lease.alloc(order(0)).expect("memory is free");
        lease.free(pfn, Order::ZERO).expect("it is allocated");
    });
}

fn print(options: &Options, columns: &[Column]) {
    let us = |time: Duration| match time.as_nanos() as f64 / 1e3 {
        us if us < 10.0 => format!("{us:.2}"),
        us => format!("{us:.0}"),
    };
    let mut names: Vec<&str> = Vec::new();
    for (what, _) in columns.iter().flat_map(|column| &column.rows) {
        if !names.contains(what) {
            names.push(what);
        }
    }
    let heads: Vec<_> = columns.iter().map(|column| column.name.as_str()).collect();
    println!(
        "| {}, us | {} |\n|---|{}",
        options.design,
        heads.join(" | "),
        "---|".repeat(heads.len())
    );
    for name in names {
        let cell = |column: &Column| match column.rows.iter().find(|row| row.0 == name) {
            Some((_, (first, Some(later)))) => format!("{} / {}", us(*first), us(*later)),
            Some((_, (first, None))) => us(*first),
            None => "-".into(),
        };
        let cells: Vec<_> = columns.iter().map(cell).collect();
        println!("| {name} | {} |", cells.join(" | "));
    }
}

fn main() {
    // `cargo bench` adds an argument of its own.
    let args: Vec<_> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if args.iter().any(|arg| arg == "--help") {
        return println!("{HELP}");
    }
    let options = Options::parse(args.iter().cloned()).unwrap_or_else(|error| {
        eprintln!("call_costs: {error}");
        std::process::exit(2);
    });
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    eprintln!("call_costs {}: {processors} CPUs, {model}", args.join(" "));
    let mut columns = Vec::new();
    for &gib in &options.gib {
        for &cpus in &options.cpus {
            let measure = || match options.design.as_str() {
                "freehold" => measure::<Freehold<P>>(gib, cpus, leases),
                _ => measure::<ZoneLock<P>>(gib, cpus, |_, _| ()),
            };
            let mut column = measure();
            (1..options.repeat).for_each(|_| column.merge(measure()));
            columns.push(column);
        }
    }
    print(&options, &columns);
}
