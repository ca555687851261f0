//! What is known of a zone in any design: how low it may go, and which types stand in for each
//! other.

pub(crate) mod fallback;
pub(crate) mod watermark;
