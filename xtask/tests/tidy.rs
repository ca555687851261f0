//! The invariants of absence: what must not be in the source, and where.

use std::fs;
use std::path::{Path, PathBuf};

/// Files that may contain `unsafe` code, by their paths from the root.
const UNSAFE_FILES: &str = include_str!("../unsafe_files.txt");

/// The allocator.
const CORE: &str = "crates/freehold/src";

/// What kernels build: the allocator, the designs after Linux, the LRU.
const NO_STD: [&str; 4] =
    [CORE, "crates/freehold-linux/src", "crates/freehold-llfree/src", "crates/freehold-lru/src"];

/// Where modules may use lower ones in the map: a design makes the public calls that only it has.
/// An exported macro is at the root.
const AGAINST_ORDER: &[(&str, &str)] =
    &[("designs/freehold/", "allocator"), ("memmap/zeroable.rs", "zeroable")];

/// One idea a file: longer files hold two.
const LINES_MAX: usize = 500;

const COLUMNS_MAX: usize = 100;

struct Source {
    path: String,
    text: String,
}

impl Source {
    /// The lines of code, without comments, with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line.split("//").next().unwrap_or_default()))
            .filter(|(_, line)| !line.trim().is_empty())
    }

    /// The lines of code outside unit tests, which are at the end of a file, or in a separate file
    /// `tests.rs`.
    fn product_code(&self) -> impl Iterator<Item = (usize, &str)> {
        let tests = self.text.lines().position(|line| line.starts_with("mod tests {"));
        let all_tests = self.path.ends_with("/tests.rs");
        let end = if all_tests { 0 } else { tests.unwrap_or(usize::MAX) };
        self.code().filter(move |(number, _)| *number <= end)
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn collect(folder: &Path, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the entry can be read").path();
        if path.is_dir() {
            // What a build leaves in a workspace of its own is no source.
            if !path.ends_with("target") {
                collect(&path, sources);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path).expect("the file is text");
            let path = path.strip_prefix(root()).expect("below the root").display().to_string();
            sources.push(Source { path, text });
        }
    }
}

fn sources() -> Vec<Source> {
    let mut sources = Vec::new();
    ["crates", "kernel", "products", "xtask"]
        .iter()
        .for_each(|folder| collect(&root().join(folder), &mut sources));
    assert!(sources.len() > 30, "the sources were found");
    sources
}

/// Fails with all violations at once.
fn expect_none(offences: Vec<String>) {
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

/// Lines of the product's code in `folder` that contain one of `words`.
fn offences(folder: &str, words: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| source.path.starts_with(folder)) {
        for (number, line) in source.product_code() {
            for word in words.iter().filter(|word| line.contains(*word)) {
                found.push(format!("{}:{number}: {word}", source.path));
            }
        }
    }
    found
}

#[test]
fn core_has_no_dependencies() {
    let manifest = fs::read_to_string(root().join("crates/freehold/Cargo.toml")).unwrap();
    assert!(!manifest.lines().any(|line| line.trim() == "[dependencies]"));
    assert!(!manifest.contains("[build-dependencies]"));
}

#[test]
fn core_has_no_std_no_heap_no_statics() {
    for folder in NO_STD {
        let lib = fs::read_to_string(root().join(folder).join("lib.rs")).unwrap();
        assert!(lib.lines().any(|line| line == "#![no_std]"), "{folder}");
    }
    let words = ["extern crate std", "extern crate alloc", "static ", "thread_local", "std::"];
    // A lifetime is not a static, and neither is a bound.
    let found = NO_STD.iter().flat_map(|folder| offences(&format!("{folder}/"), &words));
    let found = found.filter(|offence| {
        let (place, word) = offence.rsplit_once(": ").expect("made above");
        word != "static " || {
            let (path, number) = place.rsplit_once(':').expect("made above");
            let text = fs::read_to_string(root().join(path)).unwrap();
            let line = text.lines().nth(number.parse::<usize>().unwrap() - 1).unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            let after_pub = words.iter().find(|word| !word.starts_with("pub"));
            after_pub == Some(&"static")
        }
    });
    expect_none(found.collect());
}

#[test]
fn buddy_and_memmap_know_no_locks() {
    let folders = ["crates/freehold/src/memmap", "crates/freehold-linux/src/buddy"];
    let words = ["RawLock", ".lock()", "try_lock"];
    expect_none(folders.iter().flat_map(|folder| offences(folder, &words)).collect());
}

/// The lines of a crate in the map of `docs/architecture.md`: how far each is indented below the
/// crate, and the names that it begins with.
fn map_of(folder: &str) -> Vec<(usize, Vec<String>)> {
    let page = fs::read_to_string(root().join("docs/architecture.md")).unwrap();
    let head = format!("  {folder}/ ");
    let lines = page.lines().skip_while(|line| !line.starts_with(&head)).skip(1);
    let of_crate = lines.map_while(|line| line.strip_prefix("    "));
    let parts = of_crate.map(|line| {
        let text = line.trim_start();
        let names = text.split("  ").next().unwrap_or_default();
        (line.len() - text.len(), names.split(", ").map(str::to_owned).collect())
    });
    parts.collect()
}

/// The modules of the core in the order of the map.
fn modules_in_order() -> Vec<String> {
    let rooms = map_of("freehold").into_iter().filter(|(indent, _)| *indent == 0);
    rooms.flat_map(|(_, names)| names).collect()
}

/// The first words of what a text names after `crate::`.
fn used_of_crate(text: &str) -> Vec<&str> {
    let is_word = |letter: char| letter.is_alphanumeric() || letter == '_';
    let first_word = |text: &'_ str| text.find(|letter| !is_word(letter)).unwrap_or(text.len());
    let mut used = Vec::new();
    for rest in text.split("crate::").skip(1) {
        let names = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or_default(),
            None => &rest[..first_word(rest)],
        };
        used.extend(names.split(',').map(str::trim).map(|name| &name[..first_word(name)]));
    }
    used.retain(|name| !name.is_empty());
    used
}

#[test]
fn modules_of_the_core_use_those_above_them() {
    let order = modules_in_order();
    let place = |module: &str| order.iter().position(|other| other == module);
    assert!(
        place("units") < place("designs") && place("designs") < place("allocator"),
        "{order:?}"
    );
    // What the crate exports at its root, by the module that it comes from.
    let lib = fs::read_to_string(root().join(CORE).join("lib.rs")).unwrap();
    let shown = lib.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let shown: Vec<_> = shown.filter_map(|path| Some((path.split("::").next()?, path))).collect();
    let module_of = |name: &str| {
        let is_it = |word: &str| word == name;
        let split = |path: &str| path.split(|c: char| !c.is_alphanumeric()).any(is_it);
        shown.iter().find(|(_, path)| split(path)).map_or(name.to_owned(), |(of, _)| (*of).into())
    };
    let (mut found, mut seen) = (Vec::new(), 0);
    for source in sources() {
        let Some(path) = source.path.strip_prefix(CORE).map(|path| &path[1..]) else { continue };
        let module = path.split(['/', '.']).next().unwrap_or_default();
        if module == "lib" {
            continue;
        }
        let Some(own) = place(module) else {
            found.push(format!("{}: {module} is not in the map", source.path));
            continue;
        };
        let code: Vec<_> = source.product_code().map(|(_, line)| line).collect();
        for used in used_of_crate(&code.join("\n")) {
            let used = module_of(used);
            let may = AGAINST_ORDER.iter().any(|(of, it)| path.starts_with(of) && *it == used);
            seen += 1;
            if place(&used).is_none_or(|used| used > own) && !may {
                found.push(format!("{}: uses {used}", source.path));
            }
        }
    }
    assert!(seen > 300, "the imports were found");
    expect_none(found);
}

/// The files of the LRU in the order of the map, as paths of modules.
fn files_of_the_lru_in_order() -> Vec<String> {
    let (mut files, mut room) = (Vec::new(), String::new());
    for (indent, names) in map_of("freehold-lru") {
        match indent {
            0 => {
                room.clone_from(&names[0]);
                files.extend(names);
            }
            2 => {
                // What has files is a folder.
                files.retain(|file| *file != room);
                files.extend(names.iter().map(|name| format!("{room}::{name}")));
            }
            _ => {}
        }
    }
    files
}

#[test]
fn files_of_the_lru_use_those_above_them() {
    let order = files_of_the_lru_in_order();
    let place = |module: &str| order.iter().position(|other| other == module);
    let (mut found, mut seen) = (Vec::new(), 0);
    for source in sources() {
        let rest = source.path.strip_prefix("crates/freehold-lru/src/");
        let Some(module) = rest.and_then(|rest| rest.strip_suffix(".rs")) else { continue };
        // Those that declare modules.
        if module == "lib" || module.ends_with("/mod") || module == "tests" {
            continue;
        }
        let module = module.replace('/', "::");
        let Some(own) = place(&module) else {
            found.push(format!("{}: not in the map", source.path));
            continue;
        };
        let code: Vec<_> = source.product_code().map(|(_, line)| line).collect();
        let room = module.rsplit_once("::").map_or("", |(room, _)| room);
        let code = code.join("\n").replace("super::", &format!("crate::{room}::"));
        for used in code.split("crate::").skip(1) {
            let words: Vec<_> = used.split("::").take(2).collect();
            let used = place(&words.join("::")).or_else(|| place(words[0]));
            seen += 1;
            if used.is_none_or(|used| used >= own) {
                found.push(format!("{}: uses {}", source.path, words.join("::")));
            }
        }
    }
    assert!(seen > 200, "the imports were found: {seen}");
    expect_none(found);
}

/// The rooms of the flagship, from the lowest layer up.
const LAYERS: [&str; 4] = ["pageblocks", "zones", "caches", "contiguous"];

#[test]
fn layers_of_freehold_use_those_below_them() {
    let (mut found, mut seen) = (Vec::new(), [0; LAYERS.len()]);
    for source in sources() {
        let rest = source.path.strip_prefix("crates/freehold/src/designs/freehold/");
        let own = rest.and_then(|rest| LAYERS.iter().position(|layer| rest.starts_with(layer)));
        let Some(own) = own else { continue };
        for (number, line) in source.product_code() {
            let uses = |layer: &&str| {
                ["freehold::", "super::"].iter().any(|of| line.contains(&format!("{of}{layer}")))
            };
            seen[own] += usize::from(LAYERS[..=own].iter().any(&uses));
            if let Some(above) = LAYERS[own + 1..].iter().find(|layer| uses(layer)) {
                found.push(format!("{}:{number}: uses {above}", source.path));
            }
        }
    }
    assert!(seen[1..].iter().all(|&seen| seen > 0), "the imports were found: {seen:?}");
    expect_none(found);
}

#[test]
fn unsafe_code_is_confined_and_explained() {
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| source.path.contains("/src/")) {
        let named = UNSAFE_FILES.lines().any(|file| file == source.path);
        let uses = |line: &str| {
            ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| line.contains(word))
        };
        for (number, line) in source.code().filter(|(_, line)| uses(line)) {
            if !named {
                found.push(format!("{}:{number}: unsafe in an unnamed file: {line}", source.path));
            }
        }
        let sites = source.code().filter(|(_, line)| uses(line)).count();
        let reasons =
            source.text.matches("SAFETY:").count() + source.text.matches("# Safety").count();
        if sites > reasons {
            found.push(format!("{}: {sites} unsafe sites, {reasons} reasons", source.path));
        }
    }
    for file in UNSAFE_FILES.lines() {
        let text = fs::read_to_string(root().join(file)).expect("a named file exists");
        assert!(text.contains("unsafe"), "{file} is named, but has no unsafe code");
    }
    expect_none(found);
}

#[test]
fn files_are_short_and_narrow() {
    let mut found = Vec::new();
    for source in sources() {
        let lines = source.text.lines().count();
        if lines > LINES_MAX {
            found.push(format!("{}: {lines} lines", source.path));
        }
        for (number, line) in source.text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                found.push(format!("{}:{}: {columns} columns", source.path, number + 1));
            }
        }
    }
    expect_none(found);
}

#[test]
fn nothing_is_left_undone() {
    let words = ["todo!(", "unimplemented!(", "dbg!(", "#[ignore", "TODO", "FIXME", "XXX"];
    let mut found = Vec::new();
    for source in sources().iter().filter(|source| !source.path.ends_with("xtask/tests/tidy.rs")) {
        for (number, line) in source.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(*word)) {
                found.push(format!("{}:{}: {word}", source.path, number + 1));
            }
        }
    }
    expect_none(found);
}

#[test]
fn the_pages_that_the_readme_names_exist() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    // Of a link to a heading, the page.
    let exists = |link: &str| root().join(link.split('#').next().unwrap_or(link)).exists();
    let missing: Vec<_> = links.filter(|link| !exists(link)).map(str::to_owned).collect();
    expect_none(missing);
}
