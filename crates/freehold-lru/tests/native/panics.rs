//! A platform whose code panics. Panics of the owner are tested with the calls to it.

use freehold_lru::LruSettings;

use crate::fragile::{Fragile, every_call, survive, with_config};
use crate::room::Room;
use crate::shelf::Shelf;

#[test]
fn a_panic_while_an_lru_is_built_drops_what_was_made() {
    let settings = LruSettings::default().groups(2).batch(2);
    let build =
        || drop(with_config(|config| Room::new(Fragile, config, &settings, Shelf::default())));
    every_call(|at| survive(at, build), 300, 7);
}
