//! All interleavings of two or three CPUs that add pageblocks to a tree and remove them, and all
//! values that the orderings allow a load to see.

extern crate std;

use core::mem::MaybeUninit;
use std::vec;

use loom::sync::Arc;
use loom::thread;

use super::loom_platform::{LoomCell, LoomPlatform, run_on};
use super::loom_runs::explore;
use super::*;
use crate::memmap::region::Metadata;
use crate::platform::SharedCell;

type Sound = LoomPlatform;
type Broken<const ATOMIC: bool, const ACQUIRES: bool> = LoomPlatform<true, ATOMIC, ACQUIRES>;

/// It does not matter here which CPU a thread runs on.
const _: fn(u32) = run_on;

/// The members of two words may come and go. A search from the beginning finds them by the
/// summaries of both levels.
const PLACES: [usize; 3] = [4096, 4097, 4160];

struct Shared<P: Platform> {
    forest: Forest<P>,
    tree: Tree,
    /// What the last owner of the pageblock has written there.
    content: [LoomCell<u64>; PLACES.len()],
}

impl<P: Platform> Shared<P> {
    /// A tree with some of the places.
    fn new(members: &[usize]) -> Arc<Self> {
        let (tree, words) = Tree::new(0, 4224);
        let mut builder = LayoutBuilder::new();
        let plan = Forest::plan(words, &mut builder).unwrap();
        let layout = builder.finish();
        let buffer = vec![MaybeUninit::uninit(); layout.size_unaligned()].leak();
        let metadata = Metadata::from_static(buffer);
        let forest = Forest::carve(&plan, &mut Carver::new(metadata, &layout).unwrap());
        let content = core::array::from_fn(|_| LoomCell::new(0));
        let shared = Shared { forest, tree, content };
        members.iter().for_each(|&place| shared.give(place));
        Arc::new(shared)
    }

    /// Writes into the pageblock, which the caller owns, and adds it.
    fn give(&self, place: usize) {
        self.content[place].set(1);
        assert!(self.forest.insert(&self.tree, PLACES[place]), "no other CPU had it");
    }

    /// Removes a pageblock, if it is there, and writes into it.
    fn take(&self, place: usize) -> bool {
        let taken = self.forest.remove(&self.tree, PLACES[place]);
        if taken {
            self.content[place].set(2);
        }
        taken
    }

    /// Checks that the members are these, and that all of them are found.
    fn check(&self, members: &[usize]) {
        let found = around(0, |from| self.forest.next(&self.tree, from));
        assert!(found.eq(members.iter().map(|&place| PLACES[place])), "{members:?}");
    }
}

fn beside<P: Platform + Send + Sync, R: 'static>(
    shared: &Arc<Shared<P>>,
    act: impl FnOnce(&Shared<P>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let shared = Arc::clone(shared);
    thread::spawn(move || act(&shared))
}

fn give_where_another_one_is_taken<P: Platform + Send + Sync>(given: usize) {
    explore(3, move || {
        let shared = Shared::<P>::new(&[0]);
        let taker = beside(&shared, |shared| assert!(shared.take(0)));
        shared.give(given);
        taker.join().unwrap();
        shared.check(&[given]);
    });
}

/// The last pageblock of a word is removed while another one is added to it, or to its
/// neighbour, which has the same summary.
#[test]
fn a_pageblock_comes_where_the_last_one_leaves() {
    give_where_another_one_is_taken::<Sound>(1);
    give_where_another_one_is_taken::<Sound>(2);
}

#[test]
#[should_panic]
fn a_summary_that_orders_nothing_is_caught() {
    give_where_another_one_is_taken::<Broken<true, false>>(1);
}

#[test]
#[should_panic]
fn a_bit_that_is_set_in_two_steps_is_caught() {
    give_where_another_one_is_taken::<Broken<false, true>>(1);
}

/// Two words become empty while a pageblock is added to one of them: a summary, and the one
/// above.
#[test]
fn a_pageblock_comes_where_two_words_become_empty() {
    explore(2, || {
        let shared = Shared::<Sound>::new(&[0, 2]);
        let one = beside(&shared, |shared| assert!(shared.take(0)));
        let two = beside(&shared, |shared| assert!(shared.take(2)));
        shared.give(1);
        one.join().unwrap();
        two.join().unwrap();
        shared.check(&[1]);
    });
}

/// A pageblock is added and removed on one CPU while another one is removed and added on the
/// next.
#[test]
fn a_word_becomes_empty_twice() {
    explore(3, || {
        let shared = Shared::<Sound>::new(&[0]);
        let other = beside(&shared, |shared| {
            assert!(shared.take(0));
            shared.give(0);
        });
        shared.give(1);
        assert!(shared.take(1));
        other.join().unwrap();
        shared.check(&[0]);
    });
}

/// One of two removals of a pageblock succeeds, of one alone or of several at once; and its new
/// owner sees what was written there.
#[test]
fn no_pageblock_is_taken_twice() {
    explore(3, || {
        let shared = Shared::<Sound>::new(&[0, 1]);
        let other = beside(&shared, |shared| shared.forest.remove_mask(&shared.tree, 64, 3));
        let mine = shared.take(1);
        assert_ne!(mine, other.join().unwrap());
        shared.check(if mine { &[0] } else { &[] });
    });
}

fn hand_on<P: Platform + Send + Sync>() {
    explore(3, || {
        let shared = Shared::<P>::new(&[0]);
        let other = beside(&shared, |shared| {
            shared.give(1);
            shared.take(0)
        });
        let [first, _] = [0, 1].map(|place| shared.take(place));
        assert_ne!(first, other.join().unwrap());
    });
}

#[test]
fn the_next_owner_sees_what_was_done_before() {
    hand_on::<Sound>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_pageblock_that_is_handed_on_without_order_is_caught() {
    hand_on::<Broken<true, false>>();
}
