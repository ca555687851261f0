//! The settings of the design.

use core::fmt;

use crate::designs::{Setting, SettingError, Settings};

/// How the design is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeholdSettings {
    /// Which free frame of a word is allocated.
    pub pick: Pick,
    /// Whether one of two frees of a single frame at the same time is always refused.
    pub double_free: DoubleFree,
}

/// Which of the free frames of a word of 64 is allocated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pick {
    /// The one with the lowest number.
    #[default]
    Lowest,
    /// Any of them: the frames of earlier allocations do not tell which one comes next.
    Random,
}

/// What happens if two calls free a single frame at the same time. One after the other, the second
/// free is refused in any case. Of two that race, each of more than one frame, one is refused in
/// any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DoubleFree {
    /// Both may succeed, if they come from different CPUs. That is counted when it is found, in
    /// [`Events::double_frees_late`](crate::Events::double_frees_late). If the frame was allocated
    /// again before, it is free while its new user has it.
    #[default]
    Fast,
    /// One of them is refused, always.
    ///
    /// Cost: one bit of metadata for each frame, and one RMW more in each allocation and each free
    /// of less than a pageblock, which also leave the fast paths: see `docs/designs.md`.
    Exact,
}

impl Settings for FreeholdSettings {
    const TABLE: &'static [Setting] = &[
        Setting {
            name: "pick",
            values: "lowest|random",
            default: "lowest",
            meaning: "which free frame of a word of 64 is handed out: hardening, at some cost",
        },
        Setting {
            name: "double_free",
            values: "fast|exact",
            default: "fast",
            meaning: "of two frees of one frame at the same time, both may pass, or one is refused",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        match (name, value) {
            ("pick", "lowest") => self.pick = Pick::Lowest,
            ("pick", "random") => self.pick = Pick::Random,
            ("double_free", "fast") => self.double_free = DoubleFree::Fast,
            ("double_free", "exact") => self.double_free = DoubleFree::Exact,
            ("pick" | "double_free", _) => return Err(SettingError::BadValue),
            _ => return Err(SettingError::UnknownName),
        }
        Ok(())
    }

    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {
        let pick = match self.pick {
            Pick::Lowest => "lowest",
            Pick::Random => "random",
        };
        each("pick", &pick);
        let double_free = match self.double_free {
            DoubleFree::Fast => "fast",
            DoubleFree::Exact => "exact",
        };
        each("double_free", &double_free);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_has_the_values_of_its_table() {
        let mut settings = FreeholdSettings::default();
        for (name, value) in [("pick", "random"), ("double_free", "exact")] {
            assert_eq!(settings.set(name, value), Ok(()));
            assert_eq!(settings.set(name, "none"), Err(SettingError::BadValue));
        }
        assert_eq!(settings.set("none", "exact"), Err(SettingError::UnknownName));
        let all = FreeholdSettings { pick: Pick::Random, double_free: DoubleFree::Exact };
        assert_eq!((settings, settings.contradiction()), (all, None));
        for setting in FreeholdSettings::TABLE {
            assert_eq!(settings.set(setting.name, setting.default), Ok(()));
        }
        assert_eq!(settings, FreeholdSettings::default());
    }
}
