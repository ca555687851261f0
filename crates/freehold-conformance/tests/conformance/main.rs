//! The checks pass on every design, and each of them notices what it is there for.

mod faults;
mod machine;
mod mutants;
mod suite;
mod torture;
