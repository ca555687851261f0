//! `include/freehold_peer.h` in Rust: what a plug-in exports, checked before any of it is used.
#![expect(unsafe_code, reason = "reads a table and strings that a library exports")]

use core::ffi::{CStr, c_char, c_void};
use core::ptr::NonNull;

use freehold::Order;

use super::error::{INTERFACE, PluginError};

/// The result of `alloc` if there is no such block: `FREEHOLD_PEER_NONE`.
pub(super) const NONE: u64 = u64::MAX;

/// The longest name that fits a table column.
const NAME_BYTES_MAX: usize = 22;

/// The memory that a peer manages: `struct freehold_peer_region`.
#[repr(C)]
pub(super) struct RegionTable {
    pub(super) base: *mut c_void,
    pub(super) frame_count: u64,
    pub(super) frame_bytes: u64,
    pub(super) thread_count: u32,
}

type Create = unsafe extern "C" fn(*const RegionTable) -> *mut c_void;
type Destroy = unsafe extern "C" fn(*mut c_void);
type Alloc = unsafe extern "C" fn(*mut c_void, u32, u32) -> u64;
type Free = unsafe extern "C" fn(*mut c_void, u64, u32, u32);
type AllocBulk = unsafe extern "C" fn(*mut c_void, *mut u64, u64, u32) -> u64;
type FreeBulk = unsafe extern "C" fn(*mut c_void, *const u64, u64, u32);

/// What a library exports under the name `freehold_peer`: `struct freehold_peer`.
#[repr(C)]
struct PeerTable {
    interface: u32,
    orders: u32,
    name: *const c_char,
    version: *const c_char,
    create: Option<Create>,
    destroy: Option<Destroy>,
    alloc: Option<Alloc>,
    free: Option<Free>,
    alloc_bulk: Option<AllocBulk>,
    free_bulk: Option<FreeBulk>,
}

/// The calls of a peer: the required ones, and the optional ones.
#[derive(Clone, Copy)]
pub(super) struct Calls {
    pub(super) create: Create,
    pub(super) destroy: Destroy,
    pub(super) alloc: Alloc,
    pub(super) free: Free,
    pub(super) bulk: Option<(AllocBulk, FreeBulk)>,
}

/// The content of a table, validated.
pub(super) struct Checked {
    pub(super) name: String,
    orders: u32,
    pub(super) calls: Calls,
}

impl Checked {
    /// Whether the peer has blocks of an order.
    pub(super) fn serves(&self, order: Order) -> bool {
        self.orders.checked_shr(u32::from(order.get())).is_some_and(|bits| bits & 1 == 1)
    }

    /// Reads the table that a library exports.
    ///
    /// # Errors
    ///
    /// The problem with the table.
    ///
    /// # Safety
    ///
    /// `table` is what a loaded library exports as `freehold_peer`, by the header, and the library
    /// stays loaded.
    pub(super) unsafe fn read(table: NonNull<c_void>) -> Result<Self, PluginError> {
        // Reads only the version first: another version may have another layout.
        // SAFETY: Every version of the header begins with this word.
        let interface = unsafe { table.cast::<u32>().read() };
        if interface != INTERFACE {
            return Err(PluginError::Interface { found: interface });
        }
        // SAFETY: By the caller, and of this version.
        let table = unsafe { table.cast::<PeerTable>().as_ref() };
        let missing = |field| PluginError::Missing { field };
        // SAFETY: The header requires strings here.
        let name = unsafe { text(table.name) }.ok_or(missing("name"))?;
        // SAFETY: As above.
        unsafe { text(table.version) }.ok_or(missing("version"))?;
        let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(good) {
            return Err(PluginError::Name { name });
        }
        if table.orders & 1 == 0 {
            return Err(PluginError::NoFrames);
        }
        let bulk = match (table.alloc_bulk, table.free_bulk) {
            (Some(alloc), Some(free)) => Some((alloc, free)),
            (None, None) => None,
            (Some(_), None) => return Err(missing("free_bulk")),
            (None, Some(_)) => return Err(missing("alloc_bulk")),
        };
        let calls = Calls {
            create: table.create.ok_or(missing("create"))?,
            destroy: table.destroy.ok_or(missing("destroy"))?,
            alloc: table.alloc.ok_or(missing("alloc"))?,
            free: table.free.ok_or(missing("free"))?,
            bulk,
        };
        Ok(Checked { name, orders: table.orders, calls })
    }
}

/// A string of a library.
///
/// # Safety
///
/// `start` is null, or points to a string that ends with a zero and does not change.
unsafe fn text(start: *const c_char) -> Option<String> {
    let start = NonNull::new(start.cast_mut())?;
    // SAFETY: By the caller.
    let text = unsafe { CStr::from_ptr(start.as_ptr()) };
    Some(text.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use super::*;
    use crate::peers::{Peer, Plugin};

    unsafe extern "C" fn create(_: *const RegionTable) -> *mut c_void {
        core::ptr::null_mut()
    }
    unsafe extern "C" fn destroy(_: *mut c_void) {}
    unsafe extern "C" fn alloc(_: *mut c_void, _: u32, _: u32) -> u64 {
        NONE
    }
    unsafe extern "C" fn free(_: *mut c_void, _: u64, _: u32, _: u32) {}
    unsafe extern "C" fn free_bulk(_: *mut c_void, _: *const u64, _: u64, _: u32) {}

    fn table() -> PeerTable {
        PeerTable {
            interface: INTERFACE,
            orders: 1 | 1 << 9,
            name: c"a-peer".as_ptr(),
            version: c"1.0".as_ptr(),
            create: Some(create),
            destroy: Some(destroy),
            alloc: Some(alloc),
            free: Some(free),
            alloc_bulk: None,
            free_bulk: None,
        }
    }

    fn read(table: &PeerTable) -> Result<Checked, PluginError> {
        // SAFETY: A table by the header, made of functions and strings that live forever.
        unsafe { Checked::read(NonNull::from(table).cast()) }
    }

    #[test]
    fn a_table_by_the_header_is_understood() {
        let checked = read(&table()).ok().unwrap();
        assert_eq!(checked.name, "a-peer");
        assert!(checked.calls.bulk.is_none());
        let orders = (0..40).filter(|&order| checked.serves(Order::new(order)));
        assert_eq!(orders.collect::<Vec<_>>(), [0, 9]);
    }

    #[test]
    fn no_two_threads_sit_with_one_number() {
        unsafe extern "C" fn create(_: *const RegionTable) -> *mut c_void {
            NonNull::dangling().as_ptr()
        }
        let checked = read(&PeerTable { create: Some(create), ..table() }).ok().unwrap();
        let plugin = Plugin { path: "a-peer".into(), checked };
        let peer = plugin.create(512, 2).unwrap();
        let sits = |thread| std::panic::catch_unwind(AssertUnwindSafe(|| peer.sit(thread))).is_ok();
        let first = peer.sit(0);
        assert_eq!([0, 1, 2].map(sits), [false, true, false]);
        drop(first);
        assert_eq!([0, 1, 2].map(sits), [true, true, false]);
    }

    #[test]
    fn what_is_wrong_with_a_table_is_named() {
        let error = |change: fn(&mut PeerTable)| {
            let mut table = table();
            change(&mut table);
            read(&table).err().expect("the table is wrong").to_string()
        };
        assert!(error(|t| t.interface = 7).contains("version 7"));
        assert!(error(|t| t.alloc = None).contains("`alloc`"));
        assert!(error(|t| t.free_bulk = Some(free_bulk)).contains("`alloc_bulk`"));
        assert!(error(|t| t.name = core::ptr::null()).contains("`name`"));
        assert!(error(|t| t.name = c"two words".as_ptr()).contains("two words"));
        assert!(error(|t| t.orders = 1 << 9).contains("order 0"));
    }
}
