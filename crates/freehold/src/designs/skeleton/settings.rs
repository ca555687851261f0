//! The settings of the design.

use core::fmt;

use super::policy::OwnSettings;
use crate::Error;
use crate::designs::pcp_tuning::PcpMode;
use crate::designs::{Setting, SettingError, Settings};

/// How a design with one lock a zone is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedSettings<O> {
    /// How the per-CPU lists are sized: tuned, unless told otherwise.
    pub pcp: Pcp,
    /// Frames that move at a time when the lists are fixed.
    pub batch: u32,
    /// Frames that a CPU keeps when the lists are fixed.
    pub high: u32,
    /// What only this design can be told.
    pub own: O,
}

/// Whether the per-CPU lists are tuned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pcp {
    /// Constant sizes, as in Linux 4.16.
    Fixed,
    /// Tuned sizes, as in Linux 6.12.
    Auto,
}

impl<O: Default> Default for ZonedSettings<O> {
    fn default() -> Self {
        ZonedSettings { pcp: Pcp::Auto, batch: 31, high: 186, own: O::default() }
    }
}

/// The largest value of `batch` and `high`: 4 GiB of frames on one CPU's lists.
const FRAMES_MAX: u32 = 1 << 20;

/// The settings that all designs of the skeleton have.
const COMMON: [Setting; 3] = [
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

/// More settings than any design has.
const SETTINGS_MAX: usize = 16;

impl<O: OwnSettings> ZonedSettings<O> {
    /// The common settings, those of the design, and repetitions of the first up to the length.
    const ALL: [Setting; SETTINGS_MAX] = {
        let mut all = [COMMON[0]; SETTINGS_MAX];
        let mut at = 0;
        while at < COMMON.len() + O::TABLE.len() {
            all[at] = if at < COMMON.len() { COMMON[at] } else { O::TABLE[at - COMMON.len()] };
            at += 1;
        }
        all
    };

    /// The mode of the per-CPU lists.
    ///
    /// # Errors
    ///
    /// [`Error::BadSetting`] if the settings contradict each other.
    pub(crate) fn mode(&self) -> Result<PcpMode, Error> {
        let ZonedSettings { pcp, batch, high, .. } = *self;
        match pcp {
            _ if self.contradiction().is_some() => Err(Error::BadSetting),
            Pcp::Auto => Ok(PcpMode::Auto),
            Pcp::Fixed => Ok(PcpMode::Fixed { batch, high }),
        }
    }
}

impl<O: OwnSettings> Settings for ZonedSettings<O> {
    const TABLE: &'static [Setting] = Self::ALL.split_at(COMMON.len() + O::TABLE.len()).0;

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
            _ => return self.own.set(name, value),
        }
        Ok(())
    }

    fn contradiction(&self) -> Option<&'static str> {
        let ZonedSettings { pcp, batch, high, .. } = *self;
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
        self.own.for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::designs::zone_lock::ZoneLockSettings;

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
        let settings = ZoneLockSettings { pcp: Pcp::Fixed, high: 30, ..Default::default() };
        assert_eq!(settings.mode(), Err(Error::BadSetting));
    }
}
