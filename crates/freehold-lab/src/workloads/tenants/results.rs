//! What each sort of tenant got.

use anyhow::Result;
use serde_json::{Value, json};

use super::tenancy::{Sort, Tenancy};
use crate::report::document::{RunResult, number};
use crate::report::figure::{Figure, Level, Parts};
use crate::report::out;
use crate::report::summary::Quantiles;
use crate::report::table::Table;
use crate::report::waits::percent;

/// What one task has read.
#[derive(Default)]
pub(crate) struct Reads {
    /// Of blocks that were cached, and of others.
    pub(super) hits: u64,
    pub(super) misses: u64,
    /// Of the others, those of blocks that had been cached not long before.
    pub(super) refaults: u64,
    pub(super) elapsed_ns: u64,
    pub(super) latencies_ns: Vec<u32>,
}

impl Reads {
    pub(super) fn count(&self) -> u64 {
        self.hits + self.misses
    }

    pub(super) fn per_second(&self) -> f64 {
        self.count() as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// The figures of each sort of tenant.
pub(super) const SORTS: Parts = Parts {
    levels: &[Level { list: "/workload_specific/sorts", key: "sort", name: "sort" }],
    figures: &[
        Figure::gain("sort_hit_share", "/hit_share"),
        Figure::gain("worst_hit_share", "/worst_hit_share"),
        Figure::cost("read_p50_ns", "/latency/p50_ns"),
        Figure::cost("read_p99_ns", "/latency/p99_ns"),
        Figure::gain("tenant_per_second", "/tenant_per_second"),
    ],
};

/// What tenants with a set that their share holds find cached: they are the first of the sorts.
pub(super) const HOT_HIT_SHARE: Figure =
    Figure::gain("hot_hit_share", "/workload_specific/sorts/0/hit_share");

/// The share of reads that found their block cached; of all reads of these tasks.
pub(super) fn hit_share<'a>(of: impl Iterator<Item = &'a Reads> + Clone) -> f64 {
    let hits: u64 = of.clone().map(|reads| reads.hits).sum();
    hits as f64 / of.map(Reads::count).sum::<u64>().max(1) as f64
}

/// Sums up by sort what tasks have read, which work for the tenants in turns.
pub(super) fn by_sort(tenancy: &Tenancy, tasks: &[Reads]) -> Vec<Value> {
    let of_sort = |&sort: &Sort| {
        let tenants = (0..tenancy.tenants).filter(|&tenant| tenancy.sort(tenant) == sort);
        let tenants: Vec<_> = tenants.collect();
        let of_tenant = |tenant: usize| tasks.iter().skip(tenant).step_by(tenancy.tenants);
        let all = tenants.iter().flat_map(|&tenant| of_tenant(tenant));
        let worst = tenants.iter().map(|&tenant| hit_share(of_tenant(tenant)));
        let per_second: f64 = all.clone().map(Reads::per_second).sum();
        let latencies = all.clone().flat_map(|reads| &reads.latencies_ns);
        let fields = json!({
            "sort": sort.to_string(),
            "tenants": tenants.len(),
            "reads": all.clone().map(Reads::count).sum::<u64>(),
            "hits": all.clone().map(|reads| reads.hits).sum::<u64>(),
            "misses": all.clone().map(|reads| reads.misses).sum::<u64>(),
            "refaults": all.clone().map(|reads| reads.refaults).sum::<u64>(),
            "hit_share": hit_share(all.clone()),
            "worst_hit_share": worst.fold(1.0, f64::min),
            "latency": Quantiles::of(latencies.map(|&ns| u64::from(ns))),
            "tenant_per_second": per_second / tenants.len() as f64,
        });
        (!tenants.is_empty()).then_some(fields)
    };
    Sort::ALL.iter().filter_map(of_sort).collect()
}

/// The result of one sort of tenant, if there are any.
pub(super) fn sort_of<'r>(result: &'r RunResult, sort: &str) -> Option<&'r Value> {
    let sorts = result.workload_specific.get("sorts")?.as_array()?;
    sorts.iter().find(|of| of["sort"] == sort)
}

/// Prints the results of all sorts, a line for each.
pub(super) fn print_by_sort(results: &[RunResult]) -> Result<()> {
    let headings =
        ["design", "cpus", "tenants", "", "hits", "worst", "p50 ns", "p99 ns", "reads/s each"];
    let mut table = Table::new(headings).numbers_from(1);
    for result in results {
        for of in Sort::ALL.iter().filter_map(|sort| sort_of(result, &sort.to_string())) {
            let latency = |name| format!("{:.0}", number(of["latency"].get(name)));
            table.row([
                result.design.clone(),
                result.cpus.to_string(),
                of["tenants"].to_string(),
                of["sort"].as_str().unwrap_or_default().to_owned(),
                percent(number(of.get("hit_share"))),
                percent(number(of.get("worst_hit_share"))),
                latency("p50_ns"),
                latency("p99_ns"),
                format!("{:.0}", number(of.get("tenant_per_second"))),
            ]);
        }
    }
    out!("\n{table}");
    out!(
        "hot: reads a set that its share holds. scan: half of its reads, the others go through a \
         long file.\nnoisy: reads more than all memory holds, most of it once. hits: reads that \
         found their block cached;\nworst: those of the tenant with the fewest. p50, p99: of the \
         time of a read. each: of one tenant."
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(hits: u64, misses: u64, latencies_ns: Vec<u32>) -> Reads {
        Reads { hits, misses, refaults: 0, elapsed_ns: 1_000_000_000, latencies_ns }
    }

    #[test]
    fn tenants_are_summed_up_by_sort() {
        // A hot one, one that scans, and a noisy one; two tasks work for the first.
        let tenancy = Tenancy { tenants: 3, noisy: 1, share_frames: 64 };
        let tasks = [
            reads(8, 2, vec![5]),
            reads(1, 3, vec![6, 7]),
            reads(0, 9, vec![]),
            reads(10, 0, vec![1]),
        ];
        let sorts = by_sort(&tenancy, &tasks);
        let hot = &sorts[0];
        assert_eq!(
            (&hot["sort"], &hot["tenants"], &hot["reads"]),
            (&json!("hot"), &json!(1), &json!(20))
        );
        assert_eq!((&hot["hit_share"], &hot["worst_hit_share"]), (&json!(0.9), &json!(0.9)));
        assert_eq!(hot["latency"]["max_ns"], 5);
        assert_eq!(hot["tenant_per_second"], 20.0);
        assert_eq!((&sorts[1]["misses"], &sorts[2]["hit_share"]), (&json!(3), &json!(0.0)));
        let alone = Tenancy { tenants: 1, noisy: 0, ..tenancy };
        assert_eq!(by_sort(&alone, &tasks[..1]).len(), 1, "no tenant scans");
    }

    #[test]
    fn the_worst_tenant_is_named() {
        let tenancy = Tenancy { tenants: 3, noisy: 0, share_frames: 64 };
        let tasks = [reads(9, 1, vec![]), reads(0, 1, vec![]), reads(5, 5, vec![])];
        let sorts = by_sort(&tenancy, &tasks);
        assert_eq!(
            (&sorts[0]["hit_share"], &sorts[0]["worst_hit_share"]),
            (&json!(0.7), &json!(0.5))
        );
    }
}
