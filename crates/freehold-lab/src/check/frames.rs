//! The allocator under check, whatever its design, so that the code that plays a scenario is
//! compiled once, and only the allocators once for each design.

use std::any::Any;
use std::rc::Rc;

use anyhow::{Context, Result};
use freehold::designs::Freehold;
use freehold::platform::Platform;
use freehold::{
    Compaction, CpuId, Design, Error, FrameStatus, MemoryRange, Migrate, NumaEvents, Order,
    PageAllocator, Pfn, Request, Settings,
};
use freehold_llfree::Llfree;
use freehold_sim::{Machine, Sim, SimFrames};

use super::leases::{self, Ending, Leased, Terms};
use super::lru::Cache;
use super::scenario::Scenario;
use crate::designs::{DesignName, with_design};
use crate::frames::Frames;

/// The calls that checks make in addition to those of workloads, under their own names.
pub(super) trait CheckedFrames: Frames {
    fn order_max(&self) -> Order;
    fn alloc_into_slots(&self, request: Request, slots: &mut [Option<Pfn>])
    -> Result<usize, Error>;
    fn alloc_onto_list(
        &self,
        request: Request,
        count: usize,
        list: &mut Vec<Pfn>,
    ) -> Result<usize, Error>;
    fn compact(&self, owner: &dyn Migrate) -> Compaction;
    fn add_memory(&self, range: MemoryRange) -> Result<(), Error>;
    fn remove_memory(&self, range: MemoryRange, owner: &dyn Migrate) -> Result<(), Error>;
    fn status(&self, pfn: Pfn) -> FrameStatus;
    fn drain(&self, cpu: CpuId) -> Result<(), Error>;
    fn offline_cpu(&self, cpu: CpuId) -> Result<(), Error>;
    fn tick(&self, cpu: CpuId) -> Result<(), Error>;
    fn numa_events(&self, zone: usize) -> Option<NumaEvents>;

    /// Works through a lease by these terms: `work` says whether to park it.
    fn with_lease(&self, terms: Terms, work: &mut dyn FnMut(&mut dyn Leased) -> bool) -> Ending;

    /// Whether no call is in a section, for which others may have to wait. Always true for designs
    /// without sections.
    fn is_quiet(&self) -> bool;

    /// [`freehold_lru::Lru::alloc_reclaiming`] on these frames.
    fn alloc_reclaiming(&self, cache: &Cache, request: Request) -> Result<Pfn, Error>;

    /// [`freehold_lru::Lru::balance`] on these frames.
    fn balance(&self, cache: &Cache);
}

/// Sets the allocator of a scenario up on `machine`.
pub(super) fn set_up(
    design: DesignName,
    scenario: &Scenario,
    machine: &mut Machine,
) -> Result<Rc<dyn CheckedFrames>> {
    with_design!(design, Sim, D => set_up_as::<D>(scenario, machine))
}

/// The same for one design, which is then the only one that is compiled.
pub(super) fn set_up_as<D: Design<Sim>>(
    scenario: &Scenario,
    machine: &mut Machine,
) -> Result<Rc<dyn CheckedFrames>> {
    let settings = scenario.settings::<D::Settings>();
    let frames = SimFrames::<D>::new(machine, Sim, &scenario.config(), &settings);
    Ok(Rc::new(frames.with_context(|| scenario.wrong())?))
}

/// The allocator, if it is the design with leases and sections.
pub(super) fn as_freehold<P: Platform, D: Design<P>>(
    allocator: &PageAllocator<P, D>,
) -> Option<&PageAllocator<P, Freehold<P>>> {
    let allocator: &dyn Any = allocator;
    allocator.downcast_ref()
}

/// Whether interrupt handlers may call the allocator of a scenario: not if zone locks leave
/// interrupts on, as in kernels whose handlers are threads.
pub(super) fn may_be_interrupted(design: DesignName, scenario: &Scenario) -> bool {
    let mut may = true;
    with_design!(design, Sim, D => {
        let settings = scenario.settings::<<D as Design<Sim>>::Settings>();
        settings.for_each(&mut |name, value| may &= name != "locking" || value.to_string() != "rt");
    });
    may
}

impl<D: Design<Sim>> CheckedFrames for SimFrames<D> {
    fn order_max(&self) -> Order {
        D::ORDER_MAX
    }

    fn alloc_into_slots(
        &self,
        request: Request,
        slots: &mut [Option<Pfn>],
    ) -> Result<usize, Error> {
        (**self).alloc_into_slots(request, slots)
    }

    fn alloc_onto_list(
        &self,
        request: Request,
        count: usize,
        list: &mut Vec<Pfn>,
    ) -> Result<usize, Error> {
        (**self).alloc_onto_list(request, count, list)
    }

    fn compact(&self, owner: &dyn Migrate) -> Compaction {
        (**self).compact(owner)
    }

    fn add_memory(&self, range: MemoryRange) -> Result<(), Error> {
        (**self).add_memory(range)
    }

    fn remove_memory(&self, range: MemoryRange, owner: &dyn Migrate) -> Result<(), Error> {
        (**self).remove_memory(range.start, range.frames, owner)
    }

    fn status(&self, pfn: Pfn) -> FrameStatus {
        (**self).status(pfn)
    }

    fn drain(&self, cpu: CpuId) -> Result<(), Error> {
        (**self).drain(cpu)
    }

    fn offline_cpu(&self, cpu: CpuId) -> Result<(), Error> {
        (**self).offline_cpu(cpu)
    }

    fn tick(&self, cpu: CpuId) -> Result<(), Error> {
        (**self).tick(cpu)
    }

    fn numa_events(&self, zone: usize) -> Option<NumaEvents> {
        (**self).numa_events(zone)
    }

    fn with_lease(&self, terms: Terms, work: &mut dyn FnMut(&mut dyn Leased) -> bool) -> Ending {
        match as_freehold(&**self) {
            Some(frames) => leases::with_lease(frames, terms, work),
            None => Ending::Unsupported,
        }
    }

    fn is_quiet(&self) -> bool {
        let allocator: &dyn Any = &**self;
        let llfree: Option<&PageAllocator<Sim, Llfree<Sim>>> = allocator.downcast_ref();
        as_freehold(&**self).is_none_or(PageAllocator::is_quiet)
            && llfree.is_none_or(|frames| frames.design().is_quiet())
    }

    fn alloc_reclaiming(&self, cache: &Cache, request: Request) -> Result<Pfn, Error> {
        cache.alloc_reclaiming(self, request)
    }

    fn balance(&self, cache: &Cache) {
        cache.balance(self);
    }
}
