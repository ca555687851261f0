//! Having a jemalloc use the hooks.
#![expect(unsafe_code, reason = "calls jemalloc")]

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering::{Relaxed, Release};
use core::time::Duration;
use std::io::Write as _;

use freehold_host::{Design, Host};

use super::{ExtentHooks, Hooks};
#[cfg(doc)]
use crate::HeapView;

/// jemalloc's `mallctl`.
pub type Mallctl =
    unsafe extern "C" fn(*const c_char, *mut c_void, *mut usize, *mut c_void, usize) -> c_int;

/// The functions of the jemalloc that gets the hooks.
#[derive(Clone, Copy, Debug)]
pub struct Jemalloc {
    mallctl: Mallctl,
    mallocx: unsafe extern "C" fn(usize, c_int) -> *mut c_void,
    dallocx: unsafe extern "C" fn(*mut c_void, c_int),
}

/// Why a jemalloc did not take the hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InstallError {
    /// `mallctl` refused: the name, and the error number.
    Mallctl {
        /// The name, such as `arenas.narenas`.
        name: String,
        /// The error of the C library, such as `ENOENT`.
        errno: i32,
    },
    /// jemalloc's pages, in bytes, are not the frames of the heap's arena.
    PageSize {
        /// jemalloc's.
        jemalloc: usize,
        /// The arena's.
        arena: usize,
    },
    /// jemalloc was started with `opt.retain`, the default on Linux. Then it takes an extent whose
    /// neighbour it once had for a part of the same mapping, and merges extents of two arenas.
    Retains,
    /// Some of jemalloc's arenas have other hooks already.
    OtherHooks,
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InstallError::Mallctl { name, errno } => {
                let error = std::io::Error::from_raw_os_error(*errno);
                write!(f, "jemalloc refuses {name}: {error}; it must be 5.0 or later")
            }
            InstallError::PageSize { jemalloc, arena } => write!(
                f,
                "jemalloc has pages of {jemalloc} bytes, and the arena has frames of {arena}: \
                 build it with `frame_size`"
            ),
            InstallError::Retains => write!(
                f,
                "jemalloc retains memory: start it with `retain:false` in MALLOC_CONF, or with \
                 `freehold_malloc::malloc_conf!` in the program"
            ),
            InstallError::OtherHooks => write!(
                f,
                "jemalloc's arenas have hooks of several kinds already: install these before others"
            ),
        }
    }
}

impl core::error::Error for InstallError {}

/// Sets the options with which `tikv-jemalloc-sys` starts: `retain:false`, which [`Hooks::install`]
/// needs, and those given, such as `dirty_decay_ms:1000`. Once in a program, at the level of items.
/// The environment variable `_RJEM_MALLOC_CONF` comes after it.
///
/// ```
/// # #[cfg(feature = "jemalloc")]
/// freehold_malloc::malloc_conf!("dirty_decay_ms:1000");
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! malloc_conf {
    () => {
        $crate::malloc_conf!(@ "retain:false\0");
    };
    ($options:literal) => {
        $crate::malloc_conf!(@ concat!($options, ",retain:false\0"));
    };
    (@ $text:expr) => {
        /// The options with which jemalloc starts.
        // SAFETY: jemalloc declares it weakly, as a pointer to a string of C.
        #[unsafe(export_name = "_rjem_malloc_conf")]
        pub static MALLOC_CONF: Option<&'static ::core::ffi::c_char> = {
            const TEXT: &[u8] = ($text).as_bytes();
            // SAFETY: the first byte of a static string.
            Some(unsafe { &*TEXT.as_ptr().cast() })
        };
    };
}

/// Extents of so many bytes have a jemalloc's arena of their own, from 5.3 on, and return to the
/// heap as soon as they are unused: jemalloc would keep them for its decay, which does not come in
/// a program that stops to call. With less, memory at its peak is a fifth higher.
pub const LARGE_BYTES: usize = 1 << 20;

/// Above jemalloc's default threshold for allocations that get an arena of their own.
const OVERSIZE_BYTES: usize = 8 << 20;

impl Jemalloc {
    /// The jemalloc of the crate `tikv-jemalloc-sys`, which `tikv-jemallocator` uses too.
    #[cfg(feature = "jemalloc")]
    pub const TIKV: Jemalloc = Jemalloc {
        mallctl: tikv_jemalloc_sys::mallctl,
        mallocx: tikv_jemalloc_sys::mallocx,
        dallocx: tikv_jemalloc_sys::dallocx,
    };

    /// A jemalloc, by its functions `mallctl`, `mallocx` and `dallocx`, whatever prefix their names
    /// have.
    ///
    /// # Safety
    ///
    /// They are those of one jemalloc, 5.0 or later.
    pub const unsafe fn new(
        mallctl: Mallctl,
        mallocx: unsafe extern "C" fn(usize, c_int) -> *mut c_void,
        dallocx: unsafe extern "C" fn(*mut c_void, c_int),
    ) -> Self {
        Jemalloc { mallctl, mallocx, dallocx }
    }

    /// Reads a value, and writes another one if given.
    ///
    /// # Safety
    ///
    /// `T` is the type that jemalloc documents for the name.
    unsafe fn control<T: Copy>(
        &self,
        name: &str,
        old: Option<&mut T>,
        new: Option<T>,
    ) -> Result<(), InstallError> {
        let mut buffer = [0_u8; 64];
        let mut cursor = &mut buffer[..];
        write!(cursor, "{name}\0").expect("names are short");
        let c_name = CStr::from_bytes_until_nul(&buffer).expect("it ends with one");
        let mut old_len = size_of::<T>();
        let (old, old_len) = match old {
            Some(old) => ((old as *mut T).cast(), &raw mut old_len),
            None => (null_mut(), null_mut()),
        };
        let mut new = new;
        let (new, new_len) = match &mut new {
            Some(new) => ((new as *mut T).cast(), size_of::<T>()),
            None => (null_mut(), 0),
        };
        // SAFETY: the name is a string of C, and the caller vouches for the type.
        let errno = unsafe { (self.mallctl)(c_name.as_ptr(), old, old_len, new, new_len) };
        match errno {
            0 => Ok(()),
            errno => Err(InstallError::Mallctl { name: name.to_owned(), errno }),
        }
    }

    /// Has all arenas, and those to come, return extents to the hooks that they have not used for
    /// so long, gradually (`dirty_decay_ms`, 10 seconds by default).
    ///
    /// # Errors
    ///
    /// [`InstallError::Mallctl`] for more milliseconds than an `isize` can count.
    pub fn set_dirty_decay(&self, decay: Duration) -> Result<(), InstallError> {
        let decay_ms = isize::try_from(decay.as_millis()).unwrap_or(isize::MAX);
        // SAFETY: documented as an `ssize_t`, here and below.
        unsafe { self.control("arenas.dirty_decay_ms", None, Some(decay_ms)) }?;
        for arena in 0..self.arenas()? {
            let name = format!("arena.{arena}.dirty_decay_ms");
            // Refused for arenas that do not exist yet.
            // SAFETY: as above.
            let _refused = unsafe { self.control(&name, None, Some(decay_ms)) };
        }
        Ok(())
    }

    /// Has all arenas return what is due by their decay. jemalloc looks at that when its arena is
    /// called, so one that nothing calls keeps what it has: call this at intervals in a program
    /// that may be idle, before [`HeapView::purge`]. It takes several calls until all is
    /// back.
    ///
    /// # Errors
    ///
    /// [`InstallError::Mallctl`] from a jemalloc without `arena.<i>.decay`.
    pub fn decay(&self) -> Result<(), InstallError> {
        self.have_all("arena.4096.decay")
    }

    /// Has all arenas return all that they do not use.
    ///
    /// # Errors
    ///
    /// [`InstallError::Mallctl`] from a jemalloc without `arena.<i>.purge`.
    pub fn purge(&self) -> Result<(), InstallError> {
        self.have_all("arena.4096.purge")
    }

    /// Has all arenas (`MALLCTL_ARENAS_ALL`, 4096) do something.
    fn have_all(&self, name: &str) -> Result<(), InstallError> {
        // SAFETY: such names are documented as neither read nor written.
        unsafe { self.control::<u8>(name, None, None) }
    }

    fn arenas(&self) -> Result<c_uint, InstallError> {
        let mut arenas: c_uint = 0;
        // SAFETY: documented as an `unsigned`.
        unsafe { self.control("arenas.narenas", Some(&mut arenas), None) }?;
        Ok(arenas)
    }

    /// Has jemalloc create the arena for large allocations, which it does at the first one.
    fn create_oversize_arena(&self) {
        // SAFETY: the size is not 0, and no flags are valid flags.
        let large = unsafe { (self.mallocx)(OVERSIZE_BYTES, 0) };
        if !large.is_null() {
            // SAFETY: goes back as it came.
            unsafe { (self.dallocx)(large, 0) };
        }
    }
}

impl<D: Design<Host>> Hooks<D> {
    /// Has all arenas of a jemalloc use these hooks from now on, and returns how many there are:
    /// those that it has, and those that it would create by itself for further threads (4 for each
    /// CPU by default) and for large blocks, which it creates now. Each costs 64 KiB, and each fork
    /// writes to 8 pages of it. Arenas that the program creates (`arenas.create`) can be given
    /// [`Hooks::table`] by it. Extents of 1 MiB or more return to the hooks as soon as they are
    /// unused, with jemalloc 5.3 and later (`arena.<i>.oversize_threshold`).
    ///
    /// jemalloc must not retain memory (`opt.retain`), which is decided before its first
    /// allocation: see [`malloc_conf!`](crate::malloc_conf). What one of its arenas returns here,
    /// another one may get next, and jemalloc keeps extents of two arenas apart only then. Hooks
    /// that its arenas had before are called for what is not in the arena: they must stay for good.
    ///
    /// # Errors
    ///
    /// See [`InstallError`]. Arenas that have the hooks by then keep them.
    pub fn install(&'static self, jemalloc: &Jemalloc) -> Result<usize, InstallError> {
        self.check(jemalloc)?;
        jemalloc.create_oversize_arena();
        self.install_on(jemalloc, |_| true)
    }

    /// As [`Hooks::install`], but on the arenas that jemalloc uses by now, which is one as long as
    /// the process has one thread, and on that for blocks of [`LARGE_BYTES`] or more if it
    /// `has_large` ones. `install` is for the others, before there is a second thread: what is
    /// allocated in an arena before comes from the machine.
    ///
    /// # Errors
    ///
    /// As for [`Hooks::install`].
    pub fn install_on_used(
        &'static self,
        jemalloc: &Jemalloc,
        has_large: bool,
    ) -> Result<usize, InstallError> {
        self.check(jemalloc)?;
        if has_large {
            jemalloc.create_oversize_arena();
        }
        // What is asked for below is as of the last one of these.
        // SAFETY: documented as a `uint64_t`.
        unsafe { jemalloc.control("epoch", None, Some(1_u64)) }?;
        self.install_on(jemalloc, |arena| {
            let mut is_used = false;
            let name = format!("arena.{arena}.initialized");
            // SAFETY: documented as a `bool`.
            let asked = unsafe { jemalloc.control(&name, Some(&mut is_used), None) };
            asked.is_err() || is_used
        })
    }

    /// Refuses a jemalloc that cannot use the hooks.
    fn check(&'static self, jemalloc: &Jemalloc) -> Result<(), InstallError> {
        let frame_bytes = self.heap().frame_bytes();
        let mut page_bytes = 0_usize;
        // SAFETY: documented as a `size_t`.
        unsafe { jemalloc.control("arenas.page", Some(&mut page_bytes), None) }?;
        if page_bytes != frame_bytes {
            return Err(InstallError::PageSize { jemalloc: page_bytes, arena: frame_bytes });
        }
        let mut retains = false;
        // SAFETY: documented as a `bool`.
        unsafe { jemalloc.control("opt.retain", Some(&mut retains), None) }?;
        if retains { Err(InstallError::Retains) } else { Ok(()) }
    }

    /// Has those arenas that are wanted use the hooks. Returns how many these are.
    fn install_on(
        &'static self,
        jemalloc: &Jemalloc,
        is_wanted: impl Fn(c_uint) -> bool,
    ) -> Result<usize, InstallError> {
        let mut installed = 0;
        for arena in (0..jemalloc.arenas()?).filter(|&arena| is_wanted(arena)) {
            let mut had: *const ExtentHooks = null();
            let name = format!("arena.{arena}.extent_hooks");
            // SAFETY: documented as a pointer to hooks.
            unsafe { jemalloc.control(&name, Some(&mut had), None) }?;
            if !self.comes_after(had.cast_mut()) {
                return Err(InstallError::OtherHooks);
            }
            let table: *const ExtentHooks = self.table().as_ptr();
            // SAFETY: as above; the table is valid for good.
            unsafe { jemalloc.control(&name, None, Some(table)) }?;
            let name = format!("arena.{arena}.oversize_threshold");
            // Refused before jemalloc 5.3, where they stay for their decay.
            // SAFETY: documented as a `size_t`.
            let _refused = unsafe { jemalloc.control(&name, None, Some(LARGE_BYTES)) };
            installed += 1;
        }
        Ok(installed)
    }

    /// Notes the hooks that an arena had; whether they are the same as the others' were.
    fn comes_after(&'static self, had: *mut ExtentHooks) -> bool {
        if had == self.table().as_ptr() {
            return true;
        }
        // Release: a hook that sees the pointer sees the table, which is older than this.
        let noted = self.before.compare_exchange(null_mut(), had, Release, Relaxed);
        noted.is_ok() || noted == Err(had)
    }
}
