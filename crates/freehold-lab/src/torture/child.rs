//! A process that plays a batch, for at most some time.

use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// How soon an end is noticed.
const GLANCE: Duration = Duration::from_millis(20);

/// How a process ended.
#[derive(Debug)]
pub(super) enum End {
    /// All seeds passed: the document of `freehold check`.
    Passed(Value),
    /// A seed failed: what the process said.
    Failed(String),
    /// It was ended by a signal, or in another way that is none of its exit codes: what it said.
    Crashed(String),
    /// It took too long.
    TimedOut,
    /// This run was interrupted.
    Interrupted,
}

/// Runs `program` until it ends, the time is over, or `stop` is set.
pub(super) fn run(
    program: &Path,
    arguments: &[String],
    time_max: Duration,
    stop: &AtomicBool,
) -> End {
    let child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Signals of a terminal are for this process, which ends the others.
        .process_group(0)
        .spawn();
    match child {
        Ok(child) => wait(child, time_max, stop),
        Err(error) => End::Crashed(format!("it did not start: {error}")),
    }
}

fn wait(mut child: Child, time_max: Duration, stop: &AtomicBool) -> End {
    // Read by threads, so that a full pipe stops nothing.
    let stdout = child.stdout.take().map(|pipe| thread::spawn(move || text_of(pipe)));
    let stderr = child.stderr.take().map(|pipe| thread::spawn(move || text_of(pipe)));
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) => {}
            Err(error) => return End::Crashed(format!("it cannot be waited for: {error}")),
        }
        // Relaxed: it only says when to end.
        let end = match () {
            () if stop.load(Relaxed) => Some(End::Interrupted),
            () if began.elapsed() > time_max => Some(End::TimedOut),
            () => None,
        };
        if let Some(end) = end {
            // It may have ended by itself just now.
            let _ended = child.kill();
            let _status = child.wait();
            break Err(end);
        }
        thread::sleep(GLANCE);
    };
    let text = |reader: Option<thread::JoinHandle<String>>| {
        reader.and_then(|reader| reader.join().ok()).unwrap_or_default()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    match status {
        Err(end) => end,
        Ok(status) => match (status.code(), serde_json::from_str(&stdout)) {
            (Some(0), Ok(document)) => End::Passed(document),
            (Some(1), _) if stderr.contains(" failed: ") => End::Failed(stderr),
            (Some(code), _) => End::Crashed(format!("exit code {code}\n{stderr}")),
            (None, _) => {
                let signal = status.signal().unwrap_or_default();
                End::Crashed(format!("ended by signal {signal}\n{stderr}"))
            }
        },
    }
}

fn text_of(mut pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    // What could be read before an error is better than nothing.
    let _read = pipe.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, time_max: Duration) -> End {
        let arguments = ["-c".to_owned(), script.to_owned()];
        run(Path::new("/bin/sh"), &arguments, time_max, &AtomicBool::new(false))
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn each_end_is_told_from_the_others() {
        assert!(matches!(shell("echo '{\"seeds\": 1}'", LONG), End::Passed(_)));
        assert!(matches!(shell("echo no JSON", LONG), End::Crashed(_)));
        let failed = shell("echo 'error: seed 7 failed: lost' >&2; exit 1", LONG);
        assert!(matches!(&failed, End::Failed(text) if text.contains("seed 7")), "{failed:?}");
        let crashed = shell("echo so long >&2; kill -SEGV $$", LONG);
        assert!(
            matches!(&crashed, End::Crashed(text) if text.contains("signal 11\nso long")),
            "{crashed:?}"
        );
        assert!(matches!(shell("exit 3", LONG), End::Crashed(_)));
        assert!(matches!(shell("exec sleep 60", Duration::ZERO), End::TimedOut));
    }

    #[test]
    fn an_interrupted_run_ends_its_processes() {
        let arguments = ["-c".to_owned(), "exec sleep 60".to_owned()];
        let end = run(Path::new("/bin/sh"), &arguments, LONG, &AtomicBool::new(true));
        assert!(matches!(end, End::Interrupted));
    }
}
