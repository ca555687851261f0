//! The design of this object: the project's own, or with the feature of its name another one. All
//! have the same functions, so a kernel links an object of each.

#[cfg(feature = "block-owner")]
pub(crate) use freehold_linux::BlockOwner as Design;
#[cfg(feature = "cluster")]
pub(crate) use freehold_linux::Cluster as Design;
#[cfg(feature = "lazy-merge")]
pub(crate) use freehold_linux::LazyMerge as Design;
#[cfg(feature = "merge-ahead")]
pub(crate) use freehold_linux::MergeAhead as Design;
#[cfg(feature = "zone-lock")]
pub(crate) use freehold_linux::ZoneLock as Design;

#[cfg(not(any(
    feature = "block-owner",
    feature = "cluster",
    feature = "lazy-merge",
    feature = "merge-ahead",
    feature = "zone-lock"
)))]
pub(crate) use freehold::designs::Freehold as Design;
