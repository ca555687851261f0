//! A process that is killed: what it has synced, and told its parent, is in the file and whole.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use freehold_cache::{Block, Cache, CachedFile, Limits};

use crate::{Random, from_env};

const CHILD: &str = "FREEHOLD_CACHE_CHILD";
const SIZE: usize = 4096;
const BLOCKS: u64 = 200;

fn open(path: &Path) -> CachedFile {
    let cache = Cache::builder().memory_bytes(64 * SIZE as u64).build().unwrap();
    let tenant = cache.tenant("a", Limits::new()).unwrap();
    cache.open(&tenant, path).unwrap()
}

/// What is in a block: its record number, throughout.
fn number_of(content: &[u8]) -> u64 {
    let words = content.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
    let mut words = words.collect::<Vec<_>>();
    words.dedup();
    assert_eq!(words.len(), 1, "a block that is not whole: {words:?}");
    words[0]
}

/// The child: writes records, each into a block that its number gives, and says after each sync how
/// far it came. The parent kills it.
#[test]
fn child() {
    let Ok(path) = std::env::var(CHILD) else { return };
    let (path, first) = path.rsplit_once('#').unwrap();
    let file = open(Path::new(path));
    for number in first.parse::<u64>().unwrap().. {
        let mut guard = file.write(Block(number % BLOCKS)).unwrap();
        guard.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
        drop(guard);
        if number.is_multiple_of(7) {
            file.sync().unwrap();
            println!("synced {number}");
        }
    }
}

#[test]
fn what_was_synced_is_there_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    let (mut random, mut first, mut told) = (Random::new(from_env("FREEHOLD_CACHE_SEED", 1)), 1, 0);
    for _ in 0..from_env("FREEHOLD_CACHE_ROUNDS", 1) * 6 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill::child", "--nocapture", "--test-threads=1"])
            .env(CHILD, format!("{}#{first}", path.display()))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut read_line = |synced: &mut u64| {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            if let Some((_, number)) = line.trim_end().split_once("synced ") {
                // A line that the kill has cut says nothing.
                *synced = if line.ends_with('\n') { number.parse().unwrap() } else { *synced };
            }
        };
        let mut synced = first - 1;
        while synced < first {
            read_line(&mut synced);
        }
        thread::sleep(Duration::from_micros(random.below(20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        let complete = rest.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let last = complete.lines().filter_map(|line| line.split_once("synced ")).next_back();
        synced = last.map_or(synced, |(_, number)| number.parse().unwrap());
        // The kernel has all that was written, so blocks are whole here; whether they would be
        // after a loss of power is for the simulated disk.
        let file = open(&path);
        let mut latest = 0;
        for block in 0..BLOCKS.min(synced + 1) {
            let number = number_of(&file.read(Block(block)).unwrap());
            let wanted = (synced + 1).saturating_sub(BLOCKS).max(1);
            let is_due = (wanted..=synced).any(|number| number % BLOCKS == block);
            assert!(!is_due || number >= wanted, "block {block}: {number}, {synced} was synced");
            assert!(number == 0 || number % BLOCKS == block);
            latest = latest.max(number);
        }
        assert!(latest >= synced);
        (first, told) = (latest.max(synced) + 1, told + 1);
    }
    assert!(told > 0);
}
