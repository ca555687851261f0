//! Any bytes as a file.

use std::time::Duration;

use super::block::{decode, encode};
use super::chunk::{self, Tag};
use super::tests::{header, read, written};
use super::{MAGIC, VERSION};
use crate::summary::Summing;

/// What is read survives being written, and can be summed up.
fn check(file: &[u8]) {
    let Ok((header, events, trailer)) = read(file) else { return };
    assert_eq!(trailer.events, events.len() as u64);
    assert!(events.is_sorted_by_key(|event| event.time_ns));
    let (_, again, _) = read(&written(&events)).expect("what was read can be written");
    assert_eq!(again, events);
    let mut summing = Summing::default();
    events.iter().for_each(|event| summing.add(event));
    let summary = summing.finish();
    assert!(summary.live_frames_at_end <= summary.live_frames_max);
    for zones in [&header.before, &trailer.after] {
        assert!(zones.zones.iter().all(|zone| zone.free <= zones.free()));
        assert!(zones.zones.iter().all(|zone| zone.managed <= zones.managed()));
        zones.free_blocks();
    }
    assert!(trailer.lost.values().all(|losses| losses.sum() <= trailer.lost_events()));
}

#[test]
fn any_bytes_are_read_or_refused() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|bytes: &[u8]| {
        check(bytes);
        check(&[&MAGIC[..], &VERSION.to_le_bytes(), bytes].concat());
    });
}

/// Parts with the right checksums, so that what is in them is reached: each has a byte that says
/// which, and two with its length.
#[test]
fn any_parts_are_read_or_refused() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|bytes: &[u8]| {
        let mut file = [&MAGIC[..], &VERSION.to_le_bytes()].concat();
        let mut put = |tag, payload: &[u8]| {
            chunk::write(&mut file, tag, payload).expect("memory can be written");
        };
        put(Tag::Head, &serde_json::to_vec(&header()).expect("a header can be written"));
        let mut rest = bytes;
        while let [which, low, high, behind @ ..] = rest {
            let length = usize::from(u16::from_le_bytes([*low, *high])).min(behind.len());
            let (payload, others) = behind.split_at(length);
            match which % 4 {
                0 => put(Tag::Head, payload),
                1 => put(Tag::Tail, payload),
                2 => put(Tag::Events, payload),
                _ => put(Tag::Events, &super::block::deflate(payload).expect("it is in memory")),
            }
            rest = others;
        }
        check(&file);
        put_tail(&mut file, 0);
        check(&file);
    });
}

/// The end of a file that says that it has so many events.
fn put_tail(file: &mut Vec<u8>, events: u64) {
    let tail = format!("{{\"events\":{events}}}");
    chunk::write(file, Tag::Tail, tail.as_bytes()).expect("memory can be written");
}

/// The columns of a block, before they are compressed.
#[test]
fn any_columns_are_decoded_or_refused() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|bytes: &[u8]| {
        let packed = super::block::deflate(bytes).expect("it is in memory");
        let Ok(events) = decode(&packed) else { return };
        let again = encode(&events).expect("it is in memory");
        assert_eq!(decode(&again).as_ref(), Ok(&events));
        let mut file = written(&[]);
        file.truncate(file.len() - super::tests::tail_bytes(&file));
        chunk::write(&mut file, Tag::Events, &packed).expect("memory can be written");
        put_tail(&mut file, events.len() as u64);
        check(&file);
    });
}
