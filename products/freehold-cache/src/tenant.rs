//! Tenants, as users have them.

use std::fmt;
use std::sync::Arc;

use crate::error::CacheError;
use crate::shared::Shared;
use crate::tenant_state::{Limits, TenantState};

/// A tenant of a cache, created by [`Cache::tenant`](crate::Cache::tenant). A handle: clones are
/// the same tenant, which lives as long as the cache.
#[derive(Clone)]
pub struct Tenant {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: Arc<TenantState>,
}

impl Tenant {
    /// The name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Changes the limits. A tenant that has more than its new limit evicts the excess when it next
    /// brings a block in.
    ///
    /// # Errors
    ///
    /// [`CacheError::BadSetting`] if the limit is less than a block.
    pub fn set_limits(&self, limits: Limits) -> Result<(), CacheError> {
        self.shared.set_limits(&self.state, limits)
    }
}

impl fmt::Debug for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenant").field("name", &self.state.name).finish_non_exhaustive()
    }
}
