//! The built-in machines: files of the form that users write, each figure with its public source.
//!
//! `skylake-2s` is the machine on which most of the published work on zone locks was measured. The
//! other Intel servers start from it and replace figures that were published for them; `desktop`
//! and `epyc-2s` are fully described as far as their sources allow. A source that starts with
//! `derived` says how a figure follows from published ones. What a machine has from its base is
//! `taken from` that.

use super::near::nearest;
use super::{Key, Spec};

/// The files.
const MACHINES: [(&str, &str); 12] = [
    ("skylake-2s", include_str!("machines/skylake-2s.toml")),
    ("skylake-2s-104", include_str!("machines/skylake-2s-104.toml")),
    ("skylake-4s", include_str!("machines/skylake-4s.toml")),
    ("icelake-2s", include_str!("machines/icelake-2s.toml")),
    ("granite-rapids-2s", include_str!("machines/granite-rapids-2s.toml")),
    ("desktop", include_str!("machines/desktop.toml")),
    ("epyc-2s", include_str!("machines/epyc-2s.toml")),
    ("epyc-9654-2s", include_str!("machines/epyc-9654-2s.toml")),
    ("epyc-9965-2s", include_str!("machines/epyc-9965-2s.toml")),
    ("altra", include_str!("machines/altra.toml")),
    ("graviton-4", include_str!("machines/graviton-4.toml")),
    ("power9", include_str!("machines/power9.toml")),
];

/// `uma-N`, whatever N is: cores in one socket, without SMT.
const UMA: &str = include_str!("machines/uma.toml");

const NAMES: [&str; MACHINES.len() + 1] = {
    let mut names = ["uma-N"; MACHINES.len() + 1];
    let mut nth = 0;
    while nth < MACHINES.len() {
        names[nth] = MACHINES[nth].0;
        nth += 1;
    }
    names
};

/// There is no machine of this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownMachine {
    /// The name that was asked for.
    pub name: String,
    /// The nearest name that exists.
    pub suggestion: Option<&'static str>,
}

impl std::fmt::Display for UnknownMachine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "there is no machine `{}`", self.name)?;
        match self.suggestion {
            Some(near) => write!(f, ", did you mean `{near}`?"),
            None => write!(f, "; there are {}", preset_names().join(", ")),
        }
    }
}

impl std::error::Error for UnknownMachine {}

/// The names of the machines that come with the tool; `uma-N` stands for any number of CPUs.
pub fn preset_names() -> &'static [&'static str] {
    &NAMES
}

/// The machine of this name.
///
/// # Errors
///
/// There is none, or `uma-N` is asked for with an `N` that is not 1 to 1024.
pub fn preset(name: &str) -> Result<Spec, UnknownMachine> {
    let read = |text| Spec::from_toml(name, text).expect("the built-in machines are in order");
    if let Some((_, text)) = MACHINES.iter().find(|(known, _)| *known == name) {
        return Ok(read(text));
    }
    let cpus: Option<usize> = name.strip_prefix("uma-").and_then(|cpus| cpus.parse().ok());
    let Some(cpus) = cpus.filter(|cpus| (1..=super::CORES_MAX).contains(cpus)) else {
        let suggestion = nearest(name, preset_names().iter().copied());
        return Err(UnknownMachine { name: name.to_owned(), suggestion });
    };
    let mut spec = read(UMA);
    let source = spec.figure(Key::CoresPerLlc).source.clone();
    spec.set(Key::CoresPerLlc, cpus as f64, source);
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_complete_and_can_be_built() {
        for (name, cpus) in [
            ("skylake-2s", 112),
            ("skylake-2s-104", 104),
            ("skylake-4s", 224),
            ("icelake-2s", 52),
            ("granite-rapids-2s", 512),
            ("desktop", 8),
            ("epyc-2s", 256),
            ("epyc-9654-2s", 384),
            ("epyc-9965-2s", 768),
            ("altra", 80),
            ("graviton-4", 96),
            ("power9", 176),
            ("uma-1", 1),
            ("uma-1024", 1024),
        ] {
            let spec = preset(name).unwrap();
            spec.check().unwrap();
            assert_eq!((spec.name(), spec.cpus()), (name, cpus));
            assert!(spec.figures().all(|(_, figure)| figure.source.len() > 10), "{name}");
        }
    }

    #[test]
    fn unknown_names_get_a_suggestion() {
        assert_eq!(preset("skylake2s").unwrap_err().suggestion, Some("skylake-2s"));
        assert_eq!(preset("vax").unwrap_err().suggestion, None);
        assert!(preset("uma-0").is_err());
        assert!(preset("uma-1025").is_err());
    }
}
