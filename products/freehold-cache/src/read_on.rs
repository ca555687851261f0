//! The thread that reads on behind what a sequential reader has, while that one works.
//!
//! The first use of the first block of a piece that was read ahead asks for the next piece. So one
//! piece lies ready before the reader while the one behind it comes from storage. Whatever the
//! thread does not get to, the reader reads itself when it misses it.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use crate::file_state::FileState;
use crate::key::Block;
use crate::shared::Shared;
use crate::sync::{Condvar, Mutex, thread};

/// How many pieces wait at most: a request that finds so many is dropped.
const REQUESTS_MAX: usize = 64;

/// What the thread is to read.
#[derive(Default)]
pub(crate) struct Requests {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Each a file and the first block of the piece before the wanted one.
    pieces: VecDeque<(Weak<FileState>, Block)>,
    /// The cache is gone.
    is_over: bool,
}

impl Requests {
    /// Asks for the piece behind the one that begins there.
    pub(crate) fn push(&self, file: &Arc<FileState>, mark: Block) {
        let mut state = self.state.lock();
        if state.pieces.len() < REQUESTS_MAX {
            state.pieces.push_back((Arc::downgrade(file), mark));
            self.changed.notify_one();
        }
    }

    /// The cache is gone.
    pub(crate) fn stop(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_one();
    }

    /// Waits for a request; `None` once the cache is gone.
    fn next(&self) -> Option<(Weak<FileState>, Block)> {
        let mut state = self.state.lock();
        while !state.is_over {
            if let Some(piece) = state.pieces.pop_front() {
                return Some(piece);
            }
            self.changed.wait(&mut state);
        }
        None
    }
}

/// Starts the thread. It ends with the cache, whichever thread drops that.
pub(crate) fn start(shared: Weak<Shared>, requests: Arc<Requests>) -> io::Result<()> {
    let run = move || {
        while let Some((file, mark)) = requests.next() {
            let Some(shared) = shared.upgrade() else { return };
            let Some(file) = file.upgrade() else { continue };
            // A storage that panics loses nothing: the reader misses the piece, and reads it.
            let _panicked = catch_unwind(AssertUnwindSafe(|| shared.read_on(&file, mark)));
        }
    };
    thread::Builder::new().name("freehold-cache-ahead".into()).spawn(run).map(drop)
}

impl Shared {
    /// Reads the piece behind the one that begins there, unless its first block is there, the
    /// reader has read on itself, or the file is closed.
    fn read_on(&self, file: &Arc<FileState>, mark: Block) {
        // Closing the file waits for the piece, and lets no other begin.
        let mut pieces = file.pieces.lock();
        let Some(count) = &mut *pieces else { return };
        if !file.is_mark(mark) {
            return;
        }
        let first = self.piece_behind(file, mark);
        let coming = self.enter_piece(file, first);
        // Again, now that the reader cannot pass: it may have missed the piece, read it, and lost
        // it.
        if !coming.is_empty() && file.is_mark(mark) {
            // Before the first use, for which the latch of the block is waited for.
            file.set_mark(first);
            self.fill_runs(file, coming);
            *count += 1;
        }
    }
}
