//! What the machine charges for an allocation and the free of the same block, on one CPU.
//!
//! `cargo bench -p freehold-sim --bench pair_cost` prints a line for each design and
//! order: the simulated time of a pair, and the accesses in it. What is cached is the CPU's own, so
//! no access is a miss. Instructions between accesses are charged at `core.work_ns` an access: 0,
//! or what the argument says. How many there are is counted elsewhere: docs/embedding.md.

use std::cell::Cell;
use std::error::Error;
use std::rc::Rc;

use freehold::designs::{Design, Freehold};
use freehold::{Config, FrameCount, MemoryRange, NodeId, Order, Pfn, Request};
use freehold_linux::ZoneLock;
use freehold_sim::{Key, Machine, Sim, SimFrames, Spec, preset};

/// Pairs before the measurement, and of the shorter of two runs.
const PAIRS: u64 = 10_000;

/// The time and the accesses of so many pairs, after as many others.
fn run<D: Design<Sim> + 'static>(
    spec: &Spec,
    order: Order,
    pairs: u64,
) -> Result<(f64, u64), Box<dyn Error>> {
    let mut machine = Machine::new(spec, 1)?;
    let memory = [MemoryRange::new(Pfn::new(0x10_0000), FrameCount::new(1 << 20))];
    let nodes = [NodeId::new(0); 8];
    let config = Config::new(&memory, &nodes);
    let frames = SimFrames::<D>::new(&mut machine, Sim, &config, &Default::default())?;
    let elapsed_ps = Rc::new(Cell::new(0));
    let result = Rc::clone(&elapsed_ps);
    machine.spawn(0, move |cpu| {
        let pairs_of = |pairs| {
            for _ in 0..pairs {
                let block = frames.alloc(Request::new(order)).expect("4 GiB are free");
                frames.free(block, order).expect("it was allocated");
            }
        };
        pairs_of(PAIRS);
        let began_ps = cpu.now_ps();
        pairs_of(pairs);
        result.set(cpu.now_ps() - began_ps);
    });
    let report = machine.run()?;
    Ok((elapsed_ps.get() as f64 / 1000.0, report.accesses()))
}

fn show<D: Design<Sim> + 'static>(spec: &Spec) -> Result<(), Box<dyn Error>> {
    for order in [0, 3, 9].map(Order::new) {
        let (ns, accesses) = run::<D>(spec, order, PAIRS)?;
        let (_, more) = run::<D>(spec, order, 2 * PAIRS)?;
        println!(
            "{:10} order {}  {:7.1} ns simulated  {:5.1} accesses",
            D::NAME,
            order.get(),
            ns / PAIRS as f64,
            (more - accesses) as f64 / PAIRS as f64,
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut spec = preset("skylake-2s")?;
    // `cargo bench` adds an argument of its own.
    let mut arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    if let Some(work_ns) = arguments.next() {
        spec.set(Key::WorkNs, work_ns.parse()?, "an argument");
    }
    show::<Freehold<Sim>>(&spec)?;
    show::<ZoneLock<Sim>>(&spec)
}
