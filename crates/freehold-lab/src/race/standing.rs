//! Rows won, tied and lost.

use std::fmt;

use serde::Serialize;

use crate::report::document::threads_in_words;
use crate::report::summary::Summary;

/// A contestant compared with another one over all rows that both have.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Standing {
    pub(super) contestant: &'static str,
    pub(super) against: &'static str,
    /// Rows in which it took less in every round.
    pub(super) won: usize,
    /// Rows in which it took less in one round and more in another, or as much.
    pub(super) tied: usize,
    /// Rows in which it took more in every round.
    pub(super) lost: Vec<Lost>,
}

/// A row that was lost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Lost {
    pub(super) bench: String,
    pub(super) threads: usize,
    pub(super) memory: f64,
    /// Which contestant has won it.
    pub(super) to: String,
    /// How many times as long a pair took.
    pub(super) ratio: f64,
}

impl Standing {
    /// Before any row.
    pub(super) fn new(contestant: &'static str, against: &'static str) -> Self {
        Standing { contestant, against, won: 0, tied: 0, lost: Vec::new() }
    }

    /// Counts a row by its ratios in all rounds. `lost` describes the row if it is lost.
    pub(super) fn count(&mut self, ratio: &Summary, lost: impl FnOnce() -> Lost) {
        if ratio.max < 1.0 {
            self.won += 1;
        } else if ratio.min > 1.0 {
            self.lost.push(lost());
        } else {
            self.tied += 1;
        }
    }

    /// This, if there was a row.
    pub(super) fn if_any(self) -> Option<Self> {
        (self.won + self.tied + self.lost.len() > 0).then_some(self)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Standing { contestant, against, won, tied, lost } = self;
        let plural = if *won == 1 { "" } else { "s" };
        write!(f, "{contestant} against {against}: {won} row{plural} won, ")?;
        write!(f, "{tied} tied within the spread, {} lost", lost.len())?;
        for (at, lost) in lost.iter().enumerate() {
            let Lost { bench, threads, memory, to, ratio } = lost;
            f.write_str(if at == 0 { ":\n" } else { "\n" })?;
            write!(f, "  {bench}, {}, memory {memory}x: ", threads_in_words(*threads))?;
            write!(f, "{ratio:.2} times {to}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(bench: &str, ratio: f64) -> Lost {
        let (bench, to) = (bench.to_owned(), "mimalloc".to_owned());
        Lost { bench, threads: 1, memory: 1.5, to, ratio }
    }

    #[test]
    fn a_row_is_won_or_lost_if_all_rounds_agree() {
        let mut standing = Standing::new("freehold", "the best peer");
        assert_eq!(standing.clone().if_any(), None);
        for ratios in [[0.8, 0.9, 0.99], [0.5; 3], [0.8, 1.2, 1.3], [0.7, 0.8, 1.0], [1.0; 3]] {
            standing.count(&Summary::of(&ratios), || unreachable!("{ratios:?} is not lost"));
        }
        assert_eq!((standing.won, standing.tied), (2, 3));
        assert_eq!(
            standing.to_string(),
            "freehold against the best peer: 2 rows won, 3 tied within the spread, 0 lost"
        );
        standing.count(&Summary::of(&[1.1, 1.3, 1.4]), || lost("huge", 1.3));
        standing.count(&Summary::of(&[2.0]), || lost("bulk", 2.0));
        assert_eq!(
            standing.to_string(),
            "freehold against the best peer: 2 rows won, 3 tied within the spread, 2 lost:\n  \
             huge, 1 thread, memory 1.5x: 1.30 times mimalloc\n  \
             bulk, 1 thread, memory 1.5x: 2.00 times mimalloc"
        );
        assert_eq!(standing.clone().if_any(), Some(standing));
    }
}
