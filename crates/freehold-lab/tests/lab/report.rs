//! `--report FILE.html`, opened in a real browser.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::common::{fails, succeeds};

/// What a browser says of a page: measured by a script that is added to a copy of it.
const PROBE: &str = r#"<script>
window.onerror = (message) => { document.title = "error: " + message; };
const figures = [...document.querySelectorAll("figure")].map((figure) => ({
  title: figure.dataset.title,
  bars: [...figure.querySelectorAll("svg rect")].map((bar) => bar.getBoundingClientRect().width),
  width: figure.querySelector("svg").getBoundingClientRect().width,
  text: getComputedStyle(figure.querySelector("svg text")).fill,
  numbers: [...figure.querySelectorAll("tbody td:last-child")].map((cell) => cell.textContent),
}));
const page = document.documentElement;
const probe = document.createElement("pre");
probe.id = "probe";
probe.textContent = JSON.stringify({ figures, scroll: page.scrollWidth, window: innerWidth,
  scripts: document.scripts.length, links: document.querySelectorAll("link, img, iframe").length,
  document: JSON.parse(document.getElementById("document").textContent).schema });
document.body.append(probe);
</script>"#;

/// A browser of this machine; says so loudly if there is none.
fn browser() -> Option<&'static str> {
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let found = names.into_iter().find(|name| Command::new(name).arg("--version").output().is_ok());
    if found.is_none() {
        eprintln!("SKIPPED, since there is no browser: pages are not looked at");
    }
    found
}

/// Opens a page in a window of this width.
fn probe(browser: &str, page: &Path, width: u32) -> Value {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let copy = folder.path().join("page.html");
    let text = fs::read_to_string(page).expect("the page is there");
    fs::write(&copy, text.replace("</body>", &format!("{PROBE}</body>"))).expect("a copy is made");
    let opened = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--window-size={width},2000"))
        .args(["--virtual-time-budget=2000", "--dump-dom"])
        .arg(format!("file://{}", copy.display()))
        .output()
        .expect("the browser starts");
    let dom = String::from_utf8_lossy(&opened.stdout).into_owned();
    assert!(!dom.contains("<title>error"), "{dom}");
    let start = dom.find("<pre id=\"probe\">").expect("the script has run") + 16;
    let end = dom[start..].find("</pre>").expect("it ends") + start;
    let text = dom[start..end].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).expect("it is JSON")
}

#[test]
fn a_page_is_as_its_numbers_are_on_a_phone_and_on_a_desk() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let page = folder.path().join("page.html");
    let figures = folder.path().join("figures");
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/compile.fht");
    let (page_name, figures_name, trace) =
        (page.display().to_string(), figures.display().to_string(), trace.display().to_string());
    let arguments = ["replay", &trace, "--machine", "uma-4", "--scale", "2", "--events", "9000"];
    let report = ["--set", "memory=512MiB", "--report", &page_name, "--figures", &figures_name];
    succeeds(&[&arguments[..], &report].concat());
    let svgs = fs::read_dir(&figures).expect("there are figures").count();
    assert_eq!(svgs, 2, "rates, and where the time goes");
    let text = fs::read_to_string(&page).expect("the page is there");
    for absent in ["<script", "src=", "href=", "url("] {
        assert!(!text.contains(absent), "{absent}: one file, without scripts");
    }
    assert!(text.contains("Ranking on uma-4") && text.contains("seed=1"));
    let Some(browser) = browser() else { return };
    for width in [500, 1400] {
        let seen = probe(browser, &page, width);
        assert_eq!((&seen["scripts"], &seen["links"]), (&1.into(), &0.into()), "only the probe's");
        assert_eq!(seen["document"], "freehold.compare/2");
        assert!(seen["scroll"].as_f64() <= seen["window"].as_f64(), "{width}: it must not scroll");
        let all = seen["figures"].as_array().expect("a list");
        assert_eq!(all.len(), svgs);
        let of = |title: &str| {
            let found = all.iter().find(|figure| figure["title"] == title);
            found.unwrap_or_else(|| panic!("there is no figure {title:?}"))
        };
        // The bars of seven designs are as long as their numbers.
        let rates = of("calls/s");
        let bars: Vec<f64> =
            rates["bars"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        let numbers: Vec<f64> = rates["numbers"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|number| number.as_str()?.parse().ok())
            .collect();
        assert_eq!((bars.len(), numbers.len()), (7, 7), "{rates}");
        let longest = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
        for (bar, number) in bars.iter().zip(&numbers) {
            let (bar, number) = (bar / longest(&bars), number / longest(&numbers));
            assert!((bar - number).abs() < 0.02, "a bar of {bar} for {number}");
        }
        for figure in all {
            assert!(figure["width"].as_f64() > Some(300.0), "{figure}");
            assert_ne!(figure["text"], "rgb(0, 0, 0)", "a colour of the page");
        }
    }
}

#[test]
fn a_page_that_cannot_be_written_is_named() {
    let arguments = ["run", "page-fault", "--machine", "uma-2", "--set", "task_bytes=1MiB"];
    let report = ["--set", "node_memory=64MiB", "--report", "/nonexistent/page.html"];
    let told = fails(&[&arguments[..], &report].concat(), 1);
    assert!(told.contains("/nonexistent/page.html: No such file"), "{told}");
}

#[test]
fn a_race_has_a_page() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let page = folder.path().join("page.html").display().to_string();
    let arguments = ["race", "fill", "--rounds", "2", "--frames", "512", "--sample-ms", "0"];
    let more = ["--contestants", "freehold,zone-lock,cluster", "--threads", "1", "--report", &page];
    succeeds(&[&arguments[..], &more].concat());
    let text = fs::read_to_string(&page).expect("the page is there");
    assert!(text.contains("fill: 1 thread, memory 16x"));
    let Some(browser) = browser() else { return };
    let seen = probe(browser, Path::new(&page), 1400);
    assert_eq!(seen["document"], "freehold.race/2");
    let figures = seen["figures"].as_array().expect("a list");
    assert_eq!(figures.len(), 2, "two sizes of memory");
    assert_eq!(figures[0]["bars"].as_array().map(Vec::len), Some(3));
}
