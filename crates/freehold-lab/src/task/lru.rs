//! The library's LRU, on which the tasks of a workload keep frames.

use std::cell::RefCell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;

use anyhow::Result;
use freehold::platform::Platform;
use freehold::{Design, Error, FrameCount, Order, PageAllocator, Pfn, Request};
use freehold_host::Host;
use freehold_lru::{
    Claim, GroupId, Lru, LruError, LruLock, LruPolicy, LruSettings, Owner, Verdict,
};
use freehold_sim::{Sim, SimFrames};

use crate::books::check_none_listed;
use crate::frames::Frames;
use crate::host::HostDesign;

/// The scopes of the lock over lists, as the setting `lru` names them.
pub(crate) const LOCKS: [(&str, LruLock); 3] =
    [("shards", LruLock::Shards), ("group", LruLock::Group), ("node", LruLock::Node)];

/// The LRU that a workload needs.
pub(crate) struct LruPlan {
    pub(crate) lock: LruLock,
    /// How many frames are collected for one hold of the lock.
    pub(crate) batch: u32,
    pub(crate) policy: LruPolicy,
    /// What each memory group may have.
    pub(crate) groups: Vec<Bounds>,
    pub(crate) index: Arc<dyn Index>,
    pub(crate) frees: Frees,
}

/// Who frees the frames that leave the LRU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frees {
    /// The owner, within the call that takes them off.
    AtOnce,
    /// The task that takes them off, by one call for each, in
    /// [`Task::unlist`](super::Task::unlist).
    OneByOne,
    /// The same task, by one call for all.
    InBulk,
}

/// How many frames a memory group may have, and how many it keeps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) max: Option<FrameCount>,
    pub(crate) low: FrameCount,
}

/// The LRU of the machine that tasks run on.
#[derive(Clone, Copy)]
pub(crate) enum AnyLru<'a, 'k> {
    Host(&'a Lru<Host, HostKeeper<'k>>),
    Sim(&'a Lru<Sim, SimKeeper>),
}

/// An allocator that takes frames from an LRU when it has none.
pub(crate) trait ReclaimingFrames: Frames {
    /// [`Lru::alloc_reclaiming`] from this allocator.
    fn alloc_or_reclaim(&self, request: Request, lru: AnyLru<'_, '_>) -> Result<Pfn, Error>;
}

impl<D: HostDesign> ReclaimingFrames for &PageAllocator<Host, D> {
    fn alloc_or_reclaim(&self, request: Request, lru: AnyLru<'_, '_>) -> Result<Pfn, Error> {
        let AnyLru::Host(lru) = lru else { unreachable!("the LRU is that of the machine") };
        lru.alloc_reclaiming(self, request)
    }
}

impl<P: Platform, D: Design<P>> ReclaimingFrames for SimFrames<D, P> {
    fn alloc_or_reclaim(&self, request: Request, lru: AnyLru<'_, '_>) -> Result<Pfn, Error> {
        let AnyLru::Sim(lru) = lru else { unreachable!("the LRU is that of the machine") };
        lru.alloc_reclaiming(self, request)
    }
}

/// What is in the frames on an LRU, as far as reclaim needs to know it.
pub(crate) trait Index: Send + Sync {
    /// As [`Owner::reclaim`].
    fn reclaim(&self, _frame: Pfn) -> Verdict {
        Verdict::Keep
    }

    /// As [`Owner::forget`].
    fn forget(&self, _frame: Pfn, _claim: Claim<'_>) {}

    /// The frames that it has at the end of a run, which leave it.
    fn take_all(&self) -> Vec<Pfn>;
}

impl LruPlan {
    pub(super) fn settings(&self) -> LruSettings {
        // The root is a group as well.
        let groups = 1 + self.groups.len() as u32;
        let settings = LruSettings::default().lock(self.lock).batch(self.batch);
        settings.groups(groups).policy(self.policy)
    }
}

/// An LRU and its groups.
pub(super) struct Lists<L> {
    pub(super) lru: L,
    pub(super) frees: Frees,
    groups: Vec<GroupId>,
    index: Arc<dyn Index>,
}

impl<L, P, O> Lists<L>
where
    L: Deref<Target = Lru<P, O>>,
    P: Platform,
    O: Owner,
{
    pub(super) fn new(lru: L, plan: &LruPlan) -> Result<Self, LruError> {
        let create = |bounds: &Bounds| {
            let group = lru.create_group(GroupId::ROOT, bounds.max)?;
            lru.set_low(group, bounds.low)?;
            Ok(group)
        };
        let groups = plan.groups.iter().map(create).collect::<Result<_, _>>()?;
        Ok(Lists { lru, frees: plan.frees, groups, index: Arc::clone(&plan.index) })
    }

    /// The group of that number, or the one whose turn it is if there are fewer.
    pub(super) fn group(&self, number: usize) -> GroupId {
        self.groups[number % self.groups.len()]
    }

    /// Takes all frames that are left off their lists, at a time when no task runs.
    pub(super) fn empty(&self) -> Result<()> {
        self.lru.drain_all();
        self.lru.put_bulk(&self.index.take_all())?;
        check_none_listed(&*self.lru)
    }
}

thread_local! {
    /// On the host, frames that the task of this thread is to free.
    static RELEASED: RefCell<Vec<Pfn>> = const { RefCell::new(Vec::new()) };
}

/// The owner of the frames on the host.
pub(crate) struct HostKeeper<'a> {
    index: Arc<dyn Index>,
    frames: &'a (dyn Frames + Sync),
    tasks_free: bool,
}

impl<'a> HostKeeper<'a> {
    pub(super) fn new(plan: &LruPlan, frames: &'a (dyn Frames + Sync)) -> Self {
        let tasks_free = plan.frees != Frees::AtOnce;
        HostKeeper { index: Arc::clone(&plan.index), frames, tasks_free }
    }

    /// The frames that the task of this thread is to free.
    pub(super) fn take_released(&self) -> Vec<Pfn> {
        if self.tasks_free { RELEASED.take() } else { Vec::new() }
    }
}

impl Owner for HostKeeper<'_> {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        self.index.reclaim(frame)
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        self.index.forget(frame, claim);
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        if self.tasks_free {
            RELEASED.with_borrow_mut(|released| released.extend(frames));
            return;
        }
        let freed = self.frames.free_bulk(frames, order);
        freed.expect("tasks allocated the frames");
    }
}

/// The owner of the frames on a simulated machine.
pub(crate) struct SimKeeper {
    index: Arc<dyn Index>,
    frames: Rc<dyn ReclaimingFrames>,
    /// Frames that tasks are to free, by CPU.
    released: Option<RefCell<Vec<Vec<Pfn>>>>,
}

impl SimKeeper {
    pub(super) fn new(plan: &LruPlan, frames: &Rc<dyn ReclaimingFrames>, cpus: usize) -> Self {
        let tasks_free = plan.frees != Frees::AtOnce;
        let released = tasks_free.then(|| RefCell::new(vec![Vec::new(); cpus]));
        SimKeeper { index: Arc::clone(&plan.index), frames: Rc::clone(frames), released }
    }

    /// The frames that the task of a CPU is to free.
    pub(super) fn take_released(&self, cpu: usize) -> Vec<Pfn> {
        let take = |all: &RefCell<Vec<Vec<Pfn>>>| std::mem::take(&mut all.borrow_mut()[cpu]);
        self.released.as_ref().map(take).unwrap_or_default()
    }
}

impl Owner for SimKeeper {
    fn reclaim(&self, frame: Pfn) -> Verdict {
        self.index.reclaim(frame)
    }

    fn forget(&self, frame: Pfn, claim: Claim<'_>) {
        self.index.forget(frame, claim);
    }

    fn release(&self, frames: &[Pfn], order: Order) {
        if let Some(released) = &self.released {
            released.borrow_mut()[Sim.cpu().index()].extend(frames);
            return;
        }
        for &frame in frames {
            self.frames.free(frame, order).expect("tasks allocated the frames");
        }
    }
}
