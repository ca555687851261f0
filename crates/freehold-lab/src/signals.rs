//! Commands that go on for long, and end when they are asked to.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A signal ended the command; and what to do next. Exits with a code of its own.
#[derive(Debug, thiserror::Error)]
#[error("interrupted{0}")]
pub(crate) struct Interrupted(pub(crate) &'static str);

/// A flag that SIGINT or SIGTERM sets. A second one ends the program at once.
pub(crate) fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_default(signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
