//! How a CPU's lists and its counters are protected from interrupts.
//!
//! After Mel Gorman, "Use local_lock for pcp protection and reduce stat overhead", v3 of April
//! 2021. Before the series, interrupts were off over list, statistics and zone lock together. After
//! it, statistics need no protection, and the protection of the lists has a name, so that a
//! preemptible kernel can substitute something cheaper.

use freehold::platform::{CriticalSection, IrqsOff, Pin, Platform};

/// What is disabled while a CPU's lists are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Locking {
    /// Interrupts are off over list, statistics and zone lock together: the kernel before the
    /// series.
    Irq,
    /// The lists have a lock of their own; interrupts are off only while a zone lock is held.
    Local,
    /// As `Local`, but a zone lock leaves interrupts on too: it only pins its holder to its CPU, as
    /// in a kernel whose interrupt handlers are threads (PREEMPT_RT).
    Rt,
}

/// How events are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counters {
    /// With interrupts off.
    Exact,
    /// In words of the CPU, without protection from interrupts.
    Relaxed,
}

/// Both choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bookkeeping {
    pub(crate) locking: Locking,
    pub(crate) counters: Counters,
}

impl Bookkeeping {
    /// Enters a critical section on a CPU's lists.
    #[inline(always)]
    pub(crate) fn enter_lists<P: Platform>(self, platform: &P) -> Option<P::IrqState> {
        (self.locking == Locking::Irq).then(|| platform.irq_save())
    }

    /// Enters a critical section under a zone lock, outside of one on a CPU's lists.
    #[inline]
    pub(crate) fn enter_zone<P: Platform>(self, platform: &P) -> CriticalSection<'_, P> {
        match self.locking {
            Locking::Irq | Locking::Local => CriticalSection::IrqsOff(IrqsOff::new(platform)),
            Locking::Rt => CriticalSection::Pinned(Pin::new(platform).1),
        }
    }

    /// Enters a critical section under a zone lock, inside one on a CPU's lists.
    #[inline]
    pub(crate) fn enter_zone_from_lists<P: Platform>(self, platform: &P) -> CriticalSection<'_, P> {
        match self.locking {
            Locking::Local => CriticalSection::IrqsOff(IrqsOff::new(platform)),
            Locking::Irq | Locking::Rt => CriticalSection::Inner,
        }
    }

    /// Whether changes of a CPU's lists are counted only after interrupts are back on.
    #[inline(always)]
    pub(crate) fn counts_late(self) -> bool {
        self == Bookkeeping { locking: Locking::Irq, counters: Counters::Relaxed }
    }

    /// Notes what `count` counts; disables interrupts for it if exact counts need that and they
    /// are still on. The caller holds the lock of a CPU's lists.
    #[inline(always)]
    pub(crate) fn note<P: Platform>(self, platform: &P, count: impl FnOnce()) {
        let exactly = Bookkeeping { locking: Locking::Local, counters: Counters::Exact };
        if self == exactly {
            let _irqs = IrqsOff::new(platform);
            count();
        } else {
            count();
        }
    }
}
