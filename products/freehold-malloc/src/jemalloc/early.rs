//! Before `main`, and before jemalloc is initialised: the order of handlers of forks.
#![expect(unsafe_code, reason = "places a function among those that run before `main`")]

/// Runs before jemalloc's own constructor, which has no priority and registers its handlers.
// SAFETY: the section is an array of functions like this one, each called once.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static EARLY: extern "C" fn() = early;

extern "C" fn early() {
    // Refused: building an arena reports it.
    let _refused = freehold_host::install_fork_handlers();
}
