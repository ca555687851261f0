//! Numbers that look random and depend on a seed alone.

/// A generator of pseudo-random numbers: xorshift64, period 2^64 - 1 (G. Marsaglia, "Xorshift
/// RNGs", Journal of Statistical Software 8, 2003).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The generator of a seed; equal seeds give equal sequences.
    pub(crate) const fn new(seed: u64) -> Self {
        // The state must not be zero. Multiplying by an odd number keeps seeds apart, and spreads
        // small ones over all bits.
        let spread = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Random(if spread == 0 { 1 } else { spread })
    }

    /// The next number.
    pub(crate) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next number below `end`, which is not 0.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        // The lowest bits of the generator are its weakest.
        (self.next() >> 16) % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_and_seeds_differ() {
        let first = |seed| {
            [(); 8].map({
                let mut random = Random::new(seed);
                move |()| random.next()
            })
        };
        assert_eq!(first(1), first(1));
        for (one, other) in [(0, 1), (1, 2), (2, 3)] {
            assert_ne!(first(one), first(other));
        }
        let mut random = Random::new(0);
        let mut seen = [0; 7];
        (0..7000).for_each(|_| seen[random.below(7) as usize] += 1);
        assert!(seen.iter().all(|count| (800..1200).contains(count)), "{seen:?}");
    }
}
