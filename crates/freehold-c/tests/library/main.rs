//! The library as C programs and any calls see it, and its header.

mod ledger;

mod fuzz;
mod header;
mod programs;
mod random;
