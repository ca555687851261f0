//! Deterministic random numbers.

/// SplitMix64.
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// In 0..1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Whether an event of this probability happens.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Exponentially distributed.
    pub(crate) fn exponential(&mut self, mean: f64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean) as u64
    }
}

/// Draws rank `i` with a probability in proportion to `(i + 1) ^ -exponent`.
pub(crate) struct Zipf(Vec<f64>);

impl Zipf {
    pub(crate) fn new(count: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        let add = |rank: u64| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Zipf((1..=count).map(add).collect())
    }

    pub(crate) fn draw(&self, rng: &mut Rng) -> u64 {
        let at = rng.unit() * self.0.last().copied().unwrap_or_default();
        self.0.partition_point(|&sum| sum < at) as u64
    }
}
