//! ACPI's list of CPUs: the table "APIC" (MADT), section 5.2.12 of the ACPI specification.

use crate::boot::BootInfo;
use crate::direct_map;

const HEADER_BYTES: u64 = 36;

/// Reads a number at a place that need not be aligned.
fn read<T: Copy>(address: u64) -> T {
    // SAFETY: a field of the firmware's tables, which lie below 4 GiB and are integers.
    unsafe { direct_map::at::<T>(address).read_unaligned() }
}

/// Adds the CPUs that are usable, the running one first. Firmware that has tables above 4 GiB names
/// them in the XSDT, and APICs with numbers above 254 in other entries; QEMU's PC needs neither.
pub(super) fn add_cpus(rsdp: u64, boot: &mut BootInfo) {
    assert_eq!(&read::<[u8; 8]>(rsdp), b"RSD PTR ", "the loader knows ACPI's root pointer");
    let rsdt = u64::from(read::<u32>(rsdp + 16));
    let end = rsdt + u64::from(read::<u32>(rsdt + 4));
    let tables = (rsdt + HEADER_BYTES..end).step_by(4).map(|at| u64::from(read::<u32>(at)));
    let mut named = tables.filter(|&table| &read::<[u8; 4]>(table) == b"APIC");
    let madt = named.next().expect("ACPI has a table of CPUs");
    let own = this_apic_id();
    boot.add_cpu(own);
    let end = madt + u64::from(read::<u32>(madt + 4));
    // Behind the header, the address of the APICs and flags.
    let mut entry = madt + HEADER_BYTES + 8;
    while entry < end {
        let [kind, bytes, _, apic_id] = read::<[u8; 4]>(entry);
        let is_enabled = read::<u32>(entry + 4) & 1 != 0;
        if kind == 0 && is_enabled && u32::from(apic_id) != own {
            boot.add_cpu(apic_id.into());
        }
        entry += u64::from(bytes);
    }
}

fn this_apic_id() -> u32 {
    core::arch::x86_64::__cpuid(1).ebx >> 24
}
