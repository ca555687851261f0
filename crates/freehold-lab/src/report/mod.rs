//! What a run says: a JSON document or a table on stdout, progress on stderr.

pub(crate) mod document;
pub(crate) mod progress;
pub(crate) mod summary;
pub(crate) mod table;
