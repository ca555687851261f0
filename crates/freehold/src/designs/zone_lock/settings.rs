//! The settings of the design.

use core::fmt;

use crate::Error;
use crate::designs::pcp_tuning::PcpMode;
use crate::designs::{Setting, SettingError, Settings};

/// How `zone-lock` is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLockSettings {
    /// How the per-CPU lists are sized: tuned, unless told otherwise.
    pub pcp: Pcp,
    /// Frames that move at a time when the lists are fixed.
    pub batch: u32,
    /// Frames that a CPU keeps when the lists are fixed.
    pub high: u32,
}

/// Whether the per-CPU lists are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pcp {
    /// Constant sizes, as in Linux 4.16.
    Fixed,
    /// Tuned sizes, as in Linux 6.12.
    Auto,
}

impl Default for ZoneLockSettings {
    fn default() -> Self {
        ZoneLockSettings { pcp: Pcp::Auto, batch: 31, high: 186 }
    }
}

/// The largest value of `batch` and `high`: 4 GiB of frames on one CPU's lists.
const FRAMES_MAX: u32 = 1 << 20;

impl ZoneLockSettings {
    pub(super) fn mode(&self) -> Result<PcpMode, Error> {
        let ZoneLockSettings { pcp, batch, high } = *self;
        match pcp {
            _ if self.contradiction().is_some() => Err(Error::BadSetting),
            Pcp::Auto => Ok(PcpMode::Auto),
            Pcp::Fixed => Ok(PcpMode::Fixed { batch, high }),
        }
    }
}

impl Settings for ZoneLockSettings {
    const TABLE: &'static [Setting] = &[
        Setting {
            name: "pcp",
            values: "fixed|auto",
            default: "auto",
            meaning: "per-CPU lists of constant size (Linux 4.16) or tuned (Linux 6.12)",
        },
        Setting {
            name: "batch",
            values: "1..=1048576",
            default: "31",
            meaning: "frames moved at a time when pcp=fixed",
        },
        Setting {
            name: "high",
            values: "batch..=1048576",
            default: "186",
            meaning: "frames a CPU keeps of one zone when pcp=fixed",
        },
    ];

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let frames = || match value.parse() {
            Ok(frames @ 1..=FRAMES_MAX) => Ok(frames),
            _ => Err(SettingError::BadValue),
        };
        match (name, value) {
            ("pcp", "fixed") => self.pcp = Pcp::Fixed,
            ("pcp", "auto") => self.pcp = Pcp::Auto,
            ("pcp", _) => return Err(SettingError::BadValue),
            ("batch", _) => self.batch = frames()?,
            ("high", _) => self.high = frames()?,
            _ => return Err(SettingError::UnknownName),
        }
        Ok(())
    }

    fn contradiction(&self) -> Option<&'static str> {
        let ZoneLockSettings { pcp, batch, high } = *self;
        let bad = batch == 0 || high < batch || high > FRAMES_MAX;
        (pcp == Pcp::Fixed && bad)
            .then_some("with pcp=fixed, batch must be at least 1 and high from batch to 1048576")
    }

    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {
        match self.pcp {
            Pcp::Auto => each("pcp", &"auto"),
            Pcp::Fixed => {
                each("pcp", &"fixed");
                each("batch", &self.batch);
                each("high", &self.high);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_set_by_name() {
        let mut settings = ZoneLockSettings::default();
        for (name, value) in [("pcp", "fixed"), ("batch", "7"), ("high", "21")] {
            settings.set(name, value).unwrap();
        }
        assert_eq!(settings.mode(), Ok(PcpMode::Fixed { batch: 7, high: 21 }));
        assert_eq!(settings.set("pcp", "big"), Err(SettingError::BadValue));
        assert_eq!(settings.set("batch", "0"), Err(SettingError::BadValue));
        assert_eq!(settings.set("colour", "red"), Err(SettingError::UnknownName));
    }

    #[test]
    fn a_high_mark_below_the_batch_is_refused() {
        let settings = ZoneLockSettings { pcp: Pcp::Fixed, batch: 31, high: 30 };
        assert_eq!(settings.mode(), Err(Error::BadSetting));
    }
}
