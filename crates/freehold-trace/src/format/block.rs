//! Blocks of events: fields by columns, as differences from what they are likely to be, compressed.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::BLOCK_EVENTS;
use super::varint::{apply, difference, put, take};
use crate::event::{Context, Event, Kind, MigrateType, What};
use crate::gfp::Gfp;

/// More than a block of the largest events takes before it is compressed.
const RAW_BYTES_MAX: u64 = 64 * BLOCK_EVENTS as u64;

/// The columns, in the order in which they are stored.
#[derive(Clone, Copy)]
enum Column {
    /// One byte: kind, context, and a flag whose meaning depends on the kind.
    Head,
    Cpu,
    /// Since the event before.
    Time,
    /// Against the CPU's event before.
    Pid,
    /// Against the CPU's event before of the same kind.
    Pfn,
    Order,
    MigrateType,
    /// Against the CPU's allocation before.
    Gfp,
    /// Events that were lost.
    Count,
}

const COLUMNS: usize = 9;

/// In the head of an event, above the kind and the context.
const FLAG: u8 = 1 << 5;
const CONTEXT_SHIFT: u32 = 3;
const KIND_MASK: u8 = 0x07;

/// What an event is compared with.
#[derive(Default)]
struct Before {
    time_ns: u64,
    cpus: BTreeMap<u32, OnCpu>,
}

#[derive(Default)]
struct OnCpu {
    pid: u64,
    pfns: [u64; Kind::ALL.len()],
    gfp: u64,
}

/// Encodes events, which are in the order of time.
pub(super) fn encode(events: &[Event]) -> io::Result<Vec<u8>> {
    let mut columns: [Vec<u8>; COLUMNS] = Default::default();
    let mut before = Before::default();
    for event in events {
        let mut column = |column: Column, number| put(&mut columns[column as usize], number);
        let kind = event.what.kind();
        let flag = match event.what {
            What::Alloc { pfn, .. } => pfn.is_none(),
            What::ZoneLocked { refill, .. } => refill,
            _ => false,
        };
        let head =
            kind as u8 | (event.context as u8) << CONTEXT_SHIFT | if flag { FLAG } else { 0 };
        column(Column::Head, head.into());
        column(Column::Cpu, event.cpu.into());
        column(Column::Time, event.time_ns - before.time_ns);
        before.time_ns = event.time_ns;
        let on_cpu = before.cpus.entry(event.cpu).or_default();
        column(Column::Pid, difference(on_cpu.pid, event.pid.into()));
        on_cpu.pid = event.pid.into();
        let last_pfn = &mut on_cpu.pfns[kind as usize];
        let mut block = |pfn: u64, order: Option<u8>, migratetype: Option<MigrateType>| {
            column(Column::Pfn, difference(*last_pfn, pfn));
            *last_pfn = pfn;
            order.into_iter().for_each(|order| column(Column::Order, order.into()));
            let types = migratetype.into_iter();
            types.for_each(|migratetype| column(Column::MigrateType, migratetype.0.into()));
        };
        match event.what {
            What::Alloc { pfn, order, gfp, migratetype } => {
                block(pfn.unwrap_or(0), Some(order), Some(migratetype));
                column(Column::Gfp, on_cpu.gfp ^ u64::from(gfp.0));
                on_cpu.gfp = gfp.0.into();
            }
            What::Free { pfn, order } => block(pfn, Some(order), None),
            What::FreeBatched { pfn } => block(pfn, None, None),
            What::PcpuDrain { pfn, order, migratetype }
            | What::ZoneLocked { pfn, order, migratetype, .. } => {
                block(pfn, Some(order), Some(migratetype));
            }
            What::Lost { events } => column(Column::Count, events),
        }
    }
    let mut raw = Vec::new();
    put(&mut raw, events.len() as u64);
    for column in &columns {
        put(&mut raw, column.len() as u64);
        raw.extend_from_slice(column);
    }
    deflate(&raw)
}

pub(super) fn deflate(raw: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(raw)?;
    encoder.finish()
}

/// Decodes what [`encode`] returned.
///
/// # Errors
///
/// What is wrong.
pub(super) fn decode(bytes: &[u8]) -> Result<Vec<Event>, &'static str> {
    let mut raw = Vec::new();
    let mut decoder = DeflateDecoder::new(bytes).take(RAW_BYTES_MAX + 1);
    decoder.read_to_end(&mut raw).map_err(|_| "a block cannot be decompressed")?;
    let mut rest = &raw[..];
    let count = take(&mut rest).filter(|count| *count <= BLOCK_EVENTS as u64);
    let count = count.ok_or("a block has more events than any block")? as usize;
    let mut columns = [&[][..]; COLUMNS];
    for column in &mut columns {
        let length = take(&mut rest).and_then(|length| usize::try_from(length).ok());
        let split = length.and_then(|length| rest.split_at_checked(length));
        (*column, rest) = split.ok_or("a column is cut short")?;
    }
    let mut events = Vec::with_capacity(count);
    let mut before = Before::default();
    for _ in 0..count {
        events.push(next(&mut columns, &mut before).ok_or("an event is cut short or impossible")?);
    }
    if columns.iter().all(|column| column.is_empty()) && rest.is_empty() {
        Ok(events)
    } else {
        Err("a block has more than its events")
    }
}

/// Takes the next event off the columns.
fn next(columns: &mut [&[u8]; COLUMNS], before: &mut Before) -> Option<Event> {
    let mut column = |column: Column| take(&mut columns[column as usize]);
    let head = u8::try_from(column(Column::Head)?).ok()?;
    let kind = *Kind::ALL.get(usize::from(head & KIND_MASK))?;
    let context = match head >> CONTEXT_SHIFT & 3 {
        0 => Context::Task,
        1 => Context::SoftIrq,
        2 => Context::HardIrq,
        _ => return None,
    };
    let flag = head & FLAG != 0;
    let cpu = u32::try_from(column(Column::Cpu)?).ok()?;
    let time_ns = before.time_ns.checked_add(column(Column::Time)?)?;
    before.time_ns = time_ns;
    let on_cpu = before.cpus.entry(cpu).or_default();
    on_cpu.pid = apply(on_cpu.pid, column(Column::Pid)?);
    let pid = u32::try_from(on_cpu.pid).ok()?;
    let pfn = match kind {
        Kind::Lost => 0,
        _ => apply(on_cpu.pfns[kind as usize], column(Column::Pfn)?),
    };
    on_cpu.pfns[kind as usize] = pfn;
    let what = match kind {
        Kind::Alloc => {
            let (order, migratetype) = (order(&mut column)?, migratetype(&mut column)?);
            on_cpu.gfp ^= column(Column::Gfp)?;
            let gfp = Gfp(u32::try_from(on_cpu.gfp).ok()?);
            What::Alloc { pfn: (!flag).then_some(pfn), order, gfp, migratetype }
        }
        Kind::Free => What::Free { pfn, order: order(&mut column)? },
        Kind::FreeBatched => What::FreeBatched { pfn },
        Kind::PcpuDrain => {
            let (order, migratetype) = (order(&mut column)?, migratetype(&mut column)?);
            What::PcpuDrain { pfn, order, migratetype }
        }
        Kind::ZoneLocked => {
            let (order, migratetype) = (order(&mut column)?, migratetype(&mut column)?);
            What::ZoneLocked { pfn, order, migratetype, refill: flag }
        }
        Kind::Lost => What::Lost { events: column(Column::Count)? },
    };
    what.is_possible().then_some(Event { time_ns, cpu, pid, context, what })
}

fn order(column: &mut impl FnMut(Column) -> Option<u64>) -> Option<u8> {
    u8::try_from(column(Column::Order)?).ok()
}

fn migratetype(column: &mut impl FnMut(Column) -> Option<u64>) -> Option<MigrateType> {
    Some(MigrateType(u8::try_from(column(Column::MigrateType)?).ok()?))
}
