//! A batch: some seeds of one kind on one design, as a command.

use crate::catalog::name_of;
use crate::cli::{Canary, Subject, TortureKind};
use crate::designs::DesignName;

/// Seeds that one process plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) kind: TortureKind,
    pub(super) design: DesignName,
    pub(super) first_seed: u64,
    pub(super) seeds: u64,
    /// A bug to plant.
    pub(super) canary: Option<Canary>,
}

/// How many seeds a batch has: a second or two of work.
fn seeds_of(kind: TortureKind) -> u64 {
    match kind {
        TortureKind::Simulated => 40,
        TortureKind::StopCpu => 6,
        TortureKind::Lru => 40,
        TortureKind::Host => 2,
        TortureKind::Chaos => 4,
    }
}

impl Batch {
    /// The batch of this number, from 0, of a kind and design.
    pub(super) fn new((kind, design): (TortureKind, DesignName), first: u64, nth: u64) -> Self {
        let seeds = seeds_of(kind);
        Batch { kind, design, first_seed: first.wrapping_add(nth * seeds), seeds, canary: None }
    }

    /// One seed of it, which may be beyond the last.
    pub(super) fn one(&self, nth: u64) -> Self {
        Batch { first_seed: self.first_seed.wrapping_add(nth), seeds: 1, ..self.clone() }
    }

    /// What `freehold` is called with.
    pub(super) fn arguments(&self) -> Vec<String> {
        let Batch { kind, design, first_seed, seeds, canary } = self;
        let subject = match kind {
            TortureKind::Simulated | TortureKind::StopCpu => Subject::Allocator,
            TortureKind::Lru => Subject::Lru,
            TortureKind::Host => Subject::Host,
            TortureKind::Chaos => Subject::Chaos,
        };
        let mut arguments = vec!["check".to_owned(), "--json".to_owned()];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        option("--subject", name_of(&subject));
        option("--design", name_of(design));
        option("--first-seed", first_seed.to_string());
        option("--seeds", seeds.to_string());
        // Batches are what runs side by side.
        option("--jobs", "1".to_owned());
        if *kind == TortureKind::StopCpu {
            arguments.push("--stop-cpu".to_owned());
        }
        arguments.extend(canary.map(|bug| format!("--canary={}", name_of(&bug))));
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_kind_follow_each_other() {
        let batch = |nth| Batch::new((TortureKind::Host, DesignName::Cluster), 1000, nth);
        assert_eq!((batch(0).first_seed, batch(1).first_seed, batch(2).seeds), (1000, 1002, 2));
        assert_eq!((batch(1).one(2).first_seed, batch(1).one(2).seeds), (1004, 1));
    }

    #[test]
    fn a_batch_is_a_command_of_check() {
        let batch = Batch::new((TortureKind::StopCpu, DesignName::Cluster), 0, 1);
        assert_eq!(
            batch.arguments().join(" "),
            "check --json --subject allocator --design cluster --first-seed 6 --seeds 6 --jobs 1 \
             --stop-cpu"
        );
    }
}
