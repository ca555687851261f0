//! Lists of calls of the LRU.

use std::time::Duration;

use crate::bytes::Bytes;
use crate::naive::Naive;
use crate::pair::{Call, MEMORY, SLOTS, run};
use crate::seeds;
use freehold::Order;
use freehold_lru::{BATCH_MAX, Kind, LruError, LruLock};

const CALLS_MAX: usize = 300;

fn call(bytes: &mut Bytes<'_>) -> Call {
    let kind = bytes.byte();
    let pfn = bytes.below(MEMORY + 2);
    // Identifiers of groups that were never created are unknown to the model, too.
    let mut group = || bytes.below(6) as usize;
    match kind % 40 {
        0..8 => {
            let group = group();
            Call::Add(pfn, order(bytes), group, bytes.byte() & 1 == 0)
        }
        8..10 => Call::Get(pfn),
        10..14 => Call::Put(pfn),
        14..17 => Call::Accessed(pfn),
        17 => Call::Activate(pfn),
        18 => Call::Deactivate(pfn),
        19 => Call::Rotate(pfn),
        20..22 => Call::Pin(pfn),
        22..24 => Call::Unpin(pfn),
        24..26 => Call::Isolate(pfn),
        26..28 => Call::Move(pfn as usize % 4, group()),
        28 => Call::PutBack(pfn as usize % 4),
        29..31 => Call::Create(group(), limit(bytes)),
        31 => Call::Remove(group()),
        32..34 => Call::Limit(group(), limit(bytes)),
        34 => Call::Enter(group()),
        35 => Call::Leave,
        36 => {
            let group = (pfn & 1 == 0).then(group);
            Call::Reclaim(group, 1 + bytes.below(9))
        }
        37..39 => {
            let to = bytes.below(MEMORY + 2);
            let is_wrong = bytes.byte() & 7 == 7;
            Call::Migrate(pfn, to, is_wrong.then(|| order(bytes)))
        }
        _ => Call::Drain,
    }
}

fn order(bytes: &mut Bytes<'_>) -> Order {
    Order::new(bytes.one_of(&[0, 0, 0, 1, 2]))
}

fn limit(bytes: &mut Bytes<'_>) -> Option<u64> {
    let limit = bytes.below(40);
    (limit < 20).then_some(limit)
}

fn play(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let lock = bytes.one_of(&[LruLock::Node, LruLock::Group, LruLock::Shards]);
    let batch = bytes.one_of(&[1, 1, 3, BATCH_MAX as u32]);
    let mut calls = Vec::new();
    while bytes.has_more() && calls.len() < CALLS_MAX {
        calls.push(call(&mut bytes));
    }
    run(lock, batch, &calls);
}

#[test]
fn any_calls_do_what_the_model_says() {
    bolero::check!().with_test_time(Duration::from_millis(300)).for_each(play);
}

#[test]
fn drawn_calls_do_what_the_model_says() {
    seeds::play(3000, play);
}

#[test]
fn the_model_refuses_what_the_lru_refuses() {
    let (two, one) = (Order::new(1), Order::ZERO);
    let calls = [
        Call::Add(0, two, 0, true),
        Call::Add(0, one, 0, true),
        Call::Add(1, one, 0, true),
        Call::Add(3, two, 0, true),
        Call::Remove(0),
        Call::Put(1),
        Call::Put(MEMORY),
    ];
    run(LruLock::Group, 1, &calls);
    let mut naive = Naive::new(MEMORY, SLOTS);
    let mut add = |pfn, order| naive.add(pfn, order, 0, Kind::File);
    assert_eq!((add(0, two), add(1, one)), (Ok(()), Err(LruError::AlreadyAdded)));
    assert_eq!((add(3, two), add(MEMORY, one)), {
        (Err(LruError::Misaligned), Err(LruError::ForeignFrame))
    });
}
