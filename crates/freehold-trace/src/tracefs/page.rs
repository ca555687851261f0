//! The pages of the kernel's trace buffers: headers, times, records.
//!
//! What is known of them is the kernel's `events/header_page`, `events/header_event` and
//! `kernel/trace/ring_buffer.c`.

use super::layout::{Field, Fields};

/// Where the parts of a page lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageLayout {
    timestamp: Field,
    commit: Field,
    data: usize,
}

/// In the commit word of a page: how many bytes of it are records.
const LENGTH: u64 = (1 << 27) - 1;
/// Events were lost before this page.
const MISSED: u64 = 1 << 31;
/// How many were lost is stored behind the records.
const MISSED_STORED: u64 = 1 << 30;

/// The meaning of the 5 bits that begin a record; smaller ones but 0 are lengths in words.
const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Bits of a time in a record itself; words beside it have those above.
const TIME_SHIFT: u32 = 27;
/// An absolute time has this many bits. Those above are the last page's.
const STAMP_BITS: u32 = 59;

/// A record of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// When, by the trace clock.
    pub(super) time: u64,
    pub(super) data: &'a [u8],
}

/// What is wrong with a page, and at which of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("byte {at} of a page of the trace buffer: {problem}")]
pub(super) struct BadPage {
    pub(super) at: usize,
    problem: &'static str,
}

impl PageLayout {
    /// From the text of `events/header_page`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let fields = Fields::parse(text);
        Ok(PageLayout {
            timestamp: fields.get("timestamp")?,
            commit: fields.get("commit")?,
            data: fields.get("data")?.offset,
        })
    }

    /// Calls `each` for every record of a page, and returns whether and how many events were lost
    /// before the page: 0 if the kernel does not say how many.
    pub(super) fn read<'a>(
        self,
        page: &'a [u8],
        mut each: impl FnMut(Record<'a>),
    ) -> Result<Option<u64>, BadPage> {
        let short = BadPage { at: page.len(), problem: "its header is cut short" };
        let mut time = self.timestamp.read(page).ok_or(short)?;
        let commit = self.commit.read(page).ok_or(short)?;
        let problem = "its records end behind it";
        let end = self.data.checked_add((commit & LENGTH) as usize);
        let end = end.filter(|end| *end <= page.len());
        let end = end.ok_or(BadPage { at: page.len(), problem })?;
        let records = &page[..end];
        let mut at = self.data;
        while at < end {
            let cut = BadPage { at, problem: "a record is cut short" };
            let header = word(records, at).ok_or(cut)?;
            let (kind, delta) = (header & 0x1f, u64::from(header >> 5));
            let data = match kind {
                PADDING if delta == 0 => break,
                TIME_STAMP => {
                    let stamp = u64::from(word(records, at + 4).ok_or(cut)?) << TIME_SHIFT | delta;
                    time = time >> STAMP_BITS << STAMP_BITS | stamp;
                    at += 8;
                    continue;
                }
                TIME_EXTEND => {
                    let above = u64::from(word(records, at + 4).ok_or(cut)?);
                    time = time.wrapping_add((above << TIME_SHIFT) + delta);
                    at += 8;
                    continue;
                }
                // A length, which counts itself, is in a word of its own.
                0 | PADDING => {
                    let length = word(records, at + 4).ok_or(cut)? as usize;
                    at + 8..at + 4 + length.next_multiple_of(4).max(4)
                }
                words => at + 4..at + 4 + 4 * words as usize,
            };
            time = time.wrapping_add(delta);
            at = data.end;
            let data = records.get(data).ok_or(cut)?;
            if kind != PADDING {
                each(Record { time, data });
            }
        }
        let stored = || {
            let count = page.get(end..end + 8)?;
            Some(u64::from_le_bytes(count.try_into().ok()?))
        };
        Ok((commit & MISSED != 0).then(|| {
            let stored = (commit & MISSED_STORED != 0).then(stored).flatten();
            stored.unwrap_or(0)
        }))
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER_PAGE: &str = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

    fn page(words: &[u32], flags: u64, behind: &[u8]) -> Vec<u8> {
        let mut page = Vec::new();
        page.extend(1000_u64.to_le_bytes());
        page.extend(((4 * words.len() as u64) | flags).to_le_bytes());
        page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        page.extend(behind);
        page
    }

    /// Times and data of records, and losses.
    type Page = (Vec<(u64, Vec<u8>)>, Option<u64>);

    fn read(page: &[u8]) -> Result<Page, BadPage> {
        let layout = PageLayout::parse(HEADER_PAGE).unwrap();
        let mut records = Vec::new();
        let lost = layout.read(page, |record| records.push((record.time, record.data.to_vec())))?;
        Ok((records, lost))
    }

    #[test]
    fn records_have_times_and_data() {
        let words = [
            5 << 5 | 1,
            0x0403_0201, // 5 ns later, one word
            TIME_EXTEND,
            2, // 2 << 27 later
            7 << 5,
            8,
            0x0807_0605, // length in a word of its own, which counts itself
            9 << 5 | PADDING,
            4, // discarded
            TIME_STAMP | 3 << 5,
            1, // at (1 << 27) + 3
            1,
            0,
            PADDING,
            77, // the rest
        ];
        let (records, lost) = read(&page(&words, 0, &[])).unwrap();
        let later = 1005 + (2 << 27) + 7;
        let expected =
            [(1005, vec![1, 2, 3, 4]), (later, vec![5, 6, 7, 8]), ((1 << 27) + 3, vec![0; 4])];
        assert_eq!((records, lost), (expected.to_vec(), None));
    }

    #[test]
    fn data_that_would_begin_behind_all_memory_is_refused() {
        let header = HEADER_PAGE.replace("offset:16", &format!("offset:{}", usize::MAX));
        let layout = PageLayout::parse(&header).unwrap();
        let error = layout.read(&page(&[1], 0, &[]), |_| {}).unwrap_err();
        assert_eq!(error.problem, "its records end behind it");
    }

    #[test]
    fn losses_are_seen_and_counted() {
        let words = [1, 0];
        assert_eq!(read(&page(&words, MISSED, &[])).unwrap().1, Some(0));
        let behind = 42_u64.to_le_bytes();
        assert_eq!(read(&page(&words, MISSED | MISSED_STORED, &behind)).unwrap().1, Some(42));
    }

    #[test]
    fn what_is_cut_short_is_an_error() {
        let whole = page(&[5 << 5 | 2, 1, 2], 0, &[]);
        assert!(read(&whole).is_ok());
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_err(), "{length} bytes");
        }
        assert!(read(&page(&[5 << 5 | 3, 1, 2], 0, &[])).is_err(), "a record longer than the page");
        assert!(read(&page(&[0, 1 << 30], 0, &[])).is_err());
    }
}
