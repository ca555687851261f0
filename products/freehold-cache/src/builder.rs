//! How large a cache is, and how it works.

use std::sync::Arc;
use std::time::Duration;

use freehold_host::lru::{LruPolicy, LruSettings};
use freehold_host::{Arena, FrameCount, FrameSize};

use crate::background;
use crate::cache::Cache;
use crate::error::CacheError;
use crate::io::{EngineReport, IoEngine};
use crate::pool::Pool;
use crate::read_on;
use crate::shared::Shared;
use crate::signal::Signal;
use crate::sync::{AtomicU64, Mutex, thread};

/// The sizes of blocks: up to a MiB, so that a file's offset has 60 bits.
const BLOCK_BYTES_MAX: usize = 1 << 20;

/// The longest wait for guards, so that no time overflows.
const WAIT_MAX: Duration = Duration::from_secs(86_400);

/// Builds a [`Cache`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct CacheBuilder {
    memory_bytes: u64,
    block_bytes: usize,
    tenants: u32,
    policy: LruPolicy,
    shadows_percent: u64,
    engine: IoEngine,
    direct: bool,
    read_ahead_bytes: usize,
    dirty_background_percent: u64,
    dirty_max_percent: u64,
    write_back_every: Option<Duration>,
    wait: Duration,
    shards: Option<usize>,
}

impl Default for CacheBuilder {
    fn default() -> Self {
        CacheBuilder::new()
    }
}

impl CacheBuilder {
    /// 64 MiB of blocks of 4 KiB, up to 63 tenants.
    pub fn new() -> Self {
        CacheBuilder {
            memory_bytes: 64 << 20,
            block_bytes: 4096,
            tenants: 63,
            policy: LruPolicy::ScanResistant,
            shadows_percent: 100,
            engine: IoEngine::Pread,
            direct: false,
            read_ahead_bytes: 0,
            dirty_background_percent: 10,
            dirty_max_percent: 40,
            write_back_every: Some(Duration::from_secs(5)),
            wait: Duration::from_secs(1),
            shards: None,
        }
    }

    /// How much memory all blocks have together, in bytes, rounded down to whole blocks; at least
    /// eight. What the cache needs beside it is in `docs/cache.md`. Default: 64 MiB.
    pub fn memory_bytes(self, bytes: u64) -> Self {
        CacheBuilder { memory_bytes: bytes, ..self }
    }

    /// The size of a block in bytes: a power of two from the size of a page to 1 MiB. Default:
    /// 4096.
    pub fn block_bytes(self, bytes: usize) -> Self {
        CacheBuilder { block_bytes: bytes, ..self }
    }

    /// The most tenants: 1 to 65,534. Each costs metadata, used or not. Default: 63.
    pub fn tenants(self, most: u32) -> Self {
        CacheBuilder { tenants: most, ..self }
    }

    /// Which block goes first. Default: [`LruPolicy::ScanResistant`].
    pub fn policy(self, policy: LruPolicy) -> Self {
        CacheBuilder { policy, ..self }
    }

    /// How many evicted blocks are remembered, in percent of what each tenant may have: 0 to 1000.
    /// The scan-resistant policy judges by them. Default: 100.
    pub fn shadows_percent(self, percent: u64) -> Self {
        CacheBuilder { shadows_percent: percent, ..self }
    }

    /// How files are read and written. Default: [`IoEngine::Pread`].
    pub fn engine(self, engine: IoEngine) -> Self {
        CacheBuilder { engine, ..self }
    }

    /// Whether [`Cache::open`] opens files with `O_DIRECT`, so that the kernel does not cache them
    /// as well. Not all file systems permit it: the call fails then. Default: no.
    pub fn direct(self, direct: bool) -> Self {
        CacheBuilder { direct, ..self }
    }

    /// How much is read at once, in bytes, when a file is read block after block: rounded down to
    /// whole blocks. While the reader works, a thread reads the next piece. Default: 0, none.
    pub fn read_ahead_bytes(self, bytes: usize) -> Self {
        CacheBuilder { read_ahead_bytes: bytes, ..self }
    }

    /// How much of the memory is dirty before it is written in the background, and how much may be,
    /// in percent: the first at most the second, which is 1 to 90. Of the memory of the cache, and
    /// of what each tenant may have. A writer that finds as much writes some of it first, and fails
    /// if its file cannot be written. Default: 10 and 40.
    pub fn dirty_percent(self, background: u64, most: u64) -> Self {
        let (dirty_background_percent, dirty_max_percent) = (background, most);
        CacheBuilder { dirty_background_percent, dirty_max_percent, ..self }
    }

    /// How often all that is dirty is written in the background; `None` if only when it is much.
    /// At least 1 ms. Default: 5 s.
    pub fn write_back_every(self, interval: Option<Duration>) -> Self {
        CacheBuilder { write_back_every: interval, ..self }
    }

    /// How long a call waits for guards to be dropped if they keep all blocks that could make room.
    /// A day at most. Default: 1 s.
    pub fn wait(self, most: Duration) -> Self {
        CacheBuilder { wait: most, ..self }
    }

    /// How many parts the index has, rounded up to a power of two. Default: 16 for each CPU, and at
    /// least 64.
    pub fn shards(self, shards: usize) -> Self {
        CacheBuilder { shards: Some(shards), ..self }
    }

    fn check(&self) -> Result<(u64, FrameSize), CacheError> {
        let bad = |setting, reason: String| Err(CacheError::BadSetting(setting, reason));
        let Some(size) =
            FrameSize::new(self.block_bytes).filter(|_| self.block_bytes <= BLOCK_BYTES_MAX)
        else {
            return bad("block_bytes", "not a power of two from 4096 to 1 MiB".into());
        };
        let blocks = self.memory_bytes / self.block_bytes as u64;
        if !(8..=u64::from(u32::MAX) / 2).contains(&blocks) {
            return bad("memory_bytes", format!("{blocks} blocks are not in 8 to 2^31"));
        }
        if !(1..=65_534).contains(&self.tenants) {
            return bad("tenants", format!("{} is not in 1 to 65534", self.tenants));
        }
        if self.shadows_percent > 1000 {
            return bad("shadows_percent", format!("{} is over 1000", self.shadows_percent));
        }
        let (background, most) = (self.dirty_background_percent, self.dirty_max_percent);
        if !(1..=90).contains(&most) || background > most {
            return bad("dirty_percent", format!("{background} and {most}"));
        }
        Ok((blocks, size))
    }

    /// The cache. Its memory is taken from the machine when blocks come; with
    /// [`IoEngine::Uring`], at once, since it is registered with the kernel.
    ///
    /// # Errors
    ///
    /// [`CacheError::BadSetting`]; [`CacheError::Host`] if there is no memory;
    /// [`CacheError::Io`] if no thread can be started.
    pub fn build(self) -> Result<Cache, CacheError> {
        let (blocks, size) = self.check()?;
        // A cache uses all of its memory, so nothing is kept back.
        let arena = Arena::builder()
            .bytes((blocks * self.block_bytes as u64) as usize)
            .frame_size(size)
            .min_free(FrameCount::ZERO)
            .build()?;
        let arena = Arc::new(arena);
        let threads = thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let shards = self.shards.unwrap_or((16 * threads).max(64));
        let settings = LruSettings::default().groups(self.tenants + 1).policy(self.policy);
        let lru = arena.lru(&settings, Pool::new(&arena, blocks, shards))?;
        let engine = self.start_engine(&arena);
        let signal = Arc::new(Signal::default());
        let shared = Arc::new(Shared {
            lru,
            policy: self.policy,
            block_bytes: self.block_bytes,
            blocks,
            read_ahead_blocks: self.read_ahead_bytes / self.block_bytes,
            patience: self.wait.min(WAIT_MAX),
            dirty_background_percent: self.dirty_background_percent,
            dirty_max_percent: self.dirty_max_percent,
            shadows_percent: self.shadows_percent,
            direct: self.direct,
            threads,
            signal: Arc::clone(&signal),
            requests: Arc::default(),
            #[cfg(feature = "io-uring")]
            rings: engine.1,
            engine: engine.0,
            dirty: Arc::new(AtomicU64::new(0)),
            tenants: Mutex::default(),
            files: Mutex::default(),
        });
        background::start(Arc::downgrade(&shared), signal, self.write_back_every)?;
        if shared.read_ahead_blocks > 0 {
            read_on::start(Arc::downgrade(&shared), Arc::clone(&shared.requests))?;
        }
        Ok(Cache { shared })
    }

    #[cfg(feature = "io-uring")]
    fn start_engine(&self, arena: &Arc<Arena>) -> (EngineReport, Option<Arc<crate::io::Rings>>) {
        if self.engine != IoEngine::Uring {
            return (pread_engine(None), None);
        }
        match crate::io::Rings::start(arena) {
            Ok((rings, registered)) => {
                let report = EngineReport {
                    engine: IoEngine::Uring,
                    registered: registered.is_none(),
                    reason: registered,
                };
                (report, Some(Arc::new(rings)))
            }
            Err(error) => (pread_engine(Some(format!("no io_uring: {error}"))), None),
        }
    }

    #[cfg(not(feature = "io-uring"))]
    fn start_engine(&self, _arena: &Arc<Arena>) -> (EngineReport, ()) {
        let reason = "no io_uring: built without the feature `io-uring`";
        (pread_engine((self.engine == IoEngine::Uring).then(|| reason.into())), ())
    }
}

impl Cache {
    /// A builder.
    pub fn builder() -> CacheBuilder {
        CacheBuilder::new()
    }
}

/// The default engine, if no other was asked for.
fn pread_engine(reason: Option<String>) -> EngineReport {
    EngineReport { engine: IoEngine::Pread, registered: false, reason }
}
