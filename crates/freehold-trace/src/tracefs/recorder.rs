//! A recording from start to end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::gettid;
use rustix::time::{ClockId, clock_gettime};

use super::decode::Decoder;
use super::instance::Instance;
use super::page::PageLayout;
use super::spool::{Format, copy, merge};
use super::{Options, Progress, RecordError};
use crate::event::Kind;
use crate::format::{Header, Losses, Trailer, Writer};
use crate::machine::{Machine, Zones};

/// The clock of the kernel's events: the same on all CPUs, and that of [`ClockId::Monotonic`].
const CLOCK: &str = "mono";

/// How often the recorder looks whether it is to end, and reports its progress.
const TICK: Duration = Duration::from_millis(50);

/// What was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// What ends the file.
    pub trailer: Trailer,
    /// How the command ended, if one was run.
    pub status: Option<ExitStatus>,
    /// Events of the kernel that this one does not have.
    pub missing: Vec<Kind>,
}

/// Records this machine, and writes the recording to `out`. It ends with the command, with the
/// limit, or when `stop` is set; the command is then left running.
///
/// Events of the recorder's own threads are left out. All others are in it, whichever process or
/// interrupt they are from.
///
/// # Errors
///
/// As [`RecordError`] says. Events that were lost are no error: they are counted in the trailer.
pub fn record(
    options: &Options,
    writer: &str,
    stop: &AtomicBool,
    out: impl Write,
    mut progress: impl FnMut(Progress),
) -> Result<Recorded, RecordError> {
    let instance = Instance::create()?;
    let machine = Machine::here().map_err(RecordError::Machine)?;
    let (has, missing) = Kind::OF_KERNEL.into_iter().partition(|kind| instance.has(*kind));
    let (has, missing): (Vec<_>, Vec<_>) = (has, missing);
    let mut formats = Vec::new();
    for &kind in &has {
        formats.push((kind, instance.format(kind)?));
    }
    let decoder = Decoder::new(formats.iter().map(|(kind, text)| (*kind, &text[..])))
        .map_err(RecordError::BadFormat)?;
    let page = PageLayout::parse(&instance.header_page()?).map_err(RecordError::BadFormat)?;
    instance.write("tracing_on", "0")?;
    instance.write("trace_clock", CLOCK)?;
    instance.write("buffer_size_kb", &(options.buffer_bytes / 1024).to_string())?;
    let page_bytes = instance.page_bytes();
    let mut spools = Vec::new();
    for &cpu in &machine.cpus {
        let spool = tempfile::tempfile_in(&options.spool).map_err(RecordError::Spool)?;
        spools.push((cpu, spool));
    }
    let before = Zones::now().map_err(RecordError::Machine)?;
    for &kind in &has {
        instance.enable(kind, true)?;
    }

    let session = Session { instance: &instance, page_bytes, own_pids: Mutex::default() };
    let Ran { began_ns, began_unix_s, elapsed, status } =
        session.run(options, &spools, stop, &mut progress)?;
    let after = Zones::now().map_err(RecordError::Machine)?;
    let mut lost = BTreeMap::new();
    for &cpu in &machine.cpus {
        let losses = instance.losses(cpu)?;
        if losses != Losses::default() {
            lost.insert(cpu, losses);
        }
    }

    let own_pids = session.own_pids.into_inner().expect("no thread has panicked");
    let format = Format { page, page_bytes, decoder, began: began_ns, own_pids };
    let header = Header {
        source: "tracefs".to_owned(),
        writer: writer.to_owned(),
        command: options.command.clone(),
        began_unix_s,
        machine,
        before,
    };
    let mut writer = Writer::new(out, &header)?;
    let mut events = 0;
    merge(&format, &spools, |event| {
        events += 1;
        if events % (1 << 16) == 0 {
            progress(Progress::Storing { events });
        }
        Ok(writer.push(event)?)
    })?;
    let elapsed_ns = elapsed.as_nanos() as u64;
    let trailer = Trailer { events, elapsed_ns, lost, after };
    writer.finish(trailer.clone())?;
    Ok(Recorded { trailer, status, missing })
}

/// The part of a recording in which the kernel writes events.
struct Session<'a> {
    instance: &'a Instance,
    page_bytes: usize,
    /// The recorder's threads.
    own_pids: Mutex<Vec<u32>>,
}

/// How that part went.
struct Ran {
    /// By the clock of the events.
    began_ns: u64,
    began_unix_s: u64,
    elapsed: Duration,
    status: Option<ExitStatus>,
}

impl Session<'_> {
    fn run(
        &self,
        options: &Options,
        spools: &[(u32, File)],
        stop: &AtomicBool,
        progress: &mut impl FnMut(Progress),
    ) -> Result<Ran, RecordError> {
        let done = AtomicBool::new(false);
        let bytes = AtomicU64::new(0);
        self.leave_out_this_thread()?;
        let mut pipes = Vec::new();
        for (cpu, spool) in spools {
            pipes.push((self.instance.pipe(*cpu)?, spool));
        }
        thread::scope(|scope| {
            let readers: Vec<_> = pipes
                .into_iter()
                .map(|(pipe, spool)| {
                    let (done, bytes) = (&done, &bytes);
                    scope.spawn(move || -> Result<(), RecordError> {
                        self.leave_out_this_thread()?;
                        copy(pipe, spool, self.page_bytes, done, bytes).map_err(RecordError::Spool)
                    })
                })
                .collect();
            let ran = self.until_the_end(
                options,
                stop,
                || {
                    let over = readers.iter().any(|reader| reader.is_finished());
                    (over, bytes.load(Ordering::Relaxed))
                },
                progress,
            );
            // All that the kernel has written is there before the readers look for the last time.
            done.store(true, Ordering::Release);
            for reader in readers {
                reader.join().expect("readers do not panic")?;
            }
            ran
        })
    }

    /// Switches the instance on, and off when the recording is to end. `state` says whether a
    /// reader has failed, and how many bytes they have.
    fn until_the_end(
        &self,
        options: &Options,
        stop: &AtomicBool,
        state: impl Fn() -> (bool, u64),
        progress: &mut impl FnMut(Progress),
    ) -> Result<Ran, RecordError> {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = clock_gettime(ClockId::Monotonic);
        self.instance.write("tracing_on", "1")?;
        let began = Instant::now();
        let mut command = start(&options.command)?;
        let status = loop {
            let status = command.as_mut().map(Child::try_wait).transpose();
            let status = status.map_err(|source| bad_command(&options.command, source))?.flatten();
            let elapsed = began.elapsed();
            let (failed, bytes) = state();
            let over = options.limit.is_some_and(|limit| elapsed >= limit);
            // Asked to stop, by a signal: nothing else is published with it.
            if status.is_some() || over || failed || stop.load(Ordering::Relaxed) {
                break status;
            }
            progress(Progress::Recording { elapsed, bytes });
            let left = options.limit.map_or(TICK, |limit| limit - elapsed);
            sleep(left.min(TICK));
        };
        self.instance.write("tracing_on", "0")?;
        Ok(Ran {
            began_ns: now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64,
            began_unix_s: since_epoch.as_secs(),
            elapsed: began.elapsed(),
            status,
        })
    }

    /// The kernel does not record what this thread does. What it records all the same, since it is
    /// too old, is left out later.
    fn leave_out_this_thread(&self) -> Result<(), RecordError> {
        let pid = gettid().as_raw_nonzero().get() as u32;
        self.own_pids.lock().expect("no thread has panicked").push(pid);
        match self.instance.append("set_event_notrace_pid", &pid.to_string()) {
            Err(RecordError::Tracefs { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(())
            }
            outcome => outcome,
        }
    }
}

/// Starts the command, if there is one.
fn start(command: &[String]) -> Result<Option<Child>, RecordError> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let child = Command::new(program).args(arguments).spawn();
    child.map(Some).map_err(|source| bad_command(command, source))
}

fn bad_command(command: &[String], source: io::Error) -> RecordError {
    RecordError::Command { command: command.first().cloned().unwrap_or_default(), source }
}
