//! A platform for any machine that Rust has atomics for: the embedder says which CPU it is.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst, fence};

use super::native::{NativeCell, SpinLock};
use super::{Pinned, Platform, Scalar};
use crate::units::CpuId;

/// What [`Native`] asks of a machine. Only the number of the CPU is required; what else it can do
/// is described at [`Platform`]'s methods of the same names.
pub trait Machine: 'static {
    /// The CPU that runs the caller: a hint. See [`Platform::cpu`].
    fn cpu(&self) -> CpuId;

    /// Keeps the caller on its CPU, by disabling preemption, or interrupts if handlers use the
    /// allocator in ways that they must not interrupt. Pins nest. See [`Platform::pin`]. Default:
    /// does nothing.
    fn pin(&self) -> Pinned<usize> {
        Pinned::new(self.cpu(), 0)
    }

    /// Ends what [`Machine::pin`] began, given the state that it returned.
    fn unpin(&self, _state: usize) {}

    /// Disables interrupts on this CPU and returns the previous state, such as the register of
    /// flags. Default: as [`Machine::pin`], for machines whose handlers allocate nothing.
    fn irq_save(&self) -> usize {
        self.pin().state
    }

    /// Restores the state that [`Machine::irq_save`] returned.
    fn irq_restore(&self, state: usize) {
        self.unpin(state);
    }

    /// Waits briefly for another CPU. Default: the processor's spin hint.
    fn relax(&self) {
        core::hint::spin_loop();
    }

    /// The light half of an asymmetric fence. See [`Platform::light_barrier`].
    fn light_barrier(&self) {
        fence(SeqCst);
    }

    /// The heavy half; returns whether there is one. See [`Platform::heavy_barrier`].
    fn heavy_barrier(&self) -> bool {
        false
    }
}

/// The platform of a machine: Rust's atomics, spin locks of one byte, and what [`Machine`] says.
///
/// ```
/// use freehold::CpuId;
/// use freehold::platform::{Machine, Native};
///
/// struct Riscv;
///
/// impl Machine for Riscv {
///     fn cpu(&self) -> CpuId {
///         CpuId::new(0) // Reads `mhartid`, or the kernel's word for this CPU.
///     }
/// }
///
/// let platform = Native(Riscv);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Native<M>(pub M);

impl<M: Machine> Platform for Native<M> {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = SpinLock;
    type PinState = usize;
    type IrqState = usize;

    #[inline]
    fn cpu(&self) -> CpuId {
        self.0.cpu()
    }

    #[inline]
    fn pin(&self) -> Pinned<usize> {
        self.0.pin()
    }

    #[inline]
    fn unpin(&self, state: usize) {
        self.0.unpin(state);
    }

    #[inline]
    fn relax(&self) {
        self.0.relax();
    }

    #[inline]
    fn light_barrier(&self) {
        self.0.light_barrier();
    }

    #[inline]
    fn heavy_barrier(&self) -> bool {
        self.0.heavy_barrier()
    }

    #[inline]
    fn irq_save(&self) -> usize {
        self.0.irq_save()
    }

    #[inline]
    fn irq_restore(&self, state: usize) {
        self.0.irq_restore(state);
    }
}

/// A machine with one CPU whose interrupt handlers allocate nothing: a boot loader, a unikernel, a
/// test. Threads may share it too: they then compete for the caches of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct OneCpu;

impl Machine for OneCpu {
    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId::new(0)
    }
}

/// CPUs by their hardware numbers, such as APIC IDs or the affinity fields of `MPIDR_EL1`, which
/// may have gaps: numbered from 0 without gaps, as an allocator wants them.
///
/// ```
/// use freehold::CpuId;
/// use freehold::platform::CpuNumbers;
///
/// // Two CPUs a socket, whose second socket begins at 64.
/// static CPUS: CpuNumbers<128> = match CpuNumbers::new(&[0, 2, 64, 66]) {
///     Some(cpus) => cpus,
///     None => panic!("an APIC ID is given twice or is above 127"),
/// };
/// assert_eq!(CPUS.count(), 4);
/// assert_eq!(CPUS.of(64), Some(CpuId::new(2)));
/// assert_eq!(CPUS.of(1), None);
/// ```
#[derive(Clone)]
pub struct CpuNumbers<const NUMBERS: usize> {
    /// By hardware number: the CPU, plus one.
    cpus: [u16; NUMBERS],
    count: usize,
}

impl<const NUMBERS: usize> CpuNumbers<NUMBERS> {
    /// CPUs with these hardware numbers, in this order. `None` if one is given twice, is not below
    /// `NUMBERS`, or if they are more than 65,534.
    pub const fn new(numbers: &[u32]) -> Option<Self> {
        let mut cpus = [0; NUMBERS];
        let mut count = 0;
        // A loop of iterators cannot run in a constant.
        while count < numbers.len() {
            let number = numbers[count] as usize;
            if count >= u16::MAX as usize - 1 || number >= NUMBERS || cpus[number] != 0 {
                return None;
            }
            cpus[number] = count as u16 + 1;
            count += 1;
        }
        Some(CpuNumbers { cpus, count })
    }

    /// The CPU with this hardware number. A read of one table.
    #[inline]
    pub const fn of(&self, number: u32) -> Option<CpuId> {
        if number as usize >= NUMBERS {
            return None;
        }
        match self.cpus[number as usize] {
            0 => None,
            cpu => Some(CpuId::new(cpu as u32 - 1)),
        }
    }

    /// How many CPUs there are.
    pub const fn count(&self) -> usize {
        self.count
    }
}

impl<const NUMBERS: usize> fmt::Debug for CpuNumbers<NUMBERS> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = (0..NUMBERS as u32).filter_map(|number| Some((number, self.of(number)?)));
        f.debug_map().entries(all).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::{IrqsOff, Pin};
    use core::sync::atomic::AtomicUsize;

    /// How often preemption is disabled, and how often interrupts are.
    #[derive(Default)]
    struct Flags([AtomicUsize; 2]);

    impl Machine for Flags {
        fn cpu(&self) -> CpuId {
            CpuId::new(3)
        }

        fn pin(&self) -> Pinned<usize> {
            Pinned::new(self.cpu(), self.0[0].fetch_add(1, SeqCst))
        }

        fn unpin(&self, state: usize) {
            self.0[0].store(state, SeqCst);
        }

        fn irq_save(&self) -> usize {
            self.0[1].fetch_add(1, SeqCst)
        }

        fn irq_restore(&self, state: usize) {
            self.0[1].store(state, SeqCst);
        }
    }

    #[test]
    fn what_is_disabled_is_as_before_once_the_guards_are_gone() {
        let platform = Native(Flags::default());
        let flags = || platform.0.0.each_ref().map(|flag| flag.load(SeqCst));
        let (cpu, outer) = Pin::new(&platform);
        let irqs = IrqsOff::new(&platform);
        let inner = IrqsOff::new(&platform);
        assert_eq!((cpu, flags()), (CpuId::new(3), [1, 2]));
        drop(inner);
        assert_eq!(flags(), [1, 1]);
        drop(irqs);
        assert_eq!(flags(), [1, 0]);
        drop(outer);
        assert_eq!(flags(), [0, 0]);
    }

    /// A machine that disables preemption alone does it for handlers, too.
    #[test]
    fn without_interrupts_of_its_own_a_machine_is_pinned() {
        struct Pins(AtomicUsize);
        impl Machine for Pins {
            fn cpu(&self) -> CpuId {
                CpuId::new(0)
            }
            fn pin(&self) -> Pinned<usize> {
                Pinned::new(self.cpu(), self.0.fetch_add(1, SeqCst))
            }
            fn unpin(&self, state: usize) {
                self.0.store(state, SeqCst);
            }
        }
        let platform = Native(Pins(AtomicUsize::new(7)));
        let irqs = IrqsOff::new(&platform);
        assert_eq!(platform.0.0.load(SeqCst), 8);
        drop(irqs);
        assert_eq!(platform.0.0.load(SeqCst), 7);
    }

    #[test]
    fn numbers_that_make_no_sense_are_refused() {
        assert!(CpuNumbers::<4>::new(&[0, 4]).is_none());
        assert!(CpuNumbers::<4>::new(&[3, 1, 3]).is_none());
        let cpus = CpuNumbers::<4>::new(&[3, 1]).unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4].map(|number| cpus.of(number).map(CpuId::get)),
            [None, Some(1), None, Some(0), None]
        );
        assert_eq!(CpuNumbers::<0>::new(&[]).unwrap().count(), 0);
    }
}
