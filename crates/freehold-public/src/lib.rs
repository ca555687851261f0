//! The examples of the README, of `docs/embedding.md` and of `docs/cache.md`, as tests.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/cache.md")]
struct BlockCache;
