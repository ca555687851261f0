//! Which block is in which frame, and the shadows of evicted blocks.
//!
//! The index is cut into shards, each a hash table under a reader-writer lock, so a hit takes no
//! lock that all share: it holds one of at least 64 shards, shared, for the time of a lookup. A
//! table without locks would save two locked steps of about five that a hit takes; it would need a
//! scheme for freeing its parts, which these locks are cheaper than.

use std::hash::BuildHasher;

use freehold_host::lru::Shadow;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use crate::key::{Key, SlotIndex};
use crate::sync::{RandomState, RwLock};

/// What the index has for a block: a frame, or a shadow, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Cached(SlotIndex),
    Evicted(Shadow),
}

/// Marks a shadow, which has 62 bits.
const SHADOW: u64 = 1 << 63;

impl Entry {
    fn to_word(self) -> u64 {
        match self {
            Entry::Cached(slot) => slot.get().into(),
            Entry::Evicted(shadow) => shadow.to_bits() | SHADOW,
        }
    }

    fn of_word(word: u64) -> Self {
        match word & SHADOW {
            0 => Entry::Cached(SlotIndex::new(word as u32)),
            _ => Entry::Evicted(Shadow::from_bits(word & !SHADOW)),
        }
    }
}

/// A row of a table: 16 bytes.
struct Row {
    key: Key,
    word: u64,
}

type Table = HashTable<Row>;

/// On cache lines of its own, so that shards do not disturb each other.
#[repr(align(128))]
struct Shard(RwLock<Table>);

pub(crate) struct Index {
    shards: Box<[Shard]>,
    seed: u64,
}

/// What became of an attempt to enter a frame for a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It is there, in the place of this shadow if there was one.
    Now(Option<Shadow>),
    /// There is another frame.
    Taken,
}

impl Index {
    /// An empty one, of at least so many shards.
    pub(crate) fn new(shards: usize) -> Self {
        let shards = 0..shards.next_power_of_two().clamp(1, 1 << 16);
        Index {
            shards: shards.map(|_| Shard(RwLock::default())).collect(),
            // Tenants choose the numbers of their blocks, so they must not know the hash.
            seed: RandomState::new().hash_one(0),
        }
    }

    fn hash(&self, key: Key) -> u64 {
        hash(self.seed, key)
    }

    fn shard(&self, hash: u64) -> &RwLock<Table> {
        // Bits that the table uses for neither places nor tags, as long as it has less than 2^40.
        &self.shards[(hash >> 40) as usize & (self.shards.len() - 1)].0
    }

    /// The frame of a block.
    pub(crate) fn find(&self, key: Key) -> Option<SlotIndex> {
        let hash = self.hash(key);
        let word = self.shard(hash).read().find(hash, |row| row.key == key)?.word;
        if let Entry::Cached(slot) = Entry::of_word(word) { Some(slot) } else { None }
    }

    /// Enters a frame for a block, unless there is one.
    pub(crate) fn enter(&self, key: Key, slot: SlotIndex) -> Entered {
        let (hash, seed) = (self.hash(key), self.seed);
        let word = Entry::Cached(slot).to_word();
        let table = &mut *self.shard(hash).write();
        match table.entry(hash, |row| row.key == key, |row| self::hash(seed, row.key)) {
            TableEntry::Vacant(vacant) => {
                vacant.insert(Row { key, word });
                Entered::Now(None)
            }
            TableEntry::Occupied(mut row) => match Entry::of_word(row.get().word) {
                Entry::Cached(_) => Entered::Taken,
                Entry::Evicted(shadow) => {
                    row.get_mut().word = word;
                    Entered::Now(Some(shadow))
                }
            },
        }
    }

    /// Removes what is entered for a block if it is this, and says whether it was.
    pub(crate) fn remove(&self, key: Key, entry: Entry) -> bool {
        let (hash, word) = (self.hash(key), entry.to_word());
        let is_it = |row: &Row| row.key == key && row.word == word;
        let mut table = self.shard(hash).write();
        table.find_entry(hash, is_it).map(|row| _ = row.remove()).is_ok()
    }

    /// If the frame is entered for the block, asks under the lock of the entry for a shadow to put
    /// in its place, and returns it.
    pub(crate) fn evict(
        &self,
        key: Key,
        slot: SlotIndex,
        claim: impl FnOnce() -> Option<Shadow>,
    ) -> Option<Shadow> {
        let (hash, word) = (self.hash(key), Entry::Cached(slot).to_word());
        let mut table = self.shard(hash).write();
        let row = table.find_mut(hash, |row| row.key == key && row.word == word)?;
        let shadow = claim()?;
        row.word = Entry::Evicted(shadow).to_word();
        Some(shadow)
    }

    /// How many blocks and shadows there are. Visits all shards.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let (mut cached, mut evicted) = (0, 0);
        for shard in &self.shards {
            for row in shard.0.read().iter() {
                *if row.word & SHADOW == 0 { &mut cached } else { &mut evicted } += 1;
            }
        }
        (cached, evicted)
    }
}

/// A product of all bits of the key, folded: tables need their lowest and their highest bits.
fn hash(seed: u64, key: Key) -> u64 {
    let product = u128::from(key.to_bits() ^ seed) * 0x9E37_79B9_7F4A_7C15;
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Block;

    #[test]
    fn a_word_is_the_entry_that_it_was() {
        let slots = [0, 7, u32::MAX].map(SlotIndex::new).map(Entry::Cached);
        let shadows = [0, 7, (1 << 62) - 1].map(Shadow::from_bits).map(Entry::Evicted);
        for entry in slots.into_iter().chain(shadows) {
            assert_eq!(Entry::of_word(entry.to_word()), entry);
        }
    }

    #[test]
    fn an_entry_is_a_frame_then_a_shadow_then_a_frame() {
        let (index, shadow) = (Index::new(4), Shadow::from_bits(99));
        let [one, other] = [1, 2].map(SlotIndex::new);
        for block in 0..1000 {
            let key = Key::new(3, Block(block)).unwrap();
            assert_eq!(index.find(key), None);
            assert_eq!(index.enter(key, one), Entered::Now(None));
            assert_eq!(index.enter(key, other), Entered::Taken);
            assert_eq!(index.evict(key, other, || panic!("not its frame")), None);
            assert_eq!(index.evict(key, one, || None), None);
            assert_eq!(index.find(key), Some(one));
            assert_eq!(index.evict(key, one, || Some(shadow)), Some(shadow));
            assert_eq!(index.find(key), None);
            assert_eq!(index.enter(key, other), Entered::Now(Some(shadow)));
            assert!(!index.remove(key, Entry::Evicted(shadow)));
        }
        assert_eq!(index.counts(), (1000, 0));
    }

    #[test]
    fn blocks_spread_over_shards() {
        let index = Index::new(64);
        for block in 0..64_000 {
            index.enter(Key::new(0, Block(block)).unwrap(), SlotIndex::new(0));
        }
        let sizes = index.shards.iter().map(|shard| shard.0.read().len());
        assert!(sizes.clone().all(|size| (800..1200).contains(&size)), "{:?}", sizes.max());
    }
}
