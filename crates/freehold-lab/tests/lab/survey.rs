//! `freehold survey`, as short as it can be.

use std::fs;

use freehold_sim::{Key, Spec};
use serde_json::Value;

use crate::common::succeeds;

#[test]
fn a_survey_leaves_a_page_its_figures_and_a_machine() {
    let folder = tempfile::tempdir().unwrap();
    let file = |kind: &str| folder.path().join("mine").with_extension(kind);
    let page = file("html");
    let printed = succeeds(&["survey", "--quick", "--report", page.to_str().unwrap()]);
    for line in printed.lines() {
        // What has a path in it may be longer.
        assert!(line.chars().count() <= 100 || line.starts_with("Written: "), "{line}");
    }
    let document: Value = serde_json::from_slice(&fs::read(file("json")).unwrap()).unwrap();
    assert_eq!(document["schema"], "freehold.survey/1");
    let machine = fs::read_to_string(file("toml")).unwrap();
    let spec = Spec::from_toml("mine.toml", &machine).unwrap();
    let costs = document["costs"].as_array().unwrap();
    for (key, name) in [(Key::L1Ns, "latency.l1_ns"), (Key::DramLocalNs, "latency.dram_local_ns")] {
        let cost = costs.iter().find(|cost| cost["key"] == name).unwrap();
        let median = cost["measured"]["median"].as_f64().unwrap();
        assert!(median > 0.0 && (spec.get(key) - median).abs() <= 0.06, "{name}: {cost}");
    }
    // All three machines have run the same.
    let advantages = document["advantages"].as_array().unwrap();
    for name in ["pair", "page-fault"] {
        let row = advantages.iter().find(|row| row["name"] == name && row["cpus"] == 1).unwrap();
        for kind in ["measured", "simulated_nearest", "simulated_with_measured_costs"] {
            assert!(row[kind].as_f64().unwrap() > 0.0, "{row}");
        }
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("latency.l1_ns") && page.contains("freehold.survey/1"));
    for text in [&page, &machine, &document.to_string()] {
        assert!(!text.contains(host.trim()) || host.trim() == "localhost", "{text}");
    }
}
