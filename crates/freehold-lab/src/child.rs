//! A process that is waited for, but not for ever.

use std::io::{self, Read};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How soon an end is noticed.
const GLANCE: Duration = Duration::from_millis(5);

/// Runs a command until it ends. If the time is over before, or `stop` is set, the process is
/// killed, and there is no output.
///
/// # Errors
///
/// The process does not start, or cannot be waited for or killed.
pub(crate) fn output(
    command: &mut Command,
    time_max: Duration,
    stop: &AtomicBool,
) -> io::Result<Option<Output>> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let (stdout, stderr) = (reading(child.stdout.take()), reading(child.stderr.take()));
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // Relaxed: it only says when to end.
        if stop.load(Relaxed) || began.elapsed() > time_max {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(GLANCE);
    };
    let read = |pipe: JoinHandle<Vec<u8>>| pipe.join().unwrap_or_default();
    Ok(Some(Output { status, stdout: read(stdout), stderr: read(stderr) }))
}

/// Reads what a process prints while it runs, so that it never waits for a reader.
fn reading(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            // What was read before an error is all that there is.
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_never_ends_is_ended_and_one_that_prints_much_is_read() {
        let run = |script: &str, time_max, stop| {
            let mut command = Command::new("sh");
            output(command.args(["-c", script]), time_max, &AtomicBool::new(stop)).unwrap()
        };
        assert_eq!(run("exec sleep 1000", Duration::ZERO, false), None);
        assert_eq!(run("exec sleep 1000", Duration::MAX, true), None);
        let output = run("head -c 200000 /dev/zero; echo so >&2; exit 3", Duration::MAX, false);
        let Output { status, stdout, stderr } = output.unwrap();
        assert_eq!((status.code(), stdout.len(), &stderr[..]), (Some(3), 200_000, &b"so\n"[..]));
    }
}
