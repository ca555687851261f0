//! `freehold race`: the designs against other allocators on this host.
//!
//! Contestants take turns, round by round, so that a temporary disturbance of the machine affects
//! all of them, and ratios are taken within a round. See `docs/lab.md`.

#[cfg(test)]
mod cheats;
pub(crate) mod contestant;
mod course;
mod crew;
mod csv;
mod design;
mod entrant;
mod heat;
mod lease;
mod manner;
mod mix;
mod page;
pub(crate) mod probe;
mod referee;
mod results;
mod sample;
mod simulated;
mod standing;
mod table;
mod wipe;

use crate::peers::{FRAME_BYTES, Plugin};
use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::catalog::{BenchName, name_of};
use crate::cli::{Format, RaceArgs};
use crate::error::refuse;
use crate::host::check_memory;
use crate::host::tasks::{cpus_for, cpus_max};
use crate::host::yardstick::clock_ns;
use crate::machine::Machine;
use crate::report::out;
use crate::report::progress::Progress;
use contestant::{Contestant, chosen};
use course::Course;
use crew::Crew;
use heat::{Heat, managed_frames};
pub(crate) use results::SCHEMA as RACE_SCHEMA;
use results::{Results, Skipped};

/// The default numbers of threads, as far as there are CPUs.
const THREADS: [u32; 2] = [1, 2];

/// Runs all heats round by round and prints the results.
pub(crate) fn race(args: &RaceArgs) -> Result<()> {
    if let Machine::Sim(spec) = &args.machine {
        if let Some(path) = args.peers.first() {
            return refuse(format!(
                "--peer {}: only designs race on {}",
                path.display(),
                spec.name()
            ));
        }
        return simulated::race(args, spec);
    }
    if let Some(setting) = args.settings.first() {
        return refuse(format!("--set {setting}: on the host, designs race with their defaults"));
    }
    let plugins = load(args)?;
    let mut contestants: Vec<Contestant<'_>> = chosen(&args.contestants)?;
    contestants.extend(plugins.iter().map(Contestant::Plugin));
    let cpus_max = cpus_max()?;
    let threads: Vec<u32> = match args.threads.as_slice() {
        [] => THREADS.into_iter().filter(|&threads| threads <= cpus_max).collect(),
        given => given.to_vec(),
    };
    let most = threads.iter().copied().max().unwrap_or(1);
    cpus_for(most, "--threads")?;
    let (courses, mut skipped) = courses(args, &threads, cpus_max);
    if courses.is_empty() {
        let reasons: Vec<_> = skipped.iter().map(|skip| skip.reason.as_str()).collect();
        bail!("there is nothing to race: {}", reasons.join("; "));
    }
    let bytes = bytes_needed(&courses, &contestants);
    let sizes = "--memory, --threads or --frames, or leave mallocs and plug-ins out";
    check_memory(most as usize, bytes, sizes)?;

    // One thread's frames come from another CPU in one of the benches.
    let crew = Crew::new(&cpus_for(most.max(2).min(cpus_max), "--threads")?)?;
    let heats = run(&courses, &contestants, args, &crew)?;
    skipped.extend(heats.iter().flat_map(|heat| {
        heat.skips.iter().map(|skip| Skipped {
            contestant: Some(skip.contestant.clone()),
            ..Skipped::of(heat.course, &skip.reason)
        })
    }));
    report(args, &heats, skipped)
}

/// How much memory a race takes from the machine at most, in bytes.
fn bytes_needed(courses: &[Course], contestants: &[Contestant<'_>]) -> u64 {
    /// More than the metadata of any contestant takes a frame.
    const METADATA_BYTES: u64 = 32;
    const FRAME: u64 = FRAME_BYTES as u64;
    // A malloc keeps the memory that it has taken; everything else is freed at the end of a bench.
    let held = |course: &Course| (course.parties() * course.frames) as u64;
    let mallocs = contestants.iter().filter(|contestant| contestant.takes_memory()).count() as u64;
    let mallocs = mallocs * courses.iter().map(held).max().unwrap_or(0);
    let of_bench = |courses: &[Course]| courses.iter().copied().map(managed_frames).sum::<u64>();
    let managed = courses.chunk_by(|a, b| a.bench == b.bench).map(of_bench).max().unwrap_or(0);
    let plugins = contestants.iter().filter(|contestant| contestant.may_fill_memory());
    let plugins = plugins.count() as u64 * managed;
    (mallocs + plugins) * FRAME + contestants.len() as u64 * managed * METADATA_BYTES
}

/// Runs bench after bench, the heats of each round by round.
fn run<'p>(
    courses: &[Course],
    contestants: &[Contestant<'p>],
    args: &RaceArgs,
    crew: &Crew,
) -> Result<Vec<Heat<'p>>> {
    let clock_ns = crew.alone(clock_ns);
    let progress = Progress::new((courses.len() * (1 + contestants.len() * args.rounds)) as u64);
    let mut finished = Vec::new();
    for of_bench in courses.chunk_by(|a, b| a.bench == b.bench) {
        let mut heats = Vec::new();
        for &course in of_bench {
            progress.say(format!("warming up {course}"));
            let mut heat = Heat::new(course, contestants, crew)?;
            heat.warm_up(crew, args.sample_ms as f64 * 1e6, clock_ns);
            let left_out = heat.skips.len() * args.rounds;
            (0..=left_out).for_each(|_| progress.step());
            heats.push(heat);
        }
        for _ in 0..args.rounds {
            for heat in &mut heats {
                let course = heat.course;
                heat.round(crew, clock_ns, |contestant| {
                    progress.say(format!("{course}: {contestant}"));
                    progress.step();
                });
            }
        }
        heats.iter_mut().for_each(|heat| heat.finish(crew));
        finished.append(&mut heats);
    }
    progress.finish();
    Ok(finished)
}

fn report(args: &RaceArgs, heats: &[Heat<'_>], skipped: Vec<Skipped>) -> Result<()> {
    let results = Results::of(heats, args.rounds, args.host_frames(), skipped);
    match args.format.format() {
        Format::Json => out!("{}", serde_json::to_string_pretty(&results)?),
        Format::Csv => csv::table(&results).print()?,
        Format::Text => table::print(&results)?,
    }
    args.report.of_sections("Races on this host", &[], || {
        Ok((page::sections(&results), serde_json::to_string_pretty(&results)?))
    })?;
    let mut failed: Vec<_> = results.failed().map(|row| row.contestant.as_str()).collect();
    failed.sort_unstable();
    failed.dedup();
    if !failed.is_empty() {
        bail!("the referee has found a fault in {}", failed.join(", "));
    }
    Ok(())
}

/// Loads the libraries, each of which must have a unique name.
fn load(args: &RaceArgs) -> Result<Vec<Plugin>> {
    let mut plugins: Vec<Plugin> = Vec::new();
    for path in &args.peers {
        let plugin = probe::load(path)?;
        let known = contestant::ContestantChoice::value_variants().iter().map(name_of);
        let mut known = known.chain(plugins.iter().map(|plugin| plugin.name().to_owned()));
        if known.any(|name| name == plugin.name()) {
            let (path, name) = (path.display(), plugin.name());
            return refuse(format!("--peer {path}: there is another contestant named {name}"));
        }
        plugins.push(plugin);
    }
    Ok(plugins)
}

/// What is run, bench by bench, and what cannot be.
fn courses(args: &RaceArgs, threads: &[u32], cpus_max: u32) -> (Vec<Course>, Vec<Skipped>) {
    let all = BenchName::value_variants();
    let benches = if args.benches.is_empty() { all } else { &args.benches };
    let least = args.host_memory().iter().copied().fold(f64::INFINITY, f64::min);
    let (mut courses, mut skipped) = (Vec::new(), Vec::new());
    for &bench in benches {
        for &threads in threads {
            for &memory in args.host_memory() {
                let threads = threads as usize;
                let course = Course { bench, threads, frames: args.host_frames(), memory };
                if course.parties() > cpus_max as usize {
                    skipped.push(Skipped::of(course, "this process may use one CPU only"));
                } else if bench == BenchName::Churn && memory > least {
                    let reason = "it fills the memory, so it is run with the least only";
                    skipped.push(Skipped::of(course, reason));
                } else {
                    courses.push(course);
                }
            }
        }
    }
    (courses, skipped)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::PeerName;
    use crate::designs::DesignName;

    #[test]
    fn memory_is_needed_for_one_bench_at_a_time_and_for_what_mallocs_keep() {
        let course = |bench, memory| Course { bench, threads: 1, frames: 32768, memory };
        let fill = [course(BenchName::Fill, 1.5), course(BenchName::Fill, 16.0)];
        let managed = 49152 + 524_288;
        let zone_lock = Contestant::Design(DesignName::ZoneLock);
        let metadata = managed * 32;
        assert_eq!(bytes_needed(&fill, &[zone_lock]), metadata);
        assert_eq!(bytes_needed(&fill[..1], &[zone_lock]), 49152 * 32);
        let pair = course(BenchName::Pair, 1.5);
        assert_eq!(bytes_needed(&[pair, fill[0], fill[1]], &[zone_lock]), metadata);
        let buddy = Contestant::Peer(PeerName::BuddySystem);
        assert_eq!(bytes_needed(&fill, &[zone_lock, buddy]), 2 * metadata);
        // Another thread frees what this one allocates.
        let remote = course(BenchName::Remote, 1.5);
        let malloc = Contestant::Peer(PeerName::Mimalloc);
        assert_eq!(bytes_needed(&[remote], &[malloc]), 65536 * 4096 + 98304 * 32);
    }
}
