//! Random calls, right and wrong, beside a ledger of what is allocated.

use crate::ledger::{Choices, with_arena};
use freehold_c::freehold_error::FREEHOLD_OK;
use freehold_c::{FREEHOLD_LEASES, freehold_purge};

const CALLS: usize = 30_000;

struct Random(u64);

impl Choices for Random {
    /// Xorshift.
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % bound
    }
}

fn run(flags: u32) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    with_arena(flags, |ledger| {
        for call in 0..CALLS {
            match random.below(20) {
                0 => ledger.free_bulk(&mut random),
                1..=10 => ledger.free(&mut random),
                11 if call % 50 == 0 => {
                    assert_eq!(freehold_purge(ledger.arena, None), FREEHOLD_OK);
                }
                _ => ledger.allocate(&mut random),
            }
            if call % 1000 == 0 {
                ledger.check();
            }
        }
    });
}

#[test]
fn random_calls_lead_to_what_the_ledger_says() {
    run(0);
}

#[test]
fn random_calls_with_leases_lead_to_what_the_ledger_says() {
    run(FREEHOLD_LEASES);
}
