//! System calls that fail: each call names what failed, loses nothing, and succeeds once the
//! machine no longer refuses.
#![expect(unsafe_code, reason = "counts the pages in memory")]

use std::error::Error as _;
use std::fs;

use freehold::{FrameCount, Immovable, Order, Pfn};
use freehold_host::{
    Arena, ArenaBuilder, Backing, FrameArena, HostError, Leases, Numa, Placement, allowed_cpus,
    bind_current_thread,
};
use freehold_lru::LruSettings;
use libc::{EACCES, EAGAIN, EINVAL, ENFILE, ENOMEM, ENOSPC, EPERM};

use crate::calls::{Idle, request, take_all};
use crate::refuse::{Refused, refuse, refusing};
use crate::two_nodes::two_nodes;

const MIB: usize = 1 << 20;

/// More address space than all else in this process has together.
const TIB: usize = 1 << 40;

fn builder() -> ArenaBuilder {
    Arena::builder().bytes(8 * MIB).cpus(2).nodes(1).min_free(FrameCount::ZERO)
}

/// All of it can be had, and is free again then.
fn is_whole(frames: &FrameArena) {
    let all = take_all(frames);
    assert_eq!(all.len() as u64, frames.total_frames().get());
    all.iter().for_each(|&pfn| frames.free(pfn, Order::ZERO).expect("it is ours"));
    frames.allocator().drain_all();
    let census = frames.allocator().validate().expect("the books are in order");
    assert_eq!((census.free, census.isolated), (census.managed, FrameCount::ZERO));
}

fn pages_of_process(field: usize) -> usize {
    let statm = fs::read_to_string("/proc/self/statm").expect("/proc");
    statm.split(' ').nth(field).and_then(|pages| pages.parse().ok()).expect("a number")
}

/// Address space of this process.
fn addresses() -> usize {
    pages_of_process(0) * rustix::param::page_size()
}

/// The error names what failed, and has the kernel's own as its source.
fn names(error: &HostError, what: &str, errno: i32) {
    assert!(error.to_string().contains(what), "{error}");
    let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
    let source = source.unwrap_or_else(|| panic!("{error}: without a source"));
    assert_eq!(source.raw_os_error(), Some(errno), "{error}: {source}");
}

fn mmap(errno: i32) -> Refused {
    refuse(libc::SYS_mmap, errno)
}

fn madvise(advice: i32, errno: i32) -> Refused {
    refuse(libc::SYS_madvise, errno).with(2, advice)
}

/// What makes the kernel refuse to take private memory back, however it is asked.
fn no_discards() -> [Refused; 2] {
    [madvise(libc::MADV_DONTNEED, EINVAL), refuse(libc::SYS_process_madvise, EPERM)]
}

/// Changes a builder.
type Wish = fn(ArenaBuilder) -> ArenaBuilder;

#[test]
fn an_arena_that_cannot_be_built_says_why_and_leaves_nothing() {
    let huge = |builder: ArenaBuilder| {
        builder.backing(Backing::HugeTlb { page_bytes: 2 * MIB, or_private: false })
    };
    let reserve = mmap(ENOMEM).with(2, libc::PROT_NONE);
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let open = refuse(libc::SYS_mprotect, ENOMEM).with(2, access);
    let shared = mmap(EACCES).with_bits(3, libc::MAP_SHARED, libc::MAP_SHARED);
    let of_huge = mmap(ENOMEM).with_bits(3, libc::MAP_HUGETLB, libc::MAP_HUGETLB);
    let cases: &[(Wish, Refused, &str, i32)] = &[
        (|it| it, reserve, "cannot map", ENOMEM),
        (|it| it, open, "cannot map", ENOMEM),
        (|it| it.guard_pages(true), open, "cannot map", ENOMEM),
        (huge, of_huge, "vm.nr_hugepages", ENOMEM),
        (|it| it.backing(Backing::Memfd), shared, "cannot map", EACCES),
        (
            |it| it.backing(Backing::Memfd),
            refuse(libc::SYS_memfd_create, ENFILE),
            "cannot create the file",
            ENFILE,
        ),
        (|it| it.backing(Backing::Memfd), refuse(libc::SYS_fcntl, EPERM), "cannot seal", EPERM),
        (
            |it| it.backing(Backing::Memfd),
            refuse(libc::SYS_ftruncate, ENOSPC),
            "cannot enlarge the file",
            ENOSPC,
        ),
        (|it| it.lock(true), refuse(libc::SYS_mlock2, ENOMEM), "to lock memory", ENOMEM),
        (|it| it.huge_pages(true), madvise(libc::MADV_HUGEPAGE, EINVAL), "huge pages", EINVAL),
        (
            |it| it.prefault(2),
            madvise(libc::MADV_POPULATE_WRITE, ENOMEM),
            "to prefault memory",
            ENOMEM,
        ),
        (|it| it.numa(Numa::Bind), refuse(libc::SYS_mbind, EPERM), "the nodes wanted", EPERM),
    ];
    let before = addresses();
    for &(wish, refused, what, errno) in cases {
        let build = || wish(builder().capacity_bytes(TIB)).build_frames().map(drop);
        let Some(built) = refusing(&[refused], build) else { return };
        names(&built.expect_err(what), what, errno);
        // Nodes and huge pages are what a machine may lack.
        match wish(builder()).build_frames() {
            Ok(frames) => is_whole(&frames),
            Err(error) => {
                assert!(["the nodes wanted", "vm.nr_hugepages"].contains(&what), "{error}");
            }
        }
    }
    assert!(addresses() < before + TIB, "addresses of an arena that there is not");
}

#[test]
fn a_file_that_cannot_grow_says_so() {
    let path = tempfile::NamedTempFile::new().unwrap();
    let reads = Backing::file(fs::File::open(path.path()).unwrap());
    let error = builder().backing(reads).build_frames().expect_err("it cannot be written");
    names(&error, "cannot enlarge the file", EINVAL);
}

#[test]
fn what_an_arena_can_do_without_is_done_without() {
    let clones = [refuse(libc::SYS_clone3, EAGAIN), refuse(libc::SYS_clone, EAGAIN)];
    let alone = refusing(&clones, || builder().prefault(3).build_frames());
    let Some(alone) = alone else { return };
    let frames = alone.expect("the calling thread does it");
    let mut there = vec![0_u8; frames.capacity_bytes() / rustix::param::page_size()];
    let base = frames.base().as_ptr().cast();
    // SAFETY: As many bytes as the arena has pages.
    let asked = unsafe { libc::mincore(base, frames.capacity_bytes(), there.as_mut_ptr()) };
    assert_eq!(asked, 0);
    assert!(there.iter().all(|page| page & 1 == 1), "all of it is there");
    frames.prefault(Pfn::new(0), FrameCount::ZERO, 2).expect("nothing to do");

    let barriers = [refuse(libc::SYS_membarrier, EPERM)];
    let frames = refusing(&barriers, || builder().leases(Leases::Auto).build_frames());
    let frames = frames.expect("there are filters").expect("without leases");
    assert_eq!(frames.leases(), Leases::Off);
    is_whole(&frames);

    let huge = Backing::HugeTlb { page_bytes: 2 * MIB, or_private: true };
    let of_huge = mmap(ENOMEM).with_bits(3, libc::MAP_HUGETLB, libc::MAP_HUGETLB);
    let frames = refusing(&[of_huge], || builder().backing(huge).build_frames());
    is_whole(&frames.expect("there are filters").expect("of private memory"));

    let frames = refusing(&[refuse(libc::SYS_mbind, EPERM)], || {
        let two = Arena::builder().bytes(16 * MIB).topology(two_nodes());
        two.min_free(FrameCount::ZERO).build_frames()
    });
    let frames = frames.expect("there are filters").expect("wherever it is touched");
    assert!(matches!(frames.placement(), Placement::FirstTouch(_)), "{:?}", frames.placement());
    is_whole(&frames);
}

#[test]
fn a_purge_that_is_refused_loses_nothing() {
    for (backing, refused) in [
        (Backing::Private, madvise(libc::MADV_DONTNEED, EINVAL)),
        (Backing::Memfd, madvise(libc::MADV_REMOVE, ENOSPC)),
    ] {
        let frames = builder().backing(backing).build_frames().unwrap();
        let kept = frames.alloc(request()).unwrap();
        frames.store_byte(kept, 7);
        let Some(purged) = refusing(&[refused], || frames.purge()) else { return };
        let errno = purged.as_ref().err().and_then(|error| error.source()).is_some();
        assert!(errno, "{purged:?}");
        assert!(purged.unwrap_err().to_string().contains("to take memory back"));
        frames.allocator().validate().expect("the books are in order");
        assert_eq!(frames.purge().unwrap(), frames.total_frames() - FrameCount::new(1));
        assert_eq!(frames.load_byte(kept), 7, "in use");
        frames.free(kept, Order::ZERO).unwrap();
        is_whole(&frames);
    }
}

#[test]
fn calls_on_frames_say_what_was_refused() {
    let frames = builder().build_frames().unwrap();
    let (pfn, one) = (frames.alloc(request()).unwrap(), FrameCount::new(1));
    type Call = fn(&FrameArena, Pfn) -> Result<(), HostError>;
    let cases: [(Call, i32, &str); 3] = [
        (|it, pfn| it.discard(pfn, FrameCount::new(1)), libc::MADV_DONTNEED, "to take memory back"),
        (|it, pfn| it.discard_lazily(pfn, FrameCount::new(1)), libc::MADV_FREE, "needs some"),
        (
            |it, pfn| it.prefault(pfn, FrameCount::new(1), 1),
            libc::MADV_POPULATE_WRITE,
            "to prefault memory",
        ),
    ];
    for (call, advice, what) in cases {
        frames.store_byte(pfn, 7);
        let refused = [madvise(advice, ENOMEM)];
        let Some(called) = refusing(&refused, || call(&frames, pfn)) else { return };
        let error = called.unwrap_err();
        names(&error, what, ENOMEM);
        assert!(error.to_string().contains("free memory, or"), "{error}");
        assert_eq!(frames.load_byte(pfn), 7);
        call(&frames, pfn).expect("no longer refused");
    }
    frames.discard(pfn, one).unwrap();
    assert_eq!(frames.load_byte(pfn), 0);
    frames.free(pfn, Order::ZERO).unwrap();

    // Memory that goes away stays with the process then, and comes back.
    let shrunk = refusing(&no_discards(), || frames.shrink(2 * MIB, &Immovable));
    assert_eq!(shrunk.expect("there are filters").unwrap().len(), 1);
    assert_eq!(frames.total_frames(), FrameCount::new(1536));
    is_whole(&frames);
    frames.grow(2 * MIB).unwrap();
    is_whole(&frames);
}

#[test]
fn an_lru_needs_addresses_and_nothing_else() {
    let frames = builder().build_frames().unwrap();
    let lru = || frames.lru(&LruSettings::default(), Idle);
    let refused = mmap(ENOMEM).with(2, libc::PROT_NONE);
    let Some(made) = refusing(&[refused], || lru().map(drop)) else { return };
    names(&made.expect_err("no addresses"), "cannot map", ENOMEM);
    let old = madvise(libc::MADV_WIPEONFORK, EINVAL);
    let made = refusing(&[old], || lru().map(|lru| lru.validate().expect("in order")));
    made.expect("there are filters").expect("as on old kernels");
}

#[test]
fn what_cannot_be_unmapped_stays_mapped() {
    let refused = [refuse(libc::SYS_munmap, ENOMEM)];
    refusing(&refused, || {
        let frames = builder().guard_pages(true).build_frames().unwrap();
        is_whole(&frames);
        drop(frames);
        is_whole(&builder().build_frames().unwrap());
    });
}

#[test]
fn a_machine_that_does_not_tell_its_cpus_is_named() {
    let asks = [refuse(libc::SYS_sched_getaffinity, EPERM)];
    let Some(allowed) = refusing(&asks, allowed_cpus) else { return };
    names(&allowed.unwrap_err(), "on which CPUs", EPERM);
    let first = allowed_cpus().unwrap()[0];
    let bound =
        refusing(&[refuse(libc::SYS_sched_setaffinity, EPERM)], || bind_current_thread(&[first]));
    names(&bound.expect("there are filters").unwrap_err(), &format!("to {first}"), EPERM);
    let opens = [refuse(libc::SYS_openat, EACCES)];
    let built = refusing(&opens, || Arena::builder().bytes(MIB).build_frames().map(drop));
    names(&built.expect("there are filters").unwrap_err(), "/sys/devices/system", EACCES);
    let built = refusing(&opens, || builder().build_frames().map(|frames| is_whole(&frames)));
    built.expect("there are filters").expect("with CPUs and nodes given, nothing is read");
}
