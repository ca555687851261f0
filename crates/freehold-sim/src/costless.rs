//! A platform without cost: what an allocator decides, without what it costs.
//!
//! An allocator on [`Costless`] runs on the simulated machine like any other and allocates frames
//! in the order of virtual time, but no time passes within its calls: its data are in no cache and
//! its locks make no CPU wait. Costs that a workload adds are not the allocator's.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64};

use freehold::CpuId;
use freehold::platform::native::NativeCell;
use freehold::platform::{LockClass, Pinned, Platform, RawLock, Scalar};

use crate::current;
use crate::platform::Sim;

/// The simulated machine, as seen by an allocator that costs nothing. For machines that run by time
/// and without failures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costless;

/// A lock unknown to the machine, for which no CPU ever waits.
#[derive(Debug)]
pub struct CostlessLock {
    class: LockClass,
    held: Cell<bool>,
}

impl RawLock for CostlessLock {
    fn new(class: LockClass) -> Self {
        CostlessLock { class, held: Cell::new(false) }
    }

    /// Lets earlier CPUs run first. After that no other CPU runs until this CPU's time advances,
    /// which it does not before the lock is released.
    ///
    /// # Panics
    ///
    /// If the lock is held: by this CPU, or because a failure or a random schedule stopped its
    /// holder.
    fn lock(&self) {
        assert!(self.try_lock(), "{} at no cost is held while time goes on", self.class.name());
    }

    fn try_lock(&self) -> bool {
        current::in_turn(0, |_| ());
        !self.held.replace(true)
    }

    fn unlock(&self) {
        self.held.set(false);
    }
}

impl Platform for Costless {
    type U32 = AtomicU32;
    type U64 = AtomicU64;
    type Cell<T: Scalar> = NativeCell<T>;
    type LocalCell<T: Scalar> = NativeCell<T>;
    type Lock = CostlessLock;
    type PinState = u32;
    type IrqState = ();

    fn cpu(&self) -> CpuId {
        Sim.cpu()
    }

    fn pin(&self) -> Pinned<u32> {
        Sim.pin()
    }

    fn unpin(&self, before: u32) {
        Sim.unpin(before);
    }

    fn irq_save(&self) {}

    fn irq_restore(&self, (): ()) {}
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    use freehold::{
        Config, Error, FrameCount, Immovable, MemoryRange, NodeId, Order, Pfn, RangeRequest,
        Request,
    };
    use freehold_linux::zone_lock::ZoneLock;
    use rand_core::RngCore;
    use rand_pcg::Pcg32;

    use super::*;
    use crate::{Machine, Path, Report, SimFrames, preset};

    /// Frames of each of the two nodes.
    const NODE_FRAMES: u64 = 8192;

    /// As few as a CPU caches in so small a memory.
    const FEW: usize = 4;

    type Frames = SimFrames<ZoneLock<Costless>, Costless>;

    /// An allocator for `skylake-2s`, on which CPU 0 is near node 0 and CPU 28 near node 1.
    fn frames(machine: &mut Machine) -> Rc<Frames> {
        let spec = preset("skylake-2s").unwrap();
        let range = |node: u16| {
            let start = Pfn::new(u64::from(node) * NODE_FRAMES);
            MemoryRange::new(start, FrameCount::new(NODE_FRAMES)).on_node(NodeId::new(node))
        };
        let ranges = [range(0), range(1)];
        let cpu_nodes: Vec<_> =
            (0..spec.cpus()).map(|cpu| spec.node_of(CpuId::new(cpu as u32))).collect();
        let config = Config::new(&ranges, &cpu_nodes).frame_record_bytes(64);
        Rc::new(Frames::new(machine, Costless, &config, &Default::default()).unwrap())
    }

    fn machine() -> Machine {
        Machine::new(&preset("skylake-2s").unwrap(), 1).unwrap()
    }

    fn check_all_back(frames: &Frames) {
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().free, FrameCount::new(2 * NODE_FRAMES));
    }

    /// The blocks in use: first frames and orders. Naive, so easily correct.
    #[derive(Default)]
    struct Book(BTreeMap<u64, u8>);

    impl Book {
        fn enter(&mut self, pfn: Pfn, order: Order) {
            assert!(pfn.is_aligned(order), "{pfn} for {order:?}");
            let (start, end) = (pfn.get(), pfn.get() + order.frames().get());
            assert!(end <= 2 * NODE_FRAMES, "{pfn} lies beyond the memory");
            let before = self.0.range(..end).next_back();
            let free = before.is_none_or(|(at, order)| at + (1 << order) <= start);
            assert!(free, "{pfn} was in use");
            self.0.insert(start, order.get());
        }
    }

    /// Eight CPUs of both nodes allocate and free blocks of all orders, each others' as well.
    fn play() -> (Report, Rc<Frames>, u64) {
        let mut machine = machine();
        let frames = frames(&mut machine);
        let book = Rc::new(RefCell::new(Book::default()));
        let refused = Rc::new(Cell::new(0));
        for cpu in (0..56).step_by(7) {
            let (frames, book, refused) = (frames.clone(), book.clone(), refused.clone());
            machine.spawn(cpu, move |handle| {
                let mut rng = Pcg32::new(cpu as u64, 1);
                for _ in 0..2000 {
                    handle.compute_ns(u64::from(rng.next_u32() % 100));
                    let order = Order::new((rng.next_u32() % 11) as u8);
                    if rng.next_u32().is_multiple_of(2) {
                        match handle.timed(Path::Alloc, || frames.alloc(Request::new(order))) {
                            Ok(pfn) => book.borrow_mut().enter(pfn, order),
                            Err(_) => refused.set(refused.get() + 1),
                        }
                        continue;
                    }
                    let from = u64::from(rng.next_u32()) % (2 * NODE_FRAMES);
                    let block = book.borrow().0.range(from..).next().map(|(&at, &of)| (at, of));
                    if let Some((at, order)) = block {
                        book.borrow_mut().0.remove(&at);
                        let free = || frames.free(Pfn::new(at), Order::new(order));
                        handle.timed(Path::Free, free).unwrap();
                    }
                }
            });
        }
        let report = machine.run().unwrap();
        for (at, order) in std::mem::take(&mut book.borrow_mut().0) {
            frames.free(Pfn::new(at), Order::new(order)).unwrap();
        }
        (report, frames, refused.get())
    }

    #[test]
    fn no_frame_is_handed_out_twice_and_all_come_back() {
        let (_, frames, refused) = play();
        assert!(refused > 0, "memory has run short");
        assert!(frames.events().allocated > FrameCount::new(8 * NODE_FRAMES));
        check_all_back(&frames);
    }

    #[test]
    fn no_call_takes_time_and_no_lock_is_met() {
        let (report, ..) = play();
        assert!(report.elapsed_ns > 0.0);
        assert_eq!(
            report.time.compute_ns, report.time.all_ns,
            "the tasks compute, all else is free"
        );
        for path in ["alloc", "free"] {
            assert!(report.latency_ns[path].count > 5000);
            assert!(report.paths[path].values().all(|&ns| ns == 0.0), "{path}");
        }
        assert!(report.locks.is_empty() && report.data.is_empty(), "{report:?}");
        assert_eq!(report.irq_off.sections, 0);
    }

    #[test]
    fn the_own_node_comes_first_and_the_last_frame_freed_next() {
        let mut machine = machine();
        let frames = frames(&mut machine);
        for (cpu, node) in [(0, 0), (28, 1)] {
            let frames = Rc::clone(&frames);
            machine.spawn(cpu, move |_| {
                let alloc = || frames.alloc(Request::default()).unwrap();
                let own: Vec<_> = (0..FEW).map(|_| alloc()).collect();
                assert!(own.iter().all(|pfn| pfn.get() / NODE_FRAMES == node), "CPU {cpu}");
                own.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).unwrap());
                let again: Vec<_> = (0..FEW).map(|_| alloc()).collect();
                assert!(again.iter().eq(own.iter().rev()), "CPU {cpu}");
            });
        }
        machine.run().unwrap();
    }

    #[test]
    fn the_other_node_serves_when_the_own_is_empty() {
        let frames = frames(&mut machine());
        let blocks: Vec<_> =
            std::iter::from_fn(|| frames.alloc(Request::new(Order::PAGEBLOCK)).ok()).collect();
        let node_of = |pfn: &Pfn| pfn.get() / NODE_FRAMES;
        assert!(blocks.iter().is_sorted_by_key(node_of), "outside a run the CPU is CPU 0");
        assert_eq!(blocks.last().map(node_of), Some(1));
        blocks.into_iter().for_each(|pfn| frames.free(pfn, Order::PAGEBLOCK).unwrap());
        check_all_back(&frames);
    }

    #[test]
    fn frees_that_make_no_sense_are_refused() {
        let frames = frames(&mut machine());
        let pfn = frames.alloc(Request::new(Order::new(3))).unwrap();
        assert_eq!(frames.free(pfn, Order::new(4)), Err(Error::WrongOrder));
        assert_eq!(frames.free(Pfn::new(2 * NODE_FRAMES), Order::ZERO), Err(Error::ForeignFrame));
        assert_eq!(frames.free(pfn, Order::new(3)), Ok(()));
        assert_eq!(frames.free(pfn, Order::new(3)), Err(Error::DoubleFree));
        let range = frames.alloc_range(RangeRequest::new(FrameCount::new(3000)), &Immovable);
        frames.free_range(range.unwrap(), FrameCount::new(3000)).unwrap();
        check_all_back(&frames);
    }

    #[test]
    fn frames_change_hands_in_the_order_of_virtual_time() {
        let mut machine = machine();
        let frames = frames(&mut machine);
        let times = Rc::new(RefCell::new(Vec::new()));
        for cpu in 0..4 {
            let (frames, times) = (Rc::clone(&frames), Rc::clone(&times));
            machine.spawn(cpu, move |handle| {
                for _ in 0..100 {
                    handle.compute_ns(1 + cpu as u64);
                    let pfn = frames.alloc(Request::default()).unwrap();
                    times.borrow_mut().push(handle.now_ns());
                    frames.free(pfn, Order::ZERO).unwrap();
                }
            });
        }
        machine.run().unwrap();
        assert_eq!(times.borrow().len(), 400);
        assert!(times.borrow().is_sorted());
    }
}
