//! What shells and `man` are told of the command line.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{fails, stdout, succeeds};

/// The command that only freehold itself calls.
const HIDDEN: &str = "probe-peer";

/// The public commands, as `--help` lists them.
fn commands() -> Vec<String> {
    let help = succeeds(&["--help"]);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = lines.take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.split_whitespace().next()).map(str::to_owned);
    let names: Vec<_> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

#[test]
fn every_shell_completes_every_command_but_the_hidden_one() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let text = succeeds(&["completions", shell]);
        for command in commands() {
            assert!(text.contains(&command), "{shell}: {command}");
        }
        // The others complete names, not values.
        if ["bash", "fish", "zsh"].contains(&shell) {
            assert!(text.contains("try-lock"), "{shell}: the values of options");
        }
        assert!(!text.contains(HIDDEN), "{shell}");
    }
}

#[test]
fn bash_completes_what_a_user_types() {
    let mut script = succeeds(&["completions", "bash"]);
    script += "COMP_WORDS=(freehold di) COMP_CWORD=1\n_freehold freehold di freehold\n\
               echo \"${COMPREPLY[@]}\"\n";
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tests have bash");
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert_eq!(stdout(bash.wait_with_output().unwrap()), "diff\n");
}

#[test]
fn every_command_has_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("man1");
    assert_eq!(succeeds(&["man", "--output", folder.to_str().unwrap()]), "");
    let read = |page: &str| {
        let text = fs::read_to_string(folder.join(page));
        text.unwrap_or_else(|error| panic!("{page}: {error}"))
    };
    for command in commands() {
        let page = read(&format!("freehold-{command}.1"));
        assert!(page.contains(&format!(".TH freehold-{command} 1")), "{page}");
    }
    assert!(read("freehold-trace-info.1").contains("freehold trace info build.fht"));
    assert!(!folder.join(format!("freehold-{HIDDEN}.1")).exists());
    let own = succeeds(&["man"]);
    assert_eq!(own, read("freehold.1"));
    assert!(own.contains("freehold\\-diff(1)") && own.contains("Exit codes:"), "{own}");
    assert!(!own.contains("probe"), "{own}");

    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let stderr = fails(&["man", "--output", file.to_str().unwrap()], 2);
    assert!(stderr.contains("cannot write there") && stderr.contains("name a folder"), "{stderr}");
}
