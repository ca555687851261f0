//! What all handles of a cache share: its settings, its tenants and its open files.

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;

use freehold_host::lru::{GroupId, LruError, LruPolicy};
use freehold_host::{FrameCount, HostLru};

use crate::error::CacheError;
use crate::file_state::FileState;
use crate::io::{EngineReport, FileStorage, Storage};
use crate::key::FILES_MAX;
use crate::pool::Pool;
use crate::read_on::Requests;
use crate::signal::Signal;
use crate::sync::{AtomicU64, Mutex};
use crate::tenant_state::{Limits, TenantState};

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
    pub(crate) requests: Arc<Requests>,
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

    pub(crate) fn add_tenant(
        &self,
        name: &str,
        limits: Limits,
    ) -> Result<Arc<TenantState>, CacheError> {
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

    pub(crate) fn add_file(
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

    pub(crate) fn storage_of(&self, file: File) -> Box<dyn Storage> {
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
        self.requests.stop();
    }
}
