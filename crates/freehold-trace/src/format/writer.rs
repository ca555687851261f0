//! Writing a file.

use std::io::Write;

use super::block::encode;
use super::chunk::{self, Tag};
use super::{BLOCK_EVENTS, FormatError, Header, MAGIC, Trailer, VERSION};
use crate::event::Event;

/// Writes a recording, event by event.
///
/// What is written is a recording only after [`Writer::finish`]; before that, readers find it cut
/// short.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    block: Vec<Event>,
    last_ns: u64,
    events: u64,
}

impl<W: Write> Writer<W> {
    /// Begins a file.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn new(mut out: W, header: &Header) -> Result<Self, FormatError> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        chunk::write(&mut out, Tag::Head, &json(header)?)?;
        Ok(Writer { out, block: Vec::with_capacity(BLOCK_EVENTS), last_ns: 0, events: 0 })
    }

    /// Appends an event.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    ///
    /// # Panics
    ///
    /// The event is earlier than the one before, or [impossible](crate::What::is_possible).
    pub fn push(&mut self, event: Event) -> Result<(), FormatError> {
        assert!(event.time_ns >= self.last_ns, "events are in the order of time");
        assert!(event.what.is_possible(), "a block at a multiple of its size: {event:?}");
        self.last_ns = event.time_ns;
        self.events += 1;
        self.block.push(event);
        if self.block.len() == BLOCK_EVENTS { self.write_block() } else { Ok(()) }
    }

    /// Ends the file; returns what it was written to. The number of events in `trailer` is set
    /// here.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn finish(mut self, trailer: Trailer) -> Result<W, FormatError> {
        self.write_block()?;
        let trailer = Trailer { events: self.events, ..trailer };
        chunk::write(&mut self.out, Tag::Tail, &json(&trailer)?)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn write_block(&mut self) -> Result<(), FormatError> {
        if !self.block.is_empty() {
            chunk::write(&mut self.out, Tag::Events, &encode(&self.block)?)?;
            self.block.clear();
        }
        Ok(())
    }
}

fn json(value: &impl serde::Serialize) -> Result<Vec<u8>, FormatError> {
    Ok(serde_json::to_vec(value).map_err(std::io::Error::from)?)
}
