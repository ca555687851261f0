//! The owner of the frames' contents: what it is asked, by which protocol, and what it keeps of
//! content that was evicted.

pub(crate) mod claim;
pub(crate) mod protocol;
pub(crate) mod shadow;
