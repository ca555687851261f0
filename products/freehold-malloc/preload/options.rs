//! The environment variable `FREEHOLD_MALLOC`.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use freehold_host::Backing;
use freehold_malloc::PurgeAges;

/// What a program's user may set.
#[derive(Debug)]
pub(crate) struct Options {
    /// Whether the malloc is on Freehold at all.
    pub(crate) is_on: bool,
    /// How much memory the arena may have; by default as much as the machine, or as limits allow.
    pub(crate) bytes: Option<usize>,
    pub(crate) backing: Backing,
    /// Whether huge pages are asked for; if it is not said, as the malloc does by itself.
    pub(crate) asks_for_huge_pages: Option<bool>,
    /// How long the malloc keeps extents that it does not use.
    pub(crate) decay: Duration,
    /// How often the heap is purged; never if `None`.
    pub(crate) purge: Option<Duration>,
    pub(crate) ages: PurgeAges,
    /// Whether purges make no `process_madvise(2)`; if it is not said, where system calls are
    /// filtered.
    pub(crate) single_calls: Option<bool>,
    /// Whether a thread purges too, for programs that stop to allocate.
    pub(crate) has_purge_thread: bool,
    pub(crate) stats_at_exit: bool,
    pub(crate) stats_signal: Option<i32>,
    /// Where statistics go; standard error if `None`.
    pub(crate) stats_to: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            is_on: true,
            bytes: None,
            backing: Backing::Private,
            asks_for_huge_pages: None,
            decay: Duration::from_secs(1),
            purge: Some(Duration::from_secs(1)),
            ages: PurgeAges::default(),
            single_calls: None,
            has_purge_thread: false,
            stats_at_exit: false,
            stats_signal: None,
            stats_to: None,
        }
    }
}

/// A part of the variable that is not understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadOption {
    option: String,
    remedy: &'static str,
}

impl fmt::Display for BadOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FREEHOLD_MALLOC: `{}`: {}", self.option, self.remedy)
    }
}

const NAMES: &str = "the options are off, size, backing, huge_pages, decay_ms, purge_ms, \
                     purge_whole, purge_part, \
                     single_calls, purge_thread, stats, stats_signal and stats_to, such as \
                     `size=8G,stats=exit`";
const SIZES: &str = "give bytes, or a number with K, M, G or T, such as `8G`";
const NUMBERS: &str = "give a whole number";
const AGES: &str = "give a number of purges up to 255, or `never`";
const SIGNALS: &str = "give USR1, USR2, or a number from 1 to 64";
const BACKINGS: &str = "give `private`, `hugetlb` or `hugetlb:SIZE`, such as `hugetlb:2M`; memory \
                        that is shared with children is not for a malloc";

/// Reads the variable: options divided by commas.
pub(crate) fn parse(text: &str) -> Result<Options, BadOption> {
    let mut options = Options::default();
    for option in text.split(',').map(str::trim).filter(|option| !option.is_empty()) {
        let refuse = |remedy| BadOption { option: option.to_owned(), remedy };
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let number = || value.parse::<u64>().map_err(|_| refuse(NUMBERS));
        match (name, value) {
            ("off", "") => options.is_on = false,
            ("size", _) => options.bytes = Some(size(value).ok_or_else(|| refuse(SIZES))?),
            ("backing", _) => options.backing = backing(value).ok_or_else(|| refuse(BACKINGS))?,
            ("huge_pages", "on" | "") => options.asks_for_huge_pages = Some(true),
            ("huge_pages", "off") => options.asks_for_huge_pages = Some(false),
            ("huge_pages", _) => return Err(refuse("give `on` or `off`")),
            ("decay_ms", _) => options.decay = Duration::from_millis(number()?),
            ("purge_ms", "off") => options.purge = None,
            ("purge_ms", _) => options.purge = Some(Duration::from_millis(number()?)),
            ("purge_whole", _) => {
                options.ages.whole = value.parse().map_err(|_| refuse(AGES))?;
            }
            ("purge_part", "never") => options.ages.part = None,
            ("purge_part", _) => {
                options.ages.part = Some(value.parse().map_err(|_| refuse(AGES))?);
            }
            ("single_calls", "on" | "") => options.single_calls = Some(true),
            ("single_calls", "off") => options.single_calls = Some(false),
            ("single_calls", _) => return Err(refuse("give `on` or `off`")),
            ("purge_thread", "on" | "") => options.has_purge_thread = true,
            ("purge_thread", "off") => options.has_purge_thread = false,
            ("purge_thread", _) => return Err(refuse("give `on` or `off`")),
            ("stats", "exit") => options.stats_at_exit = true,
            ("stats", _) => return Err(refuse("give `exit`")),
            ("stats_signal", _) => {
                options.stats_signal = Some(signal(value).ok_or_else(|| refuse(SIGNALS))?);
            }
            ("stats_to", "") => return Err(refuse("give a path")),
            ("stats_to", path) => options.stats_to = Some(path.into()),
            _ => return Err(refuse(NAMES)),
        }
    }
    Ok(options)
}

fn size(text: &str) -> Option<usize> {
    let units = [("K", 10), ("M", 20), ("G", 30), ("T", 40)];
    let unit = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)));
    let (digits, shift) = unit.unwrap_or((text, 0));
    digits.parse::<usize>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

fn backing(text: &str) -> Option<Backing> {
    let page_bytes = match text {
        "private" => return Some(Backing::Private),
        "hugetlb" => 2 << 20,
        _ => size(text.strip_prefix("hugetlb:")?)?,
    };
    Some(Backing::HugeTlb { page_bytes, or_private: false })
}

fn signal(text: &str) -> Option<i32> {
    match text {
        "USR1" => Some(libc::SIGUSR1),
        "USR2" => Some(libc::SIGUSR2),
        _ => text.parse().ok().filter(|number| (1..=64).contains(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let text = "size=3G, backing=hugetlb:1G,huge_pages,decay_ms=0,purge_ms=250,purge_whole=1,\
                    purge_part=never,single_calls,purge_thread=on,stats=exit,stats_signal=USR2,\
                    stats_to=/tmp/a=b";
        let options = parse(text).unwrap();
        assert!(options.is_on && options.stats_at_exit && options.has_purge_thread);
        assert_eq!((options.asks_for_huge_pages, options.single_calls), (Some(true), Some(true)));
        assert_eq!(options.bytes, Some(3 << 30));
        let Backing::HugeTlb { page_bytes, .. } = options.backing else { panic!("{options:?}") };
        assert_eq!(page_bytes, 1 << 30);
        assert_eq!(options.decay, Duration::ZERO);
        assert_eq!(options.purge, Some(Duration::from_millis(250)));
        assert_eq!(options.ages, PurgeAges { whole: 1, part: None });
        assert_eq!(options.stats_signal, Some(libc::SIGUSR2));
        assert_eq!(options.stats_to, Some("/tmp/a=b".into()));
        assert!(!parse("off").unwrap().is_on);
        assert!(parse("").unwrap().is_on);
        assert_eq!(parse("purge_ms=off").unwrap().purge, None);
    }

    #[test]
    fn mistakes_are_named_with_a_remedy() {
        for (text, remedy) in [
            ("sizes=3G", NAMES),
            ("size=", SIZES),
            ("size=3X", SIZES),
            ("size=0", SIZES),
            ("size=99999999T", SIZES),
            ("backing=memfd", BACKINGS),
            ("decay_ms=-1", NUMBERS),
            ("purge_whole=256", AGES),
            ("stats_signal=65", SIGNALS),
            ("stats_signal=HUP", SIGNALS),
        ] {
            let error = parse(&format!("size=1G,{text}")).unwrap_err();
            assert_eq!(error, BadOption { option: text.to_owned(), remedy });
        }
    }

    mod fuzz {
        use super::*;

        #[test]
        fn any_options_are_read_or_refused() {
            bolero::check!().with_test_time(Duration::from_millis(200)).for_each(
                |bytes: &[u8]| {
                    let text = String::from_utf8_lossy(bytes);
                    match parse(&text) {
                        Ok(options) => {
                            assert!(options.bytes.is_none_or(|bytes| bytes > 0));
                            assert!(options.stats_signal.is_none_or(|it| (1..=64).contains(&it)));
                        }
                        Err(bad) => {
                            assert!(
                                text.contains(&bad.option) && bad.to_string().contains(bad.remedy)
                            );
                        }
                    }
                },
            );
        }
    }
}
