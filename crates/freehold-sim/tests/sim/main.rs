//! The simulated machine: what it charges, how it runs, and what designs cost on it.

mod books;
mod rows;

mod ahead;
mod halt;
mod idle;
mod interrupt;
mod irq_off;
mod late_merges;
mod machine;
mod scenarios;
mod topologies;
mod window;
mod work;
