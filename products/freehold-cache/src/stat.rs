//! What happened and what is cached, by tenant; and the text format of Prometheus.

use freehold_host::Metrics;

use crate::counters::Count;
use crate::shared::Shared;
use crate::tenant_state::TenantState;

/// The state of a cache at one moment. Counts of blocks, unless the name says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The size of a block in bytes.
    pub block_bytes: u64,
    /// The size of the cache.
    pub blocks: u64,
    /// Blocks of memory that are free.
    pub free: u64,
    /// The tenants, in the order of their creation.
    pub tenants: Vec<TenantStats>,
}

/// The state of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenantStats {
    /// Its name.
    pub name: String,
    /// Reads and writes that found their block.
    pub hits: u64,
    /// Reads and writes that brought their block in.
    pub misses: u64,
    /// Reads and writes that waited while another thread brought the block in. Together with
    /// `hits` and `misses`, all of them.
    pub coalesced: u64,
    /// Blocks that were read ahead of what was asked for.
    pub read_ahead: u64,
    /// Blocks that went to make room.
    pub evictions: u64,
    /// Writes of blocks to storage.
    pub written_back: u64,
    /// Reads of the storage that failed.
    pub read_errors: u64,
    /// Blocks whose write to storage failed.
    pub write_errors: u64,
    /// Blocks that were dropped with the last handle of their file although they were dirty.
    pub lost: u64,
    /// Evicted blocks that came back while they were remembered.
    pub refaults: u64,
    /// Blocks that it has now.
    pub cached: u64,
    /// Of these, blocks that are not on storage.
    pub dirty: u64,
    /// How many blocks it may have; `None` without a limit.
    pub max: Option<u64>,
    /// How many of them are protected.
    pub protected: u64,
}

impl CacheStats {
    pub(crate) fn of(shared: &Shared) -> Self {
        let tenants = shared.tenants.lock().clone();
        CacheStats {
            block_bytes: shared.block_bytes as u64,
            blocks: shared.blocks,
            free: shared.lru.owner().free(),
            tenants: tenants.iter().map(|tenant| TenantStats::of(shared, tenant)).collect(),
        }
    }

    /// The tenant of this name.
    pub fn tenant(&self, name: &str) -> Option<&TenantStats> {
        self.tenants.iter().find(|tenant| tenant.name == name)
    }

    /// Everything in the text format of Prometheus, version 0.0.4: the response of a `/metrics`
    /// endpoint, with the content type `text/plain; version=0.0.4`.
    pub fn prometheus(&self) -> String {
        type Of = fn(&TenantStats) -> Option<u64>;
        let counters: [(&str, &str, Of); 10] = [
            ("hits", "Accesses that found their block.", |of| Some(of.hits)),
            ("misses", "Accesses that brought their block in.", |of| Some(of.misses)),
            ("coalesced", "Accesses that waited for the read of another.", |of| Some(of.coalesced)),
            ("read_ahead", "Blocks read before they were asked for.", |of| Some(of.read_ahead)),
            ("evictions", "Blocks that went to make room.", |of| Some(of.evictions)),
            ("written_back", "Writes of blocks to storage.", |of| Some(of.written_back)),
            ("read_errors", "Reads of the storage that failed.", |of| Some(of.read_errors)),
            ("write_errors", "Blocks whose write failed.", |of| Some(of.write_errors)),
            ("lost", "Blocks dropped although they were dirty.", |of| Some(of.lost)),
            ("refaults", "Evicted blocks that came back soon.", |of| Some(of.refaults)),
        ];
        let gauges: [(&str, &str, Of); 4] = [
            ("cached_blocks", "Blocks in the cache.", |of| Some(of.cached)),
            ("dirty_blocks", "Blocks that are not on storage.", |of| Some(of.dirty)),
            ("max_blocks", "The limit, where there is one.", |of| of.max),
            ("protected_blocks", "Blocks that others cannot take.", |of| Some(of.protected)),
        ];
        let mut metrics = Metrics::new("freehold_cache_");
        for (some, kind, suffix) in
            [(&counters[..], "counter", "_total"), (&gauges[..], "gauge", "")]
        {
            for (name, help, of) in some {
                let values = self.tenants.iter().filter_map(|tenant| {
                    Some((Metrics::label("tenant", &tenant.name), of(tenant)?))
                });
                metrics.add(&format!("{name}{suffix}"), kind, help, values);
            }
        }
        let all = [
            ("blocks", "The size of the cache.", self.blocks),
            ("free_blocks", "Blocks of memory that are free.", self.free),
            ("block_bytes", "The size of a block.", self.block_bytes),
        ];
        for (name, help, value) in all {
            metrics.add(name, "gauge", help, [(String::new(), value)]);
        }
        metrics.into_text()
    }
}

impl TenantStats {
    fn of(shared: &Shared, tenant: &TenantState) -> Self {
        let sum = |count| tenant.counters.sum(count);
        // A tenant's group lives as long as the cache, except in the child of a fork.
        let group = shared.lru.group_stats(tenant.group).ok();
        TenantStats {
            name: tenant.name.clone(),
            hits: sum(Count::Hit),
            misses: sum(Count::Miss),
            coalesced: sum(Count::Coalesced),
            read_ahead: sum(Count::ReadAhead),
            evictions: sum(Count::Evicted),
            written_back: sum(Count::WrittenBack),
            read_errors: sum(Count::ReadError),
            write_errors: sum(Count::WriteError),
            lost: tenant.lost(),
            refaults: group.map_or(0, |group| group.refaulted),
            cached: tenant.cached(),
            dirty: tenant.dirty(),
            max: group.and_then(|group| group.max).map(|max| max.get()),
            protected: group.map_or(0, |group| group.low.get()),
        }
    }

    /// Of all accesses, the part that found its block or the read of another, from 0 to 1; 0
    /// without any access.
    pub fn hit_ratio(&self) -> f64 {
        let found = self.hits + self.coalesced;
        let all = found + self.misses;
        if all == 0 { 0.0 } else { found as f64 / all as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_labels_and_no_missing_values() {
        let limited = TenantStats { hits: 3, max: Some(9), ..TenantStats::default() };
        let tenants = vec![
            TenantStats { name: "a\"b".into(), ..limited },
            TenantStats { name: "free".into(), misses: 2, ..TenantStats::default() },
        ];
        let stats = CacheStats { blocks: 10, block_bytes: 4096, tenants, ..CacheStats::default() };
        let text = stats.prometheus();
        for line in [
            "freehold_cache_hits_total{tenant=\"a\\\"b\"} 3",
            "freehold_cache_misses_total{tenant=\"free\"} 2",
            "freehold_cache_max_blocks{tenant=\"a\\\"b\"} 9",
            "freehold_cache_blocks 10",
            "# TYPE freehold_cache_dirty_blocks gauge",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}: {text}");
        }
        assert!(!text.contains("freehold_cache_max_blocks{tenant=\"free\"}"));
        assert_eq!(stats.tenant("free").map(|of| of.hit_ratio()), Some(0.0));
    }
}
