//! A tracing instance of one's own: its buffers, events and clock are apart from those of others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::RecordError;
use crate::event::Kind;
use crate::format::Losses;

/// Where tracefs is mounted: its own place, and that in debugfs of older systems.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// An instance, which is removed when the value is dropped.
#[derive(Debug)]
pub(super) struct Instance {
    folder: PathBuf,
}

/// The text of a file of tracefs. Some of them are empty after the first read, however little it
/// asked for, and [`fs::read_to_string`] begins with 32 bytes.
fn read_at_once(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            read => text.extend_from_slice(&buffer[..read]),
        }
    }
}

/// The first of `places` that is a tracefs.
pub(super) fn find(places: &[&str]) -> Result<PathBuf, RecordError> {
    for place in places {
        match fs::read_dir(Path::new(place).join("instances")) {
            Ok(_) => return Ok(place.into()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(RecordError::Denied { path: place.into() });
            }
            Err(_) => {}
        }
    }
    Err(RecordError::NoTracefs)
}

impl Instance {
    /// Creates an instance in the tracefs of this machine.
    pub(super) fn create() -> Result<Self, RecordError> {
        let tracefs = find(&PLACES)?;
        let events = tracefs.join("events/kmem");
        if !events.join(Kind::Alloc.name()).exists() {
            return Err(RecordError::NoEvents { path: events });
        }
        let folder = tracefs.join("instances").join(format!("freehold-{}", std::process::id()));
        match fs::create_dir(&folder) {
            Ok(()) => Ok(Instance { folder }),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Err(RecordError::Denied { path: folder })
            }
            Err(source) => Err(RecordError::Tracefs { path: folder, source }),
        }
    }

    /// The text of a file.
    pub(super) fn read(&self, name: &str) -> Result<String, RecordError> {
        let path = self.folder.join(name);
        read_at_once(&path).map_err(|source| RecordError::Tracefs { path, source })
    }

    /// Writes a value to a file.
    pub(super) fn write(&self, name: &str, value: &str) -> Result<(), RecordError> {
        self.open_to_write(name, value, false)
    }

    /// Appends a value to a file.
    pub(super) fn append(&self, name: &str, value: &str) -> Result<(), RecordError> {
        self.open_to_write(name, value, true)
    }

    fn open_to_write(&self, name: &str, value: &str, append: bool) -> Result<(), RecordError> {
        let path = self.folder.join(name);
        let file = OpenOptions::new().write(true).append(append).open(&path);
        file.and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| RecordError::Tracefs { path, source })
    }

    /// Whether this kernel has an event.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.folder.join(event(kind)).exists()
    }

    /// The format of an event.
    pub(super) fn format(&self, kind: Kind) -> Result<String, RecordError> {
        self.read(&format!("{}/format", event(kind)))
    }

    /// Switches an event on or off.
    pub(super) fn enable(&self, kind: Kind, on: bool) -> Result<(), RecordError> {
        self.write(&format!("{}/enable", event(kind)), if on { "1" } else { "0" })
    }

    /// The layout of pages, which all instances share.
    pub(super) fn header_page(&self) -> Result<String, RecordError> {
        self.read("events/header_page")
    }

    /// How large a page of the buffers is.
    pub(super) fn page_bytes(&self) -> usize {
        // Since Linux 6.8 it can be set.
        let kib = self.read("buffer_subbuf_size_kb").ok().and_then(|kib| kib.trim().parse().ok());
        kib.map_or(rustix::param::page_size(), |kib: usize| kib * 1024)
    }

    /// Opens the pages of a CPU. A read that finds none does not wait.
    pub(super) fn pipe(&self, cpu: u32) -> Result<File, RecordError> {
        let path = self.folder.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(&path)
            .map_err(|source| RecordError::Tracefs { path, source })
    }

    /// What was lost of a CPU's events.
    pub(super) fn losses(&self, cpu: u32) -> Result<Losses, RecordError> {
        Ok(losses(&self.read(&format!("per_cpu/cpu{cpu}/stats"))?))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An instance with events that are on cannot always be removed.
        for kind in Kind::OF_KERNEL {
            let _ = self.enable(kind, false);
        }
        let _ = fs::remove_dir(&self.folder);
    }
}

fn event(kind: Kind) -> String {
    format!("events/kmem/{}", kind.name())
}

/// `overrun: 12` and the like.
fn losses(stats: &str) -> Losses {
    let number = |key: &str| {
        let line = stats.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|digits| digits.trim().parse().ok()).unwrap_or(0)
    };
    Losses {
        overrun: number("overrun"),
        commit_overrun: number("commit overrun"),
        dropped: number("dropped events"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_from_statistics() {
        let stats = "entries: 7\noverrun: 12\ncommit overrun: 3\nbytes: 9\ndropped events: 4\n";
        let expected = Losses { overrun: 12, commit_overrun: 3, dropped: 4 };
        assert_eq!((losses(stats), expected.sum()), (expected, 19));
        assert_eq!(losses(""), Losses::default());
    }

    #[test]
    fn what_is_missing_is_named_with_a_remedy() {
        let error = find(&["/nonexistent"]).unwrap_err();
        assert!(error.to_string().contains("mount -t tracefs"), "{error}");
    }
}
