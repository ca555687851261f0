//! The lab as its users see it, in one program: each test program is linked with all of its
//! dependencies, and programs run one after the other.

mod check;
mod cli;
mod common;
mod csv;
mod diff;
mod lru;
mod predict;
mod race;
mod report;
mod shell;
mod sim;
mod stop;
mod survey;
mod trace;
mod workloads;
