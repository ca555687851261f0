//! Files with images, which the baseline maps over its slots by itself.
#![expect(unsafe_code, reason = "maps files over slots")]

use std::fs::File;
use std::os::unix::fs::FileExt;

use freehold_pool::{Pool, Slot};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap};

/// A file in memory for each module.
pub(crate) struct Files {
    files: Vec<File>,
    bytes: usize,
}

impl Files {
    /// Files with these contents, which are equally long.
    pub(crate) fn new(contents: &[Vec<u8>]) -> Self {
        let file = |content: &Vec<u8>| {
            let file = File::from(memfd_create("image", MemfdFlags::CLOEXEC).expect("memory"));
            file.write_all_at(content, 0).expect("memory");
            file
        };
        Files { files: contents.iter().map(file).collect(), bytes: contents[0].len() }
    }

    /// Maps the file of a module over the beginning of a slot, copy-on-write.
    pub(crate) fn map(&self, slot: &mut Slot<&Pool>, module: usize) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let (start, file) = (slot.as_ptr().as_ptr().cast(), &self.files[module]);
        // SAFETY: The slot is ours and has so many bytes; a reset of it brings this mapping back.
        let mapped = unsafe { mmap(start, self.bytes, access, flags, file, 0) };
        mapped.expect("there are mappings left");
    }
}
