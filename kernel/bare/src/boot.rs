//! What a boot loader tells: which memory there is, what lies in it, which CPUs there are.

use core::ops::Range;

use freehold::{BootMap, FrameSize, ZoneKind};

use crate::console::say;
use crate::list::List;

/// The pages of this kernel, and so its frames.
pub(crate) const SIZE: FrameSize = FrameSize::MIN;

/// The most CPUs that this kernel uses.
pub(crate) const CPUS_MAX: usize = 32;

/// Memory that the boot tables map, and that 32-bit devices and starting CPUs can reach.
pub(crate) const LOW_END: u64 = 4 << 30;

/// What the machine is, in the allocator's terms.
pub(crate) struct BootInfo {
    /// Usable bytes, as the boot loader lists them.
    memory: List<Range<u64>, 32>,
    /// What is in use already. There may be no memory there.
    reserved: List<Range<u64>, 16>,
    /// The CPUs by their hardware numbers; the one that boots comes first.
    pub(crate) cpus: List<u32, CPUS_MAX>,
    /// The options of this boot.
    pub(crate) command_line: &'static str,
}

/// Where the parts of the kernel are: code from `start`, constants from `rodata`, data from `data`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Image {
    pub(crate) start: u64,
    pub(crate) rodata: u64,
    pub(crate) data: u64,
    pub(crate) end: u64,
}

impl BootInfo {
    /// A machine of which only the kernel's image is known.
    pub(crate) fn new(command_line: &'static str) -> Self {
        let mut boot = BootInfo {
            memory: List::new(0..0),
            reserved: List::new(0..0),
            cpus: List::new(0),
            command_line,
        };
        let image = crate::paging::image();
        boot.reserve(image.start, image.end);
        boot
    }

    /// Adds usable bytes. A map may be long; memory for which there is no room stays unused.
    pub(crate) fn add_memory(&mut self, start: u64, end: u64) {
        if !self.memory.push(start..end) {
            say!("memory map: too long, {start:#x}..{end:#x} stays unused");
        }
    }

    /// Notes that something lies in these bytes.
    pub(crate) fn reserve(&mut self, start: u64, end: u64) {
        assert!(self.reserved.push(start..end), "room for all reservations");
    }

    /// Memory of two zones: below and above 4 GiB. The boot tables map low memory only.
    pub(crate) fn map(&self) -> BootMap<'_> {
        BootMap::new(&self.memory, &self.reserved)
            .zone_ends(&[(LOW_END, ZoneKind::Dma32)])
            .metadata_end(LOW_END)
    }

    /// Adds a CPU. Those beyond the kernel's limit stay off.
    pub(crate) fn add_cpu(&mut self, hardware_number: u32) {
        if !self.cpus.push(hardware_number) {
            say!("CPU {hardware_number:#x} stays off: this kernel uses {CPUS_MAX} at most");
        }
    }
}
