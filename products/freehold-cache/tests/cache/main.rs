//! The cache as its users see it.

mod ahead;
mod bad_disks;
mod blocks;
mod crash;
mod dirtied;
mod disk;
mod errors;
mod kill;
mod model;
mod prefetch;
mod scans;
mod stress;
mod tenants;

/// Numbers that look random, from a seed.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A number from the environment, for longer runs.
fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
