//! The kernel's page cache, held to a size by a memory cgroup for a child process.
//!
//! What the cgroup counts is the cached pages and the child's own memory. So the child first says
//! how much it has without any, and the limit is that and the size of the cache. It is equal to
//! within what the child allocates later and what the kernel charges in advance, some 64 pages a
//! CPU. Reading ahead is off (`POSIX_FADV_RANDOM`). Misses are the bytes that the process has asked
//! storage for, by the kernel's own account.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{Advice, fadvise};

use crate::SIZE;
use crate::trace::Trace;

/// A memory cgroup of the first or second version.
struct Group {
    folder: PathBuf,
    limit: &'static str,
}

impl Group {
    fn new() -> Result<Self, String> {
        let name = format!("freehold-cache-race-{}", std::process::id());
        let mut reason = "no cgroup".to_owned();
        for (parent, limit) in
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")]
        {
            let folder = Path::new(parent).join(&name);
            match fs::create_dir(&folder) {
                Ok(()) if folder.join(limit).exists() => return Ok(Group { folder, limit }),
                Ok(()) => _ = fs::remove_dir(&folder),
                Err(error) => reason = format!("no cgroup: {}", error.kind()),
            }
        }
        Err(reason)
    }

    fn write(&self, file: &str, value: u64) -> Result<(), String> {
        let done = fs::write(self.folder.join(file), value.to_string());
        done.map_err(|error| format!("no limit: {}", error.kind()))
    }

    fn usage(&self) -> u64 {
        let names = ["memory.usage_in_bytes", "memory.current"];
        let texts = names.map(|name| fs::read_to_string(self.folder.join(name)));
        texts.into_iter().flatten().find_map(|text| text.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _gone = fs::remove_dir(&self.folder);
    }
}

/// How many of the reads of a trace miss, or why that is not known.
pub(crate) fn misses(
    path: &Path,
    trace: Trace,
    blocks: u64,
    requests: usize,
) -> Result<u64, String> {
    let group = Group::new()?;
    let failed = |error: io::Error| format!("no child: {}", error.kind());
    let mut child = Command::new(std::env::current_exe().map_err(failed)?)
        .args(["kernel-child", &path.display().to_string(), trace.name()])
        .args([blocks.to_string(), requests.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let run = |child: &mut std::process::Child| {
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (mut input, output) = (input.ok_or("no pipe")?, output.ok_or("no pipe")?);
        let mut lines = BufReader::new(output).lines();
        let mut line = || lines.next().and_then(Result::ok).ok_or("the child ended");
        group.write("cgroup.procs", child.id().into())?;
        let tell = |input: &mut std::process::ChildStdin| input.write_all(b"\n").map_err(failed);
        // It allocates all that it needs within the group, and waits.
        tell(&mut input)?;
        line()?;
        group.write(group.limit, group.usage() + blocks * SIZE as u64)?;
        tell(&mut input)?;
        line()?.parse::<u64>().map_err(|_| "the child failed".to_owned())
    };
    let result = run(&mut child);
    if result.is_err() {
        let _gone = child.kill();
    }
    let _ended = child.wait();
    result
}

/// How many bytes storage has been asked for by this process.
pub(crate) fn read_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap_or_default();
    let of = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    of.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}

/// The child: reads the trace's blocks, and prints how many were not cached.
pub(crate) fn child(arguments: &[String]) -> io::Result<()> {
    let wrong = || io::Error::from(io::ErrorKind::InvalidInput);
    let [path, trace, blocks, requests] = arguments else { return Err(wrong()) };
    let parse = |text: &String| text.parse::<u64>().map_err(|_| wrong());
    let wait = || io::stdin().lock().read_exact(&mut [0]);
    let say = |text: String| io::stdout().lock().write_all(format!("{text}\n").as_bytes());
    wait()?;
    let trace = Trace::of(trace).ok_or_else(wrong)?;
    let requests = trace.requests(parse(blocks)?, parse(requests)? as usize, 42);
    let file = File::open(path)?;
    // Nothing that other processes have read is there, and nothing is read ahead.
    fadvise(&file, 0, None, Advice::DontNeed)?;
    fadvise(&file, 0, None, Advice::Random)?;
    let mut content = [0; SIZE];
    say("ready".into())?;
    wait()?;
    let before = read_bytes();
    for block in requests {
        file.read_exact_at(&mut content, block * SIZE as u64)?;
    }
    let misses = (read_bytes() - before) / SIZE as u64;
    say(misses.to_string())
}
