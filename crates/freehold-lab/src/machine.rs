//! `--machine`: the host, a simulated machine by name, or one described in a file.

use std::path::Path;

use freehold_sim::{FileError, Spec};

/// A machine that a workload can run on.
#[derive(Clone, Debug)]
pub(crate) enum Machine {
    /// This machine, with real memory.
    Host,
    /// A simulated machine.
    Sim(Box<Spec>),
}

/// Bytes in a frame, on every machine.
pub(crate) const FRAME_BYTES: u64 = freehold::geometry::FRAME_BYTES as u64;

/// The name of the machine at hand.
pub(crate) const HOST: &str = "host";

impl Machine {
    /// Understands `host`, the name of a preset, and the path of a `.toml` file. The error says
    /// what would be right; a file's names the line.
    pub(crate) fn parse(argument: &str) -> Result<Self, String> {
        Self::parse_beside(Path::new(""), argument)
    }

    /// As [`Machine::parse`]; paths are relative to `folder`. The machine is named as the argument
    /// has it, wherever the folder is.
    pub(crate) fn parse_beside(folder: &Path, argument: &str) -> Result<Self, String> {
        if argument == HOST {
            return Ok(Machine::Host);
        }
        let spec = simulated(folder, argument, "`host`, or a .toml file")?;
        Ok(Machine::Sim(spec))
    }
}

/// As [`Machine::parse`], where only a simulated machine will do.
pub(crate) fn parse_simulated(argument: &str) -> Result<Box<Spec>, String> {
    simulated(Path::new(""), argument, "a .toml file")
}

fn simulated(folder: &Path, argument: &str, otherwise: &str) -> Result<Box<Spec>, String> {
    if Path::new(argument).extension().is_some_and(|extension| extension == "toml") {
        let file = folder.join(argument).display().to_string();
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {file}: {error}"))?;
        let spec = Spec::from_toml(argument, &text);
        return spec.map(Box::new).map_err(|error| FileError { file, ..error }.to_string());
    }
    let preset = freehold_sim::preset(argument);
    preset.map(Box::new).map_err(|error| format!("{error}; or {otherwise}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mangled;

    const MACHINE: &str = "\
base = 'skylake-2s'
name = 'mine'
[topology]
sockets = 4
cores_per_socket = 2
[latency]
l1_ns = 1.5
l2_ns = { value = 5, source = 'a manual' }
";

    #[test]
    fn any_machine_is_read_or_refused_with_a_line() {
        for text in mangled::of(MACHINE) {
            match Spec::from_toml("m.toml", &text) {
                Ok(spec) => assert!(spec.cpus() > 0, "{text}"),
                Err(error) => {
                    let message = error.to_string();
                    let lines = text.lines().count().max(1);
                    assert!((1..=lines).contains(&error.line), "{message}: {text}");
                    assert!(!message.contains('\u{1b}'), "{message:?}");
                }
            }
        }
    }
}
