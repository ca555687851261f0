//! `freehold survey`: what a machine would say of the predictions, in one command for those who
//! have one.

mod costs;
mod page;
mod places;
mod runs;

use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail};
use freehold_host::allowed_cpus;
use freehold_sim::preset;
use serde::Serialize;

use crate::cli::SurveyArgs;
use crate::error::refuse;
use crate::lscpu;
use crate::output::Output;
use crate::report::out;
use crate::report::progress::Progress;
use crate::report::summary::Summary;
use crate::signals;
use costs::Effort;
use runs::{Row, Runner, advantage};

/// The document.
#[derive(Debug, Serialize)]
struct Survey {
    schema: &'static str,
    /// The machine of `freehold list machines` that is nearest.
    nearest: &'static str,
    cpus: usize,
    /// The numbers of CPUs that races and workloads ran on.
    steps: Vec<u32>,
    /// What may have spoilt a figure.
    notes: Vec<String>,
    costs: Vec<CostRow>,
    measured: Vec<Row>,
    simulated_nearest: Vec<Row>,
    simulated_with_measured_costs: Vec<Row>,
    advantages: Vec<Advantage>,
    machine_file: String,
}

/// A figure of this machine, and what the nearest one has in its place.
#[derive(Debug, Serialize)]
struct CostRow {
    key: String,
    unit: &'static str,
    measured: Summary,
    nearest: f64,
    #[serde(skip)]
    meaning: &'static str,
}

/// How many times as fast `freehold` is as `zone-lock`.
#[derive(Debug, PartialEq, Serialize)]
struct Advantage {
    name: String,
    cpus: u32,
    measured: f64,
    simulated_nearest: Option<f64>,
    simulated_with_measured_costs: Option<f64>,
}

/// Surveys this machine.
pub(crate) fn survey(args: &SurveyArgs) -> Result<()> {
    let path = &args.report;
    if path.extension().is_none_or(|extension| extension != "html") {
        let problem = format!("--report {}: not a name that ends in .html", path.display());
        return refuse(problem);
    }
    let stop = signals::stop_flag()?;
    let text = machine_in_words()?;
    let nearest = lscpu::nearest(&text).map_err(anyhow::Error::msg)?;
    let sys = Path::new("/sys");
    let places = places::places(sys, &allowed_cpus()?);
    let steps = places::steps(&places);
    let [json, toml] = ["json", "toml"].map(|kind| path.with_extension(kind));
    let progress = Progress::new(0);
    let say = |what: &str| progress.say(what);
    let caches = places::cache_bytes(sys, places[0].cpu);
    let costs = costs::measure(&places, caches, Effort::of(args.quick), &say)?;
    let figures: Vec<_> = costs.iter().map(|cost| (cost.key, in_range(cost))).collect();
    let machine_file = lscpu::machine_file(&text, &figures).map_err(anyhow::Error::msg)?;
    // Simulations read it by its name.
    write(&toml, &machine_file)?;
    let is_quick = args.quick;
    let runner = Runner { places: &places, steps: &steps, is_quick, stop: &stop, say: &say };
    let measured = runner.measured()?;
    let spec = preset(nearest).map_err(|error| anyhow::anyhow!("{error}"))?;
    let simulated_nearest = runner.simulated(Path::new(nearest), spec.cpus() as u32)?;
    let simulated_with_measured_costs = runner.simulated(&toml, u32::MAX)?;
    progress.finish();
    let row = |cost: &costs::Cost| CostRow {
        key: format!("{}.{}", cost.key.section(), cost.key.name()),
        unit: cost.key.unit().name(),
        measured: cost.figure,
        nearest: spec.get(cost.key),
        meaning: cost.key.meaning(),
    };
    let survey = Survey {
        schema: "freehold.survey/1",
        nearest,
        cpus: places.len(),
        steps,
        notes: notes(sys, args.quick),
        costs: costs.iter().map(row).collect(),
        advantages: advantages(&measured, &simulated_nearest, &simulated_with_measured_costs),
        measured,
        simulated_nearest,
        simulated_with_measured_costs,
        machine_file,
    };
    let document = serde_json::to_string_pretty(&survey)?;
    write(&json, &document)?;
    page::write(&survey, document.clone(), path)?;
    match args.json {
        true => out!("{document}"),
        false => page::print(&survey, path)?,
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    let file = Output::new(path)?;
    file.writer().write_all(text.as_bytes())?;
    file.keep().map(drop)
}

/// What lscpu prints, and numactl where it is.
fn machine_in_words() -> Result<String> {
    let printed = |program: &str, argument: &[&str]| {
        let output = Command::new(program).args(argument).env("LC_ALL", "C").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Some(lscpu) = printed("lscpu", &[]) else {
        bail!("lscpu does not run here: it comes with util-linux");
    };
    Ok(lscpu + "\n" + &printed("numactl", &["--hardware"]).unwrap_or_default())
}

/// What a machine file takes: the next figure that it accepts.
fn in_range(cost: &costs::Cost) -> f64 {
    let (least, most) = cost.key.range();
    cost.figure.median.clamp(least, most)
}

/// What may spoil figures here.
fn notes(sys: &Path, is_quick: bool) -> Vec<String> {
    let mut notes = Vec::new();
    let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    if is_quick {
        notes.push("With --quick, figures are good for nothing.".to_owned());
    }
    if cfg!(debug_assertions) {
        notes.push("This is not a release build: figures are good for nothing.".to_owned());
    }
    if read(Path::new("/proc/cpuinfo")).contains("hypervisor") {
        notes.push("This is a virtual machine: its CPUs may not be where they seem to be.".into());
    }
    let huge = read(&sys.join("kernel/mm/transparent_hugepage/enabled"));
    if !huge.contains("[always]") && !huge.contains("[madvise]") {
        notes.push("There are no huge pages: latencies of memory include misses of TLBs.".into());
    }
    let load = read(Path::new("/proc/loadavg"));
    let load = load.split(' ').next().and_then(|load| load.parse::<f64>().ok());
    if let Some(load) = load.filter(|load| *load > 1.0) {
        notes
            .push(format!("At its end, the load of the last minute was {load}, its own included."));
    }
    notes
}

/// One for each race or workload and number of CPUs that was measured.
fn advantages(measured: &[Row], nearest: &[Row], with_measured_costs: &[Row]) -> Vec<Advantage> {
    let own = measured.iter().filter(|row| row.design == runs::OWN);
    own.filter_map(|Row { name, cpus, .. }| {
        let of = |rows| advantage(rows, name, *cpus);
        Some(Advantage {
            name: name.clone(),
            cpus: *cpus,
            measured: of(measured)?,
            simulated_nearest: of(nearest),
            simulated_with_measured_costs: of(with_measured_costs),
        })
    })
    .collect()
}

impl Advantage {
    /// Of each machine, in the order of the page's columns.
    fn ratios(&self) -> [Option<f64>; 3] {
        [Some(self.measured), self.simulated_nearest, self.simulated_with_measured_costs]
    }
}

impl Survey {
    /// How well each simulated machine does, in words.
    fn verdicts(&self) -> Vec<String> {
        let of = |machine: &str, get: fn(&Advantage) -> Option<f64>| {
            let pairs: Vec<_> =
                self.advantages.iter().filter_map(|row| Some((row.measured, get(row)?))).collect();
            let within = |factor: f64| {
                let off = |(measured, simulated): &&(f64, f64)| {
                    (simulated / measured).ln().abs() <= factor.ln()
                };
                pairs.iter().filter(off).count()
            };
            let agrees =
                |(measured, simulated): &&(f64, f64)| (*measured > 1.0) == (*simulated > 1.0);
            format!(
                "{machine}: of {} ratios, {} within 25 %, {} within 1.5x, {} within 2x; who is \
                 ahead, {} times.",
                pairs.len(),
                within(1.25),
                within(1.5),
                within(2.0),
                pairs.iter().filter(agrees).count()
            )
        };
        vec![
            of(self.nearest, |row| row.simulated_nearest),
            of("measured costs", |row| row.simulated_with_measured_costs),
        ]
    }
}
