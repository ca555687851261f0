//! How long an allocation and a free take on this machine.

use core::hint::black_box;

use freehold::designs::Design;
use freehold::{Order, PageAllocator, Request};

use crate::arch;
use crate::console::say;
use crate::platform::Platform;

const BATCHES: u64 = 40;
const PAIRS: u64 = 1000;

/// Reports the ticks of pairs of an allocation and a free by one CPU: the fastest of some batches,
/// without those of an empty loop.
pub(crate) fn pairs<D: Design<Platform>>(frames: &PageAllocator<Platform, D>) {
    let empty = fastest(|| {
        black_box(Request::default());
        black_box(Order::ZERO);
    });
    for order in [0, 3, 9].map(Order::new) {
        let ticks = fastest(|| {
            let block = frames.alloc(black_box(Request::new(order))).expect("idle memory");
            frames.free(block, black_box(order)).expect("our block");
        });
        say!("{}, {order}: {} ticks a pair", D::NAME, (ticks - empty) / PAIRS);
    }
}

fn fastest(mut call: impl FnMut()) -> u64 {
    let batch = |_| {
        let start = arch::ticks();
        (0..PAIRS).for_each(|_| call());
        arch::ticks() - start
    };
    (0..BATCHES).map(batch).min().expect("there are batches")
}
