//! A kernel on bare metal whose only frame allocator is Freehold.
//!
//! It boots all CPUs, builds its page tables of Freehold's frames, and then has the allocator
//! checked where it runs: by the conformance suite, and by a torture test on all CPUs at once whose
//! timer interrupts allocate and free as well. What an author of a kernel needs is in this order
//! in [`boot`], [`platform`], [`frames`], [`paging`] and [`cpus`].

#![no_std]
#![no_main]

use core::panic::PanicInfo;

use freehold::designs::{Design, Freehold};
use freehold::{FrameCount, MemoryRange, PageAllocator, Pfn};
use freehold_linux::ZoneLock;

use boot::BootInfo;
use console::say;
use options::{DesignName, Fault, Options};
use platform::Platform;

#[cfg(target_arch = "aarch64")]
#[path = "aarch64/mod.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64/mod.rs"]
mod arch;
mod boot;
mod checks;
mod console;
mod cpus;
mod direct_map;
mod frames;
mod list;
mod measure;
mod options;
mod paging;
mod platform;
mod sync;

/// The first CPU comes here once it runs 64-bit code on a stack.
fn start(boot: BootInfo) -> ! {
    cpus::init_first();
    let options = Options::of(boot.command_line).unwrap_or_else(|error| panic!("{error}"));
    match options.design {
        DesignName::Freehold => run::<Freehold<Platform>>(&boot, &options),
        DesignName::ZoneLock => run::<ZoneLock<Platform>>(&boot, &options),
    }
    say!("ok");
    arch::exit(true)
}

/// Everything that depends on the allocator's design, which a kernel chooses once.
fn run<D: Design<Platform> + Sync>(boot: &BootInfo, options: &Options) {
    say!("freehold-bare: design {}, CPUs: {}", D::NAME, boot.cpus.len());
    let mut ranges = [MemoryRange::new(Pfn::new(0), FrameCount::ZERO); 32];
    let (frames, memory): (PageAllocator<Platform, D>, _) =
        frames::build(boot, &mut ranges).unwrap_or_else(|error| panic!("no allocator: {error}"));
    for range in memory {
        say!("memory: {} from frame {:#x} on, {}", range.frames, range.start, range.zone.name());
    }
    let tables = paging::kernel_tables(&frames, memory).expect("memory for page tables");
    // SAFETY: they map the image and all memory as the boot tables do.
    unsafe { tables.activate() };
    say!("page tables: {} frames at {:#x}", tables.frames(), tables.root());
    if options.measure {
        measure::pairs(&frames);
        return;
    }
    if options.memory_short {
        frames::leave_little(&frames);
    }
    checks::conformance(&frames).unwrap_or_else(|failure| panic!("suite: {failure}"));
    cpus::start_others(&frames, &tables, &boot.cpus[1..]).expect("memory for stacks");
    if let Some(Fault::Exception) = options.fault {
        // SAFETY: nothing is mapped there, so the exception's handler ends the kernel.
        unsafe { direct_map::at::<u64>(1 << 45).read_volatile() };
    }
    checks::torture(&frames, options).unwrap_or_else(|failure| panic!("{failure}"));
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    console::say_at_once(format_args!("{info}"));
    arch::exit(false)
}
