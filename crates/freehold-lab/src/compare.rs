//! `freehold compare`: every design on this host and on a simulated machine, and why one is faster.

use anyhow::Result;

use crate::catalog::{brief, figures, goals, host_settings, name_of, sim_settings, telling};
use crate::cli::{CompareArgs, Format, chosen_designs};
use crate::designs::{DesignName, SimDesign};
use crate::error::refuse;
use crate::matrix::{HostCells, Matrix, SimCells, tables};
use crate::report::comparison::{Comparison, Terms};
use crate::report::document::RunResult;
use crate::report::out;
use crate::settings::Assignments;
use crate::workload::Brief;

/// The setting varied by default: the per-CPU lists that the later series build on, and those that
/// the series of 2018 had.
const VARIED: &str = "pcp=auto,fixed";

/// The design that ratios refer to. Unless a command says what to vary, it alone takes the second
/// value too: it is Linux 6.12's allocator with the first, and 4.16's with the second.
pub(crate) const BASELINE: SimDesign = SimDesign::Real(DesignName::ZoneLock);

/// Runs all designs on both machines, as far as the workload runs there.
pub(crate) fn compare(args: &CompareArgs) -> Result<()> {
    let workload = args.workload;
    let designs = chosen_designs(&args.design);
    let any_on_host = !args.no_host && designs.iter().any(|design| runs_on_host(*design));
    let of_host = any_on_host.then(|| tables(&designs, &host_settings(workload)));
    let of_sim = (!args.no_sim).then(|| sim_settings(workload));
    let mut notes = Vec::from_iter(on_sim_only(args, &designs)?);
    let of_sim = of_sim.map(|of_workload| tables(&designs, &of_workload));
    let known = [of_host.as_deref(), of_sim.as_deref()].into_iter().flatten().flatten();
    let given = Assignments::parse(&args.settings, &known.copied().collect::<Vec<_>>())?;

    let brief = if args.whole { Brief { on_host: &[], on_sim: &[] } } else { brief(workload) };
    let of_host = of_host.map(|tables| given.for_part(brief.on_host, &tables));
    let of_sim = of_sim.map(|tables| given.for_part(brief.on_sim, &tables));
    let variants = Variants::new(args, &designs, &given)?;
    let on_host = variants.of(of_host.as_ref(), runs_on_host);
    let on_sim = variants.of(of_sim.as_ref(), |_| true);
    // Both parts are prepared before either runs, so that mistakes show at once. On the host,
    // contestants take turns, seed by seed.
    let (mut host, mut sim) = (Vec::new(), Vec::new());
    for seed in (args.seed..).take(args.seeds as usize) {
        for (designs, assignments) in &on_host {
            host.push(Matrix { workload, designs, cpus: &[], seed, assignments }.on_host()?);
        }
        for (designs, assignments) in &on_sim {
            let cpus = args.cpus.as_slice();
            let matrix = Matrix { workload, designs, cpus, seed, assignments };
            sim.push(matrix.on_sim(&args.machine)?);
        }
    }
    let host = host.into_iter().reduce(HostCells::and);
    let sim = sim.into_iter().reduce(SimCells::and);

    for (part, assignments) in [("on the host", &of_host), ("of the simulation", &of_sim)] {
        let settings = assignments.as_ref().map(ToString::to_string).unwrap_or_default();
        if !settings.is_empty() {
            notes.push(format!("Settings {part}: {settings}."));
        }
    }
    // Ratios on both machines refer to one contestant, so to one that runs on both.
    let on_both = designs.iter().find(|design| any_on_host && runs_on_host(**design));
    let baseline = Some(&BASELINE).filter(|baseline| designs.contains(baseline));
    let baseline = baseline.or(on_both).or(designs.first()).map(name_of).unwrap_or_default();
    let (varied, goals, telling) = (variants.name(), goals(workload), telling(workload));
    let terms = Terms { baseline, varied, goals, telling };
    let rows = || {
        let terms = terms.clone();
        move |result: &RunResult| terms.row(result)
    };
    let is_text = args.format.format() == Format::Text;

    // One after the other, since simulated cells would disturb measurements on the host.
    let mut simulated = Vec::new();
    if let Some(cells) = sim {
        simulated = cells.run_showing(&cells.progress().with_rows(rows()))?;
        if is_text {
            let part = Comparison::new(simulated, terms.clone())?;
            out!("{}", part.answer(true));
            simulated = part.into_results();
        }
    }
    let mut results = match host {
        Some(cells) => cells.run_showing(&cells.progress().with_rows(rows()))?,
        None => Vec::new(),
    };
    results.extend(simulated);

    let comparison = Comparison::new(results, terms)?;
    let title = format!("{} on every design", name_of(&workload));
    args.report.of_comparison(&title, &comparison, &notes)?;
    match args.format.format() {
        Format::Json => out!("{}", serde_json::to_string_pretty(&comparison)?),
        Format::Csv => comparison.csv(figures(workload))?.print()?,
        Format::Text => {
            if any_on_host {
                out!("{}", comparison.answer(false));
            }
            out!("{}", comparison.legend(&notes));
            match (args.why, args.seeds) {
                (true, _) => out!("\n{}", comparison.why()),
                (false, 1) => out!("--why: the reasons in full. --seeds 3: which places are ties."),
                (false, _) => out!("--why: the reasons in full."),
            }
        }
    }
    Ok(())
}

fn runs_on_host(design: SimDesign) -> bool {
    design.real().is_some()
}

/// A note about a design that exists only on simulated machines, if one was chosen.
fn on_sim_only(args: &CompareArgs, designs: &[SimDesign]) -> Result<Option<String>> {
    let Some(design) = designs.iter().find(|design| !runs_on_host(**design)) else {
        return Ok(None);
    };
    let only = format!("{} runs on simulated machines only", name_of(design));
    if args.no_sim {
        return refuse(format!("{only}: omit --no-sim"));
    }
    Ok((!args.no_host).then(|| format!("{only}.")))
}

/// The values of the varied setting.
struct Variants<'a> {
    designs: &'a [SimDesign],
    /// Name and values, unless there is nothing to vary.
    varied: Option<(String, Vec<String>)>,
    /// Whether every design takes each value, and not the baseline alone.
    every: bool,
}

impl<'a> Variants<'a> {
    fn new(args: &CompareArgs, designs: &'a [SimDesign], given: &Assignments) -> Result<Self> {
        let given_here = args.vary.as_deref().or(args.all_settings.then_some(VARIED));
        let (chosen, every) = (given_here.unwrap_or(VARIED), given_here.is_some());
        let (name, values) = chosen.split_once('=').unwrap_or((chosen, ""));
        let values: Vec<_> = values.split(',').filter(|value| !value.is_empty()).collect();
        let known = designs.iter().any(|design| has_setting(*design, name));
        let refusal = match () {
            () if !every && (!known || given.has(name)) => {
                return Ok(Variants { designs, varied: None, every });
            }
            () if values.is_empty() => "write NAME=VALUE,VALUE, for example pcp=auto,fixed",
            () if !known => "none of these designs has this setting (see `freehold list settings`)",
            () if given.has(name) => "--set gives this setting one value already",
            () => {
                let values = values.into_iter().map(str::to_owned).collect();
                return Ok(Variants { designs, varied: Some((name.to_owned(), values)), every });
            }
        };
        let option = if args.vary.is_some() { "--vary" } else { "--all-settings:" };
        refuse(format!("{option} {chosen}: {refusal}"))
    }

    /// The name of the setting that is varied.
    fn name(&self) -> Option<String> {
        self.varied.as_ref().map(|(name, _)| name.clone())
    }

    /// The designs that run on a part's machine, and the settings, of each variant of that part of
    /// the command. A design without the setting takes part only in the first.
    fn of(
        &self,
        part: Option<&Assignments>,
        runs: fn(SimDesign) -> bool,
    ) -> Vec<(Vec<SimDesign>, Assignments)> {
        let Some(part) = part else { return Vec::new() };
        let running = self.designs.iter().copied().filter(|design| runs(*design));
        let Some((name, values)) = &self.varied else {
            return vec![(running.collect(), part.clone())];
        };
        let variants = values.iter().enumerate().map(|(nth, value)| {
            let takes_part = |design: &SimDesign| {
                nth == 0 || (has_setting(*design, name) && (self.every || *design == BASELINE))
            };
            let designs = running.clone().filter(takes_part).collect();
            (designs, part.with(name, value))
        });
        variants.collect()
    }
}

fn has_setting(design: SimDesign, name: &str) -> bool {
    design.settings().iter().any(|setting| setting.name == name)
}
