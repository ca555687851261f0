//! A hint to the host: this memory will be needed when the CPU has its turn again.
//!
//! A virtual CPU that must let others go first knows what it will access next. Prefetching it hides
//! the host's own cache misses behind the work of the others.

#![expect(unsafe_code, reason = "the host's prefetch instruction takes a pointer")]

/// Asks the host to bring the memory at `address` into its caches. Any address is fine.
#[inline]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: A prefetch is a hint that never faults and has no effect on memory, so it is allowed
    // for every address. The instruction is part of the x86-64 base set.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
