//! Random calls against a naive model: a file in memory.

use freehold_cache::{Block, Cache, Limits};
use proptest::prelude::*;

use crate::disk::Disk;

const SIZE: usize = 4096;

#[derive(Clone, Debug)]
enum Call {
    Read(u64, usize),
    Write(u64, Vec<u8>),
    Fill(u64, u8),
    Sync,
    WriteBack,
    FailWrites(u64),
    FailReads(u64),
    Reopen,
}

fn call() -> impl Strategy<Value = Call> {
    let offset = || 0..(60 * SIZE) as u64;
    let bytes = proptest::collection::vec(any::<u8>(), 1..3 * SIZE);
    prop_oneof![
        6 => (offset(), 1..3 * SIZE).prop_map(|(at, bytes)| Call::Read(at, bytes)),
        6 => (offset(), bytes).prop_map(|(at, bytes)| Call::Write(at, bytes)),
        3 => (0..60u64, any::<u8>()).prop_map(|(block, byte)| Call::Fill(block, byte)),
        1 => Just(Call::Sync),
        1 => Just(Call::WriteBack),
        1 => (1..4u64).prop_map(Call::FailWrites),
        1 => (1..3u64).prop_map(Call::FailReads),
        1 => Just(Call::Reopen),
    ]
}

/// Cases come from no file: what failed once is a test of its own.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_cached_file_is_a_file(
        calls in proptest::collection::vec(call(), 1..120),
        read_ahead in 0..3usize,
        blocks in 10..40u64,
    ) {
        let disk = Disk::with(Vec::new());
        let builder = Cache::builder().memory_bytes(blocks * SIZE as u64).write_back_every(None);
        let cache = builder.read_ahead_bytes(read_ahead * SIZE).build().unwrap();
        let limits = Limits::new().max_bytes(blocks * 4 / 5 * SIZE as u64);
        let tenant = cache.tenant("a", limits).unwrap();
        let mut file = cache.open_storage(&tenant, disk.storage()).unwrap();
        let mut model = vec![0; 70 * SIZE];
        for call in calls {
            use std::sync::atomic::Ordering::SeqCst;
            match call {
                Call::Read(at, bytes) => {
                    let mut buffer = vec![0; bytes];
                    while file.read_at(at, &mut buffer).is_err() {}
                    prop_assert_eq!(&buffer[..], &model[at as usize..][..bytes]);
                }
                Call::Write(at, bytes) => {
                    // A write that fails is repeated, and then done.
                    while file.write_at(at, &bytes).is_err() {}
                    model[at as usize..][..bytes.len()].copy_from_slice(&bytes);
                }
                Call::Fill(block, byte) => {
                    let mut guard = loop {
                        if let Ok(guard) = file.overwrite(Block(block)) { break guard }
                    };
                    prop_assert!(guard.iter().all(|&byte| byte == 0));
                    guard.fill(byte);
                    model[block as usize * SIZE..][..SIZE].fill(byte);
                }
                Call::Sync => {
                    while file.sync().is_err() {}
                    prop_assert_eq!(file.dirty_blocks(), 0);
                    let content = disk.content();
                    prop_assert_eq!(&content[..], &model[..content.len()]);
                }
                Call::WriteBack => _ = file.write_back(),
                Call::FailWrites(times) => disk.failing_writes.store(times, SeqCst),
                Call::FailReads(times) => disk.failing_reads.store(times, SeqCst),
                Call::Reopen => {
                    while file.sync().is_err() {}
                    drop(file);
                    prop_assert_eq!(cache.stats().free, blocks);
                    file = cache.open_storage(&tenant, disk.storage()).unwrap();
                }
            }
            prop_assert_eq!(cache.validate(), Ok(()));
        }
    }
}
