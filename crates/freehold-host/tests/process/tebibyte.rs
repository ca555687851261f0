//! What address space for 1 TiB costs before it has memory: in a child, whose one thread alone
//! decides how much memory it has.

use std::fs;

use freehold_host::designs::Freehold;
use freehold_host::lru::LruSettings;
use freehold_host::{ArenaBuilder, Design, Host, Order, Request};
use freehold_linux::ZoneLock;

use crate::calls::Idle;
use crate::common::in_child;

const MIB: usize = 1 << 20;
const TIB: usize = 1 << 40;

/// Without pages of files, such as the program, which a child touches anew.
fn resident_bytes() -> usize {
    let pages = fs::read_to_string("/proc/self/statm").expect("the kernel tells");
    let pages: Vec<usize> =
        pages.split_whitespace().map(|it| it.parse().expect("a number")).collect();
    (pages[1] - pages[2]) * 4096
}

/// Builds an arena and an LRU, and has them follow a growth at the far end.
fn touched_by<D: Design<Host> + 'static>() -> usize {
    let before = resident_bytes();
    let builder = ArenaBuilder::<D>::new().cpus(2).nodes(1).bytes(2 * MIB).capacity_bytes(TIB);
    let frames = builder.build_frames().expect("address space for 1 TiB");
    let lru = frames.lru(&LruSettings::default(), Idle).expect("address space for its metadata");
    for range in frames.grow(4 * MIB).expect("there is room") {
        lru.add_memory(range).expect("the LRU spans what the arena can grow to");
    }
    let pfn = frames.alloc(Request::new(Order::new(4))).expect("there is memory");
    frames.free(pfn, Order::new(4)).expect("it was allocated");
    resident_bytes().saturating_sub(before)
}

#[test]
fn address_space_without_memory_costs_few_pages() {
    let ended = in_child(|| {
        let (freehold, zone_lock) =
            (touched_by::<Freehold<Host>>(), touched_by::<ZoneLock<Host>>());
        assert!(freehold < 2 * MIB, "freehold: {} KiB", freehold >> 10);
        assert!(zone_lock < 8 * MIB, "zone-lock: {} KiB", zone_lock >> 10);
    });
    assert_eq!(ended, Ok(()));
}
