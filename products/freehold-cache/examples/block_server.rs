//! A small key-value server over the cache: tenants with limits, a file each, values that survive.
//!
//! ```text
//! cargo run --release -p freehold-cache --example block_server -- FOLDER [ADDRESS]
//! ```
//!
//! Clients send lines of text, and get one line for each, except for `metrics`:
//!
//! ```text
//! TENANT put KEY VALUE     ok
//! TENANT get KEY           = VALUE, or - if there is none
//! TENANT sync              ok, once all that was put before is on storage
//! metrics                  the text format of Prometheus, and an empty line
//! ```
//!
//! A tenant's file is a hash table of fixed size. Each block is a bucket of slots with a checksum
//! over each, since after a crash a block that was being written may be torn: a slot whose checksum
//! is wrong counts as empty. What was there before the last `sync` is whole.

use std::error::Error;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use freehold_cache::{Block, Cache, CachedFile, Limits};

const BLOCK_BYTES: usize = 4096;
const BUCKETS: u64 = 4096;
/// A slot: checksum, lengths of key and value, key, value.
const SLOT_BYTES: usize = 256;
const HEAD_BYTES: usize = 10;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A checksum and a hash: FNV-1a.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The key and the value in a slot, if it is whole and in use.
fn entry(slot: &[u8]) -> Option<(&[u8], &[u8])> {
    let (key, value) = (usize::from(slot[8]), usize::from(slot[9]));
    let content = slot.get(HEAD_BYTES..HEAD_BYTES + key + value)?;
    let is_whole = slot[..8] == fnv(&slot[8..HEAD_BYTES + key + value]).to_le_bytes();
    (key > 0 && is_whole).then(|| content.split_at(key))
}

fn set_entry(slot: &mut [u8], key: &[u8], value: &[u8]) {
    slot[8..HEAD_BYTES].copy_from_slice(&[key.len() as u8, value.len() as u8]);
    slot[HEAD_BYTES..][..key.len()].copy_from_slice(key);
    slot[HEAD_BYTES + key.len()..][..value.len()].copy_from_slice(value);
    let sum = fnv(&slot[8..HEAD_BYTES + key.len() + value.len()]);
    slot[..8].copy_from_slice(&sum.to_le_bytes());
}

/// The values of a tenant.
#[derive(Clone)]
struct Store(CachedFile);

impl Store {
    fn bucket(key: &[u8]) -> Block {
        Block(fnv(key) % BUCKETS)
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        // The guard keeps the block in the cache; other readers share it.
        let block = self.0.read(Self::bucket(key))?;
        let mut entries = block.chunks_exact(SLOT_BYTES).filter_map(entry);
        Ok(entries.find(|entry| entry.0 == key).map(|(_, value)| value.to_vec()))
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let is_sound = !key.is_empty() && key.len() + value.len() <= SLOT_BYTES - HEAD_BYTES;
        if !is_sound {
            return Err("a key needs a byte, and key and value have 246 bytes at most".into());
        }
        // Exclusive, so that two clients do not take the same slot.
        let mut block = self.0.write(Self::bucket(key))?;
        let slots = || block.chunks_exact(SLOT_BYTES);
        let same = slots().position(|slot| entry(slot).is_some_and(|entry| entry.0 == key));
        let free = || slots().position(|slot| entry(slot).is_none());
        let place = same.or_else(free).ok_or("the bucket is full")?;
        set_entry(&mut block[place * SLOT_BYTES..][..SLOT_BYTES], key, value);
        Ok(())
    }
}

/// The cache, and the open files of the tenants.
struct Server {
    cache: Cache,
    folder: PathBuf,
    stores: Mutex<Vec<(String, Store)>>,
}

impl Server {
    fn new(folder: &Path) -> Result<Self> {
        let cache = Cache::builder().memory_bytes(16 << 20).block_bytes(BLOCK_BYTES).build()?;
        let folder = folder.to_owned();
        Ok(Server { cache, folder, stores: Mutex::default() })
    }

    /// The store of a tenant. At its first request it is opened, with half of the memory at most,
    /// of which an eighth is protected.
    fn store(&self, tenant: &str) -> Result<Store> {
        if tenant.is_empty() || !tenant.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("a tenant's name has letters and digits".into());
        }
        let mut stores = self.stores.lock().map_err(|_| "a request has failed")?;
        if let Some((_, store)) = stores.iter().find(|(name, _)| name == tenant) {
            return Ok(store.clone());
        }
        let limits = Limits::new().max_bytes(8 << 20).protected_bytes(1 << 20);
        let owner = self.cache.tenant(tenant, limits)?;
        let path = self.folder.join(tenant).with_extension("table");
        let store = Store(self.cache.open(&owner, path)?);
        stores.push((tenant.to_owned(), store.clone()));
        Ok(store)
    }

    /// The answer to a line.
    fn answer(&self, line: &str) -> Result<String> {
        let mut words = line.splitn(4, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (tenant, command, key, value) = (next(), next(), next(), next());
        match (tenant, command) {
            ("metrics", "") => Ok(self.cache.stats().prometheus()),
            (_, "put") => {
                self.store(tenant)?.put(key.as_bytes(), value.as_bytes())?;
                Ok("ok".into())
            }
            (_, "get") => Ok(match self.store(tenant)?.get(key.as_bytes())? {
                Some(value) => format!("= {}", String::from_utf8_lossy(&value)),
                None => "-".into(),
            }),
            (_, "sync") => {
                self.store(tenant)?.0.sync()?;
                Ok("ok".into())
            }
            _ => Err("TENANT put KEY VALUE, TENANT get KEY, TENANT sync, or metrics".into()),
        }
    }

    fn serve(&self, client: &TcpStream) -> io::Result<()> {
        // Answers are short, and clients wait for them.
        client.set_nodelay(true)?;
        let mut output = BufWriter::new(client);
        for line in BufReader::new(client).lines() {
            match self.answer(&line?) {
                Ok(answer) => writeln!(output, "{answer}")?,
                Err(error) => writeln!(output, "! {error}")?,
            }
            output.flush()?;
        }
        Ok(())
    }
}

/// Serves each client on a thread of its own, until the process ends.
fn listen(server: &Arc<Server>, listener: &TcpListener) {
    for client in listener.incoming() {
        let server = Arc::clone(server);
        thread::spawn(move || match client.and_then(|client| server.serve(&client)) {
            Ok(()) => {}
            Err(error) => eprintln!("a client: {error}"),
        });
    }
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("give a folder for the files")?;
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:7070".into());
    let server = Arc::new(Server::new(Path::new(&folder))?);
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    listen(&server, &listener);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(folder: &Path) -> (Arc<Server>, TcpStream) {
        let server = Arc::new(Server::new(folder).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let serving = Arc::clone(&server);
        thread::spawn(move || listen(&serving, &listener));
        (server, client)
    }

    fn ask(client: &TcpStream, line: &str) -> String {
        let mut client = client;
        client.write_all(format!("{line}\n").as_bytes()).unwrap();
        // One byte at a time: nothing of the next answer is taken.
        let mut answer = String::new();
        BufReader::with_capacity(1, client).read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }

    #[test]
    fn values_are_kept_by_tenant_and_survive() {
        let folder = tempfile::tempdir().unwrap();
        let (_server, client) = start(folder.path());
        for number in 0..500 {
            assert_eq!(ask(&client, &format!("blue put key{number} {number} of blue")), "ok");
        }
        assert_eq!(ask(&client, "red put key7 of red"), "ok");
        assert_eq!(ask(&client, "blue put key7 new"), "ok");
        assert_eq!(ask(&client, "blue get key7"), "= new");
        assert_eq!(ask(&client, "red get key7"), "= of red");
        assert_eq!(ask(&client, "red get key8"), "-");
        assert!(ask(&client, "../x get key8").starts_with('!'));
        assert_eq!(ask(&client, "blue sync"), "ok");
        // Another server on the same files, as after a crash: the first one still runs.
        let (server, client) = start(folder.path());
        assert_eq!(ask(&client, "blue get key499"), "= 499 of blue");
        assert_eq!(ask(&client, "blue get key7"), "= new");
        let metrics = server.answer("metrics").unwrap();
        assert!(metrics.contains("freehold_cache_hits_total{tenant=\"blue\"}"), "{metrics}");
    }

    #[test]
    fn a_torn_slot_is_empty() {
        let mut slot = [0; SLOT_BYTES];
        assert_eq!(entry(&slot), None);
        set_entry(&mut slot, b"key", b"value");
        assert_eq!(entry(&slot), Some((&b"key"[..], &b"value"[..])));
        slot[12] ^= 1;
        assert_eq!(entry(&slot), None);
    }
}
