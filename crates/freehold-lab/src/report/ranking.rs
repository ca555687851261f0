//! The ranking of a comparison: which contestants are ahead of which, by each goal, and which
//! places are ties.

use anyhow::Result;
use serde::Serialize;

use super::document::RunResult;
use super::goal::Goal;
use super::summary::Summary;

/// A result, and its values by each goal, as far as it has them.
#[derive(Clone, Debug)]
pub(super) struct Trial<'a> {
    /// Its place among all results of the comparison.
    pub(super) index: usize,
    pub(super) result: &'a RunResult,
    values: Vec<Option<f64>>,
}

impl<'a> Trial<'a> {
    pub(super) fn new(index: usize, result: &'a RunResult, goals: &[Goal]) -> Result<Self> {
        let value = serde_json::to_value(result)?;
        let values = goals.iter().map(|goal| goal.figure.value(&value)).collect();
        Ok(Trial { index, result, values })
    }
}

/// A contestant on one machine: a result for each seed, in their order.
#[derive(Debug)]
pub(super) struct Contestant<'a> {
    pub(super) name: String,
    pub(super) trials: Vec<Trial<'a>>,
}

impl<'a> Contestant<'a> {
    /// The values by a goal.
    fn values(&self, goal: usize) -> Vec<f64> {
        self.trials.iter().filter_map(|trial| trial.values[goal]).collect()
    }

    /// The trial that stands for all: the one with the median of a goal, of two in the middle the
    /// worse.
    pub(super) fn typical(&self, number: usize, goal: &Goal) -> &Trial<'a> {
        let mut sorted: Vec<_> = self.trials.iter().collect();
        let value = |trial: &&Trial<'_>| trial.values[number].unwrap_or_default();
        sorted.sort_by(|one, other| match goal.is_better(1.0, 0.0) {
            true => value(one).total_cmp(&value(other)),
            false => value(other).total_cmp(&value(one)),
        });
        sorted[(sorted.len() - 1) / 2]
    }
}

/// How one contestant does by one goal.
#[derive(Debug, Serialize)]
pub(super) struct Standing {
    /// The name of the figure.
    pub(super) figure: &'static str,
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Multiples of the baseline's value with the same seed: the median, the least and the most.
    pub(super) ratio: f64,
    pub(super) ratio_min: f64,
    pub(super) ratio_max: f64,
    /// The best and the worst place: not the same if this is a tie. A contestant is ahead of
    /// another if it is better with all seeds than the other with any.
    pub(super) place_first: usize,
    pub(super) place_last: usize,
}

impl Standing {
    /// The place, or the places of a tie.
    pub(super) fn place(&self) -> String {
        match (self.place_first, self.place_last) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        }
    }

    /// The ratio, and how far it spreads if it does.
    pub(super) fn ratio_in_words(&self) -> String {
        let [ratio, min, max] =
            [self.ratio, self.ratio_min, self.ratio_max].map(|ratio| format!("{ratio:.2}"));
        match min == max {
            true => format!("{ratio}x"),
            false => format!("{ratio}x ({min} to {max})"),
        }
    }
}

/// The numbers of the goals that all results of a machine have a value for.
pub(super) fn shared_goals(goals: &[Goal], all: &[Contestant<'_>]) -> Vec<usize> {
    let has = |goal: usize| {
        all.iter().flat_map(|of| &of.trials).all(|trial| trial.values[goal].is_some())
    };
    (0..goals.len()).filter(|goal| has(*goal)).collect()
}

/// How each contestant stands by a goal that all have a value for, in their order. `baseline` is
/// the number of the one that ratios refer to.
pub(super) fn standings(
    number: usize,
    goal: &Goal,
    all: &[Contestant<'_>],
    baseline: usize,
) -> Vec<Standing> {
    let values: Vec<_> = all.iter().map(|contestant| contestant.values(number)).collect();
    let summaries: Vec<_> = values.iter().map(|values| Summary::of(values)).collect();
    let is_ahead = |one: &Summary, other: &Summary| {
        goal.is_better(one.min, other.max) && goal.is_better(one.max, other.min)
    };
    let standing = |(own, summary): (&Vec<f64>, &Summary)| {
        let ratios: Vec<_> =
            own.iter().zip(&values[baseline]).map(|(own, baseline)| own / baseline).collect();
        let ratios = Summary::of(&ratios);
        let ahead = summaries.iter().filter(|other| is_ahead(other, summary)).count();
        let behind = summaries.iter().filter(|other| is_ahead(summary, other)).count();
        Standing {
            figure: goal.figure.name,
            median: summary.median,
            min: summary.min,
            max: summary.max,
            ratio: ratios.median,
            ratio_min: ratios.min,
            ratio_max: ratios.max,
            place_first: ahead + 1,
            place_last: all.len() - behind,
        }
    };
    values.iter().zip(&summaries).map(standing).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::by_hand::measured;
    use crate::report::figure::Figure;
    use crate::report::goal::RATE;

    /// Contestants with these rates, a seed each.
    fn results(rates: &[[f64; 3]]) -> Vec<Vec<RunResult>> {
        let of = |rates: &[f64; 3]| rates.map(|rate| measured("cluster", rate, 0.1)).into();
        rates.iter().map(of).collect()
    }

    fn contestants<'a>(results: &'a [Vec<RunResult>], goals: &[Goal]) -> Vec<Contestant<'a>> {
        let trial = |result: &'a RunResult| Trial::new(0, result, goals).unwrap();
        let of = |results: &'a Vec<RunResult>| results.iter().map(trial).collect();
        let all = results.iter().map(of);
        all.map(|trials| Contestant { name: String::new(), trials }).collect()
    }

    #[test]
    fn contestants_whose_seeds_overlap_share_places() {
        let rates = [[10.0, 11.0, 12.0], [30.0, 31.0, 32.0], [12.0, 13.0, 14.0], [1.0, 2.0, 3.0]];
        let results = results(&rates);
        let all = standings(0, &RATE, &contestants(&results, &[RATE]), 0);
        let places: Vec<_> = all.iter().map(Standing::place).collect();
        assert_eq!(places, ["2-3", "1", "2-3", "4"]);
        assert_eq!((all[0].median, all[0].min, all[0].max), (11.0, 10.0, 12.0));
    }

    #[test]
    fn ratios_compare_results_of_one_seed() {
        // All seeds differ widely, but always by the same factor.
        let results = results(&[[10.0, 20.0, 40.0], [20.0, 40.0, 80.0]]);
        let all = standings(0, &RATE, &contestants(&results, &[RATE]), 0);
        assert_eq!((all[1].ratio, all[1].ratio_min, all[1].ratio_max), (2.0, 2.0, 2.0));
        assert_eq!(all[1].ratio_in_words(), "2.00x");
        assert_eq!((all[0].place(), all[1].place()), ("1-2".to_owned(), "1-2".to_owned()));
        let spread = standings(0, &RATE, &contestants(&results, &[RATE]), 1);
        assert_eq!(spread[0].ratio_in_words(), "0.50x");
    }

    #[test]
    fn of_a_cost_less_is_better() {
        const COST: Goal = Goal::time("pair", Figure::cost("per_second", "/work/per_second"));
        let results = results(&[[10.0, 11.0, 12.0], [30.0, 31.0, 32.0]]);
        let all = contestants(&results, &[COST]);
        let places: Vec<_> = standings(0, &COST, &all, 0).iter().map(Standing::place).collect();
        assert_eq!(places, ["1", "2"]);
        assert_eq!(all[0].typical(0, &COST).result.work.per_second, 11.0);
    }

    #[test]
    fn the_result_with_the_median_stands_for_all() {
        let results = results(&[[12.0, 10.0, 11.0]]);
        let mut all = contestants(&results, &[RATE]);
        assert_eq!(all[0].typical(0, &RATE).result.work.per_second, 11.0);
        all[0].trials.truncate(2);
        assert_eq!(all[0].typical(0, &RATE).result.work.per_second, 10.0, "the worse of two");
    }

    #[test]
    fn a_goal_that_a_result_lacks_ranks_nothing() {
        const NONE: Goal = Goal::share("there", Figure::gain("there", "/workload_specific/no"));
        const GOALS: &[Goal] = &[RATE, NONE];
        let results = results(&[[1.0, 2.0, 3.0]]);
        assert_eq!(shared_goals(GOALS, &contestants(&results, GOALS)), [0]);
    }
}
