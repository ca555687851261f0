//! One case of a check: what is played, from which seed, and what is left out of it. A case can be
//! saved, and is played again by `freehold check --case`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::catalog::name_of;
use crate::cli::{Canary, CheckArgs, Failure, Subject};
use crate::designs::DesignName;
use crate::error::UsageError;
use crate::output::Output;

const SCHEMA: &str = "freehold.case/1";

/// What is played.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    pub(super) schema: String,
    pub(super) subject: Subject,
    pub(super) design: DesignName,
    pub(super) seed: u64,
    /// If not empty, exactly these failures are injected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) failures: Vec<Failure>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) stop_cpu: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) canary: Option<Canary>,
    #[serde(default)]
    pub(super) cuts: Cuts,
    /// What the check found, for readers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) found: Option<String>,
}

/// What is left out of a scenario, or changed, to make it smaller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Cuts {
    /// Another schedule than the seed's, if not 0.
    pub(super) schedule: u64,
    /// At most so many rounds.
    pub(super) rounds: Option<usize>,
    /// At most so many steps of each CPU in a round.
    pub(super) operations: Option<usize>,
    /// CPUs that do nothing.
    pub(super) idle_cpus: Vec<usize>,
    /// Failures that are not injected.
    pub(super) failures: Vec<Failure>,
    /// Kinds of steps that are left out, by name.
    pub(super) steps: Vec<String>,
}

impl Case {
    /// The case of a seed, as `args` have it.
    pub(super) fn new(args: &CheckArgs, seed: u64) -> Self {
        Case {
            schema: SCHEMA.to_owned(),
            subject: args.subject,
            design: args.design,
            seed,
            failures: args.failures.clone(),
            stop_cpu: args.stop_cpu,
            canary: args.canary,
            cuts: Cuts::default(),
            found: None,
        }
    }

    /// Reads a saved case.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let read = || -> Result<Self> {
            let case: Case = serde_json::from_str(&std::fs::read_to_string(path)?)?;
            ensure!(case.schema == SCHEMA, "its schema is {:?}, not {SCHEMA:?}", case.schema);
            Ok(case)
        };
        let case = read().map_err(|error| {
            let problem = format!(
                "{}: not a case saved by freehold check --shrink: {error:#}",
                path.display()
            );
            UsageError(problem)
        })?;
        case.check()?;
        Ok(case)
    }

    /// Saves it, in a folder that may have to be made.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        }
        let output = Output::new(path)?;
        serde_json::to_writer_pretty(output.writer(), self)
            .with_context(|| path.display().to_string())?;
        output.keep()?;
        Ok(())
    }

    /// Refuses what cannot be combined.
    pub(super) fn check(&self) -> Result<()> {
        let refuse = |problem: &str| Err(UsageError(problem.to_owned()).into());
        let on_allocator = self.subject == Subject::Allocator;
        if self.stop_cpu && !on_allocator {
            return refuse("--stop-cpu is for the subject allocator: others are not checked yet");
        }
        let is_for_frames = on_allocator && !self.stop_cpu || self.subject == Subject::Host;
        if self.canary == Some(Canary::Loss) && !is_for_frames {
            return refuse(
                "--canary=loss is for the subjects allocator and host, without --stop-cpu",
            );
        }
        if self.canary == Some(Canary::Lock) && self.subject != Subject::Chaos {
            return refuse("--canary=lock is for the subject chaos");
        }
        let on_threads = matches!(self.subject, Subject::Host | Subject::Chaos);
        if on_threads && !self.failures.is_empty() {
            return refuse(
                "--failures are those of simulated machines, not of the subjects host and chaos",
            );
        }
        Ok(())
    }

    /// The command that plays it again, if nothing was left out.
    pub(super) fn replay(&self) -> String {
        let (seed, design) = (self.seed, name_of(&self.design));
        let mut command = format!("freehold check --seed {seed} --design {design}");
        if self.subject != Subject::Allocator {
            command += &format!(" --subject {}", name_of(&self.subject));
        }
        if !self.failures.is_empty() {
            let names: Vec<_> = self.failures.iter().map(name_of).collect();
            command += &format!(" --failures {}", names.join(","));
        }
        if self.stop_cpu {
            command += " --stop-cpu";
        }
        if let Some(canary) = self.canary {
            command += &format!(" --canary={}", name_of(&canary));
        }
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        Case {
            schema: SCHEMA.to_owned(),
            subject: Subject::Allocator,
            design: DesignName::MergeAhead,
            seed: 7,
            failures: vec![Failure::TryLock],
            stop_cpu: false,
            canary: Some(Canary::Race),
            cuts: Cuts { operations: Some(3), steps: vec!["hog".to_owned()], ..Cuts::default() },
            found: Some("a frame was lost".to_owned()),
        }
    }

    #[test]
    fn what_is_no_case_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("case.json");
        for text in ["", "{}", "{\"schema\": \"freehold.case/0\"}", "[1]"] {
            std::fs::write(&path, text).unwrap();
            let error = Case::read(&path).unwrap_err();
            assert!(error.is::<UsageError>());
            assert!(error.to_string().contains("case.json: not a case"), "{error}");
        }
        let missing = Case::read(&folder.path().join("none.json")).unwrap_err();
        assert!(missing.to_string().contains("No such file"), "{missing}");
    }

    #[test]
    fn the_command_names_all_that_differs_from_the_default() {
        assert_eq!(
            case().replay(),
            "freehold check --seed 7 --design merge-ahead --failures try-lock --canary=race"
        );
    }
}
