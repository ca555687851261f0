//! Threads free the same blocks at once, whole and in parts. Each frame is freed once at most.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use anyhow::{Result, bail, ensure};
use fastrand::Rng;
use freehold::{
    CpuId, Design, Error, FrameCount, FrameStatus, MigrateType, Order, PageAllocator, Pfn, Request,
    Watermark,
};

use super::super::crew::{Crew, check_none, join_all};
use super::platform::{Chaos, Weather, begin_call, enter, run_on, wait};
use crate::check::case::Cuts;
use crate::host::tasks::start;

/// The name by which shrinking leaves fights out.
pub(in super::super) const FIGHT: &str = "fight";

/// How many blocks threads meet at before all is looked at, at most.
const BLOCKS_MAX: usize = 12;

/// How often they do that after a round.
const BOUTS: usize = 60;

/// A block, or a part of one.
type Block = (Pfn, Order);

/// An allocator whose blocks threads fight for.
pub(super) struct Fights<'a, D: Design<Chaos>> {
    pub(super) allocator: &'a PageAllocator<Chaos, D>,
    pub(super) weather: Weather,
    /// Whether of two racing frees of a single frame one fails.
    pub(super) is_exact: bool,
}

impl<D: Design<Chaos> + Sync> Fights<'_, D> {
    /// Lets threads fight for blocks, many times; returns for how many.
    pub(super) fn fight(&self, crew: &Crew, cuts: &Cuts, seed: u64) -> Result<u64> {
        let (mut rng, mut fights) = (Rng::with_seed(seed), 0);
        if cuts.steps.iter().any(|step| step == FIGHT) {
            return Ok(0);
        }
        for _ in 0..BOUTS {
            begin_call();
            let blocks = self.prizes(&mut rng);
            fights += blocks.len() as u64;
            let freed = self.bout(crew.workers + crew.disturbers, &blocks, &mut rng)?;
            self.check_freed(&blocks, &freed)?;
        }
        self.allocator.drain_all();
        let census = self.allocator.validate()?;
        ensure!(census.allocated.get() == 0, "{} are in use after all frees", census.allocated);
        Ok(fights)
    }

    /// The smallest block whose racing frees are told apart.
    fn order_min(&self) -> u8 {
        u8::from(!self.is_exact)
    }

    /// Blocks to fight for.
    fn prizes(&self, rng: &mut Rng) -> Vec<Block> {
        let prizes = (0..rng.usize(1..=BLOCKS_MAX)).filter_map(|_| {
            let order = Order::new(rng.u8(self.order_min()..=Order::BUDDY_MAX.get()));
            let migratetype = MigrateType::ALL[rng.usize(..3)];
            run_on(rng.u32(..self.weather.cpus));
            let request = Request::new(order).migratetype(migratetype);
            Some((self.allocator.alloc(request.watermark(Watermark::Ignore)).ok()?, order))
        });
        let prizes = prizes.collect();
        if rng.u8(..3) == 0 {
            self.allocator.drain_all();
        }
        prizes
    }

    /// All threads meet at each block and free it, or parts of it; returns what they have freed.
    fn bout(&self, threads: usize, blocks: &[Block], rng: &mut Rng) -> Result<Vec<Block>> {
        let arrived = &AtomicUsize::new(0);
        let fighter = |seed| {
            let mut rng = Rng::with_seed(seed);
            let _inside = enter(self.weather, seed);
            let mut freed = Vec::new();
            for (nth, &block) in blocks.iter().enumerate() {
                let parts = self.parts(block, &mut rng);
                begin_call();
                arrived.fetch_add(1, SeqCst);
                while arrived.load(SeqCst) < (nth + 1) * threads {
                    wait();
                }
                for part in parts {
                    match self.allocator.free(part.0, part.1) {
                        Ok(()) => freed.push(part),
                        Err(Error::DoubleFree | Error::WrongOrder) => {}
                        Err(error) => panic!("{part:?} of {block:?}, freed by several: {error}"),
                    }
                }
                self.upkeep(&mut rng);
            }
            freed
        };
        thread::scope(|scope| {
            let fighter = &fighter;
            let seeds: Vec<_> = (0..threads).map(|_| rng.u64(..)).collect();
            let fighters = seeds.into_iter().map(|seed| start(scope, move || fighter(seed)));
            let mut panics = Vec::new();
            let freed = join_all(fighters.collect(), &mut panics);
            check_none(&panics)?;
            Ok(freed.concat())
        })
    }

    /// What a thread frees of a block: all of it, or some parts of a size, in any order.
    fn parts(&self, (first, order): Block, rng: &mut Rng) -> Vec<Block> {
        if rng.u8(..3) == 0 {
            return vec![(first, order)];
        }
        let one = |rng: &mut Rng| {
            let part = Order::new(rng.u8(self.order_min()..=order.get()));
            let nth = rng.u64(..1 << (order.get() - part.get()));
            (first.offset(FrameCount::new(nth << part.get())), part)
        };
        (0..rng.usize(1..=6)).map(|_| one(rng)).collect()
    }

    /// What others may do meanwhile: nothing that hands out frames.
    fn upkeep(&self, rng: &mut Rng) {
        let cpu = CpuId::new(rng.u32(..self.weather.cpus));
        let done = match rng.u8(..32) {
            0 => self.allocator.drain(cpu),
            1 => self.allocator.offline_cpu(cpu),
            2 => self.allocator.tick(cpu),
            _ => Ok(()),
        };
        assert_eq!(done, Ok(()));
    }

    /// That each frame was freed once or is still in use; frees the rest.
    fn check_freed(&self, blocks: &[Block], freed: &[Block]) -> Result<()> {
        let frames = |&(first, order): &Block| first.get()..first.get() + order.frames().get();
        for block in blocks {
            let mut times = vec![0; frames(block).count()];
            let place = |frame: u64| (frame - block.0.get()) as usize;
            let parts = freed.iter().filter(|part| frames(block).contains(&part.0.get()));
            parts.flat_map(frames).for_each(|frame| times[place(frame)] += 1);
            for frame in frames(block).map(Pfn::new) {
                let times = times[place(frame.get())];
                match (times, self.allocator.status(frame)) {
                    (1, FrameStatus::Free) => {}
                    (0, FrameStatus::Allocated { .. }) => {
                        self.allocator.free(frame, Order::ZERO)?
                    }
                    (_, found) => bail!(
                        "{frame} of {block:?}, freed by several threads, was freed {times} times \
                         and is {found:?}"
                    ),
                }
            }
        }
        Ok(())
    }
}
