//! The work of one CPU in a round: operations drawn from the seed.

use std::rc::Rc;

use freehold_sim::CpuHandle;

use super::actor::Actor;
use super::menu::{self, Dish};
use super::round::goes_away;

/// What a CPU does in a step.
static MENU: [Dish<Actor>; 19] = [
    Dish::new("alloc", 40, Actor::alloc),
    Dish::new("free", 20, Actor::free),
    Dish::new("free-part", 7, Actor::free_part),
    Dish::new("leave", 6, Actor::leave),
    Dish::new("free-left", 8, |actor| _ = actor.world.free_left()),
    Dish::new("alloc-bulk", 5, Actor::alloc_bulk),
    Dish::new("free-bulk", 4, Actor::free_bulk),
    Dish::new("upkeep", 4, Actor::upkeep),
    Dish::new("misuse", 7, Actor::misuse),
    Dish::new("hog", 1, Actor::hog),
    Dish::new("add-memory", 1, Actor::add_memory),
    Dish::new("compact", 3, Actor::compact),
    Dish::new("range", 2, Actor::range),
    Dish::new("offline", 1, Actor::offline),
    Dish::new("probe", 3, |actor| actor.world.probe()),
    Dish::new("look", 2, Actor::look),
    Dish::new("remove-memory", 3, Actor::remove_memory),
    Dish::new("validate", 2, |actor| actor.validate()),
    Dish::new("lease", 3, Actor::lease),
];

/// The names of these steps.
pub(super) fn steps() -> Vec<&'static str> {
    MENU.iter().map(|dish| dish.name).collect()
}

impl Actor {
    /// Does so many operations, or fewer if the CPU leaves. What it holds is left to others.
    pub(super) fn work(mut self, handle: &CpuHandle, operations: usize) {
        if goes_away(handle, operations, || self.step()) {
            self.world.tally.borrow_mut().departures += 1;
        }
        self.world.ledger.borrow_mut().pool.append(&mut self.held);
    }

    fn step(&mut self) {
        self.world.tally.borrow_mut().operations += 1;
        self.rng = menu::of_step(self.seed, self.steps);
        self.steps += 1;
        let world = Rc::clone(&self.world);
        if let Some(dish) = menu::draw(&MENU, &mut self.rng, &world.without) {
            dish.act(self);
        }
    }
}
