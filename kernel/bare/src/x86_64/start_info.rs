//! What a PVH loader tells: the memory map, the command line, and where ACPI's tables are.

use core::ffi::{CStr, c_char};

use super::{TRAMPOLINE, acpi};
use crate::boot::BootInfo;
use crate::direct_map;

/// `struct hvm_start_info` of Xen's public headers.
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    flags: u32,
    modules: u32,
    module_list: u64,
    command_line: u64,
    rsdp: u64,
    memory_map: u64,
    memory_map_entries: u32,
    reserved: u32,
}

/// `struct hvm_memmap_table_entry`.
#[repr(C)]
struct MemoryMapEntry {
    start: u64,
    bytes: u64,
    kind: u32,
    reserved: u32,
}

const MAGIC: u32 = 0x336e_c578;
const USABLE: u32 = 1;
const MIB: u64 = 1 << 20;

/// Reads what the loader left at `address`.
pub(super) fn read(address: u64) -> BootInfo {
    // SAFETY: the loader has put it there, and memory below 4 GiB is mapped.
    let info = unsafe { &*direct_map::at::<StartInfo>(address) };
    assert_eq!(info.magic, MAGIC, "the loader speaks PVH");
    let entries = direct_map::at::<MemoryMapEntry>(info.memory_map);
    // SAFETY: as above, so many entries.
    let map = unsafe { core::slice::from_raw_parts(entries, info.memory_map_entries as usize) };
    let mut boot = BootInfo::new(command_line(info.command_line));
    for entry in map.iter().filter(|entry| entry.kind == USABLE) {
        boot.add_memory(entry.start, entry.start + entry.bytes);
    }
    // The firmware's data, the loader's, and the frame in which other CPUs start.
    boot.reserve(0, MIB);
    for (start, bytes) in [
        (address, size_of::<StartInfo>()),
        (info.memory_map, size_of_val(map)),
        (info.command_line, boot.command_line.len() + 1),
    ] {
        let end = start + bytes as u64;
        let is_apart = end <= TRAMPOLINE || TRAMPOLINE + 4096 <= start;
        assert!(is_apart, "the loader's {start:#x}..{end:#x} is where other CPUs start");
        boot.reserve(start, end);
    }
    acpi::add_cpus(info.rsdp, &mut boot);
    boot
}

fn command_line(address: u64) -> &'static str {
    if address == 0 {
        return "";
    }
    // SAFETY: the loader has put a string there, which is reserved.
    let text = unsafe { CStr::from_ptr(direct_map::at::<c_char>(address)) };
    text.to_str().expect("the command line is UTF-8")
}
