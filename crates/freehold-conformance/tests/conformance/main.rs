//! The checks pass on every design, and each of them notices what it is there for.

#[macro_use]
#[path = "../../../freehold/tests/common/designs.rs"]
mod designs;

mod faults;
mod machine;
mod mutants;
mod suite;
mod torture;
