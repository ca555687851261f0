//! A block that is written to after reclaim has written it back, and before it would go.

use std::sync::atomic::Ordering::SeqCst;

use freehold_cache::{Block, Cache, Limits, LruPolicy};
use parking_lot::Mutex;

use crate::disk::Disk;

const SIZE: u64 = 4096;

#[test]
fn it_stays() {
    // Two lists, since these reclaim many blocks at a time when a limit is hit.
    let builder = Cache::builder().memory_bytes(1000 * SIZE).policy(LruPolicy::TwoLists);
    let cache = builder.dirty_percent(90, 90).write_back_every(None).build().unwrap();
    let tenant = cache.tenant("a", Limits::new().max_bytes(512 * SIZE)).unwrap();
    let disks = [(); 2].map(|()| Disk::with(Vec::new()));
    let first = cache.open_storage(&tenant, disks[0].storage()).unwrap();
    let second = cache.open_storage(&tenant, disks[1].storage()).unwrap();
    // The blocks that go first are of both files, and reclaim writes those of the first file first.
    for block in 0..8 {
        first.overwrite(Block(block)).unwrap()[0] = 1;
        second.overwrite(Block(block)).unwrap()[0] = 2;
    }
    let other = Mutex::new(Some(first.clone()));
    disks[1].hook(move |_, _| {
        if let Some(other) = other.lock().take() {
            (0..8).for_each(|block| other.write(Block(block)).unwrap()[0] = 77);
        }
    });
    for block in 1000..1512 {
        drop(second.read(Block(block)).unwrap());
    }
    assert!(disks[1].writes.load(SeqCst) > 0, "reclaim has written");
    assert_eq!(disks[0].content()[0], 1, "the first file before the second");
    for block in 0..8 {
        assert_eq!(first.read(Block(block)).unwrap()[0], 77);
    }
    first.sync().unwrap();
    assert_eq!(disks[0].content()[7 * SIZE as usize], 77);
    cache.validate().unwrap();
}
