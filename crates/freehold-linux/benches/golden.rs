//! Golden instruction counts of the hot paths, by valgrind's callgrind.
//!
//! ```text
//! cargo bench --profile figures -p freehold-linux --bench golden           compare with golden.txt
//! cargo bench --profile figures -p freehold-linux --bench golden -- bless  write it anew
//! ```
//!
//! It lives in the crate that has all designs but `llfree` and nothing else to build.
//!
//! The counts of golden.txt are those of the profile `figures`: one codegen unit per crate, so that
//! inlining does not depend on how a crate is divided.
//!
//! Counts do not depend on other load of the machine, so they show a lost inlining or a needless
//! load that timings hide. They do depend on the compiler: with a version other than that of the
//! golden counts, a wider margin is allowed.
//!
//! Two of the paths are one small protocol, written once through the platform and once on bare
//! atomics. Their counts must be equal: the platform abstraction costs nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use freehold::designs::{self, DoubleFree, FreeholdSettings, Pick};
use freehold::platform::native::{NativeCell, SpinLock};
use freehold::platform::{
    LockClass, Machine, Native, Pinned, Platform, RawLock, Scalar, SharedCell, Word,
};
use freehold::{
    Config, CpuId, Design, FrameCount, MemoryRange, Metadata, NodeId, Order, PageAllocator, Pfn,
    Request,
};
use freehold_linux::zone_lock::ZoneLockSettings;
use freehold_linux::{Counters, Locking, Pcp};

#[path = "../../freehold/tests/common/mod.rs"]
mod common;

use common::TestPlatform;

/// The permitted deviation from the golden count, with the same compiler and with another.
const MARGIN: f64 = 0.01;
const MARGIN_OTHER_COMPILER: f64 = 0.15;

const PATHS: [&str; 26] = [
    "pair_auto",
    "pair_fixed",
    "pair_order_3",
    "pair_irq_exact",
    "pair_irq_relaxed",
    "pair_local_exact",
    "pair_rt_relaxed",
    "bulk_64",
    "flagged_pair_auto",
    "flagged_pair_irq_exact",
    "flagged_pair_irq_relaxed",
    "flagged_freehold_pair",
    "irq_pinned_pair_auto",
    "irq_pinned_freehold_pair",
    "freehold_pair",
    "freehold_constant_pair",
    "freehold_exact_pair",
    "freehold_random_pair",
    "freehold_lease",
    "freehold_order_3",
    "freehold_order_9",
    "freehold_bulk_64",
    "llfree_pair",
    "llfree_bulk_64",
    "seam_generic",
    "seam_by_hand",
];

fn main() -> ExitCode {
    // `cargo bench` adds an argument of its own.
    let arguments: Vec<_> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<_> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => compare(),
        ["bless"] => bless(),
        ["path", name, count] => match count.parse() {
            Ok(count) => {
                walk(name, count);
                ExitCode::SUCCESS
            }
            Err(_) => ExitCode::from(2),
        },
        _ => {
            eprintln!("usage: golden [bless]");
            ExitCode::from(2)
        }
    }
}

/// Walks a hot path so many times.
fn walk(name: &str, count: u64) {
    match name {
        "pair_auto" => pairs::<TestPlatform, ZoneLock>(of(Pcp::Auto), Order::ZERO, count),
        "pair_fixed" => pairs::<TestPlatform, ZoneLock>(of(Pcp::Fixed), Order::ZERO, count),
        "pair_order_3" => pairs::<TestPlatform, ZoneLock>(of(Pcp::Auto), Order::new(3), count),
        "pair_irq_exact" => protected_pairs(Locking::Irq, Counters::Exact, count),
        "pair_irq_relaxed" => protected_pairs(Locking::Irq, Counters::Relaxed, count),
        "pair_local_exact" => protected_pairs(Locking::Local, Counters::Exact, count),
        "pair_rt_relaxed" => protected_pairs(Locking::Rt, Counters::Relaxed, count),
        "bulk_64" => bulks::<ZoneLock>(count),
        "flagged_pair_auto" => flagged_pairs(Locking::Local, Counters::Exact, count),
        "flagged_pair_irq_exact" => flagged_pairs(Locking::Irq, Counters::Exact, count),
        "flagged_pair_irq_relaxed" => flagged_pairs(Locking::Irq, Counters::Relaxed, count),
        "flagged_freehold_pair" => default_pairs::<FlagPlatform, designs::Freehold<_>>(count),
        "irq_pinned_pair_auto" => default_pairs::<IrqMachine, freehold_linux::ZoneLock<_>>(count),
        "irq_pinned_freehold_pair" => default_pairs::<IrqMachine, designs::Freehold<_>>(count),
        "freehold_constant_pair" => constant_pairs(count),
        "freehold_exact_pair" => {
            let settings =
                FreeholdSettings { double_free: DoubleFree::Exact, ..Default::default() };
            pairs::<TestPlatform, Freehold>(settings, Order::ZERO, count);
        }
        "freehold_random_pair" => {
            let settings = FreeholdSettings { pick: Pick::Random, ..Default::default() };
            pairs::<TestPlatform, Freehold>(settings, Order::ZERO, count);
        }
        "freehold_pair" => default_pairs::<TestPlatform, Freehold>(count),
        "freehold_lease" => lease_pairs(count),
        "freehold_order_3" => {
            pairs::<TestPlatform, Freehold>(Default::default(), Order::new(3), count)
        }
        "freehold_order_9" => {
            pairs::<TestPlatform, Freehold>(Default::default(), Order::PAGEBLOCK, count)
        }
        "freehold_bulk_64" => bulks::<Freehold>(count),
        "llfree_pair" => default_pairs::<TestPlatform, Llfree>(count),
        "llfree_bulk_64" => bulks::<Llfree>(count),
        "seam_generic" => {
            let slot = Slot::<TestPlatform>::new();
            (0..count).for_each(|_| black_box(&slot).step());
        }
        "seam_by_hand" => {
            let slot = SlotByHand::default();
            (0..count).for_each(|_| black_box(&slot).step());
        }
        _ => panic!("no path is called {name}"),
    }
}

type ZoneLock = freehold_linux::ZoneLock<TestPlatform>;
type Freehold = designs::Freehold<TestPlatform>;
type Llfree = freehold_llfree::Llfree<TestPlatform>;
type IrqMachine = Native<IrqPinned>;

/// A platform on which pinning and interrupt states cost something: a count and a flag in memory,
/// as in a kernel. On a host both do nothing, and cost nothing.
#[derive(Default)]
struct FlagPlatform {
    pins: AtomicU32,
    irqs_on: AtomicU32,
}

// Relaxed: private to one CPU.
impl Platform for FlagPlatform {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = SpinLock;
    type PinState = ();
    type IrqState = u32;

    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }

    fn pin(&self) -> Pinned<()> {
        self.pins.store(self.pins.load(Relaxed) + 1, Relaxed);
        Pinned::new(self.cpu(), ())
    }

    fn unpin(&self, (): ()) {
        self.pins.store(self.pins.load(Relaxed) - 1, Relaxed);
    }

    fn irq_save(&self) -> u32 {
        let before = self.irqs_on.load(Relaxed);
        self.irqs_on.store(0, Relaxed);
        before
    }

    fn irq_restore(&self, state: u32) {
        self.irqs_on.store(state, Relaxed);
    }
}

/// A machine that pins by disabling interrupts, for kernels whose handlers may make any call: the
/// state nests on the caller's stack.
#[derive(Default)]
struct IrqPinned(FlagPlatform);

impl Machine for IrqPinned {
    fn cpu(&self) -> CpuId {
        self.0.cpu()
    }

    fn pin(&self) -> Pinned<usize> {
        Pinned::new(self.cpu(), self.0.irq_save() as usize)
    }

    fn unpin(&self, state: usize) {
        self.0.irq_restore(state as u32);
    }
}

/// Settings that differ from the default in the per-CPU lists.
fn of(pcp: Pcp) -> ZoneLockSettings {
    ZoneLockSettings { pcp, ..ZoneLockSettings::default() }
}

/// Settings that differ from the default in the protection of lists and counters.
fn with(locking: Locking, counters: Counters) -> ZoneLockSettings {
    ZoneLockSettings { locking, counters, ..ZoneLockSettings::default() }
}

/// An allocator of 1 GiB for one CPU, in leaked metadata.
fn allocator<P: Platform + Default, D: Design<P>>(settings: &D::Settings) -> PageAllocator<P, D> {
    let memory = [MemoryRange::new(Pfn::new(0), FrameCount::new(262_144))];
    let cpus = [NodeId::new(0)];
    let config = Config::new(&memory, &cpus);
    let layout = PageAllocator::<P, D>::layout(&config, settings).expect("all is sound");
    let buffer = vec![core::mem::MaybeUninit::uninit(); layout.size_unaligned()].leak();
    let metadata = Metadata::from_static(buffer);
    PageAllocator::new(P::default(), &config, settings, metadata).expect("the metadata fits")
}

#[inline(never)]
fn pairs<P: Platform + Default, D: Design<P>>(settings: D::Settings, order: Order, count: u64) {
    let frames = allocator::<P, D>(&settings);
    let request = Request::new(order);
    for _ in 0..count {
        let pfn = frames.alloc(black_box(request)).expect("there is memory");
        frames.free(black_box(pfn), order).expect("it is ours");
    }
}

fn default_pairs<P: Platform + Default, D: Design<P>>(count: u64) {
    pairs::<P, D>(Default::default(), Order::ZERO, count);
}

#[inline(never)]
fn protected_pairs(locking: Locking, counters: Counters, count: u64) {
    pairs::<TestPlatform, ZoneLock>(with(locking, counters), Order::ZERO, count);
}

#[inline(never)]
fn flagged_pairs(locking: Locking, counters: Counters, count: u64) {
    type Flagged = freehold_linux::ZoneLock<FlagPlatform>;
    pairs::<FlagPlatform, Flagged>(with(locking, counters), Order::ZERO, count);
}

/// The request is a constant, as it is in most callers.
#[inline(never)]
fn constant_pairs(count: u64) {
    let frames = allocator::<TestPlatform, Freehold>(&Default::default());
    for _ in 0..count {
        let pfn = frames.alloc(Request::default()).expect("there is memory");
        frames.free(black_box(pfn), Order::ZERO).expect("it is ours");
    }
}

#[inline(never)]
fn lease_pairs(count: u64) {
    let frames = allocator::<TestPlatform, Freehold>(&Default::default());
    let lease = frames.lease(CpuId::new(0)).expect("nobody else has it");
    for _ in 0..count {
        let pfn = lease.alloc(black_box(Request::default())).expect("there is memory");
        lease.free(black_box(pfn), Order::ZERO).expect("it is ours");
    }
}

#[inline(never)]
fn bulks<D: Design<TestPlatform>>(count: u64) {
    let frames = allocator::<TestPlatform, D>(&Default::default());
    let mut blocks = [Pfn::default(); 64];
    for _ in 0..count {
        let got = frames.alloc_bulk(Request::default(), &mut blocks).expect("sound");
        frames.free_bulk(black_box(&blocks[..got]), Order::ZERO).expect("they are ours");
    }
}

/// A lock, a cell that it guards, and a word: through the platform.
struct Slot<P: Platform> {
    lock: P::Lock,
    cell: P::Cell<u64>,
    word: P::U32,
}

impl<P: Platform> Slot<P> {
    fn new() -> Self {
        Slot { lock: RawLock::new(LockClass::Zone), cell: SharedCell::new(0), word: Word::new(0) }
    }

    #[inline(always)]
    fn step(&self) {
        // Acquire and release as in the lock; the word is independent.
        if self.lock.try_lock() {
            self.cell.set(self.cell.get() + 1);
            self.lock.unlock();
        }
        let seen = self.word.load(Relaxed);
        let _ = self.word.compare_exchange(seen, seen + 1, Relaxed, Relaxed);
    }
}

/// The same by hand. Orders as above.
#[derive(Default)]
struct SlotByHand {
    lock: AtomicBool,
    cell: AtomicU64,
    word: AtomicU32,
}

impl SlotByHand {
    #[inline(always)]
    fn step(&self) {
        if !self.lock.swap(true, Acquire) {
            self.cell.store(self.cell.load(Relaxed) + 1, Relaxed);
            self.lock.store(false, Release);
        }
        let seen = self.word.load(Relaxed);
        let _ = self.word.compare_exchange(seen, seen + 1, Relaxed, Relaxed);
    }
}

/// Instructions of one walk of a path, or why they cannot be counted.
fn count(name: &str) -> Result<f64, String> {
    let (few, many) = (1_000, 3_000);
    let total = |walks: u64| -> Result<f64, String> {
        let this = std::env::current_exe().map_err(|error| error.to_string())?;
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(this)
            .args(["path", name, &walks.to_string()])
            .output()
            .map_err(|error| format!("valgrind does not start: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let collected = text.lines().find_map(|line| line.split("Collected : ").nth(1));
        let collected = collected.and_then(|number| number.trim().parse().ok());
        collected.ok_or_else(|| format!("callgrind gave no count: {text}"))
    };
    Ok((total(many)? - total(few)?) / (many - few) as f64)
}

fn counts() -> Result<BTreeMap<&'static str, f64>, String> {
    PATHS.into_iter().map(|name| Ok((name, count(name)?))).collect()
}

fn golden_file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/golden.txt")
}

fn compiler() -> String {
    let output = Command::new("rustc").arg("--version").output();
    output.map_or_else(
        |_| "unknown".into(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn bless() -> ExitCode {
    let counts = match counts() {
        Ok(counts) => counts,
        Err(reason) => return fail(&reason),
    };
    let mut text = format!("# instructions a walk, {}, {}\n", std::env::consts::ARCH, compiler());
    for (name, count) in counts {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{name} {count:.1}");
    }
    print!("{text}");
    match std::fs::write(golden_file(), text) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("{}: {error}", golden_file().display())),
    }
}

fn compare() -> ExitCode {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("there is no valgrind. Remedy: apt-get install valgrind");
    }
    let golden = match std::fs::read_to_string(golden_file()) {
        Ok(golden) => golden,
        Err(error) => return fail(&format!("{}: {error}", golden_file().display())),
    };
    let counts = match counts() {
        Ok(counts) => counts,
        Err(reason) => return fail(&reason),
    };
    if !golden.lines().next().is_some_and(|line| line.contains(std::env::consts::ARCH)) {
        return skip("the golden counts are of another architecture");
    }
    let same_compiler = golden.contains(&compiler());
    let margin = if same_compiler { MARGIN } else { MARGIN_OTHER_COMPILER };
    let mut passed = true;
    for line in golden.lines().filter(|line| !line.starts_with('#')) {
        let (name, expected) = line.split_once(' ').unwrap_or((line, ""));
        let expected: f64 = expected.parse().unwrap_or(f64::NAN);
        let found = counts.get(name).copied().unwrap_or(f64::NAN);
        let ok = (found / expected - 1.0).abs() <= margin;
        passed &= ok;
        println!(
            "{name:24} {found:8.1} golden {expected:8.1} {}",
            if ok { "ok" } else { "DIFFERS" }
        );
    }
    let (generic, by_hand) = (counts["seam_generic"], counts["seam_by_hand"]);
    if (generic - by_hand).abs() > 0.05 {
        passed = false;
        println!("the seam costs {:.1} instructions", generic - by_hand);
    }
    if passed {
        return ExitCode::SUCCESS;
    }
    fail("counts differ; if that is as it should be, run this with `-- bless`")
}

/// Nothing was compared.
fn skip(reason: &str) -> ExitCode {
    println!("SKIPPED: {reason}");
    ExitCode::from(77)
}

fn fail(reason: &str) -> ExitCode {
    eprintln!("error: {reason}");
    ExitCode::FAILURE
}
