//! What all designs share about zones: watermarks, and which types stand in for each other.

pub(crate) mod fallback;
pub(crate) mod watermark;
