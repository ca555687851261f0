//! Which mutant is active, and which places have been passed: a file of the copy of the allocator
//! that `cargo xtask mutants` makes.

extern crate std;

use core::sync::atomic::AtomicBool;
use core::sync::atomic::Ordering::Relaxed;
use std::io::Write;
use std::sync::OnceLock;

static PASSED: [AtomicBool; NAMES.len()] = [const { AtomicBool::new(false) }; NAMES.len()];
static ACTIVE: OnceLock<Option<usize>> = OnceLock::new();

/// Notes that a place is passed; says whether its mutant is active.
pub(crate) fn is_active(number: usize) -> bool {
    // Relaxed: a note, which orders nothing.
    if !PASSED[number].load(Relaxed) && !PASSED[number].swap(true, Relaxed) {
        report(number);
    }
    *ACTIVE.get_or_init(chosen) == Some(number)
}

/// The mutant that `FREEHOLD_MUTANT` chooses, by number or by name.
fn chosen() -> Option<usize> {
    let wanted = std::env::var("FREEHOLD_MUTANT").ok()?;
    let number = wanted.parse().ok().filter(|&number| number < NAMES.len());
    let number = number.or_else(|| NAMES.iter().position(|name| *name == wanted));
    Some(number.expect("FREEHOLD_MUTANT is the number or name of a mutant"))
}

/// Adds the number of a place to the file that `FREEHOLD_HITS` names.
fn report(number: usize) {
    if let Ok(path) = std::env::var("FREEHOLD_HITS") {
        let file = std::fs::File::options().append(true).create(true).open(path);
        let line = std::format!("{number}\n");
        file.expect("it can be opened").write_all(line.as_bytes()).expect("it can be written");
    }
}
