//! Random blocks, for programs on a malloc.

/// Random numbers, and the size of a block drawn by each: most are small, one in 16 has up to
/// `largest` bytes.
pub(crate) fn draws(seed: usize, largest: usize) -> impl Iterator<Item = (usize, usize)> {
    let mut random = seed * 0x9e37_79b9;
    std::iter::repeat_with(move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let size = match random % 16 {
            0 => 1 + random / 16 % largest,
            1..4 => 1 + random / 16 % 100_000,
            _ => 1 + random / 16 % 3000,
        };
        (random, size)
    })
}
