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
    use std::rc::Rc;

    use freehold::{Config, FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
    use freehold_linux::zone_lock::ZoneLock;
    use rand_core::RngCore;
    use rand_pcg::Pcg32;

    use super::*;
    use crate::{Machine, Path, SimFrames, preset};

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

    /// Eight CPUs of both nodes allocate and free.
    #[test]
    fn no_call_takes_time_and_no_lock_is_met() {
        let mut machine = machine();
        let frames = frames(&mut machine);
        for cpu in (0..56).step_by(7) {
            let frames = Rc::clone(&frames);
            machine.spawn(cpu, move |handle| {
                let mut rng = Pcg32::new(cpu as u64, 1);
                for _ in 0..1000 {
                    handle.compute_ns(u64::from(rng.next_u32() % 100));
                    let order = Order::new((rng.next_u32() % 4) as u8);
                    let alloc = || frames.alloc(Request::new(order));
                    let pfn = handle.timed(Path::Alloc, alloc).unwrap();
                    handle.timed(Path::Free, || frames.free(pfn, order)).unwrap();
                }
            });
        }
        let report = machine.run().unwrap();
        frames.drain_all();
        assert_eq!(frames.validate().unwrap().free, FrameCount::new(2 * NODE_FRAMES));
        assert!(report.elapsed_ns > 0.0);
        assert_eq!(
            report.time.compute_ns, report.time.all_ns,
            "the tasks compute, all else is free"
        );
        for path in ["alloc", "free"] {
            assert_eq!(report.latency_ns[path].count, 8000);
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
