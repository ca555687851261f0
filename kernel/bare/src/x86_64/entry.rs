//! Entries of page tables.

use crate::paging::Access;

const PRESENT: u64 = 1;
const WRITABLE: u64 = 1 << 1;
const UNCACHED: u64 = 1 << 4;
const LARGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;

const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

/// An entry that names the table at an address.
pub(crate) const fn table(address: u64) -> u64 {
    address | PRESENT | WRITABLE
}

/// An entry that maps a page, or 2 MiB.
pub(crate) const fn page(address: u64, access: Access, is_large: bool) -> u64 {
    let access = match access {
        Access::Code => 0,
        Access::ReadOnly => NO_EXECUTE,
        Access::Data => NO_EXECUTE | WRITABLE,
        Access::Device => NO_EXECUTE | WRITABLE | UNCACHED,
    };
    address | PRESENT | access | if is_large { LARGE } else { 0 }
}

/// The table that an entry names; `None` if it is empty.
pub(crate) const fn table_of(entry: u64) -> Option<u64> {
    if entry & PRESENT == 0 { None } else { Some(entry & ADDRESS) }
}
