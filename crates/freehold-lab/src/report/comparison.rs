//! The output of `freehold compare`: the JSON document, and for each machine a table and a ranking.

use anyhow::Result;
use serde::Serialize;
use serde_json::to_value;

use super::columns::Telling;
use super::csv::{Csv, or_empty};
use super::document::{RunResult, cpus_in_words};
use super::figure::Figures;
use super::goal::Goal;
use super::profile::PROFILE;
use super::ranking::{Contestant, Standing, Trial, shared_goals, standings};
use super::reasons::reasons;
use super::result_rows::{Further, result_rows};

/// The version of the format.
pub(crate) const COMPARE_SCHEMA: &str = "freehold.compare/2";

/// What is compared, and by what.
#[derive(Clone)]
pub(crate) struct Terms {
    /// The design that ratios refer to, if it takes part.
    pub(crate) baseline: String,
    /// The setting by which a design can be several contestants.
    pub(crate) varied: Option<String>,
    /// What is ranked by, the most important first.
    pub(crate) goals: &'static [Goal],
    /// The workload's numbers to mention.
    pub(crate) telling: &'static [Telling],
}

impl Terms {
    /// A result in a line, as soon as it is known.
    pub(crate) fn row(&self, result: &RunResult) -> Result<String> {
        let (name, value) = (contestant(result, self.varied.as_deref()), to_value(result)?);
        let goals = self.goals.iter().filter_map(|goal| {
            let shown = goal.shown(goal.figure.value(&value)?);
            Some(format!("{shown:>7} {}", goal.heading(result)))
        });
        let goals = goals.collect::<Vec<_>>().join("  ");
        Ok(format!("{:<12} {name:<22} {goals}", result.machine))
    }
}

/// One workload on several designs, on one machine or two.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    schema: &'static str,
    /// The contestant that the ratios refer to.
    pub(super) baseline: String,
    /// The setting by which a design can be several contestants.
    #[serde(skip_serializing_if = "Option::is_none")]
    varied: Option<String>,
    pub(super) results: Vec<RunResult>,
    /// Machine by machine, the best by the first goal first.
    pub(super) ranking: Vec<Ranked>,
    #[serde(skip)]
    goals: &'static [Goal],
}

/// The places of one contestant on one machine.
#[derive(Debug, Serialize)]
pub(super) struct Ranked {
    /// The design, and the setting that makes it another contestant.
    pub(super) contestant: String,
    design: String,
    pub(super) machine: String,
    /// How many results it has, each of another seed.
    pub(super) seeds: usize,
    /// By each goal, the most important first.
    pub(super) standings: Vec<Standing>,
    /// What the typical result has counted.
    pub(super) reasons: Vec<String>,
    /// Which of the results stands for all: the one with the median of the first goal.
    #[serde(skip)]
    typical: usize,
}

impl Comparison {
    /// Compares results, of which each machine has one for each contestant and seed: a contestant
    /// is a design with one value of the varied setting. Ratios refer to the first contestant of
    /// the baseline's design, or to the first of all.
    pub(crate) fn new(results: Vec<RunResult>, terms: Terms) -> Result<Self> {
        let Terms { baseline, varied, goals, telling } = terms;
        let name = |result: &RunResult| contestant(result, varied.as_deref());
        let first = results.iter().find(|result| result.design == baseline);
        let baseline = first.or(results.first()).map(name).unwrap_or_default();
        let mut machines: Vec<(&str, Vec<Contestant<'_>>)> = Vec::new();
        for (index, result) in results.iter().enumerate() {
            let (own, trial) = (name(result), Trial::new(index, result, goals)?);
            let known = machines.iter().position(|(machine, _)| *machine == result.machine);
            let machine = known.unwrap_or_else(|| {
                machines.push((&result.machine, Vec::new()));
                machines.len() - 1
            });
            let all = &mut machines[machine].1;
            match all.iter_mut().find(|known| known.name == own) {
                Some(known) => known.trials.push(trial),
                None => all.push(Contestant { name: own, trials: vec![trial] }),
            }
        }
        let of_machine = |(_, all): &(_, Vec<_>)| ranked(all, goals, &baseline, telling);
        let ranking = machines.iter().flat_map(of_machine).collect();
        Ok(Comparison { schema: COMPARE_SCHEMA, baseline, varied, results, ranking, goals })
    }

    /// The results, to be compared together with others.
    pub(crate) fn into_results(self) -> Vec<RunResult> {
        self.results
    }

    /// The results that stand for each contestant, machine by machine.
    pub(super) fn typical_results(&self) -> Vec<&RunResult> {
        self.ranking.iter().map(|ranked| self.typical_of(ranked)).collect()
    }

    /// For each machine, a heading, and its ranking with what goes with it.
    pub(super) fn rankings(&self) -> Vec<(String, Vec<String>)> {
        let of_machine = |all: Vec<&Ranked>| {
            let heading = self.heading(&all);
            let lines = all.into_iter().map(|ranked| {
                let (place, standing) = (ranked.place(), self.standing(ranked));
                format!("{place}. {standing}: {}.", ranked.reasons.join("; "))
            });
            (heading, lines.chain([WHAT_REASONS_ARE.to_owned()]).collect())
        };
        self.by_machine().into_iter().map(of_machine).collect()
    }

    /// What the places of a machine are.
    fn heading(&self, all: &[&Ranked]) -> String {
        let typical = self.typical_of(all[0]);
        let seeds = all[0].seeds_in_words();
        format!("Ranking on {}, {}, {seeds}", typical.machine, kind(typical))
    }

    /// The results, with the ratios of their contestants to the baseline.
    pub(crate) fn csv(&self, figures: Figures) -> Result<Csv> {
        let name = |result: &RunResult| contestant(result, self.varied.as_deref());
        let standing = |result: &RunResult| {
            let own = name(result);
            let mut all = self.ranking.iter();
            let ranked = all.find(|of| of.contestant == own && of.machine == result.machine)?;
            ranked.standings.first()
        };
        let ratio = |result: &RunResult| or_empty(standing(result).map(|standing| standing.ratio));
        let place = |result: &RunResult| or_empty(standing(result).map(Standing::place));
        let further = [
            Further { name: "contestant", of: &name },
            Further { name: "ratio_to_baseline", of: &ratio },
            Further { name: "place", of: &place },
        ];
        result_rows(&self.results, figures, &further)
    }

    pub(super) fn typical_of(&self, ranked: &Ranked) -> &RunResult {
        &self.results[ranked.typical]
    }

    /// The places of each machine, in the order of the machines.
    pub(super) fn by_machine(&self) -> Vec<Vec<&Ranked>> {
        let mut machines: Vec<Vec<&Ranked>> = Vec::new();
        for ranked in &self.ranking {
            match machines.iter_mut().find(|machine| machine[0].machine == ranked.machine) {
                Some(machine) => machine.push(ranked),
                None => machines.push(vec![ranked]),
            }
        }
        machines
    }

    /// The goal that a standing is by.
    pub(super) fn goal(&self, standing: &Standing) -> &'static Goal {
        let goal = self.goals.iter().find(|goal| goal.figure.name == standing.figure);
        goal.expect("standings are by goals")
    }

    /// A contestant, and how it compares with the baseline.
    pub(super) fn standing(&self, ranked: &Ranked) -> String {
        let mut text = ranked.contestant.clone();
        if ranked.contestant != self.baseline {
            for standing in &ranked.standings {
                text += &format!(", {} {}", standing.ratio_in_words(), self.baseline);
                if ranked.standings.len() > 1 {
                    let heading = self.goal(standing).heading(self.typical_of(ranked));
                    text += &format!(" in {heading}");
                }
            }
        }
        text
    }
}

/// What the reasons are.
pub(super) const WHAT_REASONS_ARE: &str = "Reasons are what the run with the median has counted: \
    they go together with its place, which does not prove that they cause it.";

impl Ranked {
    /// The place by the first goal.
    pub(super) fn place(&self) -> String {
        self.standings[0].place()
    }

    /// How many results it has.
    pub(super) fn seeds_in_words(&self) -> String {
        match self.seeds {
            1 => "one seed".to_owned(),
            seeds => format!("{seeds} seeds"),
        }
    }
}

/// The places of all contestants on a machine, the best by the first goal first.
fn ranked(
    all: &[Contestant<'_>],
    goals: &[Goal],
    baseline: &str,
    telling: &[Telling],
) -> Vec<Ranked> {
    let of_baseline = all.iter().position(|of| of.name == baseline);
    let of_baseline = of_baseline.expect("what runs on the host runs on simulated machines");
    let shared = shared_goals(goals, all);
    let first = *shared.first().expect("the results of a workload have one of its goals");
    let by_goal = shared.iter().map(|&goal| standings(goal, &goals[goal], all, of_baseline));
    let mut by_goal: Vec<_> = by_goal.map(Vec::into_iter).collect();
    let typical_baseline = all[of_baseline].typical(first, &goals[first]).result;
    let ranked = all.iter().map(|of| {
        let typical = of.typical(first, &goals[first]);
        let other = Some(typical_baseline).filter(|_| of.name != baseline);
        Ranked {
            contestant: of.name.clone(),
            design: typical.result.design.clone(),
            machine: typical.result.machine.clone(),
            seeds: of.trials.len(),
            standings: by_goal.iter_mut().filter_map(Iterator::next).collect(),
            reasons: reasons(typical.result, other, telling),
            typical: typical.index,
        }
    });
    let mut ranked: Vec<_> = ranked.collect();
    ranked.sort_by(|one, other| {
        let [one, other] = [one, other].map(|ranked| ranked.standings[0].median);
        let order = one.total_cmp(&other);
        if goals[first].is_better(1.0, 0.0) { order.reverse() } else { order }
    });
    ranked
}

/// The design of a result and the setting that makes it another contestant.
fn contestant(result: &RunResult, varied: Option<&str>) -> String {
    let value = varied.and_then(|name| Some((name, result.settings.get(name)?)));
    value.map_or_else(
        || result.design.clone(),
        |(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{} {name}={text}", result.design)
        },
    )
}

/// The kind of a machine's figures.
pub(super) fn kind(result: &RunResult) -> String {
    let cpus = cpus_in_words(result.cpus as usize);
    let origin = result.origin();
    match result.simulated {
        Some(_) => format!("{origin} with {cpus}, a prediction"),
        None => format!("{origin} on this host with {cpus} and profile {PROFILE}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::by_hand::{measured, simulated};
    use crate::report::figure::Figure;
    use crate::report::goal::RATE;

    fn of(results: Vec<RunResult>, varied: Option<String>, goals: &'static [Goal]) -> Comparison {
        let terms = Terms { baseline: "zone-lock".to_owned(), varied, goals, telling: &[] };
        Comparison::new(results, terms).unwrap()
    }

    /// Two machines that disagree on which design is faster.
    fn comparison() -> Comparison {
        let waits = [("hotplug_lock", 0.998), ("hotplug_lock.other", 0.998)];
        let results = vec![
            measured("zone-lock", 20_000_000.0, 0.01),
            measured("merge-ahead", 10_000_000.0, 0.01),
            simulated("zone-lock", 1_000_000_000.0, &waits),
            simulated("merge-ahead", 2_500_000_000.0, &waits),
        ];
        of(results, None, &[RATE])
    }

    #[test]
    fn the_text_has_two_rows_and_two_places_for_each_design() {
        let comparison = comparison();
        let parts = [comparison.answer(true), comparison.answer(false), comparison.legend(&[])];
        let text = format!("{}\n{}", parts.concat(), comparison.why());
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
        let lines: Vec<_> = text.lines().collect();
        let rows = lines.iter().filter(|line| line.starts_with(" merge-ahead"));
        let rows: Vec<Vec<_>> = rows.map(|row| row.split_whitespace().collect()).collect();
        assert_eq!(rows[0][..5], ["merge-ahead", "2.50", "G", "2.50x", "1"], "{text}");
        assert_eq!(rows[0][6..10], ["hotplug", "lock", "99.8", "%"], "{text}");
        assert_eq!(rows[1][..5], ["merge-ahead", "10.0", "M", "0.50x", "2"], "{text}");
        let ranked: Vec<_> = lines.iter().filter(|line| line.contains(". merge-ahead, ")).collect();
        assert!(ranked[0].starts_with("2. merge-ahead, 0.50x zone-lock: each CPU does"), "{text}");
        assert!(ranked[1].starts_with("1. merge-ahead, 2.50x zone-lock: waits 99.8 %"), "{text}");
        assert!(text.contains("measured on this host") && text.contains("a prediction"), "{text}");
        assert!(text.contains("place: by one seed"), "{text}");
        assert!(text.contains("not prove that they cause it."), "{text}");
    }

    #[test]
    fn one_design_with_two_settings_is_two_contestants() {
        let with = |value: &str, per_second| {
            let mut result = measured("zone-lock", per_second, 0.01);
            result.settings.insert("pcp".to_owned(), value.into());
            result
        };
        let results = vec![with("auto", 2e6), with("fixed", 1e6)];
        let comparison = of(results, Some("pcp".to_owned()), &[RATE]);
        let ranking = comparison.ranking.iter();
        let names = ranking.map(|ranked| (&*ranked.contestant, ranked.standings[0].ratio));
        assert!(names.eq([("zone-lock pcp=auto", 1.0), ("zone-lock pcp=fixed", 0.5)]));
    }

    #[test]
    fn each_goal_has_places_of_its_own_and_seeds_make_ties() {
        const HUGE: Figure = Figure::gain("huge_per_second", "/workload_specific/huge");
        const GOALS: &[Goal] = &[RATE, Goal::rate("huge/s", HUGE)];
        let with = |design: &str, per_second, huge: f64| {
            let mut result = measured(design, per_second, 0.1);
            result.workload_specific.insert("huge".to_owned(), huge.into());
            result
        };
        let results = vec![
            with("zone-lock", 1e6, 5e3),
            with("freehold", 3e6, 4e3),
            with("cluster", 1.1e6, 9e3),
            with("zone-lock", 1.2e6, 5e3),
            with("freehold", 3.6e6, 5.5e3),
            with("cluster", 0.9e6, 8e3),
        ];
        let comparison = of(results, None, GOALS);
        let places = comparison.ranking.iter().map(|ranked| {
            let places = ranked.standings.iter().map(Standing::place).collect::<Vec<_>>();
            (&*ranked.contestant, ranked.seeds, places.join(" "))
        });
        let places: Vec<_> = places.collect();
        let place = |name, places: &str| (name, 2, places.to_owned());
        let expected =
            [place("freehold", "1 2-3"), place("zone-lock", "2-3 2-3"), place("cluster", "2-3 1")];
        assert_eq!(places, expected);
        let text = comparison.answer(false) + &comparison.why();
        let freehold =
            "1. freehold, 3.00x zone-lock in faults/s, 0.95x (0.80 to 1.10) zone-lock in huge/s:";
        assert!(text.contains(freehold), "{text}");
        assert!(text.contains("2-3. cluster, 0.93x (0.75 to 1.10) zone-lock in"), "{text}");
        assert!(text.contains(", 2 seeds. First in huge/s: cluster."), "{text}");
    }
}
