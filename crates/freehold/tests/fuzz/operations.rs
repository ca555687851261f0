//! Lists of calls, and the machine that they are made on.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::common::TestPlatform;
use crate::designs::{fixed, variants};
use crate::naive::Ask;
use crate::pair::{Nth, Op, Pair, Range};
use crate::seeds;
use crate::setup::{PAGEBLOCK, Setup, Stretch};
use freehold::designs::{Design, Freehold, Settings};
use freehold::{FrameSize, MigrateType, Watermark, ZoneKind};
use freehold_linux::{BlockOwner, Cluster, LazyMerge, MergeAhead, ZoneLock};
use freehold_llfree::Llfree;

/// The most calls of a list: more bytes only make it slower.
const CALLS_MAX: usize = 300;

/// The whole state is checked after so many calls, which takes a fuzzer longer than they do.
const CALLS_PER_CHECK: usize = 8;

/// How many lists of calls are drawn.
const SEEDS: u64 = 400;

fn stretch(bytes: &mut Bytes<'_>) -> Stretch {
    let form = bytes.byte();
    Stretch {
        gap_blocks: u64::from(form & 1),
        blocks: 1 + u64::from(form >> 1 & 1),
        later: form >> 2 & 3 == 3,
        trim_start: if form & 16 == 0 { 0 } else { bytes.below(256) },
        trim_end: if form & 32 == 0 { 0 } else { bytes.below(256) },
        hole: (form & 64 != 0).then(|| (1 + bytes.below(200), 1 + bytes.below(50))),
        node: bytes.below(3) as u16,
        zone: if form & 128 == 0 { ZoneKind::Normal } else { bytes.one_of(&ZoneKind::ALL) },
    }
}

fn settings<S: Settings>(bytes: &mut Bytes<'_>, variants: &[S]) -> S {
    let own = bytes.one_of(variants);
    let (batch, more) = (1 + bytes.below(40) as u32, bytes.byte());
    match more {
        0..100 => own,
        100..200 => fixed(&own, batch, batch + u32::from(more - 100)),
        _ => fixed(&own, batch, PAGEBLOCK as u32 + u32::from(more)),
    }
}

fn setup<S: Settings>(bytes: &mut Bytes<'_>, variants: &[S]) -> Option<Setup<S>> {
    let settings = settings(bytes, variants);
    let cpus: Vec<_> = (0..=bytes.below(4)).map(|_| bytes.below(3) as u16).collect();
    let distances = (bytes.byte() & 3 == 3)
        .then(|| (0..9).map(|_| 10 + bytes.below(30) as u8).collect::<Vec<_>>());
    let frame_size = FrameSize::new(4096 << bytes.below(5)).expect("a power of two");
    let min_free = match bytes.byte() {
        0..100 => Some(0),
        100..128 => None,
        more => Some(u64::from(more - 127) * 3),
    };
    let record_bytes = bytes.one_of(&[0, 64]);
    let numbers = (1 + bytes.below(3) as u16, bytes.below(40), frame_size, record_bytes, min_free);
    let stretches: Vec<_> = (0..=bytes.below(4)).map(|_| stretch(bytes)).collect();
    Setup::new(&stretches, &cpus, distances, numbers, settings)
}

fn order(bytes: &mut Bytes<'_>) -> u8 {
    match bytes.byte() {
        0..120 => 0,
        120..180 => 1 + bytes.below(3) as u8,
        byte => byte % 12,
    }
}

fn ask(bytes: &mut Bytes<'_>) -> Ask {
    let form = bytes.byte();
    Ask {
        order: order(bytes),
        migratetype: MigrateType::ALL[usize::from(form & 3) % MigrateType::ALL.len()],
        node: (form & 12 == 12 || form & 20 == 16).then(|| bytes.below(5) as u16),
        only_node: form & 16 != 0 && form & 4 != 0,
        interleaved: form & 20 == 16,
        limit: if form & 96 == 96 { bytes.one_of(&ZoneKind::ALL) } else { ZoneKind::Movable },
        watermark: match form & 128 {
            0 => Watermark::Min,
            _ => bytes.one_of(&[
                Watermark::High,
                Watermark::Low,
                Watermark::MinHalf,
                Watermark::Atomic,
                Watermark::Ignore,
            ]),
        },
    }
}

fn nth(bytes: &mut Bytes<'_>) -> Nth {
    Nth((bytes.number(2) as u32) << 16)
}

fn frames(bytes: &mut Bytes<'_>) -> u64 {
    match bytes.byte() {
        0..160 => bytes.below(20),
        160..240 => bytes.below(1500),
        _ => PAGEBLOCK,
    }
}

fn op(bytes: &mut Bytes<'_>) -> Op {
    match bytes.byte() % 64 {
        0..16 => Op::Alloc(ask(bytes)),
        16..20 => Op::AllocMany(ask(bytes), bytes.below(150) as usize),
        20..30 => Op::Free(nth(bytes)),
        30..34 => Op::FreePart { block: nth(bytes), order: bytes.below(12) as u8, at: nth(bytes) },
        34..36 => {
            Op::FreeInParts { block: nth(bytes), order: bytes.below(12) as u8, first: nth(bytes) }
        }
        36..38 => {
            let form = bytes.byte();
            let (same_order, repeat) = (form & 1 == 0, form & 14 == 14);
            let count = 1 + bytes.below(150) as usize;
            Op::FreeMany { from: nth(bytes), count, same_order, repeat }
        }
        38..40 => Op::FreeAnywhere { at: nth(bytes), order: bytes.below(12) as u8 },
        40 => Op::AddLater(nth(bytes)),
        41 => Op::AddAnywhere {
            at: nth(bytes),
            frames: frames(bytes),
            node: bytes.below(4) as u16,
            zone: bytes.one_of(&ZoneKind::ALL),
        },
        42 => Op::Remove { at: nth(bytes), frames: frames(bytes), moves: bytes.byte() & 1 != 0 },
        43..46 => {
            let form = bytes.byte();
            let range = Range {
                near: ask(bytes),
                frames: frames(bytes),
                align: form >> 1 & 7,
                at: (form & 16 != 0).then(|| nth(bytes)),
            };
            Op::AllocRange { range, moves: form & 1 != 0 }
        }
        46..48 => Op::FreeRange { at: nth(bytes), frames: frames(bytes) },
        48..50 => Op::AllocCompacting(ask(bytes)),
        50 => Op::Compact,
        51 => Op::Offline(bytes.below(6) as u32),
        52..54 => Op::Look(nth(bytes)),
        54..56 => Op::Drain(bytes.below(6) as u32),
        56 => Op::DrainAll,
        57..59 => Op::Tick(bytes.below(6) as u32),
        _ => Op::RunOn(bytes.below(6) as u32),
    }
}

fn check<D: Design<TestPlatform>>(bytes: &[u8], variants: &[D::Settings], calls_per_check: usize) {
    let mut bytes = Bytes(bytes);
    let Some(setup) = setup(&mut bytes, variants) else { return };
    let mut pair = Pair::<D>::new(&setup);
    for number in 1..=CALLS_MAX {
        if !bytes.has_more() {
            break;
        }
        pair.run(&op(&mut bytes));
        if number % calls_per_check == 0 {
            pair.check();
        }
    }
    pair.check();
    pair.finish();
}

macro_rules! designs {
    ($($test:ident: $design:ident,)*) => {
        $(#[test]
        fn $test() {
            let variants = variants::<<$design<TestPlatform> as Design<TestPlatform>>::Settings>();
            bolero::check!().with_test_time(Duration::from_millis(300)).for_each(|bytes: &[u8]| {
                check::<$design<TestPlatform>>(bytes, &variants, CALLS_PER_CHECK);
            });
        })*

        mod by_seed {
            use super::*;

            $(#[test]
            fn $test() {
                let variants = variants();
                seeds::play(SEEDS, |bytes| check::<$design<TestPlatform>>(bytes, &variants, 1));
            })*
        }
    };
}

designs! {
    zone_lock: ZoneLock,
    lazy_merge: LazyMerge,
    cluster: Cluster,
    merge_ahead: MergeAhead,
    block_owner: BlockOwner,
    llfree: Llfree,
    freehold: Freehold,
}
