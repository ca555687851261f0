//! A block that is written to after reclaim has written it back, and before it would go.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use freehold_cache::{Block, Cache, CachedFile, Limits, LruPolicy, Storage};
use parking_lot::Mutex;

use crate::disk::{Disk, OnDisk};

const SIZE: u64 = 4096;

type Hook = Arc<Mutex<Option<CachedFile>>>;

/// When it is written to, writes to a block of another file.
struct Hooked {
    disk: OnDisk,
    other: Hook,
}

impl Storage for Hooked {
    fn read_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.disk.read_at(offset, buffers)
    }

    fn write_at(&self, offset: u64, buffers: &mut [IoSlice<'_>]) -> io::Result<()> {
        if let Some(other) = self.other.lock().take() {
            for block in 0..8 {
                other.write(Block(block)).unwrap()[0] = 77;
            }
        }
        self.disk.write_at(offset, buffers)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.sync()
    }
}

#[test]
fn it_stays() {
    // Two lists, since these reclaim many blocks at a time when a limit is hit.
    let builder = Cache::builder().memory_bytes(1000 * SIZE).policy(LruPolicy::TwoLists);
    let cache = builder.dirty_percent(90, 90).write_back_every(None).build().unwrap();
    let tenant = cache.tenant("a", Limits::new().max_bytes(512 * SIZE)).unwrap();
    let disks = [(); 2].map(|()| Disk::with(Vec::new()));
    let first = cache.open_storage(&tenant, disks[0].storage()).unwrap();
    let hook = Hook::default();
    let storage = Hooked { disk: OnDisk(Arc::clone(&disks[1])), other: Arc::clone(&hook) };
    let second = cache.open_storage(&tenant, Box::new(storage)).unwrap();
    // The blocks that go first are of both files, and reclaim writes those of the first file first.
    for block in 0..8 {
        first.overwrite(Block(block)).unwrap()[0] = 1;
        second.overwrite(Block(block)).unwrap()[0] = 2;
    }
    *hook.lock() = Some(first.clone());
    for block in 1000..1512 {
        drop(second.read(Block(block)).unwrap());
    }
    assert!(hook.lock().is_none(), "reclaim has written");
    assert_eq!(disks[0].content()[0], 1, "the first file before the second");
    for block in 0..8 {
        assert_eq!(first.read(Block(block)).unwrap()[0], 77);
    }
    first.sync().unwrap();
    assert_eq!(disks[0].content()[7 * SIZE as usize], 77);
    cache.validate().unwrap();
}
