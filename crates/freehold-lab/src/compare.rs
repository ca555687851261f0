//! `freehold compare`: every design on this host and on a simulated machine, and why one is faster.

use anyhow::Result;

use crate::UsageError;
use crate::catalog::{brief, figures, goals, host_settings, name_of, sim_settings, telling};
use crate::cli::{CompareArgs, Format, chosen_designs};
use crate::designs::{DesignName, SimDesign};
use crate::matrix::{HostCells, Matrix, SimCells, tables};
use crate::report::comparison::{Comparison, Terms};
use crate::report::out;
use crate::settings::Assignments;
use crate::workload::Brief;

/// The setting varied by default: the per-CPU lists that the series of 2018 had, and those that the
/// later ones build on.
const VARIED: &str = "pcp=auto,fixed";

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
    // One after the other, since simulated cells would disturb measurements on the host.
    let simulated = sim.map_or(Ok(Vec::new()), |cells| cells.run())?;
    let mut results = host.map_or(Ok(Vec::new()), |cells| cells.run())?;
    results.extend(simulated);

    let baseline = name_of(&DesignName::ZoneLock);
    let (varied, goals, telling) = (variants.name(), goals(workload), telling(workload));
    let comparison = Comparison::new(results, Terms { baseline, varied, goals, telling })?;
    let title = format!("{} on every design", name_of(&workload));
    args.report.of_comparison(&title, &comparison, &notes)?;
    match args.format.format() {
        Format::Json => out!("{}", serde_json::to_string_pretty(&comparison)?),
        Format::Csv => comparison.csv(figures(workload))?.print()?,
        Format::Text => out!("{}", comparison.text(&notes)),
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
        return Err(UsageError(format!("{only}: omit --no-sim")).into());
    }
    Ok((!args.no_host).then(|| format!("{only}.")))
}

/// The values of the varied setting.
struct Variants<'a> {
    designs: &'a [SimDesign],
    /// Name and values, unless there is nothing to vary.
    varied: Option<(String, Vec<String>)>,
}

impl<'a> Variants<'a> {
    fn new(args: &CompareArgs, designs: &'a [SimDesign], given: &Assignments) -> Result<Self> {
        let chosen = args.vary.as_deref().unwrap_or(VARIED);
        let (name, values) = chosen.split_once('=').unwrap_or((chosen, ""));
        let values: Vec<_> = values.split(',').filter(|value| !value.is_empty()).collect();
        let known = designs.iter().any(|design| has_setting(*design, name));
        if args.vary.is_none() {
            let varied = (known && !given.has(name))
                .then(|| (name.to_owned(), values.into_iter().map(str::to_owned).collect()));
            return Ok(Variants { designs, varied });
        }
        let refusal = match () {
            () if values.is_empty() => "write NAME=VALUE,VALUE, for example pcp=auto,fixed",
            () if !known => "none of these designs has this setting (see `freehold list settings`)",
            () if given.has(name) => "--set gives this setting one value already",
            () => {
                let values = values.into_iter().map(str::to_owned).collect();
                return Ok(Variants { designs, varied: Some((name.to_owned(), values)) });
            }
        };
        Err(UsageError(format!("--vary {chosen}: {refusal}")).into())
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
            let takes_part = |design: &SimDesign| nth == 0 || has_setting(*design, name);
            let designs = running.clone().filter(takes_part).collect();
            (designs, part.with(name, value))
        });
        variants.collect()
    }
}

fn has_setting(design: SimDesign, name: &str) -> bool {
    design.settings().iter().any(|setting| setting.name == name)
}
