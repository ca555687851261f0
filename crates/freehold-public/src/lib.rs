//! The examples of the README, `docs/embedding.md` and `docs/pool.md`, compiled and run as tests.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/embedding.md")]
struct Embedding;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/pool.md")]
struct Pool;
