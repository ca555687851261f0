//! Tests a plug-in in a separate process, so that one that crashes or ends the process while it is
//! loaded does so there, and the error can name it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Output};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::peers::{Peer, Plugin, Seat};
use anyhow::{Context, Result, anyhow, bail};
use freehold::{MigrateType, Order};

use crate::child;
use crate::error::UsageError;
use crate::report::out;

/// The hidden command that tests it.
pub(crate) const COMMAND: &str = "probe-peer";

/// What it prints at the end, if the library has let it get that far.
const ALIVE: &str = "freehold probe-peer: alive";

/// How long loading may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// In the separate process: loads a library, creates a peer, and tries it once.
pub(crate) fn probe(path: &Path) -> Result<()> {
    const FRAMES: u64 = 8192;
    let plugin = Plugin::load(path)?;
    let peer = plugin.create(FRAMES, 1)?;
    let mut seat = peer.sit(0);
    if let Some(frame) = seat.alloc(Order::ZERO, MigrateType::Movable) {
        let freed = seat.free(frame, Order::ZERO);
        freed.map_err(|_| anyhow!("the peer refused to free what it had allocated"))?;
    }
    drop(seat);
    drop(peer);
    out!("{ALIVE}");
    Ok(())
}

/// Tests a library in another process, then loads it into this one.
///
/// # Errors
///
/// A usage error: the problem, with the name of its file.
pub(super) fn load(path: &Path) -> Result<Plugin> {
    let loaded = look_at(path).and_then(|()| Ok(Plugin::load(path)?));
    loaded.map_err(|error| UsageError(format!("--peer {}: {error:#}", path.display())).into())
}

fn look_at(path: &Path) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(program);
    let output = child::output(command.arg(COMMAND).arg(path), PATIENCE, &AtomicBool::new(false));
    let output = output.context("cannot look at the library in another process")?;
    let Some(Output { status, stdout, stderr }) = output else {
        bail!("the library was not loaded and tried within {} s", PATIENCE.as_secs());
    };
    let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    judge(status, &stdout, &stderr)
}

/// Interprets the exit status of the process.
fn judge(status: ExitStatus, stdout: &str, stderr: &str) -> Result<()> {
    let alive = stdout.lines().any(|line| line == ALIVE);
    // The process's own message, if it could report one.
    let said = stderr.lines().find_map(|line| line.strip_prefix("error: "));
    match (status.signal(), status.code(), said) {
        (Some(signal), _, _) => {
            bail!("the library crashed while it was loaded and tried (signal {signal})")
        }
        (None, Some(0), _) if alive => Ok(()),
        (None, Some(_), Some(said)) if !alive => Err(anyhow!("{said}")),
        (None, code, _) => {
            let code = code.unwrap_or_default();
            bail!("the library ended the process while it was loaded and tried (exit code {code})")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(wait_status: i32, stdout: &str, stderr: &str) -> String {
        let outcome = judge(ExitStatus::from_raw(wait_status), stdout, stderr);
        outcome.map_or_else(|error| error.to_string(), |()| "fine".to_owned())
    }

    #[test]
    fn how_a_probe_ends_says_what_the_library_is_like() {
        let exit = |code: i32| code << 8;
        assert_eq!(judged(0, &format!("hello\n{ALIVE}\n"), "hello"), "fine");
        assert!(judged(0, "hello", "").contains("exit code 0"));
        assert!(judged(exit(3), "", "").contains("exit code 3"));
        assert!(judged(exit(1), ALIVE, "").contains("exit code 1"));
        assert!(judged(11, "", "error: no matter").contains("signal 11"));
        assert_eq!(judged(exit(1), "", "noise\nerror: no symbol"), "no symbol");
    }
}
