//! `freehold sweep` as its users see it: documents, merging, going on, parts, mistakes, Slurm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{failed, freehold, stdout, succeeds};

/// A file of a sweep, in a folder of its own with a name that needs quotes.
struct Sweep {
    folder: tempfile::TempDir,
    file: PathBuf,
}

const GLOBAL: &str = "[global]\nmachine = 'uma-2'\nworkload = 'page-fault'\n\
                      set = { task_bytes = '1MiB', node_memory = '32MiB' }\n";

impl Sweep {
    fn new(runs: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("it's a ").tempdir().unwrap();
        let file = folder.path().join("some cells.toml");
        let sweep = Sweep { folder, file };
        sweep.rewrite(runs);
        sweep
    }

    fn rewrite(&self, runs: &str) {
        fs::write(&self.file, format!("{GLOBAL}{runs}")).unwrap();
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["sweep", self.file.to_str().unwrap()], more].concat()
    }

    fn run(&self, more: &[&str]) -> Output {
        freehold(&self.arguments(more))
    }

    fn start(&self, more: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_freehold"));
        let command = command.args(self.arguments(more)).stderr(Stdio::piped());
        command.stdout(Stdio::null()).spawn().expect("the binary starts")
    }

    fn results(&self) -> PathBuf {
        self.folder.path().join("some cells.results")
    }

    fn cell(&self, file: &str) -> PathBuf {
        self.results().join("cells").join(file)
    }

    fn merged(&self) -> Vec<u8> {
        fs::read(self.results().join("results.json")).expect("all cells are done")
    }

    /// The states of all cells, by name, in the order of the file.
    fn list(&self, more: &[&str]) -> Vec<(String, String)> {
        let document = stdout(self.run(&[&["--list", "--json"], more].concat()));
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
        let cells = document["cells"].as_array().unwrap().iter();
        cells.map(|cell| (text(&cell["name"]), text(&cell["state"]))).collect()
    }

    fn count(&self, state: &str) -> usize {
        self.list(&[]).iter().filter(|(_, of)| of == state).count()
    }
}

/// When the files of finished cells were written, by name.
fn written(folder: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
    let entries = fs::read_dir(folder.join("cells")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap().to_str().unwrap().ends_with(".record.json"));
    files.sort();
    let time = |path: PathBuf| (path.clone(), fs::metadata(path).unwrap().modified().unwrap());
    files.into_iter().map(time).collect()
}

#[test]
fn a_cell_has_the_document_that_run_prints_and_its_place_in_all_results() {
    let sweep = Sweep::new("[[run]]\ndesign = ['zone-lock', 'freehold']\ncpus = [2, 1]\n");
    let text = stdout(sweep.run(&[]));
    assert!(text.starts_with("4 cells: 0 were done, 4 ran\nAll results are in "), "{text}");
    let settings = ["--set", "task_bytes=1MiB", "--set", "node_memory=32MiB"];
    let mut expected = Vec::new();
    for design in ["zone-lock", "freehold"] {
        for cpus in ["2", "1"] {
            let of_cell = ["--design", design, "--cpus", cpus, "--machine", "uma-2", "--json"];
            let direct = freehold(&[&["run", "page-fault"], &of_cell[..], &settings].concat());
            let file = format!(
                "page-fault+{design}+uma-2+cpus={cpus}+seed=1+node_memory=32MiB+task_bytes=1MiB"
            );
            let kept = fs::read(sweep.cell(&format!("{file}.json"))).unwrap();
            assert!(kept == direct.stdout, "{file}");
            let mut direct: serde_json::Value = serde_json::from_slice(&kept).unwrap();
            let mut result = serde_json::json!({"cell": file.replace('+', "/")});
            let fields = direct["results"][0].as_object_mut().unwrap();
            result.as_object_mut().unwrap().append(fields);
            expected.push(result);
        }
    }
    let merged: serde_json::Value = serde_json::from_slice(&sweep.merged()).unwrap();
    assert_eq!(merged, serde_json::json!({"schema": "freehold.run/1", "results": expected}));
    let path = sweep.results().join("results.json");
    let stat = ["stat", path.to_str().unwrap(), "--design", "zone-lock", "--show", "vmstat"];
    assert_eq!(succeeds(&stat).matches("zone-lock, page-fault on uma-2").count(), 2);
    let manifest = fs::read(sweep.results().join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_slice(&manifest).unwrap();
    assert_eq!(manifest["cells"].as_array().unwrap().len(), 4);
}

/// As many cells as take longer than it takes to notice that a few are done.
fn many() -> String {
    let seeds: Vec<_> = (1..=60).map(|seed| seed.to_string()).collect();
    format!("[[run]]\nset.task_bytes = '4MiB'\nseed = [{}]\n", seeds.join(", "))
}

/// Waits until some cells are done.
fn wait_for_some(sweep: &Sweep) {
    let began = Instant::now();
    let some = || fs::read_dir(sweep.results().join("cells")).is_ok_and(|dir| dir.count() > 6);
    while !some() {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is done");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn after_a_kill_the_rest_runs_and_the_results_are_the_same() {
    let direct = Sweep::new(&many());
    stdout(direct.run(&["--jobs", "2"]));
    let sweep = Sweep::new(&many());
    let mut child = sweep.start(&["--jobs", "1"]);
    wait_for_some(&sweep);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = written(&sweep.results());
    let done = sweep.count("done");
    assert!((1..60).contains(&done), "it was killed in the middle: {done}");
    assert!(!sweep.results().join("results.json").exists());
    let text = stdout(sweep.run(&["--jobs", "3"]));
    assert!(text.starts_with(&format!("60 cells: {done} were done, ")), "{text}");
    let after = written(&sweep.results());
    assert!(before.iter().all(|file| after.contains(file)), "what was done stays as it is");
    assert!(sweep.merged() == direct.merged());
}

#[test]
fn ctrl_c_abandons_what_is_in_progress_and_leaves_nothing_half_written() {
    let sweep = Sweep::new(&many());
    let child = sweep.start(&["--jobs", "2"]);
    wait_for_some(&sweep);
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(kill.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(failed(&output, 130), "error: interrupted; the same command goes on from here\n");
    let done = sweep.count("done");
    assert!((1..60).contains(&done), "{done}");
    let files = fs::read_dir(sweep.results().join("cells")).unwrap();
    let files = files.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.filter(|file| file.starts_with("page-fault+")).count(), 2 * done);
    let left = fs::read_dir(sweep.results().join("cells")).unwrap().count();
    assert_eq!(left, 2 * done, "no temporary files");
}

#[test]
fn a_document_that_was_damaged_is_made_again() {
    let sweep = Sweep::new("[[run]]\nseed = [1, 2]\n");
    stdout(sweep.run(&[]));
    let whole = sweep.merged();
    let [one, two] = [0, 1].map(|nth| sweep.list(&[])[nth].0.replace('/', "+"));
    let document = sweep.cell(&format!("{one}.json"));
    fs::write(&document, &fs::read(&document).unwrap()[..900]).unwrap();
    assert_eq!((sweep.count("missing"), sweep.count("done")), (1, 1));
    fs::remove_file(sweep.cell(&format!("{two}.record.json"))).unwrap();
    let refused = failed(&sweep.run(&["--merge"]), 1);
    assert!(refused.contains("2 of 2 cells are not done, such as page-fault/"), "{refused}");
    assert!(stdout(sweep.run(&[])).starts_with("2 cells: 0 were done, 2 ran\n"));
    assert!(sweep.merged() == whole);
}

#[test]
fn the_parts_of_a_campaign_are_all_of_it_and_stay_when_it_grows() {
    let sweep = Sweep::new("[[run]]\nseed = [1, 2, 3, 4, 5, 6, 7, 8]\n");
    let parts = |sweep: &Sweep| {
        let names = |part: &str| -> Vec<_> {
            sweep.list(&["--shard", part]).into_iter().map(|(name, _)| name).collect()
        };
        ["0/3", "1/3", "2/3"].map(names)
    };
    let of_eight = parts(&sweep);
    let mut all = of_eight.concat();
    let mut expected: Vec<_> = sweep.list(&[]).into_iter().map(|(name, _)| name).collect();
    all.sort();
    expected.sort();
    assert_eq!(all, expected);
    assert!(of_eight.iter().all(|part| part.len() < 8), "{of_eight:?}");
    for (part, cells) in ["0/3", "1/3"].iter().zip(&of_eight) {
        let text = stdout(sweep.run(&["--shard", part]));
        let begin = format!("{} of 8 cells: 0 were done, {0} ran\n", cells.len());
        assert!(text.starts_with(&begin), "{text}");
        assert!(text.ends_with("not all cells of the file are done\n"), "{text}");
    }
    stdout(sweep.run(&["--shard", "2/3"]));
    let in_parts = sweep.merged();
    fs::remove_file(sweep.results().join("results.json")).unwrap();
    assert!(stdout(sweep.run(&["--merge"])).starts_with("8 cells: 8 were done, 0 ran\n"));
    assert!(sweep.merged() == in_parts);
    let whole = Sweep::new("[[run]]\nseed = [1, 2, 3, 4, 5, 6, 7, 8]\n");
    stdout(whole.run(&["--output", whole.results().to_str().unwrap()]));
    assert!(whole.merged() == in_parts);

    sweep.rewrite("[[run]]\nseed = [9, 10]\n[[run]]\nseed = [8, 7, 6, 5, 4, 3, 2, 1]\n");
    for (before, after) in of_eight.iter().zip(parts(&sweep)) {
        assert!(before.iter().all(|name| after.contains(name)), "no cell moves");
    }
    assert_eq!((sweep.count("done"), sweep.count("missing")), (8, 2));
    stdout(sweep.run(&["--cell", "*/seed=9/*"]));
    let results = sweep.results().join("results.json");
    assert!(!results.exists(), "results without all cells are taken away");
    assert!(stdout(sweep.run(&[])).starts_with("10 cells: 9 were done, 1 ran\n"));
    assert!(results.exists());
}

#[test]
fn a_cell_whose_definition_changed_is_refused_unless_forced() {
    let sweep = Sweep::new("[[run]]\nmachine = 'my.toml'\n[[run]]\nseed = 3\n");
    let machine = sweep.folder.path().join("my.toml");
    let figures = |ns: u32| format!("base = 'uma-2'\nname = 'my'\n[latency]\nl2_ns = {ns}\n");
    fs::write(&machine, figures(5)).unwrap();
    stdout(sweep.run(&[]));
    let (before, times) = (sweep.merged(), written(&sweep.results()));
    fs::write(&machine, figures(9)).unwrap();
    let refused = failed(&sweep.run(&[]), 2);
    let expected = "error: page-fault/freehold/my/cpus=2/seed=1/node_memory=32MiB/task_bytes=1MiB: \
                    its definition has changed since it was done: add --force to run such cells \
                    again, or name another folder with --output\n";
    assert_eq!(refused, expected);
    assert!(failed(&sweep.run(&["--merge"]), 1).contains(", which is changed: run `"));
    assert_eq!((sweep.count("changed"), sweep.count("done")), (1, 1));
    assert!(sweep.merged() == before, "nothing was touched");
    stdout(sweep.run(&["--cell", "*/seed=3/*"]));
    assert!(stdout(sweep.run(&["--force"])).starts_with("2 cells: 1 were done, 1 ran\n"));
    assert!(sweep.merged() != before);
    let again = written(&sweep.results());
    assert_eq!(times.iter().filter(|file| again.contains(file)).count(), 1);
}

#[test]
fn a_cell_that_fails_does_not_stop_the_others() {
    let sweep = Sweep::new("");
    let text = "[global]\nworkload = 'page-fault'\n[[run]]\ncpus = 1\nset.task_bytes = '1PiB'\n\
                [[run]]\nmachine = 'uma-2'\nset = { task_bytes = '1MiB', node_memory = '32MiB' }\n";
    fs::write(&sweep.file, text).unwrap();
    let output = sweep.run(&[]);
    assert_eq!(failed(&output, 1), "error: 1 of 2 cells failed\n");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("failed  page-fault/freehold/host/cpus=1/seed=1/"), "{text}");
    assert!(text.contains("lower --cpus or --set task_bytes"), "{text}");
    assert!(text.contains("\n2 cells: 0 were done, 2 ran\nNo results.json yet"), "{text}");
    assert_eq!((sweep.count("failed"), sweep.count("done")), (1, 1));
    let again = String::from_utf8(sweep.run(&[]).stdout).unwrap();
    assert!(again.contains("\n2 cells: 1 were done, 1 ran\n"), "it is tried again: {again}");
}

#[test]
fn patterns_choose_cells_and_a_pattern_without_cells_is_a_mistake() {
    let sweep = Sweep::new("[[run]]\ndesign = ['cluster', 'freehold']\nseed = [1, 2]\n");
    let chosen = sweep.list(&["--cell", "*/cluster/*/seed=2/*", "--cell", "*/freehold/*/seed=1*"]);
    assert_eq!(chosen.len(), 2);
    let refused = failed(&sweep.run(&["--cell", "page-fault/custer/*"]), 2);
    assert!(refused.contains("no such cell; did you mean 'page-fault/cluster/"), "{refused}");
    let text = stdout(sweep.run(&["--cell", "*/seed=1/*"]));
    assert!(text.starts_with("2 of 4 cells: 0 were done, 2 ran\n"), "{text}");
    let text = stdout(sweep.run(&["--list"]));
    assert!(text.starts_with("done     page-fault/cluster/uma-2/cpus=2/seed=1/"), "{text}");
    assert!(text.ends_with("2 of 4 cells are done\n"), "{text}");
}

#[test]
fn mistakes_in_a_file_name_file_line_and_key_before_anything_runs() {
    let sweep = Sweep::new("[[run]]\nseed = 1\n[[run]]\nseed = 2\ncpus = [1,\n3]\n");
    let file = sweep.file.display();
    assert_eq!(failed(&sweep.run(&[]), 2), format!("error: {file}:10: cpus 3: uma-2 has 2 CPUs\n"));
    assert!(!sweep.results().exists(), "nothing ran");
    sweep.rewrite("[[run]]\nsed = 1\n");
    let expected = format!("error: {file}:6: unknown key `sed`, did you mean `seed`?\n");
    assert_eq!(failed(&sweep.run(&["--list"]), 2), expected);
    let missing = failed(&freehold(&["sweep", "no/such.toml"]), 2);
    assert!(missing.starts_with("error: cannot read no/such.toml: "), "{missing}");
}

#[test]
fn cells_on_this_host_run_too() {
    let small = "set = { task_bytes = '1MiB', samples = 2, sample_ms = 5 }\n";
    let sweep = Sweep::new("");
    let run = format!("[[run]]\nworkload = 'page-fault'\ncpus = 1\nseed = [1, 2]\n{small}");
    fs::write(&sweep.file, run).unwrap();
    stdout(sweep.run(&["--jobs", "8"]));
    let merged: serde_json::Value = serde_json::from_slice(&sweep.merged()).unwrap();
    let results = merged["results"].as_array().unwrap();
    assert_eq!((results.len(), &results[0]["machine"]), (2, &"host".into()));
}

#[test]
fn a_script_for_slurm_runs_what_is_missing_in_parts() {
    let sweep = Sweep::new("[[run]]\nseed = [1, 2, 3, 4, 5, 6]\n");
    let script = || stdout(sweep.run(&["--slurm", "4"]));
    let tasks = |script: &str| -> Vec<String> {
        let line = script.lines().find_map(|line| line.strip_prefix("#SBATCH --array=")).unwrap();
        line.split(',').map(str::to_owned).collect()
    };
    let run = |script: &str, task: &str| {
        let mut bash = Command::new("bash");
        stdout(bash.args(["-c", script]).env("SLURM_ARRAY_TASK_ID", task).output().unwrap())
    };
    let first = script();
    assert!(!sweep.results().exists(), "nothing is written");
    assert!(!first.contains("--exclusive"), "{first}");
    // All tasks but one, as if that one had been killed.
    let all = tasks(&first);
    all[1..].iter().for_each(|task| drop(run(&first, task)));
    let missing = sweep.count("missing");
    assert!((1..6).contains(&missing), "{missing}");
    let rest = script();
    assert_eq!(tasks(&rest), all[..1]);
    assert!(run(&rest, &all[0]).contains("\nAll results are in "));
    let whole = Sweep::new("[[run]]\nseed = [1, 2, 3, 4, 5, 6]\n");
    stdout(whole.run(&[]));
    assert!(sweep.merged() == whole.merged());
    let refused = failed(&sweep.run(&["--slurm", "4"]), 1);
    assert_eq!(refused, "error: all 6 cells are done: there is nothing to submit\n");
}

/// A recording on several designs and scales, with a page of the results.
#[test]
fn recordings_are_cells_as_well() {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/traces/compile.fht");
    let sweep = Sweep::new("");
    fs::copy(trace, sweep.folder.path().join("a compile.fht")).unwrap();
    let runs = "[global]\nmachine = 'uma-4'\n[[run]]\nworkload = 'replay'\n\
                trace = 'a compile.fht'\nscale = [1, 2]\ndesign = ['freehold', 'cluster']\n\
                set.memory = '512MiB'\n[[run]]\nworkload = 'page-fault'\ncpus = 2\n\
                set = { task_bytes = '1MiB', node_memory = '32MiB' }\n";
    fs::write(&sweep.file, runs).unwrap();
    let page = sweep.folder.path().join("page.html");
    let told = stdout(sweep.run(&["--report", page.to_str().unwrap()]));
    assert!(told.contains("5 cells: 0 were done, 5 ran"), "{told}");
    let list = stdout(sweep.run(&["--list"]));
    let name = "replay/cluster/uma-4/cpus=4/seed=1/trace=a%20compile.fht/scale=2/memory=512MiB";
    assert!(list.contains(name), "{list}");
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.contains("replay on uma-4 (replayed, simulated)"), "a section for each workload");
    assert!(text.contains("page-fault on uma-4 (simulated)"));
    assert!(text.contains("cluster, 4"), "what sets two results apart");
    assert!(
        text.contains("Scaling: calls/s") && text.contains("ideal"),
        "over the numbers of CPUs"
    );
    for (from, to, error) in [
        ("trace = 'a compile.fht'\n", "", ":4: trace is missing"),
        ("a compile.fht", "none.fht", ":5: trace: "),
        ("[1, 2]", "[1, 3]", ":6: cpus 6: uma-4 has 4 CPUs"),
    ] {
        fs::write(&sweep.file, runs.replace(from, to)).unwrap();
        let output = sweep.run(&["--list"]);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(error), "{text}");
    }
}
