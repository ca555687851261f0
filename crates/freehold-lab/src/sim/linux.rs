//! What Linux costs where this library does something else, and which settings each of its versions
//! stands for.

use anyhow::Result;
use freehold::Setting;
use freehold_sim::LruCosts;

use crate::error::UsageError;
use crate::settings::{Assignments, setting};

/// The setting that chooses a version.
pub(crate) const KERNEL: Setting = setting("kernel", "none|4.16|5.8|6.12", "none")
    .means("what that Linux does and costs: other settings for lists, locks and LRU");

/// Settings of the LRU on simulated machines.
pub(crate) const LRU_SETTINGS: &[Setting] = &[
    setting("lru_record", "own|page", "own")
        .means("the LRU's record of a frame: 16 bytes of its own, or in struct page, of 64"),
    setting("lru_work_ns", "0..=1000", "0")
        .means("computation that comes with each access of the LRU's data"),
];

type Values = &'static [(&'static str, &'static str)];

/// The versions, and what each stands for. A setting that is given as well has the value given.
const VERSIONS: [(&str, [Values; 3]); 3] = [
    ("4.16", [LISTS_31, LRU_OF_NODES, COSTS]),
    ("5.8", [LISTS_63, LRU_OF_NODES, COSTS]),
    ("6.12", [LISTS_TUNED, LRU_OF_GROUPS, COSTS]),
];
const LISTS_31: Values = &[("pcp", "fixed"), ("locking", "irq"), ("counters", "exact")];
const LISTS_63: Values = &[
    ("pcp", "fixed"),
    ("batch", "63"),
    ("high", "378"),
    ("locking", "irq"),
    ("counters", "exact"),
];
const LISTS_TUNED: Values = &[("pcp", "auto"), ("locking", "local"), ("counters", "relaxed")];
const LRU_OF_NODES: Values = &[("lru", "node"), ("lru_batch", "15")];
const LRU_OF_GROUPS: Values = &[("lru", "group"), ("lru_batch", "31")];
const COSTS: Values = &[("lru_record", "page"), ("lru_work_ns", "0.2"), ("gather", "9690")];

/// The settings that a version stands for.
pub(crate) fn stands_for(
    version: &str,
) -> Result<impl Iterator<Item = (&'static str, &'static str)> + use<>> {
    let known = VERSIONS.into_iter().find(|(name, _)| *name == version).map(|(_, parts)| parts);
    let parts = match version {
        "none" => [&[][..]; 3],
        _ => known.ok_or_else(|| {
            let values = KERNEL.values;
            UsageError(format!("--set kernel={version}: the value must be {values}"))
        })?,
    };
    Ok(parts.into_iter().flatten().copied())
}

/// What the LRU costs besides its own.
pub(crate) fn lru_costs(given: &Assignments) -> Result<LruCosts> {
    let work_ps = given.parsed(LRU_SETTINGS, "lru_work_ns", |value| {
        let ns: f64 = value.parse().ok().filter(|ns| (0.0..=1000.0).contains(ns))?;
        Some((ns * 1000.0).round() as u64)
    })?;
    let in_page = given.word(LRU_SETTINGS, "lru_record", &[("own", false), ("page", true)])?;
    Ok(LruCosts { in_page, work_ps })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::WorkloadName;
    use crate::catalog::sim_settings;
    use crate::designs::{DesignName, SimDesign};
    use crate::matrix::tables;

    fn given(set: &[&str], design: DesignName) -> Result<Assignments> {
        let set: Vec<_> = set.iter().map(ToString::to_string).collect();
        let of_workload = sim_settings(WorkloadName::PageFault);
        Assignments::parse(&set, &tables(&[SimDesign::Real(design)], &of_workload))
    }

    #[test]
    fn a_version_stands_for_settings_that_others_override() {
        let linux = given(&["batch=7", "kernel=5.8"], DesignName::ZoneLock).unwrap();
        assert_eq!(linux.last("high"), Some("378"));
        assert_eq!(linux.last("batch"), Some("7"));
        assert_eq!(lru_costs(&linux).unwrap(), LruCosts { in_page: true, work_ps: 200 });
        // What this library costs stays as it is without.
        let none = given(&["kernel=none"], DesignName::ZoneLock).unwrap();
        assert_eq!(lru_costs(&none).unwrap(), LruCosts::default());
    }

    #[test]
    fn a_design_takes_what_it_has() {
        let linux = given(&["kernel=4.16"], DesignName::Freehold).unwrap();
        assert_eq!((linux.last("pcp"), linux.last("gather")), (None, Some("9690")));
        let error = given(&["kernel=2.4"], DesignName::Freehold).unwrap_err();
        assert!(error.to_string().contains("must be none|4.16|5.8|6.12"), "{error}");
    }
}
