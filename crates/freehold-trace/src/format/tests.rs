use proptest::prelude::*;

use super::*;
use crate::event::{Context, Event, MigrateType, What};
use crate::gfp::Gfp;

fn what() -> impl Strategy<Value = What> {
    let pfn = || prop_oneof![0..1000_u64, any::<u64>()];
    let block = || (pfn(), 0..=10_u8).prop_map(|(pfn, order)| (pfn >> order << order, order));
    let migratetype = || (0..6_u8).prop_map(MigrateType);
    let alloc = (block(), any::<bool>(), any::<u32>(), migratetype());
    let alloc = alloc.prop_map(|((pfn, order), served, gfp, migratetype)| {
        let (pfn, gfp) = (served.then_some(pfn), Gfp(gfp));
        What::Alloc { pfn, order, gfp, migratetype }
    });
    let drain = (block(), migratetype());
    let drain =
        drain.prop_map(|((pfn, order), migratetype)| What::PcpuDrain { pfn, order, migratetype });
    let locked = (block(), migratetype(), any::<bool>());
    let locked = locked.prop_map(|((pfn, order), migratetype, refill)| What::ZoneLocked {
        pfn,
        order,
        migratetype,
        refill,
    });
    prop_oneof![
        alloc,
        block().prop_map(|(pfn, order)| What::Free { pfn, order }),
        pfn().prop_map(|pfn| What::FreeBatched { pfn }),
        drain,
        locked,
        any::<u64>().prop_map(|events| What::Lost { events }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let context = prop::sample::select(vec![Context::Task, Context::SoftIrq, Context::HardIrq]);
    let event = (0..1_u64 << 40, 0..300_u32, any::<u32>(), context, what());
    prop::collection::vec(event, 0..200).prop_map(|parts| {
        let mut now_ns = 0;
        let events = parts.into_iter().map(|(after_ns, cpu, pid, context, what)| {
            now_ns += after_ns;
            Event { time_ns: now_ns, cpu, pid, context, what }
        });
        events.collect()
    })
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

proptest! {
    #[test]
    fn what_is_written_is_read(events in events()) {
        let (read_header, read_events, trailer) = read(&written(&events)).unwrap();
        prop_assert_eq!(read_header, header());
        prop_assert_eq!(trailer.events, events.len() as u64);
        prop_assert_eq!(trailer.elapsed_ns, 7);
        prop_assert_eq!(read_events, events);
    }

    #[test]
    fn a_byte_that_changed_is_found(events in events(), at: prop::sample::Index, bit in 0..8_u32) {
        let mut file = written(&events);
        let at = at.index(file.len());
        file[at] ^= 1_u8 << bit;
        prop_assert!(read(&file).is_err());
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
