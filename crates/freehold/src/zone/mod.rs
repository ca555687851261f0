//! What all designs share about zones: watermarks, and which types stand in for each other.

pub mod fallback;
pub mod watermark;
