//! What an arena's memory can be made of: shared, a file's, the user's own, huge pages.
#![expect(unsafe_code, reason = "maps memory, and reads it beside the arena")]

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::ptr::{NonNull, null_mut};

use freehold::{FrameCount, Immovable, Order, Pfn, Request};
use freehold_host::{Arena, ArenaBuilder, Backing, FrameArena, HostError, Numa, Placement};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::calls::take_all;

const MIB: usize = 1 << 20;

fn builder() -> ArenaBuilder {
    Arena::builder().cpus(2).nodes(1).min_free(FrameCount::ZERO)
}

#[test]
fn another_mapping_of_a_memfd_sees_the_frames_and_purges_reach_it() {
    let builder = builder().bytes(8 * MIB).capacity_bytes(16 * MIB).backing(Backing::Memfd);
    let frames = builder.build_frames().unwrap();
    let file = frames.file().unwrap();
    let pfn = frames.alloc(Request::default()).unwrap();
    frames.store_byte(pfn, 42);
    // SAFETY: a new mapping, of which nothing else knows.
    let other =
        unsafe { mmap(null_mut(), 16 * MIB, ProtFlags::READ, MapFlags::SHARED, file, 0).unwrap() };
    let at = pfn.get() as usize * 4096;
    // SAFETY: the frame lies within the mapping.
    let see = || unsafe { other.cast::<u8>().wrapping_add(at).read_volatile() };
    assert_eq!(see(), 42);
    let blocks = || rustix::fs::fstat(file).unwrap().st_blocks;
    assert!(blocks() > 0);
    frames.free(pfn, Order::ZERO).unwrap();
    assert_eq!(frames.purge().unwrap(), FrameCount::new(2048));
    assert_eq!((blocks(), see()), (0, 0), "a hole was punched");
    assert_eq!(frames.grow(8 * MIB).unwrap().len(), 1);
    assert_eq!(take_all(&frames).len(), 4096);
    // SAFETY: nothing reads it any more.
    unsafe { munmap(other, 16 * MIB).unwrap() };
}

#[test]
fn what_others_can_write_is_no_memory_of_slices_in_safe_code() {
    let file = || Backing::file(tempfile::tempfile().unwrap());
    for shared in [Backing::Memfd, file()] {
        let builder = builder().bytes(4 * MIB).backing(shared);
        let message = builder.clone().build().unwrap_err().to_string();
        assert!(
            message.starts_with("backing: others may write") && message.contains("`build_frames`")
        );
        // SAFETY: no one else has the file.
        let arena = unsafe { builder.build_shared() }.unwrap();
        let mut pages = arena.allocate(Order::ZERO).unwrap();
        pages.fill(7);
        let mut seen = [0; 4096];
        let file = fs::File::from(arena.file().unwrap().try_clone_to_owned().unwrap());
        file.read_exact_at(&mut seen, pages.pfn().get() * 4096).unwrap();
        assert_eq!(seen, [7; 4096]);
    }
}

#[test]
fn a_memfd_cannot_be_made_shorter() {
    let frames = builder().bytes(4 * MIB).backing(Backing::Memfd).build_frames().unwrap();
    let file = fs::File::from(frames.file().unwrap().try_clone_to_owned().unwrap());
    assert_eq!(file.set_len(0).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(frames.load_byte(Pfn::new(1023)), 0, "no SIGBUS");
    frames.discard(Pfn::new(0), FrameCount::new(1024)).expect("a hole is none");
}

#[test]
fn frames_are_what_a_file_holds() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"before").unwrap();
    let backing = Backing::file(file.try_clone().unwrap());
    let frames = builder().bytes(4 * MIB).backing(backing).build_frames().unwrap();
    assert_eq!(file.metadata().unwrap().size(), 4 * MIB as u64, "made large enough");
    assert_eq!(frames.load_byte(Pfn::new(0)), b'b');
    frames.store_byte(Pfn::new(0), b'B');
    drop(frames);
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = [0; 6];
    file.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"Before");
}

#[test]
fn a_mapping_of_the_users_is_used_to_its_last_frame_and_stays() {
    let bytes = 5 * MIB + 3 * 4096 + 100;
    let flags = MapFlags::PRIVATE;
    // SAFETY: a new mapping, of which nothing else knows.
    let memory = unsafe {
        rustix::mm::mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)
    };
    let base = NonNull::new(memory.unwrap().cast::<u8>()).unwrap();
    // SAFETY: the arenas of this test are its only users, one after the other.
    let on = |base, bytes| unsafe { builder().mapping(base, bytes, false) };
    let frames = on(base, bytes).build_frames().unwrap();
    assert_eq!(frames.base(), base);
    let all = take_all(&frames);
    assert_eq!(all.len(), (5 * MIB + 3 * 4096) / 4096);
    all.iter().for_each(|&pfn| frames.store_byte(pfn, 1));
    assert!(frames.file().is_none());
    drop(frames);
    // SAFETY: it is still mapped.
    assert_eq!(unsafe { base.as_ptr().read() }, 1);
    // Part of it at first, more later.
    let frames = on(base, bytes).bytes(2 * MIB).build_frames().unwrap();
    assert_eq!(take_all(&frames).len(), 512);
    frames.grow(2 * MIB).unwrap();
    assert_eq!(take_all(&frames).len(), 512);
    drop(frames);

    let odd = NonNull::new(base.as_ptr().wrapping_add(64)).unwrap();
    for (builder, error) in [
        (on(odd, MIB), "is no multiple of a frame of 4 KiB"),
        (on(base, 4095), "mapping: 4095 bytes are less than 0 frames of 4 KiB"),
        (on(base, MIB).bytes(2 * MIB), "mapping: 1048576 bytes are less than 512 frames of 4 KiB"),
    ] {
        let message = builder.build_frames().unwrap_err().to_string();
        assert!(message.contains(error), "{message}");
    }
    // SAFETY: all arenas on it are gone.
    unsafe { munmap(base.as_ptr().cast(), bytes).unwrap() };
}

#[test]
fn huge_pages_come_from_the_pool_or_not_at_all() {
    let huge = |or_private| Backing::HugeTlb { page_bytes: 2 * MIB, or_private };
    // More than any pool of a machine that runs tests has.
    let much = builder().bytes(1 << 42).capacity_bytes(0);
    let error = much.backing(huge(false)).build_frames().unwrap_err();
    assert!(matches!(error, HostError::Map { .. }), "{error}");
    let frames = builder().bytes(8 * MIB).backing(huge(true)).build_frames().unwrap();
    let pfn = frames.alloc(Request::default()).unwrap();
    frames.store_byte(pfn, 3);
    frames.purge().unwrap();
    assert_eq!(frames.load_byte(pfn), 3, "in use");
    let odd = Backing::HugeTlb { page_bytes: 3 * MIB, or_private: true };
    let message = builder().bytes(8 * MIB).backing(odd).build_frames().unwrap_err().to_string();
    assert!(message.contains("huge pages of 3145728 bytes"), "{message}");
}

#[test]
fn prefaulted_memory_is_there() {
    let resident = |frames: &FrameArena| {
        let pages = frames.capacity_bytes() / 4096;
        let mut there = vec![0u8; pages];
        // SAFETY: as many bytes as the stretch has pages.
        let answer = unsafe {
            libc::mincore(
                frames.base().as_ptr().cast(),
                frames.capacity_bytes(),
                there.as_mut_ptr(),
            )
        };
        assert_eq!(answer, 0);
        there.iter().filter(|page| **page & 1 == 1).count()
    };
    let frames = builder().bytes(8 * MIB).prefault(3).build_frames().unwrap();
    assert_eq!(resident(&frames), 2048);
    let frames = builder().bytes(8 * MIB).capacity_bytes(16 * MIB).build_frames().unwrap();
    assert_eq!(resident(&frames), 0);
    frames.prefault(Pfn::new(512), FrameCount::new(100), 1).unwrap();
    assert_eq!(resident(&frames), 100);
}

#[test]
fn guard_pages_surround_the_memory() {
    let frames = builder().bytes(4 * MIB).guard_pages(true).build_frames().unwrap();
    let (first, bytes) = (frames.base().as_ptr(), frames.capacity_bytes());
    let pipe = rustix::pipe::pipe().unwrap();
    // The kernel says whether it can read there.
    let readable = |address: *const u8| {
        // SAFETY: the kernel checks the address.
        let answer = unsafe {
            libc::write(std::os::fd::AsRawFd::as_raw_fd(&pipe.1.as_fd()), address.cast(), 1)
        };
        answer == 1
    };
    assert!(readable(first) && readable(first.wrapping_add(bytes - 1)));
    assert!(!readable(first.wrapping_sub(1)) && !readable(first.wrapping_add(bytes)));
}

#[test]
fn memory_is_placed_as_wished() {
    let build = |numa| builder().bytes(4 * MIB).numa(numa).build_frames();
    assert!(matches!(build(Numa::Machine).unwrap().placement(), Placement::Machine));
    assert!(matches!(build(Numa::Prefer).unwrap().placement(), Placement::OneNode));
    for numa in [Numa::Bind, Numa::Interleave] {
        match build(numa) {
            Ok(frames) => assert!(matches!(
                (numa, frames.placement()),
                (Numa::Bind, Placement::ByNode) | (Numa::Interleave, Placement::Interleaved)
            )),
            // Kernels without NUMA and sandboxes refuse.
            Err(error) => assert!(matches!(error, HostError::Advise { .. }), "{error}"),
        }
    }
}

#[test]
fn locked_memory_cannot_be_given_back() {
    let Ok(frames) = builder().bytes(4 * MIB).lock(true).build_frames() else {
        // The limit of locked memory is lower.
        return;
    };
    let error = frames.purge().unwrap_err();
    assert!(matches!(error, HostError::Advise { .. }), "{error}");
    // It stays with the process, but no longer with the arena.
    frames.shrink(2 * MIB, &Immovable).unwrap();
    frames.allocator().validate().unwrap();
}
