//! Shapes of published traces, by seed: none was compared with an original.

/// Which blocks are read, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    /// Blocks that all fit, at random: the cost of hits.
    Hits,
    /// Zipf, over ten times the cache (Breslau et al., INFOCOM 1999, for 0.9 and less).
    Zipf09,
    Zipf11,
    /// Half zipf, half a scan of blocks that are read once (the shape that 2Q and ARC are for).
    ZipfScan,
    /// A hot set of 0.8 of the cache, a fifth of the reads, and a scan.
    HotScan,
    /// Over and over through slightly more than there is room for, and through half as much again.
    Loop11,
    Loop15,
}

impl Trace {
    pub(crate) const ALL: [Self; 6] = [
        Trace::Zipf09,
        Trace::Zipf11,
        Trace::ZipfScan,
        Trace::HotScan,
        Trace::Loop11,
        Trace::Loop15,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Trace::Hits => "all cached",
            Trace::Zipf09 => "zipf 0.9",
            Trace::Zipf11 => "zipf 1.1",
            Trace::ZipfScan => "zipf 0.9 + 50% scan",
            Trace::HotScan => "hot 0.8 + 80% scan",
            Trace::Loop11 => "loop 1.1",
            Trace::Loop15 => "loop 1.5",
        }
    }

    pub(crate) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|trace| trace.name() == name)
    }

    /// How many blocks a file has for all of them.
    pub(crate) const fn span(blocks: u64) -> u64 {
        20 * blocks
    }

    /// The blocks, for a cache of so many.
    pub(crate) fn requests(self, blocks: u64, count: usize, seed: u64) -> Vec<u64> {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let far = Self::span(blocks) / 2;
        let zipf = match self {
            Trace::Zipf11 => Zipf::new(10 * blocks, 1.1),
            Trace::Zipf09 | Trace::ZipfScan => Zipf::new(10 * blocks, 0.9),
            _ => Zipf::new(1, 1.0),
        };
        let mut scanned = 0;
        let mut next = |nth: u64| match self {
            Trace::Hits => random.next() % (blocks * 9 / 10),
            Trace::Zipf09 | Trace::Zipf11 => zipf.draw(&mut random),
            Trace::ZipfScan if random.next().is_multiple_of(2) => zipf.draw(&mut random),
            Trace::HotScan if random.next().is_multiple_of(5) => random.next() % (blocks * 8 / 10),
            Trace::ZipfScan | Trace::HotScan => {
                scanned += 1;
                far + scanned % far
            }
            Trace::Loop11 => nth % (blocks * 11 / 10),
            Trace::Loop15 => nth % (blocks * 15 / 10),
        };
        (0..count as u64).map(&mut next).collect()
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11
    }
}

/// Ranks by a power law, spread over the blocks so that popular ones are not neighbours.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: u64, exponent: f64) -> Self {
        let mut sum = 0.0;
        let weight = |rank: u64| {
            sum += (rank as f64).powf(-exponent);
            sum
        };
        Zipf((1..=ranks).map(weight).collect())
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let (ranks, all) = (self.0.len() as u64, self.0[self.0.len() - 1]);
        let at = (random.next() as f64 / (1_u64 << 53) as f64) * all;
        let rank = self.0.partition_point(|&sum| sum < at) as u64;
        // A step that has no factor in common with the number of ranks visits each block once.
        rank.min(ranks - 1) * 7_919 % ranks
    }
}
