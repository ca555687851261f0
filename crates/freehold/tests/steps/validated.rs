//! Checks of all invariants in the middle of a call that moves content: where it holds no lock, the
//! books are in order.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use freehold::designs::Design;
use freehold::{
    Config, FrameCount, MemoryRange, Migrate, MigrateError, NodeId, Order, Pfn, Request,
};

use crate::machine::Machine;
use crate::steps::{Kind, StepPlatform, locks_held, run_on, stop_at};

test_designs!(StepPlatform: [
    the_books_are_in_order_wherever_a_compaction_stops,
]);

const FRAMES: u64 = 2 * Order::PAGEBLOCK.frames().get();

/// Holds single frames, all of which move.
#[derive(Default)]
struct Owner(RefCell<BTreeSet<Pfn>>);

impl Migrate for Owner {
    fn migrate(&self, from: Pfn, to: Pfn, order: Order) -> Result<(), MigrateError> {
        assert_eq!(order, Order::ZERO);
        let mut held = self.0.borrow_mut();
        assert!(held.remove(&from) && held.insert(to), "{from} moves to {to}");
        Ok(())
    }
}

fn the_books_are_in_order_wherever_a_compaction_stops<D: Design<StepPlatform>>() {
    let mut checks = 0;
    for step in 0.. {
        let ranges = [MemoryRange::new(Pfn::new(0), FrameCount::new(FRAMES))];
        let cpus = [NodeId::new(0); 2];
        let config = Config::new(&ranges, &cpus).min_free(Some(FrameCount::ZERO));
        let machine = Machine::<_, D>::new(StepPlatform, &config, &D::Settings::default());
        let (machine, owner) = (Rc::new(machine), Owner::default());
        run_on(0);
        while let Ok(pfn) = machine.alloc(Request::default()) {
            owner.0.borrow_mut().insert(pfn);
        }
        // Single frames at the front go to a block of 128 at the back, which is split for them.
        let is_freed = |pfn: &Pfn| {
            pfn.get() >= FRAMES - 128 || pfn.get() < 200 && !pfn.get().is_multiple_of(8)
        };
        let freed: Vec<_> = owner.0.borrow().iter().copied().filter(is_freed).collect();
        for pfn in freed {
            owner.0.borrow_mut().remove(&pfn);
            machine.free(pfn, Order::ZERO).unwrap();
        }
        machine.drain_all();
        let checked = Rc::new(RefCell::new(None));
        let meanwhile = {
            let (machine, checked) = (Rc::clone(&machine), Rc::clone(&checked));
            move || {
                // Otherwise it would wait.
                if locks_held() == 0 {
                    run_on(1);
                    *checked.borrow_mut() = Some(machine.validate());
                }
            }
        };
        let (_, was_stopped) = stop_at(step, Kind::Stop, meanwhile, || machine.compact(&owner));
        if let Some(result) = checked.take() {
            checks += 1;
            assert!(result.is_ok(), "{}: stopped before step {step}: {result:?}", D::NAME);
            // Later steps are much like the others, and are many.
            if step > 20_000 {
                break;
            }
        }
        if !was_stopped {
            break;
        }
    }
    assert!(checks > 100, "{}: only {checks} checks", D::NAME);
}
