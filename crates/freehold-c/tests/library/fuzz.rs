//! A target for fuzzers: calls from any bytes, beside a ledger of what is allocated.

use std::time::Duration;

use crate::ledger::{Choices, with_arena};
use freehold_c::FREEHOLD_LEASES;

const CALLS_MAX: usize = 100;

/// Two bytes for each choice, one for small ones; behind the last one come zeroes.
struct Bytes<'a>(&'a [u8]);

impl Choices for Bytes<'_> {
    fn below(&mut self, bound: usize) -> usize {
        let length = if bound > 256 { 2 } else { 1 };
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        taken.iter().fold(0, |number, byte| number << 8 | usize::from(*byte)) % bound
    }
}

fn run(bytes: &[u8]) {
    let mut choices = Bytes(bytes);
    let flags = if choices.below(2) == 0 { 0 } else { FREEHOLD_LEASES };
    with_arena(flags, |ledger| {
        for _ in 0..CALLS_MAX {
            if choices.0.is_empty() {
                break;
            }
            match choices.below(20) {
                0 => ledger.free_bulk(&mut choices),
                1..=9 => ledger.free(&mut choices),
                _ => ledger.allocate(&mut choices),
            }
        }
    });
}

#[test]
fn any_calls_lead_to_what_the_ledger_says() {
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(run);
}
