//! Commands that go on for long, and end when they are asked to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A signal ended the command before it had anything to write. Exits with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error("interrupted, nothing was written")]
pub(crate) struct Interrupted;

/// A flag that SIGINT or SIGTERM sets. A second one ends the program at once.
pub(crate) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
