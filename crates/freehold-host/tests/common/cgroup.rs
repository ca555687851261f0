//! A control group for a child process.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// A group below this process's own, of version 1 or 2; removed on drop.
pub(crate) struct Cgroup {
    folder: PathBuf,
    is_v2: bool,
}

impl Cgroup {
    /// A group with a controller. Says so, and returns `None`, where none can be made.
    pub(crate) fn new(controller: &str) -> Option<Self> {
        Cgroup::make(controller)
            .map_err(|why| eprintln!("SKIPPED: no control group for {controller}: {why}"))
            .ok()
    }

    fn make(controller: &str) -> Result<Self, String> {
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        // Lines are `number:controllers:path`, without controllers for version 2.
        let path_of = |wanted: &str| {
            own.lines().find_map(|line| {
                let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
                controllers.split(',').any(|name| name == wanted).then_some(path)
            })
        };
        let (root, path, is_v2) = match path_of(controller) {
            Some(path) => (Path::new("/sys/fs/cgroup").join(controller), path, false),
            None => (PathBuf::from("/sys/fs/cgroup"), path_of("").unwrap_or("/"), true),
        };
        let parent = root.join(path.trim_start_matches('/'));
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let nth = NEXT.fetch_add(1, Relaxed);
        let name = format!("freehold-{controller}-{}-{nth}", std::process::id());
        let folder = parent.join(name);
        let shown = folder.display().to_string();
        let what = |error| format!("{shown}: {error}");
        fs::create_dir(&folder).map_err(what)?;
        let group = Cgroup { folder, is_v2 };
        let has = fs::read_dir(&group.folder).map_err(what)?.flatten().any(|file| {
            file.file_name().to_string_lossy().starts_with(&format!("{controller}."))
                && file.file_name() != "memory.pressure"
        });
        if has { Ok(group) } else { Err(format!("{} has none", parent.display())) }
    }

    /// Writes a file of the group: of the first name with version 1, of the second with version 2.
    pub(crate) fn set(&self, (v1, v2): (&str, &str), value: &str) -> Result<(), String> {
        let path = self.folder.join(if self.is_v2 { v2 } else { v1 });
        fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Moves this process into the group.
    pub(crate) fn enter(&self) {
        self.set(("cgroup.procs", "cgroup.procs"), &std::process::id().to_string())
            .expect("a group of our own can be entered");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that has just ended may still be in it.
        for _ in 0..100 {
            if fs::remove_dir(&self.folder).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("cannot remove {}", self.folder.display());
    }
}
