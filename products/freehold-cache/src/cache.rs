//! The cache, as users have it.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use crate::error::CacheError;
use crate::file::CachedFile;
use crate::io::{EngineReport, Storage};
use crate::shared::Shared;
use crate::stat::CacheStats;
use crate::tenant::Tenant;
use crate::tenant_state::Limits;

/// A cache of blocks of files, for several tenants. A handle: clones are the same cache, which
/// lives as long as any of them, of its tenants or of its files.
#[derive(Clone)]
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
}

impl Cache {
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
    /// the [builder](crate::CacheBuilder::direct) says so. Its blocks are charged to the tenant.
    ///
    /// # Errors
    ///
    /// [`CacheError::Open`], also for what is neither a regular file nor a block device; or
    /// [`CacheError::AlreadyOpen`] if the file is open in this cache.
    pub fn open(&self, tenant: &Tenant, path: impl AsRef<Path>) -> Result<CachedFile, CacheError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        if self.shared.direct {
            options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32);
        }
        let path = path.as_ref();
        let opened = options.open(path).and_then(|file| Ok((identity_of(&file)?, file)));
        let (identity, file) = opened.map_err(|error| CacheError::Open(path.into(), error))?;
        self.open_as(tenant, self.shared.storage_of(file), Some(identity))
    }

    /// As [`Cache::open`], for a file that is open: read-only, perhaps, in which case it is the
    /// write-back that fails.
    ///
    /// # Errors
    ///
    /// As [`Cache::open`], but [`CacheError::Io`] for a file that is none.
    pub fn open_file(&self, tenant: &Tenant, file: File) -> Result<CachedFile, CacheError> {
        let identity = Some(identity_of(&file)?);
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
        // What the cache itself has under way ends first, and no more begins.
        let files = self.shared.open_files();
        let _idle: Vec<_> = files.iter().map(|file| file.pieces.lock()).collect();
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

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache")
            .field("blocks", &self.shared.blocks)
            .field("block_bytes", &self.shared.block_bytes)
            .finish_non_exhaustive()
    }
}

/// What tells a file from others: its device and its number there.
///
/// # Errors
///
/// Those of `fstat`, and [`io::ErrorKind::InvalidInput`] for a pipe, a terminal and the like.
fn identity_of(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    let kind = metadata.file_type();
    if kind.is_file() || kind.is_block_device() {
        return Ok((metadata.dev(), metadata.ino()));
    }
    let problem = "neither a regular file nor a block device, which alone have blocks";
    Err(io::Error::new(io::ErrorKind::InvalidInput, problem))
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

    #[test]
    fn what_has_no_blocks_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::builder().memory_bytes(16 << 12).build().unwrap();
        let tenant = cache.tenant("a", Limits::new()).unwrap();
        let missing = folder.path().join("missing/file");
        for path in [folder.path(), Path::new("/dev/null"), &missing] {
            let error = cache.open(&tenant, path).map(drop).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{}: ", path.display())), "{error}");
        }
        let null = File::open("/dev/null").unwrap();
        let error = cache.open_file(&tenant, null).map(drop).unwrap_err().to_string();
        assert!(error.contains("neither a regular file nor a block device"), "{error}");
    }
}
