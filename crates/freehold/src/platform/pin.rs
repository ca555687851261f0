//! Guards for what a platform disables on the running CPU, restored when they are dropped.

use super::Platform;
use crate::units::CpuId;

/// A caller that is pinned to a CPU: the result of [`Platform::pin`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pinned<S> {
    /// The CPU that the caller stays on, where the machine can keep it there.
    pub cpu: CpuId,
    /// What [`Platform::unpin`] has to restore.
    pub state: S,
}

impl<S> Pinned<S> {
    /// A caller that is pinned to `cpu`.
    #[inline(always)]
    pub const fn new(cpu: CpuId, state: S) -> Self {
        Pinned { cpu, state }
    }
}

/// Keeps the caller on its CPU until it is dropped.
pub struct Pin<'a, P: Platform> {
    platform: &'a P,
    state: P::PinState,
}

impl<'a, P: Platform> Pin<'a, P> {
    /// Pins the caller; returns its CPU.
    #[inline(always)]
    pub fn new(platform: &'a P) -> (CpuId, Self) {
        let Pinned { cpu, state } = platform.pin();
        (cpu, Pin { platform, state })
    }

    /// Pins the caller, to whatever CPU that is.
    #[inline(always)]
    pub fn anywhere(platform: &'a P) -> Self {
        Pin { platform, state: platform.pin_anywhere() }
    }

    /// The platform that the caller is pinned on.
    #[inline(always)]
    pub fn platform(&self) -> &'a P {
        self.platform
    }
}

impl<P: Platform> Drop for Pin<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.platform.unpin(self.state);
    }
}

/// Keeps interrupts off on the running CPU until it is dropped.
pub struct IrqsOff<'a, P: Platform> {
    platform: &'a P,
    state: P::IrqState,
}

impl<'a, P: Platform> IrqsOff<'a, P> {
    /// Disables interrupts.
    #[inline(always)]
    pub fn new(platform: &'a P) -> Self {
        IrqsOff { platform, state: platform.irq_save() }
    }
}

impl<P: Platform> Drop for IrqsOff<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.platform.irq_restore(self.state);
    }
}

/// What is disabled on the running CPU while a lock is held.
pub enum CriticalSection<'a, P: Platform> {
    /// Nothing beyond what a surrounding section has disabled.
    Inner,
    /// Preemption.
    Pinned(Pin<'a, P>),
    /// Interrupts, and so preemption.
    IrqsOff(IrqsOff<'a, P>),
}
