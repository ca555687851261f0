//! The same bytes everywhere, so that only a change can make a test fail.

use crate::random::{Random, Seed};

/// Behind so many bytes there are no more calls.
const BYTES_MAX: usize = 2400;

/// Plays the bytes of each seed. `FREEHOLD_SEEDS` asks for more seeds, `FREEHOLD_SEED` for one.
pub(crate) fn play(seeds: u64, play: impl Fn(&[u8])) {
    let given = |name| std::env::var(name).ok().map(|value| value.parse().expect("a number"));
    let seeds = match given("FREEHOLD_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..given("FREEHOLD_SEEDS").unwrap_or(seeds),
    };
    for seed in seeds {
        let mut random = Random(seed);
        let bytes: Vec<_> = (0..random.below(BYTES_MAX)).map(|_| random.next() as u8).collect();
        let _named = Seed(seed);
        play(&bytes);
    }
}
