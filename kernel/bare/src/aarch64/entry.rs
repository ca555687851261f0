//! Entries of page tables.

use crate::paging::Access;

const VALID: u64 = 1;
/// Of a table, or of a page in the lowest level; without it, a block.
const TABLE_OR_PAGE: u64 = 1 << 1;
const DEVICE: u64 = 1 << 2;
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 3 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const NO_EXECUTE: u64 = 1 << 53;
const NO_EXECUTE_BELOW: u64 = 1 << 54;

const ADDRESS: u64 = 0x0000_ffff_ffff_f000;

/// An entry that names the table at an address.
pub(crate) const fn table(address: u64) -> u64 {
    address | VALID | TABLE_OR_PAGE
}

/// An entry that maps a page, or 2 MiB.
pub(crate) const fn page(address: u64, access: Access, is_large: bool) -> u64 {
    let access = match access {
        Access::Code => READ_ONLY,
        Access::ReadOnly => READ_ONLY | NO_EXECUTE,
        Access::Data => NO_EXECUTE,
        Access::Device => NO_EXECUTE | DEVICE,
    };
    let kind = if is_large { VALID } else { VALID | TABLE_OR_PAGE };
    address | kind | access | INNER_SHAREABLE | ACCESSED | NOT_GLOBAL | NO_EXECUTE_BELOW
}

/// The table that an entry names; `None` if it is empty.
pub(crate) const fn table_of(entry: u64) -> Option<u64> {
    if entry & VALID == 0 { None } else { Some(entry & ADDRESS) }
}
