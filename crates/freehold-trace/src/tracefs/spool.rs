//! The pages of the CPUs on their way: raw in files without names, then merged by time.
//!
//! While the machine is recorded, each page is only copied: what can be done later is.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::Duration;
use std::vec;

use super::RecordError;
use super::decode::Decoder;
use super::page::PageLayout;
use crate::event::{Context, Event, What};

/// How long a reader sleeps when there is nothing to read. The smallest buffers take longer than
/// that to fill: a CPU writes a page in 20 us at most.
const IDLE: Duration = Duration::from_millis(5);

/// Copies the pages of one CPU to a file until `done` is set and none is left.
pub(super) fn copy(
    mut pipe: File,
    mut spool: &File,
    page_bytes: usize,
    done: &AtomicBool,
    copied_bytes: &AtomicU64,
) -> io::Result<()> {
    const PAGES: usize = 64;
    let mut pages = vec![0; page_bytes * PAGES];
    loop {
        // Asked for before the pipe is found empty: no event comes after it is set.
        let last = done.load(Ordering::Acquire);
        let mut filled = 0;
        let mut empty = false;
        while filled < pages.len() && !empty {
            let page = &mut pages[filled..filled + page_bytes];
            match pipe.read(page) {
                Ok(0) => empty = true,
                Ok(read) => {
                    page[read..].fill(0);
                    filled += page_bytes;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => empty = true,
                Err(error) => return Err(error),
            }
        }
        spool.write_all(&pages[..filled])?;
        // A statistic for the progress alone.
        copied_bytes.fetch_add(filled as u64, Ordering::Relaxed);
        match (empty, last) {
            (true, true) => return Ok(()),
            (true, false) => sleep(IDLE),
            (false, _) => {}
        }
    }
}

/// Everything that is needed to read pages.
#[derive(Debug)]
pub(super) struct Format {
    pub(super) page: PageLayout,
    pub(super) page_bytes: usize,
    pub(super) decoder: Decoder,
    /// The time of the clock when the recording began.
    pub(super) began: u64,
    /// The threads of the recorder, whose events are left out.
    pub(super) own_pids: Vec<u32>,
}

/// The events of one CPU.
struct OfCpu<'a> {
    format: &'a Format,
    cpu: u32,
    pages: BufReader<&'a File>,
    page: Vec<u8>,
    events: vec::IntoIter<Event>,
    last_ns: u64,
}

impl OfCpu<'_> {
    fn next(&mut self) -> Result<Option<Event>, RecordError> {
        loop {
            if let Some(event) = self.events.next() {
                return Ok(Some(event));
            }
            match self.pages.read_exact(&mut self.page) {
                Ok(()) => self.decode()?,
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
                Err(source) => return Err(RecordError::Spool(source)),
            }
        }
    }

    /// Decodes the page.
    fn decode(&mut self) -> Result<(), RecordError> {
        let Format { page, decoder, began, own_pids, .. } = self.format;
        let mut events = Vec::new();
        let (cpu, last_ns) = (self.cpu, &mut self.last_ns);
        let first_ns = *last_ns;
        let lost = page.read(&self.page, |record| {
            let Some((pid, context, what)) = decoder.read(record.data) else { return };
            // The clock of one CPU does not run backwards, but for what an interrupt wrote in the
            // middle of another event.
            let time_ns = record.time.saturating_sub(*began).max(*last_ns);
            *last_ns = time_ns;
            if !own_pids.contains(&pid) {
                events.push(Event { time_ns, cpu, pid, context, what });
            }
        });
        let lost = lost.map_err(|problem| RecordError::BadPage(problem.to_string()))?;
        if let Some(lost) = lost {
            let what = What::Lost { events: lost };
            let lost = Event { time_ns: first_ns, cpu, pid: 0, context: Context::Task, what };
            events.insert(0, lost);
        }
        self.events = events.into_iter();
        Ok(())
    }
}

/// Calls `each` with the events of all CPUs in the order of time.
pub(super) fn merge(
    format: &Format,
    spools: &[(u32, File)],
    mut each: impl FnMut(Event) -> Result<(), RecordError>,
) -> Result<(), RecordError> {
    let mut cpus = Vec::new();
    let mut earliest = BinaryHeap::new();
    for (index, (cpu, mut spool)) in spools.iter().map(|(cpu, spool)| (*cpu, spool)).enumerate() {
        spool.rewind().map_err(RecordError::Spool)?;
        let mut of_cpu = OfCpu {
            format,
            cpu,
            pages: BufReader::with_capacity(1 << 18, spool),
            page: vec![0; format.page_bytes],
            events: Vec::new().into_iter(),
            last_ns: 0,
        };
        if let Some(event) = of_cpu.next()? {
            earliest.push(Reverse((event.time_ns, index)));
            cpus.push((of_cpu, Some(event)));
        } else {
            cpus.push((of_cpu, None));
        }
    }
    while let Some(Reverse((_, index))) = earliest.pop() {
        let (of_cpu, waiting) = &mut cpus[index];
        let next = of_cpu.next()?;
        let event = std::mem::replace(waiting, next);
        if let Some(next) = next {
            earliest.push(Reverse((next.time_ns, index)));
        }
        event.map_or(Ok(()), &mut each)?;
    }
    Ok(())
}
