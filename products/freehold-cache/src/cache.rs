//! The cache: its tenants and its open files.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use freehold_host::lru::{GroupId, LruError, LruPolicy};
use freehold_host::{FrameCount, HostLru};

use crate::background::Signal;
use crate::builder::CacheBuilder;
use crate::error::CacheError;
use crate::file::CachedFile;
use crate::file_state::FileState;
use crate::io::{EngineReport, FileStorage, IoEngine, Storage};
use crate::pool::Pool;
use crate::slot::FILES_MAX;
use crate::stat::CacheStats;
use crate::sync::{AtomicU64, Mutex};
use crate::tenant::{Limits, Tenant, TenantState};

/// What all handles of a cache share.
pub(crate) struct Shared {
    pub(crate) lru: HostLru<Pool>,
    pub(crate) policy: LruPolicy,
    pub(crate) block_bytes: usize,
    /// The size of the cache, in blocks.
    pub(crate) blocks: u64,
    pub(crate) read_ahead_blocks: usize,
    /// How long a call waits for guards to be released that keep all blocks.
    pub(crate) patience: Duration,
    /// How much is dirty when it is written in the background, and how much may be: of all blocks,
    /// and of those that a tenant may have.
    pub(crate) dirty_background_percent: u64,
    pub(crate) dirty_max_percent: u64,
    pub(crate) shadows_percent: u64,
    pub(crate) direct: bool,
    pub(crate) threads: usize,
    pub(crate) signal: Arc<Signal>,
    pub(crate) engine: EngineReport,
    #[cfg(feature = "io-uring")]
    pub(crate) rings: Option<Arc<crate::io::Rings>>,
    pub(crate) dirty: Arc<AtomicU64>,
    pub(crate) tenants: Mutex<Vec<Arc<TenantState>>>,
    /// The open files, by their numbers.
    pub(crate) files: Mutex<Vec<Weak<FileState>>>,
}

impl Shared {
    /// How many blocks are dirty.
    pub(crate) fn dirty(&self) -> u64 {
        // Relaxed: a recent value will do.
        self.dirty.load(Relaxed)
    }

    pub(crate) fn open_files(&self) -> Vec<Arc<FileState>> {
        self.files.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// How many shadows are kept for a tenant: in proportion to what it may have.
    fn shadows_max(&self, max: Option<FrameCount>) -> u64 {
        self.blocks_max(max) * self.shadows_percent / 100
    }

    /// How many blocks a tenant may have.
    fn blocks_max(&self, max: Option<FrameCount>) -> u64 {
        max.map_or(self.blocks, |max| max.get().min(self.blocks))
    }

    pub(crate) fn set_limits(
        &self,
        tenant: &TenantState,
        limits: Limits,
    ) -> Result<(), CacheError> {
        let max = limits.max_blocks(self.block_bytes)?;
        let refused = |error: LruError| CacheError::BadSetting("limits", error.to_string());
        self.lru.set_max(tenant.group, max).map_err(refused)?;
        let protected = limits.protected_blocks(self.block_bytes);
        self.lru.set_low(tenant.group, protected).map_err(refused)?;
        tenant.set_max(self.shadows_max(max), self.blocks_max(max));
        Ok(())
    }

    fn add_tenant(&self, name: &str, limits: Limits) -> Result<Arc<TenantState>, CacheError> {
        // Before anything changes.
        let max = limits.max_blocks(self.block_bytes)?;
        let mut tenants = self.tenants.lock();
        if tenants.iter().any(|tenant| tenant.name == name) {
            return Err(CacheError::TenantExists(name.into()));
        }
        let group = self.lru.create_group(GroupId::ROOT, max);
        let group = group.map_err(|_| CacheError::TooManyTenants)?;
        let (shadows, dirty) = (self.shadows_max(max), Arc::clone(&self.dirty));
        let state = TenantState::new(name.into(), group, self.threads, shadows, dirty);
        self.set_limits(&state, limits)?;
        tenants.push(Arc::new(state));
        Ok(Arc::clone(&tenants[tenants.len() - 1]))
    }

    fn add_file(
        &self,
        tenant: &Arc<TenantState>,
        storage: Box<dyn Storage>,
        identity: Option<(u64, u64)>,
    ) -> Result<Arc<FileState>, CacheError> {
        let mut files = self.files.lock();
        let is_it = |file: &Arc<FileState>| file.identity == identity && !file.is_closed();
        if identity.is_some() && files.iter().filter_map(Weak::upgrade).any(|file| is_it(&file)) {
            return Err(CacheError::AlreadyOpen);
        }
        // Not that of a file that others still know: they would take its blocks for theirs.
        let free = files.iter().position(|file| file.strong_count() == 0);
        let number = free.unwrap_or(files.len());
        if number >= FILES_MAX {
            return Err(CacheError::BadSetting("files", format!("more than {FILES_MAX}")));
        }
        let tenant = Arc::clone(tenant);
        let file = FileState::new(number, storage, tenant, self.block_bytes, identity);
        let file = Arc::new(file);
        match free {
            Some(number) => files[number] = Arc::downgrade(&file),
            None => files.push(Arc::downgrade(&file)),
        }
        Ok(file)
    }

    fn storage_of(&self, file: File) -> Box<dyn Storage> {
        let storage = FileStorage::new(file);
        #[cfg(feature = "io-uring")]
        if let Some(rings) = &self.rings {
            return Box::new(crate::io::UringStorage::new(storage, Arc::clone(rings)));
        }
        Box::new(storage)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.signal.stop();
    }
}

/// A cache of blocks of files, for several tenants. A handle: clones are the same cache, which
/// lives as long as any of them, of its tenants or of its files.
#[derive(Clone)]
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
}

impl Cache {
    /// A builder.
    pub fn builder() -> CacheBuilder {
        CacheBuilder::new()
    }

    /// Adds a tenant, which lives as long as the cache.
    ///
    /// # Errors
    ///
    /// [`CacheError::TenantExists`], [`CacheError::TooManyTenants`], or
    /// [`CacheError::BadSetting`] if the limit is less than a block.
    pub fn tenant(&self, name: &str, limits: Limits) -> Result<Tenant, CacheError> {
        let state = self.shared.add_tenant(name, limits)?;
        Ok(Tenant { shared: Arc::clone(&self.shared), state })
    }

    /// Opens a file for reading and writing, and creates it if there is none, with `O_DIRECT` if
    /// the [builder](CacheBuilder::direct) says so. Its blocks are charged to the tenant.
    ///
    /// # Errors
    ///
    /// [`CacheError::Io`], or [`CacheError::AlreadyOpen`] if the file is open in this cache.
    pub fn open(&self, tenant: &Tenant, path: impl AsRef<Path>) -> Result<CachedFile, CacheError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        if self.shared.direct {
            options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
        }
        self.open_file(tenant, options.open(path)?)
    }

    /// As [`Cache::open`], for a file that is open: read-only, perhaps, in which case it is the
    /// write-back that fails.
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    pub fn open_file(&self, tenant: &Tenant, file: File) -> Result<CachedFile, CacheError> {
        let metadata = file.metadata()?;
        let identity = Some((metadata.dev(), metadata.ino()));
        let storage = self.shared.storage_of(file);
        self.open_as(tenant, storage, identity)
    }

    /// As [`Cache::open`], for storage of any other kind. Whether it is open already is for the
    /// caller to know.
    ///
    /// # Errors
    ///
    /// As [`Cache::open`].
    pub fn open_storage(
        &self,
        tenant: &Tenant,
        storage: Box<dyn Storage>,
    ) -> Result<CachedFile, CacheError> {
        self.open_as(tenant, storage, None)
    }

    fn open_as(
        &self,
        tenant: &Tenant,
        storage: Box<dyn Storage>,
        identity: Option<(u64, u64)>,
    ) -> Result<CachedFile, CacheError> {
        if !Arc::ptr_eq(&tenant.shared, &self.shared) {
            return Err(CacheError::BadSetting("tenant", "it is another cache's".into()));
        }
        let state = self.shared.add_file(&tenant.state, storage, identity)?;
        Ok(CachedFile::new(Arc::clone(&self.shared), state))
    }

    /// The size of a block in bytes.
    pub fn block_bytes(&self) -> usize {
        self.shared.block_bytes
    }

    /// How files are read and written, and why not otherwise.
    pub fn engine(&self) -> &EngineReport {
        &self.shared.engine
    }

    /// What happened so far, and what is cached now, by tenant.
    ///
    /// Cost: sums up a few counters for each tenant; takes the lock of the LRU's tree for each.
    pub fn stats(&self) -> CacheStats {
        CacheStats::of(&self.shared)
    }

    /// Checks the books: every frame is free, or in the index and on the LRU. For tests.
    ///
    /// # Errors
    ///
    /// What is wrong. Means nothing while calls are under way.
    #[doc(hidden)]
    pub fn validate(&self) -> Result<(), String> {
        let (lru, pool) = (&self.shared.lru, self.shared.lru.owner());
        lru.drain_all();
        let census = lru.validate().map_err(|violation| format!("{violation:?}"))?;
        let (cached, shadows) = pool.index.counts();
        let used = self.shared.blocks - pool.free();
        let shadows_max: u64 = self.shared.tenants.lock().iter().map(|t| t.shadows()).sum();
        if census.used.get() != cached as u64 || used != cached as u64 {
            let census = census.used.get();
            return Err(format!("{cached} blocks, {used} frames in use, {census} on the LRU"));
        }
        match shadows as u64 <= shadows_max {
            true => Ok(()),
            false => Err(format!("{shadows} shadows, of which {shadows_max} are known")),
        }
    }
}

/// The default engine, if no other was asked for.
pub(crate) fn pread_engine(reason: Option<String>) -> EngineReport {
    EngineReport { engine: IoEngine::Pread, registered: false, reason }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("blocks", &self.shared.blocks)
            .field("block_bytes", &self.shared.block_bytes)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;

    /// As the thread in the background knows a file while it writes others back.
    #[test]
    fn a_file_that_is_closed_opens_again_while_others_know_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let cache = Cache::builder().memory_bytes(16 << 12).build().unwrap();
        let tenant = cache.tenant("a", Limits::new()).unwrap();
        let file = cache.open(&tenant, &path).unwrap();
        file.write(Block(0)).unwrap()[0] = 1;
        let known = cache.shared.open_files();
        drop(file);
        let file = cache.open(&tenant, &path).unwrap();
        assert_eq!(file.read(Block(0)).unwrap()[0], 1);
        assert!(matches!(cache.open(&tenant, &path), Err(CacheError::AlreadyOpen)));
        // Or else a write-back of the one would take the blocks of the other for its own.
        let numbers: Vec<_> = cache.shared.open_files().iter().map(|file| file.number).collect();
        assert_eq!((known[0].number, numbers), (0, vec![0, 1]));
    }
}
