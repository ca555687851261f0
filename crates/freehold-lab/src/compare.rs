//! `freehold compare`: every design on this host and on a simulated machine, and why one is faster.

use anyhow::Result;

use crate::UsageError;
use crate::catalog::{DesignName, brief, host_settings, name_of, sim_settings};
use crate::cli::{CompareArgs, chosen_designs};
use crate::matrix::{Matrix, tables};
use crate::report::comparison::Comparison;
use crate::report::out;
use crate::settings::Assignments;

/// Runs all designs on both machines, as far as the workload runs there.
pub(crate) fn compare(args: &CompareArgs) -> Result<()> {
    let workload = args.workload;
    let designs = chosen_designs(&args.design);
    let of_host = (!args.no_host).then(|| tables(&designs, host_settings(workload)));
    let of_sim = sim_settings(workload).filter(|_| !args.no_sim);
    let of_sim = of_sim.map(|of_workload| tables(&designs, of_workload));
    let known = [of_host.as_deref(), of_sim.as_deref()].into_iter().flatten().flatten();
    let given = Assignments::parse(&args.settings, &known.copied().collect::<Vec<_>>())?;

    let brief = brief(workload);
    let of_host = of_host.map(|tables| given.for_part(brief.on_host, &tables));
    let of_sim = of_sim.map(|tables| given.for_part(brief.on_sim, &tables));
    // Both parts are prepared before either runs, so that mistakes show at once.
    let host = of_host.as_ref().map(|assignments| {
        Matrix { workload, designs: &designs, cpus: &[], seed: args.seed, assignments }.on_host()
    });
    let sim = of_sim.as_ref().map(|assignments| {
        let cpus = args.cpus.as_slice();
        let matrix = Matrix { workload, designs: &designs, cpus, seed: args.seed, assignments };
        matrix.on_sim(&args.machine)
    });
    let (host, sim) = (host.transpose()?, sim.transpose()?);

    let mut notes = Vec::new();
    for (part, assignments) in [("on the host", &of_host), ("of the simulation", &of_sim)] {
        let settings = assignments.as_ref().map(ToString::to_string).unwrap_or_default();
        if !settings.is_empty() {
            notes.push(format!("Settings {part}: {settings}."));
        }
    }
    if sim.is_none() && !args.no_sim {
        let only = format!("{} runs on the host only", name_of(&workload));
        if host.is_none() {
            return Err(UsageError(format!("{only}: omit --no-host")).into());
        }
        notes.push(format!("{only}."));
    }
    // One after the other, since simulated cells would disturb what is measured on the host.
    let simulated = sim.map_or(Ok(Vec::new()), |cells| cells.run())?;
    let mut results = host.map_or(Ok(Vec::new()), |cells| cells.run())?;
    results.extend(simulated);

    let baseline = designs.iter().find(|design| **design == DesignName::ZoneLock);
    let baseline = baseline.or(designs.first()).map(name_of).unwrap_or_default();
    let comparison = Comparison::new(results, baseline);
    let text = match args.json {
        true => serde_json::to_string_pretty(&comparison)?,
        false => comparison.text(&notes),
    };
    out!("{text}");
    Ok(())
}
