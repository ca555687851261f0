//! The settings of the design.

use core::fmt;

use crate::bookkeeping::{Bookkeeping, Counters, Locking};
use crate::pcp_tuning::PcpMode;
use freehold::Error;
use freehold::designs::{Setting, SettingError, Settings};

/// The settings of a design with one lock per zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedSettings<O> {
    /// How the per-CPU lists are sized; tuned by default.
    pub pcp: Pcp,
    /// Frames that move at a time if the lists are fixed.
    pub batch: u32,
    /// Frames that a CPU caches if the lists are fixed.
    pub high: u32,
    /// The most powers of two by which a refill, a drain and a hold of the zone lock exceed a
    /// batch if the lists are tuned: more is faster, less makes other CPUs and interrupts wait
    /// less. 0 to 6.
    pub batch_scale: u32,
    /// What is disabled while a CPU's lists are in use; nothing by default.
    pub locking: Locking,
    /// How events are counted; relaxed by default.
    pub counters: Counters,
    /// The settings that only this design has.
    pub own: O,
}

/// The settings that only one design has.
pub trait OwnSettings: Default + Clone + fmt::Debug {
    /// All settings.
    const TABLE: &'static [Setting];

    /// Sets one by its name.
    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError>;

    /// Calls `each` with the name and value of every setting.
    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display));
}

/// A design without its own settings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoneOfItsOwn;

impl OwnSettings for NoneOfItsOwn {
    const TABLE: &'static [Setting] = &[];

    fn set(&mut self, _name: &str, _value: &str) -> Result<(), SettingError> {
        Err(SettingError::UnknownName)
    }

    fn for_each(&self, _each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {}
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
        ZonedSettings {
            pcp: Pcp::Auto,
            batch: 31,
            high: 186,
            batch_scale: 5,
            locking: Locking::Local,
            counters: Counters::Relaxed,
            own: O::default(),
        }
    }
}

/// The largest value of `batch` and `high`, in frames.
const FRAMES_MAX: u32 = 1 << 20;

/// The largest `batch_scale`, as for `CONFIG_PCP_BATCH_SCALE_MAX`.
const BATCH_SCALE_MAX: u32 = 6;

/// The settings that all designs of the skeleton have.
const COMMON: [Setting; 6] = [
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
    Setting {
        name: "batch_scale",
        values: "0..=6",
        default: "5",
        meaning: "at most batch << batch_scale frames a hold of the zone lock when pcp=auto",
    },
    Setting {
        name: "locking",
        values: "irq|local|rt",
        default: "local",
        meaning: "interrupts off over list and zone lock, over the zone lock alone, or never",
    },
    Setting {
        name: "counters",
        values: "exact|relaxed",
        default: "relaxed",
        meaning: "events counted with interrupts off, or in plain words of each CPU",
    },
];

/// More settings than any design has.
const SETTINGS_MAX: usize = 16;

impl<O: OwnSettings> ZonedSettings<O> {
    /// The common settings, those of the design, and the first one repeated up to the length.
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
        let ZonedSettings { pcp, batch, high, batch_scale, .. } = *self;
        match pcp {
            _ if self.contradiction().is_some() => Err(Error::BadSetting),
            Pcp::Auto => Ok(PcpMode::Auto { batch_scale }),
            Pcp::Fixed => Ok(PcpMode::Fixed { batch, high }),
        }
    }
}

impl<O> ZonedSettings<O> {
    /// How lists and counters are protected.
    pub(crate) fn bookkeeping(&self) -> Bookkeeping {
        Bookkeeping { locking: self.locking, counters: self.counters }
    }
}

/// The names of the ways of sizing.
const PCP: [(&str, Pcp); 2] = [("fixed", Pcp::Fixed), ("auto", Pcp::Auto)];

/// The names of the ways of locking.
const LOCKING: [(&str, Locking); 3] =
    [("irq", Locking::Irq), ("local", Locking::Local), ("rt", Locking::Rt)];

/// The names of the ways of counting.
const COUNTERS: [(&str, Counters); 2] =
    [("exact", Counters::Exact), ("relaxed", Counters::Relaxed)];

/// The value that a name stands for.
pub(crate) fn meaning<T: Copy>(words: &[(&str, T)], value: &str) -> Result<T, SettingError> {
    let word = words.iter().find(|(word, _)| *word == value);
    word.map(|(_, meaning)| *meaning).ok_or(SettingError::BadValue)
}

/// The name of a value.
pub(crate) fn word<T: PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|(_, of)| *of == meaning).map_or("", |(word, _)| word)
}

impl<O: OwnSettings> Settings for ZonedSettings<O> {
    const TABLE: &'static [Setting] = Self::ALL.split_at(COMMON.len() + O::TABLE.len()).0;

    fn set(&mut self, name: &str, value: &str) -> Result<(), SettingError> {
        let frames = || match value.parse() {
            Ok(frames @ 1..=FRAMES_MAX) => Ok(frames),
            _ => Err(SettingError::BadValue),
        };
        match name {
            "pcp" => self.pcp = meaning(&PCP, value)?,
            "batch" => self.batch = frames()?,
            "high" => self.high = frames()?,
            "batch_scale" => match value.parse() {
                Ok(scale @ 0..=BATCH_SCALE_MAX) => self.batch_scale = scale,
                _ => return Err(SettingError::BadValue),
            },
            "locking" => self.locking = meaning(&LOCKING, value)?,
            "counters" => self.counters = meaning(&COUNTERS, value)?,
            _ => return self.own.set(name, value),
        }
        Ok(())
    }

    fn contradiction(&self) -> Option<&'static str> {
        let ZonedSettings { pcp, batch, high, batch_scale, .. } = *self;
        if pcp == Pcp::Auto && batch_scale > BATCH_SCALE_MAX {
            return Some("with pcp=auto, batch_scale must be from 0 to 6");
        }
        let bad = batch == 0 || high < batch || high > FRAMES_MAX;
        if pcp == Pcp::Fixed && bad {
            return Some("with pcp=fixed, batch must be at least 1 and high from batch to 1048576");
        }
        let both = (self.locking, self.counters) == (Locking::Rt, Counters::Exact);
        both.then_some("locking=rt never disables interrupts, which counters=exact needs")
    }

    fn for_each(&self, each: &mut dyn FnMut(&'static str, &dyn fmt::Display)) {
        each("pcp", &word(&PCP, self.pcp));
        if self.pcp == Pcp::Fixed {
            each("batch", &self.batch);
            each("high", &self.high);
        }
        // Shown only if not the default, so that the hash of runs made before they existed stays
        // the same.
        let ever = ZonedSettings::<O>::default();
        if self.pcp == Pcp::Auto && self.batch_scale != ever.batch_scale {
            each("batch_scale", &self.batch_scale);
        }
        if self.locking != ever.locking {
            each("locking", &word(&LOCKING, self.locking));
        }
        if self.counters != ever.counters {
            each("counters", &word(&COUNTERS, self.counters));
        }
        self.own.for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone_lock::ZoneLockSettings;

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
    fn the_scale_of_a_batch_is_bounded() {
        let mut settings = ZoneLockSettings::default();
        assert_eq!(settings.set("batch_scale", "7"), Err(SettingError::BadValue));
        assert_eq!(settings.set("batch_scale", "0"), Ok(()));
        assert_eq!(settings.mode(), Ok(PcpMode::Auto { batch_scale: 0 }));
        settings.batch_scale = 7;
        assert_eq!(settings.mode(), Err(Error::BadSetting));
    }

    #[test]
    fn exact_counters_need_interrupts_to_disable() {
        let mut settings = ZoneLockSettings::default();
        settings.set("locking", "rt").unwrap();
        assert_eq!(settings.contradiction(), None);
        settings.set("counters", "exact").unwrap();
        assert!(settings.contradiction().is_some_and(|words| words.contains("locking=rt")));
        assert_eq!(settings.mode(), Err(Error::BadSetting));
        settings.set("locking", "irq").unwrap();
        let mut shown = 0;
        settings.for_each(&mut |_, _| shown += 1);
        assert_eq!((settings.contradiction(), shown), (None, 3));
        assert_eq!(settings.set("locking", "off"), Err(SettingError::BadValue));
    }
}
