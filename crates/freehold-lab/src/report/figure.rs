//! The figures of results: what a CSV table has columns for, and what two documents are compared
//! by. They are found in the JSON of a result, so that stored results are read as new ones are.

use freehold::Order;
use serde_json::Value;

/// Which change of a figure is for the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Worse {
    /// Of a rate, or a share of successes.
    Lower,
    /// Of a time, or a number of failures.
    Higher,
}

/// One figure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figure {
    /// With its unit last.
    pub(crate) name: &'static str,
    source: Source,
    /// Where the samples are whose median it is, as a JSON pointer; empty if there are none.
    samples: &'static str,
    /// `None` if it is not compared: it follows from others, or neither change is for the worse.
    pub(crate) worse: Option<Worse>,
}

#[derive(Clone, Copy, Debug)]
enum Source {
    /// A JSON pointer.
    At(&'static str),
    Computed(fn(&Value) -> Option<f64>),
}

impl Figure {
    /// One of which more is better.
    pub(crate) const fn gain(name: &'static str, at: &'static str) -> Self {
        Figure { name, source: Source::At(at), samples: "", worse: Some(Worse::Lower) }
    }

    /// One of which less is better.
    pub(crate) const fn cost(name: &'static str, at: &'static str) -> Self {
        Figure { name, source: Source::At(at), samples: "", worse: Some(Worse::Higher) }
    }

    /// One that is not compared.
    pub(crate) const fn aside(name: &'static str, at: &'static str) -> Self {
        Figure { name, source: Source::At(at), samples: "", worse: None }
    }

    /// The same as the median of the samples there: a list of numbers, or of rounds, which are
    /// lists of numbers taken at the same time.
    pub(crate) const fn of_samples(self, samples: &'static str) -> Self {
        Figure { samples, ..self }
    }

    /// The value in a result, or in a part of one.
    pub(crate) fn value(&self, of: &Value) -> Option<f64> {
        match self.source {
            Source::At(pointer) => of.pointer(pointer)?.as_f64(),
            Source::Computed(compute) => compute(of),
        }
    }

    /// Its samples, round by round; none if they were not kept.
    pub(crate) fn samples(&self, of: &Value) -> Vec<Vec<f64>> {
        let rounds = of.pointer(self.samples).filter(|_| !self.samples.is_empty());
        let numbers = |round: &Value| match round {
            Value::Array(samples) => samples.iter().filter_map(Value::as_f64).collect(),
            one => Vec::from_iter(one.as_f64()),
        };
        let rounds = rounds.and_then(Value::as_array).into_iter().flatten().map(numbers);
        rounds.filter(|round: &Vec<f64>| !round.is_empty()).collect()
    }
}

/// The figures that results of all workloads may have.
pub(crate) const COMMON: &[Figure] = &[
    Figure::gain("per_second", "/work/per_second")
        .of_samples("/workload_specific/samples_per_second"),
    Figure::cost("alloc_ns", "/workload_specific/calls/alloc/mean_ns"),
    Figure::cost("free_ns", "/workload_specific/calls/free/mean_ns"),
    Figure::aside("allocator_share", "/workload_specific/allocator_share"),
    Figure {
        source: Source::Computed(whole_pageblock_share),
        ..Figure::gain("whole_pageblock_share", "")
    },
    Figure { source: Source::Computed(lock_wait_share), ..Figure::aside("lock_wait_share", "") },
    Figure::aside("zone_lock_wait_share", "/time_share/zone_lock"),
    Figure::aside("irq_off_share", "/irq_off/share"),
    Figure::aside("irq_off_max_ns", "/irq_off/ns_max"),
];

/// The yardstick of runs on the host in which single calls are measured.
pub(crate) const PAIR_NS: Figure = Figure::cost("pair_ns", "/workload_specific/pair_ns/median")
    .of_samples("/workload_specific/samples_pair_ns");
pub(crate) const LOCK_PAIR_NS: Figure =
    Figure::aside("lock_pair_ns", "/workload_specific/lock_pair_ns/median");

/// The share of whole pageblocks in the free memory at the end, after a drain.
fn whole_pageblock_share(result: &Value) -> Option<f64> {
    let memory = result.pointer("/fragmentation/after_drain")?;
    let frames = |name: &str| memory.get(name)?.as_f64();
    let pageblock_frames = Order::PAGEBLOCK.frames().get() as f64;
    let whole = frames("free_pageblocks")? * pageblock_frames;
    Some(whole / frames("free_frames")?.max(1.0))
}

/// Waiting for locks of all classes. Beside the classes there are those with a path.
fn lock_wait_share(result: &Value) -> Option<f64> {
    let shares = result.get("time_share")?.as_object()?;
    let classes = shares.iter().filter(|(name, _)| !name.contains('.'));
    Some(classes.filter_map(|(_, share)| share.as_f64()).fold(0.0, |sum, share| sum + share))
}

/// The figures of a workload's results besides [`COMMON`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) of_whole: &'static [Figure],
    pub(crate) parts: Option<&'static Parts>,
}

/// Results that have parts with figures of their own: lists in lists.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) levels: &'static [Level],
    pub(crate) figures: &'static [Figure],
}

/// A list of parts.
#[derive(Debug)]
pub(crate) struct Level {
    /// Where the list is in what it is part of, as a JSON pointer.
    pub(crate) list: &'static str,
    /// The field that tells its parts apart.
    pub(crate) key: &'static str,
    /// What that is called outside of the document.
    pub(crate) name: &'static str,
}

/// A part of a result.
#[derive(Debug)]
pub(crate) struct Part<'v> {
    /// What tells it apart, level by level.
    pub(crate) names: Vec<(&'static str, String)>,
    pub(crate) value: &'v Value,
}

impl Figures {
    /// The figures of a whole result.
    pub(crate) fn of_whole(&self) -> impl Iterator<Item = &'static Figure> + use<> {
        COMMON.iter().chain(self.of_whole)
    }

    /// The figures of a part.
    pub(crate) fn of_part(&self) -> &'static [Figure] {
        self.parts.map_or(&[], |parts| parts.figures)
    }

    /// What parts are told apart by.
    pub(crate) fn part_names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.parts.into_iter().flat_map(|parts| parts.levels).map(|level| level.name)
    }

    /// The parts of a result; none if it has no parts.
    pub(crate) fn parts<'v>(&self, result: &'v Value) -> Vec<Part<'v>> {
        let Some(Parts { levels, .. }) = self.parts else { return Vec::new() };
        let mut parts = vec![Part { names: Vec::new(), value: result }];
        for Level { list, key, name } in *levels {
            let below = |part: &Part<'v>| {
                let list = part.value.pointer(list).and_then(Value::as_array);
                let names = part.names.clone();
                list.into_iter().flatten().map(move |value| {
                    let own = (*name, value.get(key).map(text).unwrap_or_default());
                    Part { names: names.iter().cloned().chain([own]).collect(), value }
                })
            };
            parts = parts.iter().flat_map(below).collect();
        }
        parts
    }
}

/// A value as text, without quotes.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use serde_json::json;

    use super::*;
    use crate::catalog::{WorkloadName, figures};

    #[test]
    fn samples_are_rounds_of_one_number_or_of_several() {
        let of = |samples| {
            let figure = Figure::cost("a_ns", "/a").of_samples("/s");
            figure.samples(&json!({"a": 1.0, "s": samples}))
        };
        assert_eq!(of(json!([1.0, 2.0])), [[1.0], [2.0]]);
        assert_eq!(of(json!([[1.0, 2.0], [3.0, 4.0]])), [[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!(of(json!(["x", {}])), Vec::<Vec<f64>>::new());
        assert_eq!(Figure::cost("a_ns", "/a").samples(&json!([1.0])), Vec::<Vec<f64>>::new());
    }

    #[test]
    fn parts_are_lists_in_lists() {
        const FIGURES: Figures = Figures {
            of_whole: &[],
            parts: Some(&Parts {
                levels: &[
                    Level { list: "/as", key: "name", name: "a" },
                    Level { list: "/bs", key: "n", name: "b" },
                ],
                figures: &[Figure::cost("x_ns", "/x")],
            }),
        };
        let result = json!({"as": [
            {"name": "one", "bs": [{"n": 1, "x": 3.0}, {"n": 2, "x": 4.0}]},
            {"name": "two", "bs": [{"n": 1, "x": 5.0}]},
        ]});
        let parts = FIGURES.parts(&result);
        let x = |part: &Part<'_>| FIGURES.of_part()[0].value(part.value);
        assert_eq!(parts.iter().map(x).collect::<Vec<_>>(), [Some(3.0), Some(4.0), Some(5.0)]);
        assert_eq!(parts[1].names, [("a", "one".to_owned()), ("b", "2".to_owned())]);
    }

    #[test]
    fn shares_are_computed_of_what_a_result_has() {
        let frames = Order::PAGEBLOCK.frames().get();
        let result = json!({
            "fragmentation": {"after_drain": {"free_pageblocks": 3, "free_frames": 4 * frames}},
            "time_share": {"zone_lock": 0.5, "zone_lock.free": 0.5, "lru_lock": 0.25},
        });
        assert_eq!(whole_pageblock_share(&result), Some(0.75));
        assert_eq!(lock_wait_share(&result), Some(0.75));
        assert_eq!(lock_wait_share(&json!({})), None);
    }

    /// Columns are told apart by their names.
    #[test]
    fn no_two_figures_of_a_workload_have_one_name() {
        for workload in WorkloadName::value_variants() {
            let figures = figures(*workload);
            let all = figures.of_whole().chain(figures.of_part()).map(|figure| figure.name);
            let mut names: Vec<_> = all.chain(figures.part_names()).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{workload:?}");
        }
    }
}
