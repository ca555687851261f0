//! The description of a machine: figures, each with its source.

mod costs;
mod file;
mod key;
mod near;
mod presets;

use std::borrow::Cow;

use freehold::{CpuId, NodeId};
use serde::Serialize;

pub use file::FileError;
pub use key::{Key, Unit};
pub use presets::{UnknownMachine, preset, preset_names};

pub(crate) use costs::{CoreCosts, Costs, Picos, picos};

/// The most cores that a machine may have: a set of cores is four 64-bit words.
pub const CORES_MAX: usize = 256;

/// The most CPUs that a machine may have.
pub const CPUS_MAX: usize = 512;

/// The most last-level caches that a machine may have: a set of them is one 64-bit word.
pub const LLCS_MAX: usize = 64;

/// One figure of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// The value, in the unit of its [`Key`].
    pub value: f64,
    /// Where the value was published, or how it was derived from published ones.
    pub source: Cow<'static, str>,
}

/// A machine: its name and one [`Figure`] for every [`Key`].
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    name: String,
    summary: String,
    figures: Vec<Figure>,
}

/// Why a machine is impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("machine `{machine}`: {reason}")]
pub struct BadSpec {
    /// The name of the machine.
    pub machine: String,
    /// The reason, naming the figure.
    pub reason: String,
}

impl Spec {
    /// The name of the machine.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One sentence that describes the machine.
    pub fn summary(&self) -> &str {
        &self.summary
    }

    /// The value of a figure, in the unit of its key.
    pub fn get(&self, key: Key) -> f64 {
        self.figures[key as usize].value
    }

    /// A figure with its source.
    pub fn figure(&self, key: Key) -> &Figure {
        &self.figures[key as usize]
    }

    /// All figures, in the order of [`Key::ALL`]: the table that `list machines --details` prints.
    pub fn figures(&self) -> impl Iterator<Item = (Key, &Figure)> {
        Key::ALL.iter().map(|&key| (key, self.figure(key)))
    }

    /// Changes one figure. The machine is checked as a whole when it is built.
    pub fn set(&mut self, key: Key, value: f64, source: impl Into<Cow<'static, str>>) {
        self.figures[key as usize] = Figure { value, source: source.into() };
    }

    /// The same machine under another name and description.
    pub fn renamed(mut self, name: &str, summary: &str) -> Self {
        self.name = name.to_owned();
        self.summary = summary.to_owned();
        self
    }

    /// How many CPUs, that is hardware threads, the machine has.
    pub fn cpus(&self) -> usize {
        self.cores() * self.whole(Key::ThreadsPerCore)
    }

    /// How many cores the machine has.
    pub fn cores(&self) -> usize {
        self.llcs() * self.whole(Key::CoresPerLlc)
    }

    /// How many last-level caches the machine has.
    pub fn llcs(&self) -> usize {
        self.nodes() * self.whole(Key::LlcsPerSocket)
    }

    /// How many memory nodes the machine has: one a socket.
    pub fn nodes(&self) -> usize {
        self.whole(Key::Sockets)
    }

    /// The core of a CPU. CPUs are numbered as Linux numbers them on these servers: first one
    /// thread of every core, socket by socket, then the second threads in the same order.
    pub fn core_of(&self, cpu: CpuId) -> usize {
        cpu.index() % self.cores()
    }

    /// The node whose memory is local to a CPU.
    pub fn node_of(&self, cpu: CpuId) -> NodeId {
        let cores_per_node = self.cores() / self.nodes();
        NodeId::new((self.core_of(cpu) / cores_per_node) as u16)
    }

    /// Checks that the machine is possible.
    ///
    /// # Errors
    ///
    /// The first figure that is not a number in its range, or the limit that the topology exceeds:
    /// [`CORES_MAX`], [`CPUS_MAX`] or [`LLCS_MAX`].
    pub fn check(&self) -> Result<(), BadSpec> {
        let bad = |reason| Err(BadSpec { machine: self.name.clone(), reason });
        for (key, figure) in self.figures() {
            if let Err(reason) = check_value(key, figure.value) {
                return bad(reason);
            }
        }
        for (count, most, what) in [
            (self.llcs(), LLCS_MAX, "last-level caches"),
            (self.cores(), CORES_MAX, "cores"),
            (self.cpus(), CPUS_MAX, "CPUs"),
        ] {
            if count > most {
                return bad(format!(
                    "the topology has {count} {what}, at most {most} are supported"
                ));
            }
        }
        if self.get(Key::L1Kib) > self.get(Key::L2Kib) {
            return bad("cache.l1_kib is larger than cache.l2_kib".to_owned());
        }
        Ok(())
    }

    /// A figure that is a whole number.
    fn whole(&self, key: Key) -> usize {
        self.get(key) as usize
    }
}

/// Checks one value against the range of its figure; the error states what would be valid.
fn check_value(key: Key, value: f64) -> Result<(), String> {
    let (least, most) = key.range();
    if !(least..=most).contains(&value) {
        return Err(format!("{key} is {value}, expected {least} to {most}"));
    }
    if key.is_whole() && value.fract() != 0.0 {
        return Err(format!("{key} is {value}, expected a whole number"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_numbered_thread_by_thread_and_socket_by_socket() {
        let spec = preset("skylake-2s").unwrap();
        assert_eq!((spec.cpus(), spec.cores(), spec.nodes()), (112, 56, 2));
        let at = |cpu| (spec.core_of(CpuId::new(cpu)), spec.node_of(CpuId::new(cpu)).index());
        assert_eq!(at(0), (0, 0));
        assert_eq!(at(27), (27, 0));
        assert_eq!(at(28), (28, 1));
        assert_eq!(at(56), (0, 0), "the sibling of CPU 0");
        assert_eq!(at(111), (55, 1));
    }

    #[test]
    fn a_bad_figure_is_named() {
        let mut spec = preset("uma-2").unwrap();
        spec.set(Key::L2Ns, -1.0, "a test");
        assert_eq!(
            spec.check().unwrap_err().to_string(),
            "machine `uma-2`: latency.l2_ns is -1, expected 0 to 1000000"
        );
        spec.set(Key::L2Ns, 4.7, "a test");
        spec.set(Key::CoresPerLlc, 2.5, "a test");
        assert!(spec.check().unwrap_err().reason.contains("whole number"));
        spec.set(Key::CoresPerLlc, 256.0, "a test");
        spec.set(Key::Sockets, 2.0, "a test");
        assert!(spec.check().unwrap_err().reason.contains("512 cores"));
    }
}
