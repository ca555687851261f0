//! Bounded rings for handing frames over, from any number of tasks to one, like Linux's `ptr_ring`:
//! slots that are empty or full, a lock for the senders and one for the receivers.
//!
//! On a simulated machine, slots and positions are in its memory, so handing a frame over costs
//! what moving its line costs.

use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
};

use freehold::platform::Word;
use freehold::{NodeId, Pfn};
use freehold_sim::{CpuHandle, Home, Machine, Region, SimWord, WorkLock};

/// A bounded ring for handing frames over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPlan {
    /// How many frames it holds.
    pub(crate) frames: usize,
    /// How many tasks send into it.
    pub(crate) senders: usize,
    /// The task that receives.
    pub(crate) receiver: usize,
}

/// The slots of a ring, each with a frame's number plus one, or 0.
struct Slots<'a, W>(&'a [W]);

impl<W: Word<u64>> Slots<'_, W> {
    fn slot(&self, position: u64) -> &W {
        &self.0[position as usize % self.0.len()]
    }

    /// Whether the slot at a position is empty. If that is in vain, the lock is left to who comes
    /// when it is not.
    fn is_empty_at(&self, position: &W) -> bool {
        self.slot(position.load(Relaxed)).load(Relaxed) == 0
    }

    /// Sends as many frames as there is room for. The caller has the lock of the senders, whose
    /// position this is.
    fn send(&self, position: &W, frames: &[Pfn]) -> usize {
        let start = position.load(Relaxed);
        let mut sent = 0;
        for (at, pfn) in (start..).zip(frames) {
            let slot = self.slot(at);
            if slot.load(Acquire) != 0 {
                break;
            }
            // Release: who takes the frame sees what was done with it.
            slot.store(pfn.get() + 1, Release);
            sent += 1;
        }
        position.store(start + sent as u64, Relaxed);
        sent
    }

    /// Takes as many frames as there are. The caller has the lock of the receivers, whose position
    /// this is.
    fn receive(&self, position: &W, frames: &mut [Pfn]) -> usize {
        let start = position.load(Relaxed);
        let mut received = 0;
        for (at, frame) in (start..).zip(frames) {
            let slot = self.slot(at);
            let held = slot.load(Acquire);
            if held == 0 {
                break;
            }
            slot.store(0, Release);
            *frame = Pfn::new(held - 1);
            received += 1;
        }
        position.store(start + received as u64, Relaxed);
        received
    }
}

/// One end of a ring on the host, on lines of its own: hardware fetches them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct HostEnd {
    lock: spin::Mutex<()>,
    position: AtomicU64,
}

/// A ring on the host.
pub(super) struct HostRing {
    send: HostEnd,
    receive: HostEnd,
    slots: Box<[AtomicU64]>,
    senders: AtomicUsize,
}

impl HostRing {
    pub(super) fn new(plan: &RingPlan) -> Self {
        HostRing {
            send: HostEnd::default(),
            receive: HostEnd::default(),
            slots: (0..plan.frames).map(|_| AtomicU64::new(0)).collect(),
            senders: AtomicUsize::new(plan.senders),
        }
    }

    pub(super) fn try_send(&self, frames: &[Pfn]) -> usize {
        let (slots, HostEnd { lock, position }) = (Slots(&self.slots), &self.send);
        if !slots.is_empty_at(position) {
            return 0;
        }
        let _guard = lock.lock();
        slots.send(position, frames)
    }

    pub(super) fn try_receive(&self, frames: &mut [Pfn]) -> usize {
        let (slots, HostEnd { lock, position }) = (Slots(&self.slots), &self.receive);
        if slots.is_empty_at(position) {
            return 0;
        }
        let _guard = lock.lock();
        slots.receive(position, frames)
    }

    pub(super) fn leave(&self) {
        // A task that sees that this sender has left sees what it sent.
        self.senders.fetch_sub(1, SeqCst);
    }

    pub(super) fn is_closed(&self) -> bool {
        self.senders.load(SeqCst) == 0
    }
}

/// Words in a cache line.
const LINE_WORDS: usize = 8;

/// A ring on a simulated machine.
pub(super) struct SimRing {
    send_lock: WorkLock,
    receive_lock: WorkLock,
    /// The positions of the senders and of the receivers, on a line each, then the slots.
    region: Region,
    /// Costs nothing: it changes once for each sender.
    senders: AtomicUsize,
}

impl SimRing {
    /// A ring in the memory of `node`.
    pub(super) fn new(machine: &mut Machine, plan: &RingPlan, node: NodeId) -> Self {
        let bytes = (2 * LINE_WORDS + plan.frames) * size_of::<u64>();
        let region = machine.map_region(bytes, 64);
        let kind = machine.kind("rings");
        machine.label(&region, 0..region.len(), kind);
        machine.home(&region, 0..region.len(), Home::Node(node));
        SimRing {
            send_lock: machine.lock("ring_lock", node),
            receive_lock: machine.lock("ring_lock", node),
            region,
            senders: AtomicUsize::new(plan.senders),
        }
    }

    fn slots(&self) -> Slots<'_, SimWord<u64>> {
        Slots(&self.region.words()[2 * LINE_WORDS..])
    }

    pub(super) fn try_send(&self, cpu: &CpuHandle, frames: &[Pfn]) -> usize {
        let (slots, position) = (self.slots(), &self.region.words()[0]);
        if !slots.is_empty_at(position) {
            return 0;
        }
        cpu.lock(self.send_lock);
        let sent = slots.send(position, frames);
        cpu.unlock(self.send_lock);
        sent
    }

    pub(super) fn try_receive(&self, cpu: &CpuHandle, frames: &mut [Pfn]) -> usize {
        let (slots, position) = (self.slots(), &self.region.words()[LINE_WORDS]);
        if slots.is_empty_at(position) {
            return 0;
        }
        cpu.lock(self.receive_lock);
        let received = slots.receive(position, frames);
        cpu.unlock(self.receive_lock);
        received
    }

    pub(super) fn leave(&self, cpu: &CpuHandle) {
        cpu.in_order();
        self.senders.fetch_sub(1, Relaxed);
    }

    pub(super) fn is_closed(&self, cpu: &CpuHandle) -> bool {
        cpu.in_order();
        self.senders.load(Relaxed) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use freehold_sim::preset;
    use std::cell::RefCell;
    use std::rc::Rc;

    const PLAN: RingPlan = RingPlan { frames: 5, senders: 2, receiver: 1 };

    fn frames(numbers: std::ops::Range<u64>) -> Vec<Pfn> {
        numbers.map(Pfn::new).collect()
    }

    #[test]
    fn a_ring_of_the_host_is_bounded_and_in_order() {
        let ring = HostRing::new(&PLAN);
        assert_eq!(ring.try_send(&frames(0..8)), 5);
        let mut received = frames(0..3);
        assert_eq!(ring.try_receive(&mut received), 3);
        assert_eq!((received, ring.try_send(&frames(8..9))), (frames(0..3), 1));
        let mut rest = frames(0..9);
        assert_eq!(ring.try_receive(&mut rest), 3);
        assert_eq!(rest[..3], [3, 4, 8].map(Pfn::new));
        ring.leave();
        assert!(!ring.is_closed());
        ring.leave();
        assert!(ring.is_closed());
    }

    #[test]
    fn a_simulated_ring_hands_everything_over_and_costs_transfers() {
        let mut machine = Machine::new(&preset("uma-3").unwrap(), 1).unwrap();
        let ring = Rc::new(SimRing::new(&mut machine, &PLAN, NodeId::new(0)));
        let received = Rc::new(RefCell::new(Vec::new()));
        for sender in 0..2 {
            let ring = Rc::clone(&ring);
            machine.spawn(sender, move |cpu| {
                let all = frames(sender as u64 * 100..sender as u64 * 100 + 50);
                let mut rest = &all[..];
                while !rest.is_empty() {
                    rest = &rest[ring.try_send(cpu, rest)..];
                    cpu.idle_ns(100);
                }
                ring.leave(cpu);
            });
        }
        let (taken, ring) = (Rc::clone(&received), Rc::clone(&ring));
        machine.spawn(2, move |cpu| {
            let mut some = frames(0..3);
            loop {
                let closed = ring.is_closed(cpu);
                let count = ring.try_receive(cpu, &mut some);
                taken.borrow_mut().extend_from_slice(&some[..count]);
                if closed && count == 0 {
                    break;
                }
                cpu.idle_ns(100);
            }
        });
        let report = machine.run().unwrap();
        let of = |sender: u64| {
            let received = received.borrow();
            let of = received.iter().filter(|pfn| pfn.get() / 100 == sender);
            of.map(|pfn| pfn.get() % 100).collect::<Vec<_>>()
        };
        assert_eq!([of(0), of(1)], [0, 1].map(|_| (0..50).collect::<Vec<_>>()));
        let rings = report.data.iter().find(|data| data.data == "rings").unwrap();
        assert!(rings.misses > 50, "{rings:?}");
        assert!(report.lock("ring_lock").unwrap().acquisitions > 10);
    }
}
