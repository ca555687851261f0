//! The error of commands whose arguments do not go together.

/// A mistake in the arguments that only shows when they are combined. Exits with code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// Refuses arguments, with what is wrong with them.
pub(crate) fn refuse<T>(what: impl Into<String>) -> anyhow::Result<T> {
    Err(UsageError(what.into()).into())
}
