//! Random lists of calls of the LRU, against a naive model that predicts every outcome.
//!
//! A failing case is shrunk and printed with its calls. The cases are the same on every run;
//! `PROPTEST_CASES` asks for more, `PROPTEST_RNG_SEED` for others.

use crate::naive::Naive;
use crate::pair::{Call, MEMORY, SLOTS, run};
use freehold::Order;
use freehold_lru::{BATCH_MAX, Kind, LruError, LruLock};
use proptest::prelude::*;
use proptest::sample::select;

fn call() -> impl Strategy<Value = Call> {
    use Call::*;
    let pfn = || 0..MEMORY + 2;
    // Identifiers of groups that were never created are unknown to the model, too.
    let group = || 0..6usize;
    let order = || select(vec![0, 0, 0, 1, 2]).prop_map(Order::new);
    let limit = || prop::option::of(0..20u64);
    prop_oneof![
        8 => (pfn(), order(), group(), any::<bool>())
            .prop_map(|(pfn, order, group, file)| Add(pfn, order, group, file)),
        2 => pfn().prop_map(Get),
        4 => pfn().prop_map(Put),
        3 => pfn().prop_map(Accessed),
        1 => pfn().prop_map(Activate),
        1 => pfn().prop_map(Deactivate),
        1 => pfn().prop_map(Rotate),
        2 => pfn().prop_map(Pin),
        2 => pfn().prop_map(Unpin),
        3 => pfn().prop_map(Isolate),
        2 => (0..4usize, group()).prop_map(|(nth, group)| Move(nth, group)),
        2 => (0..4usize).prop_map(PutBack),
        2 => (group(), limit()).prop_map(|(parent, limit)| Create(parent, limit)),
        2 => group().prop_map(Remove),
        3 => (group(), limit()).prop_map(|(group, limit)| Limit(group, limit)),
        1 => group().prop_map(Enter),
        1 => Just(Leave),
        2 => (prop::option::of(group()), 1..10u64).prop_map(|(of, count)| Reclaim(of, count)),
        2 => (pfn(), pfn(), prop::option::weighted(0.2, order()))
            .prop_map(|(from, to, order)| Migrate(from, to, order)),
        1 => Just(Drain),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn every_call_does_what_the_model_says(
        lock in select(vec![LruLock::Node, LruLock::Group]),
        batch in select(vec![1, 3, BATCH_MAX as u32]),
        calls in prop::collection::vec(call(), 1..300),
    ) {
        run(lock, batch, &calls);
    }
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
