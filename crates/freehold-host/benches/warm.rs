//! How warm the memory is that an allocator hands out: how many frames a program sees that
//! allocates and frees the same number of them again and again. Those that it has not seen of late
//! are in no cache of the machine.
//!
//! `cargo bench -p freehold-host --bench warm` shows distinct frames as multiples of that number,
//! over many rounds: 1.00 if each round has the frames of the one before. At first a quarter of the
//! memory is in use, then all but every so many of its frames are freed; these last. Of sets that
//! are less than a pageblock, the figures would depend on where the kernel maps memory.

use std::collections::HashSet;

use freehold::designs::Freehold;
use freehold::{Design, Error, Order, Pfn, Request};
use freehold_host::{ArenaBuilder, FrameArena, Host};
use freehold_linux::{BlockOwner, Cluster, LazyMerge, MergeAhead, ZoneLock};
use freehold_llfree::Llfree;

const BYTES: usize = 1 << 30;
/// So many frames are in use at first.
const USED: usize = (BYTES >> 12) / 4;

/// Every so many frames, one lasts; 0: none.
const LASTING: [usize; 3] = [0, 16, 4];

/// So many frames are allocated and freed in a round.
const SETS: [usize; 3] = [1000, 4000, 16_000];

/// Rounds that are counted, after others that are not.
const ROUNDS: usize = 20;
const ROUNDS_BEFORE: usize = 10;

/// The order in which the frames of a round are freed.
#[derive(Clone, Copy, Debug)]
enum Freed {
    FirstFirst,
    LastFirst,
}

fn hold<D: Design<Host>>(frames: &FrameArena<D>, count: usize) -> Result<Vec<Pfn>, Error> {
    (0..count).map(|_| frames.allocator().alloc(Request::default())).collect()
}

/// Distinct frames of all rounds, as a multiple of those of one.
fn distinct<D: Design<Host>>(
    frames: &FrameArena<D>,
    set: usize,
    freed: Freed,
) -> Result<f64, Error> {
    let mut seen = HashSet::new();
    for round in 0..ROUNDS_BEFORE + ROUNDS {
        let mut held = hold(frames, set)?;
        if round >= ROUNDS_BEFORE {
            seen.extend(held.iter().copied());
        }
        if let Freed::LastFirst = freed {
            held.reverse();
        }
        held.into_iter().try_for_each(|pfn| frames.allocator().free(pfn, Order::ZERO))?;
    }
    Ok(seen.len() as f64 / set as f64)
}

fn show<D: Design<Host>>(lasting: usize, freed: Freed) -> Result<(), Box<dyn std::error::Error>>
where
    D::Settings: Default,
{
    print!("{:>12}", D::NAME);
    for set in SETS {
        let arena = ArenaBuilder::<D>::new().bytes(BYTES).cpus(1).nodes(1).build_frames()?;
        if lasting > 0 {
            let all = hold(&arena, USED)?;
            let going = all.iter().enumerate().filter(|(nth, _)| nth % lasting != 0);
            going.into_iter().try_for_each(|(_, &pfn)| arena.allocator().free(pfn, Order::ZERO))?;
        }
        print!("{:>8.2}", distinct(&arena, set, freed)?);
    }
    println!();
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for freed in [Freed::FirstFirst, Freed::LastFirst] {
        for lasting in LASTING {
            print!("{:>12}", "frames");
            SETS.iter().for_each(|set| print!("{set:>8}"));
            println!("   {freed:?}, lasting: 1 of {lasting}");
            show::<Freehold<Host>>(lasting, freed)?;
            show::<ZoneLock<Host>>(lasting, freed)?;
            show::<LazyMerge<Host>>(lasting, freed)?;
            show::<Cluster<Host>>(lasting, freed)?;
            show::<MergeAhead<Host>>(lasting, freed)?;
            show::<BlockOwner<Host>>(lasting, freed)?;
            show::<Llfree<Host>>(lasting, freed)?;
        }
    }
    Ok(())
}
