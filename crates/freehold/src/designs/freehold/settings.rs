//! The settings of the design.

use core::fmt;

use crate::designs::{Setting, SettingError, Settings};

/// How the design is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeholdSettings {
    /// Which of the free frames at hand is handed out.
    pub pick: Pick,
}

/// Which of the free frames of a word of 64 is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// The one with the lowest number.
    #[default]
    Lowest,
    /// Any of them, so that nobody can tell which frame comes next from those that came before.
    Random,
}

impl Settings for FreeholdSettings {
    const TABLE: &'static [Setting] = &[Setting {
        name: "pick",
        values: "lowest|random",
        default: "lowest",
        meaning: "which free frame of a word of 64 is handed out: hardening, at some cost",
    }];

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        self.pick = match (name, value) {
            ("pick", "lowest") => Pick::Lowest,
            ("pick", "random") => Pick::Random,
            ("pick", _) => return Err(SettingError::BadValue),
            _ => return Err(SettingError::UnknownName),
        };
        Ok(())
    }

    fn contradiction(&self) -> Option<&'static str> {
        None
    }

    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {
        let pick = match self.pick {
            Pick::Lowest => "lowest",
            Pick::Random => "random",
        };
        each("pick", &pick);
    }
}
