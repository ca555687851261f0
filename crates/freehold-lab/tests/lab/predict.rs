//! `freehold predict` and `freehold race --machine` as a user runs them.

use serde_json::Value;

use crate::common::{json, succeeds};

fn figures(document: &Value, of: &str) -> Vec<Value> {
    document[of].as_array().expect("a list").clone()
}

#[test]
fn published_results_are_predicted_by_runs_that_a_user_can_type() {
    let document = json(&["predict", "local-lock", "--json"]);
    assert_eq!(document["schema"], "freehold.predict/1");
    let figures = figures(&document, "figures");
    assert_eq!(figures.len(), 2);
    for figure in &figures {
        let number = |name: &str| figure[name].as_f64().expect(name);
        assert!(number("predicted") > 0.0, "{figure}");
        let ratio = number("predicted") / number("published");
        assert!((number("ratio") - ratio).abs() < 1e-9, "{figure}");
    }
    // The last of them is a quotient of two runs; a user who types these gets the same.
    let typed = |run: &str| {
        let words: Vec<_> = ["run"].into_iter().chain(run.split(' ')).chain(["--json"]).collect();
        let result = json(&words)["results"][0].clone();
        let at = "/workload_specific/variants/0/steps/8/bulk_ns/median";
        result.pointer(at).and_then(Value::as_f64).expect(at)
    };
    let run = figures[1]["run"].as_str().expect("a run").to_owned();
    let before = run.replace("local", "irq").replace("relaxed", "exact");
    assert_eq!(figures[1]["predicted"], typed(&run) / typed(&before));
}

#[test]
fn the_page_names_sources_and_commands() {
    let page = succeeds(&["predict", "bulk", "--markdown"]);
    for part in ["# Predictions", "J. D. Brouer", "| time a page | 0.55x |", "freehold run bulk"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let list = succeeds(&["predict", "--list"]);
    assert!(list.lines().count() > 15 && list.contains("lazy-merging"), "{list}");
    let table = succeeds(&["predict", "bulk"]);
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let csv = succeeds(&["predict", "bulk", "--csv"]);
    assert!(csv.starts_with("name,source,machine,kernel,figure,unit,published,"), "{csv}");
}

#[test]
fn designs_race_on_simulated_machines() {
    let on = ["race", "fill", "remote", "huge", "--machine", "uma-2", "--cpus", "1,2"];
    let small = ["--frames", "512", "--contestants", "zone-lock,freehold"];
    let document = json(&[&on[..], &small, &["--json"]].concat());
    let results = figures(&document, "results");
    // `remote` takes two CPUs.
    assert_eq!(results.len(), 2 * (2 + 1 + 2));
    for result in &results {
        let specific = &result["workload_specific"];
        let number = |name: &str| specific[name].as_f64().expect(name);
        assert!((number("get_ns") + number("put_ns") - number("pair_ns")).abs() < 1e-9);
        let blocks = if specific["options"]["bench"] == "huge" { 1 } else { 512 };
        assert_eq!(result["work"]["count"], 2 * blocks * result["cpus"].as_u64().expect("CPUs"));
    }
    let text = succeeds(&[&on[..], &small].concat());
    assert!(text.contains("fill, memory 2x: ns a pair") && text.contains("a prediction"), "{text}");
}
