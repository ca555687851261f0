//! The examples of the README, of `docs/embedding.md`, as tests.

#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
struct Embedding;
