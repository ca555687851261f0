//! Threads: how many, for how long, and what those have that have ended.

use std::fmt;
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::check::case::Cuts;
use crate::panics::message_of;

/// How many threads work, and for how long.
pub(super) struct Crew {
    pub(super) workers: usize,
    /// Threads beside them that make every rare call.
    pub(super) disturbers: usize,
    /// How long these pause before each of their calls.
    pub(super) pause: Duration,
    pub(super) slots: usize,
    pub(super) rounds: usize,
    /// Steps of each worker in a round.
    pub(super) operations: usize,
}

impl Crew {
    pub(super) fn cut(&mut self, cuts: &Cuts) {
        self.rounds = cuts.rounds.map_or(self.rounds, |most| self.rounds.min(most));
        self.operations = cuts.operations.map_or(self.operations, |most| self.operations.min(most));
    }
}

impl fmt::Display for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} threads with {} slots, {} rounds of {} operations, disturbed by {} more, each \
             every {} ms",
            self.workers,
            self.slots,
            self.rounds,
            self.operations,
            self.disturbers,
            self.pause.as_millis()
        )
    }
}

/// Joins threads; returns what those have that did not panic, and adds what the others said. A
/// thread that gave up since another one panicked says nothing.
pub(super) fn join_all<T>(
    threads: Vec<ScopedJoinHandle<'_, T>>,
    panics: &mut Vec<String>,
) -> Vec<T> {
    let mut done = Vec::new();
    for thread in threads {
        match thread.join() {
            Ok(result) => done.push(result),
            Err(panic) => panics.extend(message_of(&*panic).map(str::to_owned)),
        }
    }
    done
}

/// That no thread has panicked.
pub(super) fn check_none(panics: &[String]) -> Result<()> {
    match panics.first() {
        Some(text) => bail!("a thread panicked: {text}"),
        None => Ok(()),
    }
}
