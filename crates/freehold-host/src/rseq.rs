//! The CPU that runs the caller, read from the area that glibc shares with the kernel.
//!
//! Since version 2.35, glibc registers one `struct rseq` for each thread with the kernel, which
//! keeps the number of the thread's CPU in it. Reading it costs one load, where `sched_getcpu`
//! costs a call into the vDSO. The area lies at a fixed distance from the thread pointer, which
//! glibc publishes as `__rseq_offset`.
#![expect(unsafe_code, reason = "looks a symbol up and reads the thread's rseq area")]

use core::ffi::CStr;

use freehold::CpuId;

/// Where `cpu_id` lies in the kernel's `struct rseq`, by its ABI.
const CPU_ID_OFFSET: isize = 4;

/// A source of the number of the current CPU. Found once, then copied freely.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuSource {
    /// The distance of `cpu_id` from the thread pointer. `None` where there is no rseq area, or
    /// no way to read the thread pointer.
    cpu_id_offset: Option<isize>,
}

impl CpuSource {
    /// The fastest source that this process has.
    pub(crate) fn discover() -> Self {
        CpuSource { cpu_id_offset: find_cpu_id_offset() }
    }

    /// The source that every Linux has: a call of `sched_getcpu`.
    #[cfg(test)]
    pub(crate) const fn system_call() -> Self {
        CpuSource { cpu_id_offset: None }
    }

    /// Whether the number comes from the rseq area.
    pub(crate) const fn is_rseq(self) -> bool {
        self.cpu_id_offset.is_some()
    }

    /// As `current`, but a number that no CPU has if this thread's area is not registered.
    #[inline(always)]
    pub(crate) fn quick(self) -> CpuId {
        match self.cpu_id_offset {
            // SAFETY: as in `current`.
            Some(offset) => CpuId::new(unsafe { read_i32_at_thread_pointer(offset) } as u32),
            None => current_by_system_call(),
        }
    }

    /// The CPU that runs the caller, at the time of the call.
    #[inline]
    pub(crate) fn current(self) -> CpuId {
        if let Some(offset) = self.cpu_id_offset {
            // SAFETY: The offset came from glibc, which put an rseq area of at least 8 bytes at
            // that distance from the thread pointer of every thread, for as long as it runs.
            let id = unsafe { read_i32_at_thread_pointer(offset) };
            // A negative number says that this thread's area is not registered.
            if let Ok(id) = u32::try_from(id) {
                return CpuId::new(id);
            }
        }
        current_by_system_call()
    }
}

#[cold]
#[inline(never)]
fn current_by_system_call() -> CpuId {
    // CPU numbers are far below 2^32; folding a wrong one would be harmless, as it is a hint.
    // SAFETY: takes nothing and touches no memory of the caller's.
    CpuId::new(unsafe { libc::sched_getcpu() } as u32)
}

fn find_cpu_id_offset() -> Option<isize> {
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        return None;
    }
    let size: *const u32 = find_symbol(c"__rseq_size")?;
    let offset: *const isize = find_symbol(c"__rseq_offset")?;
    // SAFETY: glibc defines `__rseq_size` as an `unsigned int` that is constant after start-up.
    let size = unsafe { size.read() };
    // The size is 0 if registration failed or was switched off by a tunable.
    if size == 0 {
        return None;
    }
    // SAFETY: glibc defines `__rseq_offset` as a `ptrdiff_t` that is constant after start-up.
    let offset = unsafe { offset.read() };
    Some(offset + CPU_ID_OFFSET)
}

fn find_symbol<T>(name: &CStr) -> Option<*const T> {
    // SAFETY: `dlsym` reads the name, a terminated string, and changes nothing in the program.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() { None } else { Some(address.cast()) }
}

/// Reads four bytes at a distance from the thread pointer.
///
/// # Safety
///
/// Four bytes of readable memory lie at `offset` from the calling thread's thread pointer.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn read_i32_at_thread_pointer(offset: isize) -> i32 {
    let value: i32;
    // SAFETY: On x86-64 Linux the base of `fs` is the thread pointer; the caller vouches for the
    // memory. The kernel writes it, so the access is volatile: the options leave out `pure`.
    unsafe {
        core::arch::asm!(
            "mov {value:e}, fs:[{offset}]",
            value = lateout(reg) value,
            offset = in(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}

/// Reads four bytes at a distance from the thread pointer.
///
/// # Safety
///
/// Four bytes of readable memory lie at `offset` from the calling thread's thread pointer.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
unsafe fn read_i32_at_thread_pointer(offset: isize) -> i32 {
    let value: i32;
    // SAFETY: On AArch64 Linux `tpidr_el0` is the thread pointer; the caller vouches for the
    // memory. The kernel writes it, so the access is volatile: the options leave out `pure`.
    unsafe {
        core::arch::asm!(
            "mrs {base}, tpidr_el0",
            "ldr {value:w}, [{base}, {offset}]",
            base = out(reg) _,
            value = lateout(reg) value,
            offset = in(reg) offset,
            options(nostack, preserves_flags, readonly),
        );
    }
    value
}

/// Returns that the area is not registered: there is no way to read the thread pointer here.
///
/// # Safety
///
/// None: the function touches no memory.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
unsafe fn read_i32_at_thread_pointer(_offset: isize) -> i32 {
    -1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::affinity::{allowed_cpus, bind_current_thread};

    #[test]
    fn both_sources_agree_on_a_bound_thread() {
        for cpu in allowed_cpus().unwrap() {
            // A thread of its own, so that the test's thread stays free to run anywhere.
            let seen = std::thread::spawn(move || {
                bind_current_thread(&[cpu]).unwrap();
                (CpuSource::discover().current(), CpuSource::system_call().current())
            });
            assert_eq!(seen.join().unwrap(), (cpu, cpu));
        }
    }

    #[test]
    #[cfg(all(target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn a_new_glibc_offers_rseq() {
        let has_symbol = find_symbol::<u32>(c"__rseq_size");
        // SAFETY: As in `find_cpu_id_offset`.
        let is_registered = has_symbol.is_some_and(|size| unsafe { size.read() } != 0);
        assert_eq!(CpuSource::discover().is_rseq(), is_registered);
    }

    #[test]
    fn a_missing_symbol_is_not_found() {
        assert!(find_symbol::<u32>(c"freehold_has_no_such_symbol").is_none());
    }
}
