//! The parts of a file: a tag, a length, a checksum, and what is in it.

use std::io::{self, Read, Write};

use super::FormatError;

/// What a part is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    Head,
    Events,
    Tail,
}

impl Tag {
    const ALL: [Tag; 3] = [Tag::Head, Tag::Events, Tag::Tail];

    fn bytes(self) -> [u8; 4] {
        *match self {
            Tag::Head => b"HEAD",
            Tag::Events => b"EVTS",
            Tag::Tail => b"TAIL",
        }
    }
}

/// Tag, length and checksum.
const PREFIX_BYTES: usize = 12;

/// More than any part that is written: what claims to be longer is damaged.
const BYTES_MAX: u32 = 64 << 20;

/// The checksum of a part covers its tag and length as well.
fn checksum(prefix: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(prefix);
    hasher.update(payload);
    hasher.finalize()
}

/// Writes a part.
pub(super) fn write(out: &mut impl Write, tag: Tag, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|length| *length <= BYTES_MAX);
    let length = length.ok_or_else(|| io::Error::other("a part of the file is too long"))?;
    let mut prefix = [0; PREFIX_BYTES];
    prefix[..4].copy_from_slice(&tag.bytes());
    prefix[4..8].copy_from_slice(&length.to_le_bytes());
    let checksum = checksum(&prefix[..8], payload);
    prefix[8..].copy_from_slice(&checksum.to_le_bytes());
    out.write_all(&prefix)?;
    out.write_all(payload)
}

/// Reads, and knows where it is.
#[derive(Debug)]
pub(super) struct Input<R> {
    input: R,
    pub(super) at: u64,
}

impl<R: Read> Input<R> {
    pub(super) fn new(input: R) -> Self {
        Input { input, at: 0 }
    }

    /// Fills `buffer`; returns how many bytes there were.
    pub(super) fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    /// Reads the next part; returns where it begins, too.
    pub(super) fn part(&mut self) -> Result<(u64, Tag, Vec<u8>), FormatError> {
        let at = self.at;
        let damaged = |problem: &str| FormatError::Damaged { at, problem: problem.to_owned() };
        let mut prefix = [0; PREFIX_BYTES];
        if self.fill(&mut prefix)? < PREFIX_BYTES {
            return Err(FormatError::Truncated { at: self.at });
        }
        let number = |from: usize| {
            u32::from_le_bytes([prefix[from], prefix[from + 1], prefix[from + 2], prefix[from + 3]])
        };
        let (length, expected) = (number(4), number(8));
        let tag = Tag::ALL.into_iter().find(|tag| tag.bytes() == prefix[..4]);
        let tag = tag.ok_or_else(|| damaged("no part begins like this"))?;
        if length > BYTES_MAX {
            return Err(damaged("the part says that it is longer than any part is"));
        }
        // Grows with what is there, whatever the length says.
        let mut payload = Vec::new();
        let missing = u64::from(length)
            - (&mut self.input).take(u64::from(length)).read_to_end(&mut payload)? as u64;
        self.at += payload.len() as u64;
        if missing > 0 {
            return Err(FormatError::Truncated { at: self.at });
        }
        if checksum(&prefix[..8], &payload) != expected {
            return Err(damaged("the checksum of the part that begins here is wrong"));
        }
        Ok((at, tag, payload))
    }
}
