use fastrand::Rng;

use super::*;
use crate::event::{Context, Event, MigrateType, What};
use crate::gfp::Gfp;

fn what(rng: &mut Rng) -> What {
    let pfn = if rng.bool() { rng.u64(..1000) } else { rng.u64(..) };
    let order = rng.u8(..=10);
    let block = pfn >> order << order;
    let migratetype = MigrateType(rng.u8(..6));
    match rng.u8(..6) {
        0 => {
            let (pfn, gfp) = (rng.bool().then_some(block), Gfp(rng.u32(..)));
            What::Alloc { pfn, order, gfp, migratetype }
        }
        1 => What::Free { pfn: block, order },
        2 => What::FreeBatched { pfn },
        3 => What::PcpuDrain { pfn: block, order, migratetype },
        4 => What::ZoneLocked { pfn: block, order, migratetype, refill: rng.bool() },
        _ => What::Lost { events: rng.u64(..) },
    }
}

fn events(rng: &mut Rng) -> Vec<Event> {
    let mut time_ns = 0;
    let mut event = |rng: &mut Rng| {
        time_ns += rng.u64(..1 << 40);
        let context = [Context::Task, Context::SoftIrq, Context::HardIrq][rng.usize(..3)];
        Event { time_ns, cpu: rng.u32(..300), pid: rng.u32(..), context, what: what(rng) }
    };
    (0..rng.usize(..200)).map(|_| event(rng)).collect()
}

pub(super) fn header() -> Header {
    Header { source: "test".to_owned(), began_unix_s: 1, ..Header::default() }
}

pub(super) fn written(events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    for event in events {
        writer.push(*event).unwrap();
    }
    writer.finish(Trailer { elapsed_ns: 7, ..Trailer::default() }).unwrap()
}

pub(super) fn read(file: &[u8]) -> Result<(Header, Vec<Event>, Trailer), FormatError> {
    let mut reader = Reader::new(file)?;
    let events = reader.by_ref().collect::<Result<Vec<_>, _>>()?;
    let trailer = reader.trailer().expect("all events have been read").clone();
    Ok((reader.header().clone(), events, trailer))
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..300 {
        let events = events(&mut Rng::with_seed(seed));
        let (read_header, read_events, trailer) = read(&written(&events)).unwrap();
        assert_eq!(read_header, header());
        assert_eq!((trailer.events, trailer.elapsed_ns), (events.len() as u64, 7));
        assert_eq!(read_events, events, "seed {seed}");
    }
}

#[test]
fn a_byte_that_changed_is_found() {
    for seed in 0..300 {
        let mut rng = Rng::with_seed(seed);
        let mut file = written(&events(&mut rng));
        let at = rng.usize(..file.len());
        file[at] ^= 1_u8 << rng.u8(..8);
        assert!(read(&file).is_err(), "seed {seed}");
    }
}

/// A recording with several blocks.
fn long() -> Vec<Event> {
    let event = |index: u64| Event {
        time_ns: 700 * index,
        cpu: (index % 3) as u32,
        pid: 4321,
        context: Context::Task,
        what: What::Free { pfn: index * 7 % 100_000, order: 0 },
    };
    (0..2 * BLOCK_EVENTS as u64 + 5).map(event).collect()
}

#[test]
fn long_recordings_have_several_blocks() {
    let events = long();
    assert_eq!(read(&written(&events)).unwrap().1, events);
}

#[test]
fn a_file_that_is_cut_short_is_refused_wherever() {
    let file = written(&long());
    let step = file.len() / 300;
    for length in (0..40).chain((40..file.len()).step_by(step)).chain([file.len() - 1]) {
        let error = read(&file[..length]).unwrap_err();
        match length {
            0 => assert!(matches!(error, FormatError::Foreign), "{error}"),
            _ => assert!(
                matches!(error, FormatError::Truncated { at } if at == length as u64),
                "{length}: {error}"
            ),
        }
    }
}

#[test]
fn what_is_no_recording_of_this_version_is_named() {
    let good = written(&long());
    let message = |file: &[u8]| read(file).unwrap_err().to_string();
    assert!(message(b"PK\x03\x04").contains("no recording of freehold's"));
    let mut newer = good.clone();
    newer[MAGIC.len()] = 2;
    assert!(message(&newer).contains("version 2"), "{}", message(&newer));
    let more = [&good[..], b"\n"].concat();
    assert!(message(&more).contains("there is more behind the end"), "{}", message(&more));
    let head = good.len() - tail_bytes(&good);
    let twice = [&good[..head], &good[MAGIC.len() + 2..]].concat();
    assert!(message(&twice).contains("second header"), "{}", message(&twice));
}

/// The length of the last part.
pub(super) fn tail_bytes(file: &[u8]) -> usize {
    let at = file.windows(4).rposition(|window| window == b"TAIL").unwrap();
    file.len() - at
}

#[test]
fn parts_are_in_the_order_of_time() {
    let whole = written(&long());
    let parts: Vec<_> = whole
        .windows(4)
        .enumerate()
        .filter(|(_, window)| window == b"EVTS" || window == b"TAIL")
        .map(|(at, _)| at)
        .collect();
    let [first, second, third, tail] = parts[..] else { panic!("three parts: {parts:?}") };
    let cut = |from: usize, to: usize| &whole[from..to];
    let swapped =
        [cut(0, first), cut(second, third), cut(first, second), cut(third, tail), &whole[tail..]];
    let error = read(&swapped.concat()).unwrap_err().to_string();
    assert!(error.contains("not in the order of time"), "{error}");
}

#[test]
fn events_that_are_missing_are_noticed() {
    let whole = written(&long());
    let start = written(&[]).windows(4).position(|window| window == b"TAIL").unwrap();
    let tail = whole.len() - tail_bytes(&whole);
    let without = [&whole[..start], &whole[tail..]].concat();
    let error = read(&without).unwrap_err().to_string();
    assert!(error.contains("there should be 131077 events, and are 0"), "{error}");
}

#[test]
fn what_adds_up_to_too_much_is_the_most_that_there_can_be() {
    let losses = Losses { overrun: u64::MAX, commit_overrun: 1, dropped: u64::MAX };
    let trailer = Trailer { lost: [(0, losses), (1, losses)].into(), ..Trailer::default() };
    assert_eq!((losses.sum(), trailer.lost_events()), (u64::MAX, u64::MAX));
    let zone = crate::machine::Zone {
        free: u64::MAX,
        managed: u64::MAX,
        free_blocks: vec![u64::MAX],
        ..Default::default()
    };
    let zones = Zones { zones: vec![zone.clone(), zone] };
    assert_eq!((zones.free(), zones.managed()), (u64::MAX, u64::MAX));
    assert_eq!(zones.free_blocks(), [u64::MAX]);
}
