//! `--machine`: the host, a simulated machine by name, or one described in a file.

use std::path::Path;

use freehold_sim::Spec;

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
        if argument == HOST {
            return Ok(Machine::Host);
        }
        let spec = simulated(argument, "`host`, or a .toml file")?;
        Ok(Machine::Sim(spec))
    }
}

/// As [`Machine::parse`], where only a simulated machine will do.
pub(crate) fn parse_simulated(argument: &str) -> Result<Box<Spec>, String> {
    simulated(argument, "a .toml file")
}

fn simulated(argument: &str, otherwise: &str) -> Result<Box<Spec>, String> {
    if Path::new(argument).extension().is_some_and(|extension| extension == "toml") {
        let text = std::fs::read_to_string(argument)
            .map_err(|error| format!("cannot read {argument}: {error}"))?;
        return Spec::from_toml(argument, &text).map(Box::new).map_err(|error| error.to_string());
    }
    let preset = freehold_sim::preset(argument);
    preset.map(Box::new).map_err(|error| format!("{error}; or {otherwise}"))
}
