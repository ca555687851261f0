//! The CPUs: their stacks and data are Freehold's frames; what one is given to do, all do.

use core::ptr;
use core::sync::atomic::{
    AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use freehold::designs::Design;
use freehold::{Error, MigrateType, Order, PageAllocator, Request};

use crate::arch;
use crate::boot::SIZE;
use crate::direct_map;
use crate::paging::Tables;
use crate::platform::Platform;

/// What a CPU has of its own.
#[repr(C)]
pub(crate) struct PerCpu {
    /// Its number, where the machine's code looks for it: first.
    cpu: u32,
}

/// Of the CPU that boots: it needs a number before there is an allocator.
static FIRST: PerCpu = PerCpu { cpu: 0 };

/// CPUs that wait for work or do it.
static ONLINE: AtomicUsize = AtomicUsize::new(1);

/// What the next CPU to start takes as its own.
static NEXT: AtomicPtr<PerCpu> = AtomicPtr::new(ptr::null_mut());

/// 64 KiB.
const STACK: Order = Order::new(4);

/// What all CPUs do at once.
pub(crate) trait Work: Sync {
    /// What a CPU does, with interrupts enabled.
    fn run(&self, cpu: usize);
    /// What the handler of its timer does meanwhile.
    fn tick(&self, cpu: usize);
}

/// The work, how often there was some, and how many CPUs have done it.
static WORK: AtomicPtr<&dyn Work> = AtomicPtr::new(ptr::null_mut());
static TURN: AtomicU64 = AtomicU64::new(0);
static DONE: AtomicUsize = AtomicUsize::new(0);

/// Prepares the CPU that boots.
pub(crate) fn init_first() {
    arch::init_cpu(&FIRST);
}

/// How many CPUs there are.
pub(crate) fn online() -> usize {
    // Acquire: pairs with the release in `enter`.
    ONLINE.load(Acquire)
}

/// Starts the CPUs with these hardware numbers, one after the other.
pub(crate) fn start_others<D: Design<Platform>>(
    frames: &PageAllocator<Platform, D>,
    tables: &Tables<'_, D>,
    hardware_numbers: &[u32],
) -> Result<(), Error> {
    for (nth, &hardware_number) in hardware_numbers.iter().enumerate() {
        let request = Request::default().migratetype(MigrateType::Unmovable);
        let per_cpu = direct_map::of_frame::<PerCpu>(frames.alloc(request)?);
        // SAFETY: a frame of our own, which is never freed.
        unsafe { per_cpu.write(PerCpu { cpu: nth as u32 + 1 }) };
        let stack = frames.alloc(request.with_order(STACK))?;
        let stack_end = (stack + STACK.frames()).address(SIZE).expect("a frame of memory");
        // Release: the CPU finds its data written.
        NEXT.store(per_cpu, Release);
        let online_before = online();
        arch::start_cpu(hardware_number, tables.root(), direct_map::BASE + stack_end, enter);
        while online() == online_before {
            core::hint::spin_loop();
        }
    }
    Ok(())
}

/// Where another CPU comes, on its stack.
extern "C" fn enter() -> ! {
    // Acquire: pairs with the release in `start_others`.
    let per_cpu = NEXT.load(Acquire);
    // SAFETY: written, and given to this CPU alone.
    arch::init_cpu(unsafe { &*per_cpu });
    // Relaxed: the turn before this CPU was online.
    let mut last = TURN.load(Relaxed);
    // Release: `start_others` may reuse what it has passed.
    ONLINE.fetch_add(1, Release);
    loop {
        // Acquire: pairs with the release in `on_all`.
        let turn = TURN.load(Acquire);
        if turn != last {
            last = turn;
            take_part();
        }
        core::hint::spin_loop();
    }
}

/// Has all CPUs do some work, the calling one too, with timer interrupts; returns when all are
/// done.
pub(crate) fn on_all(work: &dyn Work) {
    let work_ptr = (&raw const work).cast_mut();
    // The lifetime is erased: no CPU uses it when this function has returned.
    WORK.store(work_ptr.cast(), Relaxed);
    DONE.store(0, Relaxed);
    // Release: publishes the two stores above.
    TURN.fetch_add(1, Release);
    take_part();
    // Acquire: sees what the others have done.
    while DONE.load(Acquire) < online() {
        core::hint::spin_loop();
    }
    WORK.store(ptr::null_mut(), Relaxed);
}

/// The work that is to be done. Only for CPUs that take part in it, until they are done.
fn work() -> &'static dyn Work {
    // Relaxed: the turn was read before, with acquire.
    let work = WORK.load(Relaxed);
    // SAFETY: `on_all` waits for all CPUs, whose timers are stopped when they are done.
    unsafe { *work }
}

fn take_part() {
    let cpu = arch::cpu() as usize;
    arch::start_timer();
    arch::irq_enable();
    work().run(cpu);
    // Interrupts stay disabled from here on: the state before does not matter.
    let _enabled = arch::irq_save();
    arch::stop_timer();
    // AcqRel: all that the CPUs have done comes before the end of `on_all`.
    DONE.fetch_add(1, AcqRel);
}

/// The handler of the timer. An interrupt that was pending when the timer stopped comes when
/// interrupts are enabled the next time, and so during other work.
pub(crate) fn tick() {
    work().tick(arch::cpu() as usize);
}
