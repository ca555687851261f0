//! The calls of the library, stopped at each of their steps, and all small cases: minutes, so this
//! program is built when it is named. `cargo xtask prove stops`

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../common/designs.rs"]
mod designs;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/naive.rs"]
mod naive;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/steps.rs"]
mod steps;

mod exhaustive;
mod freehold_between;
mod freehold_found;
mod freehold_last;
mod freehold_parts;
mod freehold_queued;
mod freehold_remove;
mod freehold_runs;
mod freehold_steps;
mod removed_meanwhile;
mod stop;
mod torn_copies;
mod validated;
