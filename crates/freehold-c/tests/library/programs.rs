//! The examples, built with the system's compilers against an installed library: run as they are,
//! with sanitizers, and under valgrind. What a machine lacks is skipped, and said.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use tempfile::TempDir;

const SANITIZERS: &str = "-fsanitize=address,undefined";

fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Runs a command to its end. `None` if there is no such program.
fn output(command: &mut Command) -> Option<Output> {
    match command.stdin(Stdio::null()).output() {
        Ok(output) => Some(output),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => panic!("{command:?}: {error}"),
    }
}

/// Runs a command that must succeed, and returns what it printed.
fn succeed(command: &mut Command) -> String {
    let output = output(command).unwrap_or_else(|| panic!("{command:?}: no such program"));
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out
}

/// Says what is skipped, past what the test harness captures.
fn skip(what: &str, why: &str) {
    let line = format!("!! SKIPPED: {what}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).expect("stderr takes text");
}

fn has(program: &str) -> bool {
    let asked = Command::new(program).arg("--version").stdout(Stdio::null()).status();
    asked.is_ok_and(|status| status.success())
}

/// A variable of the environment, or what it is by default.
fn or_default(variable: &str, default: &str) -> String {
    env::var(variable).unwrap_or_else(|_| default.to_owned())
}

/// A compiler, if it is there.
struct Compiler {
    program: String,
    flags: &'static [&'static str],
}

fn compiler(source: &str) -> Option<Compiler> {
    const COMMON: &[&str] = &["-Wall", "-Wextra", "-Werror", "-pthread", "-g", "-O1"];
    let (variable, default, flags) = match Path::new(source).extension().and_then(OsStr::to_str) {
        Some("cpp") => ("CXX", "c++", "-std=c++17"),
        _ => ("CC", "cc", "-std=c11"),
    };
    let program = or_default(variable, default);
    if !has(&program) {
        skip(source, &format!("there is no `{program}`: install a compiler, or set {variable}"));
        return None;
    }
    let flags = [COMMON, &[flags]].concat().leak();
    Some(Compiler { program, flags })
}

/// Where cargo has put the libraries of this crate: beside the tests.
fn built(name: &str) -> PathBuf {
    let tests = env::current_exe().expect("tests know where they are");
    let path = tests.parent().expect("they lie in a folder").join(name);
    assert!(path.exists(), "{} was built with the tests", path.display());
    path
}

/// A library as `tools/install-c` installs it, once for all tests of this process.
struct Installed {
    prefix: PathBuf,
}

impl Installed {
    fn get() -> Option<&'static Self> {
        static INSTALLED: OnceLock<Option<Installed>> = OnceLock::new();
        INSTALLED.get_or_init(Installed::new).as_ref()
    }

    fn new() -> Option<Self> {
        let tool = crate_folder().join("../../tools/install-c");
        if !tool.exists() || !has(&or_default("CC", "cc")) {
            skip(
                "the installed library",
                "needs a checkout and a C compiler, `cc` or what CC says",
            );
            return None;
        }
        // Always the same folder, so that nothing is left behind but one copy in `target`.
        let prefix = built("").join("freehold-c-prefix");
        let _none = fs::remove_dir_all(&prefix);
        fs::create_dir_all(&prefix).expect("target can be written");
        let mut install = Command::new(tool);
        install.arg(&prefix).env("STATICLIB", built("libfreehold_c.a")).env_remove("DESTDIR");
        succeed(install.env_remove("LIBDIR"));
        Some(Installed { prefix })
    }

    fn lib(&self) -> PathBuf {
        self.prefix.join("lib")
    }

    /// What pkg-config tells compilers.
    fn flags(&self) -> Vec<String> {
        let mut ask = Command::new("pkg-config");
        ask.args(["--cflags", "--libs", "freehold"]);
        ask.env("PKG_CONFIG_PATH", self.lib().join("pkgconfig"));
        match output(&mut ask) {
            Some(output) => {
                assert!(output.status.success(), "pkg-config finds the library");
                let flags = String::from_utf8(output.stdout).expect("flags are text");
                flags.split_whitespace().map(str::to_owned).collect()
            }
            None => {
                skip("the pkg-config file", "there is no `pkg-config`: install it");
                let (prefix, lib) = (self.prefix.display(), self.lib());
                vec![
                    format!("-I{prefix}/include"),
                    format!("-L{}", lib.display()),
                    "-lfreehold".into(),
                ]
            }
        }
    }
}

/// Builds an example with further flags; returns the program.
fn build(
    compiler: &Compiler,
    source: &str,
    folder: &Path,
    name: &str,
    flags: &[String],
) -> PathBuf {
    let program = folder.join(name);
    let mut compile = Command::new(&compiler.program);
    compile.args(compiler.flags).arg("-o").arg(&program);
    compile.arg(crate_folder().join("examples").join(source)).args(flags);
    succeed(&mut compile);
    program
}

/// Builds and runs an example in every way. Its last word is `fine`.
fn run(source: &str) {
    let (Some(installed), Some(compiler)) = (Installed::get(), compiler(source)) else { return };
    let folder = TempDir::new().expect("there is room for a program");
    let mut flags = installed.flags();
    flags.push(format!("-Wl,-rpath,{}", installed.lib().display()));
    let plain = build(&compiler, source, folder.path(), "plain", &flags);
    let is_fine = |out: String| assert!(out.ends_with(": fine\n"), "{source}: {out}");
    is_fine(succeed(&mut Command::new(&plain)));

    let can_sanitize = {
        let mut probe = Command::new(&compiler.program);
        probe.args([SANITIZERS, "-x", "c++", "-o"]).arg(folder.path().join("probe"));
        probe.arg(crate_folder().join("tests/empty.c")).stderr(Stdio::null());
        probe.status().is_ok_and(|status| status.success())
    };
    if can_sanitize {
        flags.extend([SANITIZERS.into(), "-fno-sanitize-recover=all".into()]);
        let sanitized = build(&compiler, source, folder.path(), "sanitized", &flags);
        is_fine(succeed(&mut Command::new(sanitized)));
    } else {
        let why = format!("`{} {SANITIZERS}` does not link: install libasan", compiler.program);
        skip(&format!("{source} with AddressSanitizer"), &why);
    }

    if has("valgrind") {
        let mut valgrind = Command::new("valgrind");
        // What Rust's library keeps of a thread until that ends is "possibly lost", at the end of
        // the main thread as well.
        valgrind.args(["--quiet", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
        valgrind.args(["--show-leak-kinds=definite", "--error-exitcode=99"]);
        // One thread runs at a time. Without turns, one that spins keeps what it waits for from
        // running, for minutes.
        valgrind.arg("--fair-sched=try");
        is_fine(succeed(valgrind.arg(plain)));
    } else {
        skip(&format!("{source} under valgrind"), "there is no `valgrind`: install it");
    }
}

#[test]
fn a_c_program_uses_an_arena() {
    run("basic.c");
}

#[test]
fn a_c_program_does_everything_wrong() {
    run("misuse.c");
}

#[test]
fn a_c_program_has_threads() {
    run("threads.c");
}

#[test]
fn a_c_program_forks() {
    run("fork.c");
}

#[test]
fn a_c_program_has_memory_and_signals_of_its_own() {
    run("region.c");
}

#[test]
fn a_c_program_chooses_what_its_memory_is_made_of() {
    run("backing.c");
}

#[test]
fn a_cpp_program_has_containers_on_an_arena() {
    run("pmr.cpp");
}

#[test]
fn a_program_links_the_static_library() {
    let (Some(installed), Some(compiler)) = (Installed::get(), compiler("basic.c")) else { return };
    let folder = TempDir::new().expect("there is room for a program");
    let mut flags = vec![format!("-I{}", installed.prefix.join("include").display())];
    flags.push(installed.lib().join("libfreehold.a").display().to_string());
    let private = fs::read_to_string(installed.lib().join("pkgconfig/freehold.pc")).unwrap();
    let private = private.lines().find_map(|line| line.strip_prefix("Libs.private: "));
    flags.extend(private.expect("static programs need it").split(' ').map(str::to_owned));
    let program = build(&compiler, "basic.c", folder.path(), "static", &flags);
    assert!(succeed(&mut Command::new(program)).ends_with(": fine\n"));
}

/// The functions that the header declares.
fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(crate_folder().join("include/freehold.h")).unwrap();
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let code = header.lines().filter(|line| !line.starts_with([' ', '/', '#']));
    let names = code.filter_map(|line| {
        let before = line.split_once('(')?.0;
        let name = before.rsplit(|letter| !is_name(letter)).next()?;
        name.starts_with("freehold_").then(|| name.to_owned())
    });
    names.collect()
}

/// The lines that a tool of binutils prints about a library, or nothing without it.
fn listed(tool: &str, flags: &[&str], library: &Path) -> Option<String> {
    if !has(tool) {
        skip("the symbols", &format!("there is no `{tool}`: install binutils"));
        return None;
    }
    Some(succeed(Command::new(tool).args(flags).arg(library)))
}

#[test]
fn the_shared_library_exports_what_the_header_declares_and_its_version() {
    let Some(installed) = Installed::get() else { return };
    assert!(declared().len() > 25, "the functions were found: {:?}", declared());
    let minor = env!("CARGO_PKG_VERSION_MINOR");
    let abi = match env!("CARGO_PKG_VERSION_MAJOR") {
        "0" => format!("0.{minor}"),
        major => major.to_owned(),
    };
    let path = installed.lib().join("libfreehold.so");
    let flags = ["-D", "--defined-only", "--with-symbol-versions"];
    let Some(symbols) = listed("nm", &flags, &path) else { return };
    let version = format!("@@FREEHOLD_{abi}");
    let mut exported = BTreeSet::new();
    for name in symbols.lines().filter_map(|line| line.split(' ').next_back()) {
        if name == format!("FREEHOLD_{abi}") || name == format!("FREEHOLD_{abi}{version}") {
            continue;
        }
        let function = name.strip_suffix(version.as_str());
        exported.insert(function.unwrap_or_else(|| panic!("{name} has no version")).to_owned());
    }
    assert_eq!(exported, declared());
    // And what cargo builds, which cannot have versions.
    let cdylib = built("libfreehold_c.so");
    let symbols = listed("nm", &flags[..2], &cdylib).expect("there was one above");
    let exported: BTreeSet<_> =
        symbols.lines().filter_map(|line| line.split(' ').next_back()).map(str::to_owned).collect();
    assert_eq!(exported, declared());
    for library in [path, cdylib] {
        let Some(dynamic) = listed("readelf", &["-d", "-W"], &library) else { return };
        let soname = format!("Library soname: [libfreehold.so.{abi}]");
        assert!(dynamic.contains(&soname), "{}: {dynamic}", library.display());
    }
}

#[test]
fn packages_are_made_below_another_root() {
    let (Some(_), root) = (Installed::get(), TempDir::new().unwrap()) else { return };
    let mut install = Command::new(crate_folder().join("../../tools/install-c"));
    install.env("STATICLIB", built("libfreehold_c.a")).env("DESTDIR", root.path());
    succeed(install.env("LIBDIR", "/opt/freehold/lib64").arg("/opt/freehold"));
    let prefix = root.path().join("opt/freehold");
    assert!(prefix.join("include/freehold.h").exists());
    assert!(prefix.join("lib64/libfreehold.so").exists(), "links lead to the library");
    let text = fs::read_to_string(prefix.join("lib64/pkgconfig/freehold.pc")).unwrap();
    assert!(!text.contains(root.path().to_str().unwrap()), "{text}");
    assert!(text.contains("libdir=/opt/freehold/lib64\n"), "{text}");
}
