//! The examples of the README, of `docs/embedding.md` and of the pages on crates, as tests.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/pool.md")]
struct Pool;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/cache.md")]
struct BlockCache;
