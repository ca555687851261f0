//! Reading a file.

use std::io::Read;
use std::vec;

use serde::de::DeserializeOwned;

use super::block::decode;
use super::chunk::{Input, Tag};
use super::{FormatError, Header, MAGIC, Trailer, VERSION};
use crate::event::Event;

/// Reads a recording: an iterator over its events, which ends with the file or with an error.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    header: Header,
    block: vec::IntoIter<Event>,
    read: u64,
    last_ns: u64,
    end: End,
}

#[derive(Debug)]
enum End {
    NotYet,
    Trailer(Box<Trailer>),
    Error,
}

impl<R: Read> Reader<R> {
    /// Begins to read a file, which should be buffered.
    ///
    /// # Errors
    ///
    /// The file cannot be read, is no recording, or its start is damaged.
    pub fn new(input: R) -> Result<Self, FormatError> {
        let mut input = Input::new(input);
        let mut start = [0; MAGIC.len() + 2];
        let length = input.fill(&mut start)?;
        let (magic, version) = start.split_at(MAGIC.len());
        if !MAGIC.starts_with(&magic[..length.min(MAGIC.len())]) || length == 0 {
            return Err(FormatError::Foreign);
        }
        if length < start.len() {
            return Err(FormatError::Truncated { at: input.at });
        }
        let version = u16::from_le_bytes([version[0], version[1]]);
        if version > VERSION {
            return Err(FormatError::Newer(version));
        }
        if version == 0 {
            let problem = "there is no version 0 of the format".to_owned();
            return Err(FormatError::Damaged { at: MAGIC.len() as u64, problem });
        }
        let (at, tag, payload) = input.part()?;
        if tag != Tag::Head {
            let problem = "the first part is not the header".to_owned();
            return Err(FormatError::Damaged { at, problem });
        }
        let header = parse(at, &payload)?;
        Ok(Reader {
            input,
            header,
            block: Vec::new().into_iter(),
            read: 0,
            last_ns: 0,
            end: End::NotYet,
        })
    }

    /// What is known before the first event.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// What is known after the last event: nothing before all events have been read.
    pub fn trailer(&self) -> Option<&Trailer> {
        match &self.end {
            End::Trailer(trailer) => Some(trailer),
            End::NotYet | End::Error => None,
        }
    }

    /// Reads the next part into `block` or `end`.
    fn advance(&mut self) -> Result<(), FormatError> {
        let (at, tag, payload) = self.input.part()?;
        let damaged = |problem: String| FormatError::Damaged { at, problem };
        match tag {
            Tag::Head => return Err(damaged("there is a second header".to_owned())),
            Tag::Events => {
                let events = decode(&payload).map_err(|problem| damaged(problem.to_owned()))?;
                let earliest_ns = events.first().map_or(self.last_ns, |event| event.time_ns);
                if earliest_ns < self.last_ns {
                    return Err(damaged("events are not in the order of time".to_owned()));
                }
                self.last_ns = events.last().map_or(self.last_ns, |event| event.time_ns);
                self.read += events.len() as u64;
                self.block = events.into_iter();
            }
            Tag::Tail => {
                let trailer: Trailer = parse(at, &payload)?;
                if trailer.events != self.read {
                    let (said, read) = (trailer.events, self.read);
                    return Err(damaged(format!("there should be {said} events, and are {read}")));
                }
                let at = self.input.at;
                if self.input.fill(&mut [0])? > 0 {
                    let problem = "there is more behind the end of the recording".to_owned();
                    return Err(FormatError::Damaged { at, problem });
                }
                self.end = End::Trailer(Box::new(trailer));
            }
        }
        Ok(())
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Event, FormatError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(event) = self.block.next() {
                return Some(Ok(event));
            }
            if !matches!(self.end, End::NotYet) {
                return None;
            }
            if let Err(error) = self.advance() {
                self.end = End::Error;
                return Some(Err(error));
            }
        }
    }
}

fn parse<T: DeserializeOwned>(at: u64, payload: &[u8]) -> Result<T, FormatError> {
    serde_json::from_slice(payload)
        .map_err(|error| FormatError::Damaged { at, problem: error.to_string() })
}
