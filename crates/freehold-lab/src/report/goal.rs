//! What users want of a workload: the figures by which its results are ranked.

use super::document::RunResult;
use super::figure::{COMMON, Figure, Worse};
use super::words::shown;

/// A figure by which contestants are ranked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Goal {
    /// The figure, of which more or less is better.
    pub(crate) figure: Figure,
    /// A short heading; the unit of work a second if empty.
    heading: &'static str,
    unit: Unit,
}

/// How values are shown.
#[derive(Clone, Copy, Debug)]
enum Unit {
    PerSecond,
    Share,
    Nanoseconds,
}

/// The rate of work: the only goal of a workload that names no others.
pub(crate) const RATE: Goal = Goal::rate("", COMMON[0]);

impl Goal {
    /// A rate, such as `huge/s`.
    pub(crate) const fn rate(heading: &'static str, figure: Figure) -> Self {
        Goal { figure, heading, unit: Unit::PerSecond }
    }

    /// A share of successes.
    pub(crate) const fn share(heading: &'static str, figure: Figure) -> Self {
        Goal { figure, heading, unit: Unit::Share }
    }

    /// A time in nanoseconds.
    pub(crate) const fn time(heading: &'static str, figure: Figure) -> Self {
        Goal { figure, heading, unit: Unit::Nanoseconds }
    }

    /// The heading of its column in a table of such results.
    pub(crate) fn heading(&self, of: &RunResult) -> String {
        match self.heading {
            "" => format!("{}/s", of.work.unit),
            heading => heading.to_owned(),
        }
    }

    /// Whether it is a rate.
    pub(crate) fn is_rate(&self) -> bool {
        matches!(self.unit, Unit::PerSecond)
    }

    /// The unit of its values, as charts name it; empty for a rate and a share.
    pub(crate) fn unit(&self) -> &'static str {
        match self.unit {
            Unit::PerSecond | Unit::Share => "",
            Unit::Nanoseconds => "ns",
        }
    }

    /// A value as tables show it.
    pub(crate) fn shown(&self, value: f64) -> String {
        match self.unit {
            Unit::PerSecond => shown(value, ""),
            Unit::Share => shown(value * 100.0, "%"),
            Unit::Nanoseconds => shown(value, "ns"),
        }
    }

    /// Whether one value is better than another.
    pub(crate) fn is_better(&self, one: f64, other: f64) -> bool {
        match self.figure.worse {
            Some(Worse::Higher) => one < other,
            Some(Worse::Lower) | None => one > other,
        }
    }
}
