//! Instances a second on a simulated machine: this pool against one lock around the free list, and
//! against 16 of these.
//!
//! `cargo bench -p freehold-pool --bench pool_sim -- --cpus 1,28,56,112`
//!
//! Each CPU takes a slot for an instance of a random module, which touches pages and computes, and
//! puts the oldest of its instances back. All contestants reset slots in batches of the same size,
//! by one system call for a batch, so that they differ in how slots change hands. What the kernel
//! does is a cost; locks of the kernel are not simulated. `--list` has all settings, for `--set
//! NAME=VALUE`, and `--machine` chooses another one than `skylake-2s`.

use std::cell::Cell;
use std::collections::VecDeque;
use std::error::Error;
use std::rc::Rc;

use freehold::Pfn;
use freehold_pool::slots::{Reset, SlotIndex};
use freehold_sim::{CpuHandle, Key, Machine, Spec, preset};

use contestants::{Contestant, Locked, Ours};
use settings::Settings;

mod contestants;
#[path = "../common/index.rs"]
mod index;
mod settings;
#[path = "../common/sim_home.rs"]
mod sim_home;

/// A page fault's work outside the allocator of frames, and that of a page that is unmapped.
const FAULT: [Key; 5] =
    [Key::TrapNs, Key::FaultPathNs, Key::FaultRestNs, Key::AccountingNs, Key::PageTableNs];
const UNMAPPING: [Key; 3] = [Key::UnmapNs, Key::UnmapRestNs, Key::AccountingNs];

/// What all CPUs of a run have in common.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    cpus: u64,
    /// So many TLB shootdowns there were.
    shootdowns: Cell<u64>,
    /// Instances that were measured.
    instances: Cell<u64>,
}

/// A CPU at work.
pub(crate) struct OnCpu<'a> {
    pub(crate) handle: &'a CpuHandle,
    shared: &'a Shared,
    /// Shootdowns of other CPUs that this one has been interrupted for, and its own.
    answered: Cell<u64>,
}

impl OnCpu<'_> {
    /// Answers the interrupts that have come since.
    fn answer_interrupts(&self) {
        self.handle.in_order();
        let sent = self.shared.shootdowns.get();
        let missed = sent - self.answered.replace(sent);
        self.handle.compute_ns(missed * self.shared.settings.interrupt_ns);
    }

    fn run_instance(&self) {
        let settings = &self.shared.settings;
        if settings.kept == 0 {
            for page in 0..settings.pages {
                FAULT.iter().for_each(|&work| self.handle.charge(work));
                // The kernel hands out frames that this CPU has freed just now.
                let frame = self.handle.cpu().get() as u64 * settings.pages + page;
                self.handle.clear_frame(Pfn::new(frame), self.handle.node());
            }
        }
        self.handle.compute_ns(settings.work_ns);
    }
}

impl Reset for OnCpu<'_> {
    fn reset(&self, slots: &[SlotIndex], _lost: &mut dyn FnMut(SlotIndex)) -> u64 {
        let Shared { settings, cpus, shootdowns, .. } = self.shared;
        let slots = slots.len() as u64;
        self.handle.compute_ns(settings.call_ns + slots * settings.stretch_ns);
        for _ in 0..slots * settings.pages {
            UNMAPPING.iter().for_each(|&work| self.handle.charge(work));
        }
        if *cpus > 1 {
            self.answer_interrupts();
            shootdowns.set(shootdowns.get() + 1);
            self.answered.set(self.answered.get() + 1);
            self.handle.compute_ns(settings.shootdown_ns + settings.shootdown_cpu_ns * (cpus - 1));
        }
        1
    }
}

/// Runs instances on one CPU until the time is over.
fn work(handle: &CpuHandle, contestant: &dyn Contestant, shared: &Shared, seed: u64) -> u64 {
    let cpu = OnCpu { handle, shared, answered: Cell::new(shared.shootdowns.get()) };
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut live, mut count) = (VecDeque::new(), 0);
    let nanos = shared.settings.millis * 1_000_000;
    let (warm, end) = (handle.now_ns() + nanos / 2, handle.now_ns() + nanos / 2 + nanos);
    while handle.now_ns() < end {
        let module = rng.u64(..shared.settings.modules);
        let slot = contestant.take(&cpu, module);
        cpu.run_instance();
        cpu.answer_interrupts();
        live.push_back((slot, module));
        if live.len() as u64 == shared.settings.live {
            let (slot, module) = live.pop_front().expect("there are some");
            contestant.put(&cpu, slot, module);
        }
        count += u64::from((warm..end).contains(&handle.now_ns()));
    }
    live.into_iter().for_each(|(slot, module)| contestant.put(&cpu, slot, module));
    count
}

/// A contestant's rate in instances a second, and the share of time that CPUs waited for locks.
fn measure(
    spec: &Spec,
    cpus: usize,
    settings: Settings,
    contestant: fn(&mut Machine, Settings, usize) -> Rc<dyn Contestant>,
) -> Result<(f64, f64), Box<dyn Error>> {
    let mut machine = Machine::new(spec, 1)?;
    let contestant = contestant(&mut machine, settings, cpus);
    let shared = Rc::new(Shared {
        settings,
        cpus: cpus as u64,
        shootdowns: Cell::new(0),
        instances: Cell::new(0),
    });
    for cpu in 0..cpus {
        let (contestant, shared) = (Rc::clone(&contestant), Rc::clone(&shared));
        machine.spawn(cpu, move |handle| {
            let count = work(handle, &*contestant, &shared, cpu as u64);
            shared.instances.set(shared.instances.get() + count);
        });
    }
    let report = machine.run()?;
    let waited: f64 = report.locks.iter().map(|lock| lock.wait_ns).sum();
    let rate = shared.instances.get() as f64 / (settings.millis as f64 / 1000.0);
    Ok((rate, waited / (report.elapsed_ns * cpus as f64)))
}

fn list() {
    for setting in Settings::TABLE {
        println!("{:20}{:>7}  {}", setting.name, setting.default, setting.meaning);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut settings, mut machine) = (Settings::new(), "skylake-2s".to_owned());
    let mut cpus = vec![1, 28, 56, 112];
    // `cargo bench` adds an argument of its own.
    let mut arguments = std::env::args().skip(1).filter(|arg| arg != "--bench");
    while let Some(name) = arguments.next() {
        if name == "--list" {
            list();
            return Ok(());
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        match name.as_str() {
            "--machine" => machine = value,
            "--cpus" => cpus = value.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--set" => {
                let (name, value) = value.split_once('=').ok_or("--set NAME=VALUE")?;
                if !settings.set(name, value.parse()?) {
                    return Err(format!("no setting {name}; there are those of --list").into());
                }
            }
            _ => return Err(format!("{name}: --machine, --cpus, --set NAME=VALUE, --list").into()),
        }
    }
    let spec = preset(&machine)?;
    println!("simulated ({machine}): thousand instances a second; share of time waiting for locks");
    println!("{settings:?}");
    println!(
        "{:>5} {:>18} {:>18} {:>18}  pool to one lock, to 16",
        "CPUs", "one lock", "16 locks", "pool"
    );
    for cpus in cpus {
        let one = measure(&spec, cpus, settings, |m, s, cpus| Rc::new(Locked::new(m, s, cpus, 1)))?;
        let many =
            measure(&spec, cpus, settings, |m, s, cpus| Rc::new(Locked::new(m, s, cpus, 16)))?;
        let ours = measure(&spec, cpus, settings, |m, s, cpus| Rc::new(Ours::new(m, s, cpus)))?;
        let cell =
            |(rate, waited): (f64, f64)| format!("{:10.1} {:5.1} %", rate / 1000.0, 100.0 * waited);
        println!(
            "{cpus:5} {:>18} {:>18} {:>18}  {:.2} {:.2}",
            cell(one),
            cell(many),
            cell(ours),
            ours.0 / one.0,
            ours.0 / many.0
        );
    }
    Ok(())
}
