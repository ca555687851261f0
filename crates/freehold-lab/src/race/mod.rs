//! `freehold race`: the designs against other allocators on this host.
//!
//! Contestants take turns, round by round, so that whatever disturbs the machine for a while
//! disturbs all of them, and ratios are taken within a round. `docs/races.md` says more.

#[cfg(test)]
mod cheats;
pub(crate) mod contestant;
mod course;
mod crew;
mod design;
mod entrant;
mod heat;
mod lease;
mod manner;
mod mix;
pub(crate) mod probe;
mod referee;
mod results;
mod table;

use anyhow::{Result, bail};
use clap::ValueEnum;
use freehold_peers::{FRAME_BYTES, Plugin};

use crate::UsageError;
use crate::catalog::{BenchName, name_of};
use crate::cli::RaceArgs;
use crate::host::check_memory;
use crate::host::tasks::{cpus_for, cpus_max};
use crate::host::yardstick::clock_ns;
use crate::report::document::threads_in_words;
use crate::report::out;
use crate::report::progress::Progress;
use contestant::{Contestant, chosen};
use course::Course;
use crew::Crew;
use heat::Heat;
use results::{Results, Skipped};

/// How many threads are raced unless the user says otherwise, as far as there are CPUs.
const THREADS: [u32; 2] = [1, 2];

/// Runs all heats round by round and prints what they say.
pub(crate) fn race(args: &RaceArgs) -> Result<()> {
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
    let keep = contestants.iter().filter(|contestant| contestant.takes_memory()).count() as u64;
    let bytes = keep * u64::from(most) * args.frames as u64 * FRAME_BYTES as u64;
    check_memory(most as usize, bytes, "--threads or --frames, or leave mallocs out")?;

    let (courses, mut skipped) = courses(args, &threads, cpus_max);
    // One thread's frames come from another CPU in one of the benches.
    let crew = Crew::new(&cpus_for(most.max(2).min(cpus_max), "--threads")?)?;
    let clock_ns = crew.alone(clock_ns);
    let mut heats = Vec::new();
    for course in courses {
        heats.push(Heat::new(course, &contestants, &crew)?);
    }
    run(&mut heats, args, &crew, clock_ns);

    for heat in &heats {
        let Course { bench, threads, .. } = heat.course;
        skipped.extend(heat.skips.iter().map(|skip| Skipped {
            bench: name_of(&bench),
            threads,
            contestant: Some(skip.contestant.clone()),
            reason: skip.reason.clone(),
        }));
    }
    report(args, &heats, skipped)
}

fn run(heats: &mut [Heat<'_>], args: &RaceArgs, crew: &Crew, clock_ns: f64) {
    let runners: usize = heats.iter().map(|heat| heat.runners.len()).sum();
    let progress = Progress::new((heats.len() + runners * args.rounds) as u64);
    for heat in heats.iter_mut() {
        progress.say(format!("warming up {}", name_of(&heat.course.bench)));
        heat.warm_up(crew, args.sample_ms as f64 * 1e6, clock_ns);
        progress.step();
    }
    for _ in 0..args.rounds {
        for heat in heats.iter_mut() {
            let Course { bench, threads, .. } = heat.course;
            let heading = format!("{} with {}", name_of(&bench), threads_in_words(threads));
            heat.round(crew, clock_ns, |contestant| {
                progress.say(format!("{heading}: {contestant}"));
                progress.step();
            });
        }
    }
    for heat in heats.iter_mut() {
        heat.finish(crew);
    }
    progress.finish();
}

fn report(args: &RaceArgs, heats: &[Heat<'_>], skipped: Vec<Skipped>) -> Result<()> {
    if heats.is_empty() {
        let reasons: Vec<_> = skipped.iter().map(|skip| skip.reason.as_str()).collect();
        bail!("there is nothing to race: {}", reasons.join("; "));
    }
    let results = Results::of(heats, args.rounds, args.frames, skipped);
    match args.json {
        true => out!("{}", serde_json::to_string_pretty(&results)?),
        false => table::print(&results)?,
    }
    let mut failed: Vec<_> = results.failed().map(|row| row.contestant.as_str()).collect();
    failed.dedup();
    failed.sort_unstable();
    failed.dedup();
    if !failed.is_empty() {
        bail!("the referee has found a fault in {}", failed.join(", "));
    }
    Ok(())
}

/// Loads the libraries, each of which has to have a name of its own.
fn load(args: &RaceArgs) -> Result<Vec<Plugin>> {
    let mut plugins: Vec<Plugin> = Vec::new();
    for path in &args.peers {
        let plugin = probe::load(path)?;
        let known = contestant::ContestantChoice::value_variants().iter().map(name_of);
        let mut known = known.chain(plugins.iter().map(|plugin| plugin.name().to_owned()));
        if known.any(|name| name == plugin.name()) {
            let (path, name) = (path.display(), plugin.name());
            let message = format!("--peer {path}: there is another contestant named {name}");
            return Err(UsageError(message).into());
        }
        plugins.push(plugin);
    }
    Ok(plugins)
}

/// What is run, and what cannot be.
fn courses(args: &RaceArgs, threads: &[u32], cpus_max: u32) -> (Vec<Course>, Vec<Skipped>) {
    let all = BenchName::value_variants();
    let benches = if args.benches.is_empty() { all } else { &args.benches };
    let (mut courses, mut skipped) = (Vec::new(), Vec::new());
    for &bench in benches {
        for &threads in threads {
            let course = Course { bench, threads: threads as usize, frames: args.frames };
            if course.parties() > cpus_max as usize {
                skipped.push(Skipped {
                    bench: name_of(&bench),
                    threads: course.threads,
                    contestant: None,
                    reason: "this process may use one CPU only".to_owned(),
                });
            } else {
                courses.push(course);
            }
        }
    }
    (courses, skipped)
}
