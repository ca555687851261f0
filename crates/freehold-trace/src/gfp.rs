//! GFP flags, by name: kernels give the same flags different bits.

use std::fmt;

/// What the caller of an allocation allows and asks for.
///
/// The bits are those of this crate, in the order of [`NAMES`]; a kernel's are translated by name
/// when they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gfp(pub u32);

/// The names of the flags, as kernels print them; the position is the bit. New names are added at
/// the end: the file format has these numbers.
pub const NAMES: [&str; 27] = [
    "__GFP_DMA",
    "__GFP_HIGHMEM",
    "__GFP_DMA32",
    "__GFP_MOVABLE",
    "__GFP_RECLAIMABLE",
    "__GFP_HIGH",
    "__GFP_IO",
    "__GFP_FS",
    "__GFP_ZERO",
    "__GFP_ATOMIC",
    "__GFP_DIRECT_RECLAIM",
    "__GFP_KSWAPD_RECLAIM",
    "__GFP_WRITE",
    "__GFP_NOWARN",
    "__GFP_RETRY_MAYFAIL",
    "__GFP_NOFAIL",
    "__GFP_NORETRY",
    "__GFP_MEMALLOC",
    "__GFP_COMP",
    "__GFP_NOMEMALLOC",
    "__GFP_HARDWALL",
    "__GFP_THISNODE",
    "__GFP_ACCOUNT",
    "__GFP_ZEROTAGS",
    "__GFP_NO_OBJ_EXT",
    "__GFP_NOLOCKDEP",
    "__GFP_SKIP_ZERO",
];

/// Bits of kernels without a name here come to this one.
const OTHER: Gfp = Gfp(1 << 31);

impl Gfp {
    /// Memory that devices with 24 address bits reach.
    pub const DMA: Self = Self(1);
    /// Memory that devices with 32 address bits reach.
    pub const DMA32: Self = Self(1 << 2);
    /// Content that can move.
    pub const MOVABLE: Self = Self(1 << 3);
    /// Content that can be given up.
    pub const RECLAIMABLE: Self = Self(1 << 4);
    /// The block must read as zeros.
    pub const ZERO: Self = Self(1 << 8);
    /// No flag.
    pub const NONE: Self = Self(0);

    /// Whether all flags of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Some flag of a kernel has no name here.
    pub fn has_unknown(self) -> bool {
        self.contains(OTHER)
    }

    /// The flag of this name, or those that a composite such as `GFP_KERNEL` stands for.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(bit) = NAMES.iter().position(|known| *known == name) {
            return Some(Self(1 << bit));
        }
        let mut composites = COMPOSITES.iter().chain(OLD_NAMES);
        if let Some((_, parts)) = composites.find(|(known, _)| *known == name) {
            return Some(
                parts.iter().map(|part| Self::of_known(part)).fold(Self::NONE, Self::with),
            );
        }
        // Kernels before 4.6 print `__GFP_ZERO` as `GFP_ZERO`.
        let flag = name.strip_prefix("GFP_")?;
        let bit = NAMES.iter().position(|known| known.strip_prefix("__GFP_") == Some(flag));
        bit.map(|bit| Self(1 << bit))
    }

    fn of_known(name: &str) -> Self {
        Self::from_name(name).expect("composites are made of known names")
    }

    /// Reads flags as kernels print them: names and numbers joined by `|`, or `none`. Numbers, and
    /// bits left over, are those of `layout`.
    ///
    /// # Errors
    ///
    /// The name that is unknown, or the text that is no number.
    pub fn parse(text: &str, layout: &GfpLayout) -> Result<Self, String> {
        if text.is_empty() || text == "none" {
            return Ok(Self::NONE);
        }
        let mut flags = Self::NONE;
        for part in text.split('|') {
            let part = part.trim();
            flags = flags.with(match Self::from_name(part) {
                Some(known) => known,
                // A name of a newer kernel: the rest of the flags is still good.
                None if part.starts_with("__GFP_") || part.starts_with("GFP_") => OTHER,
                None => layout.translate(number(part).ok_or_else(|| part.to_owned())?),
            });
        }
        Ok(flags)
    }
}

/// Whether flags have names of kernels before 4.6: single flags without underscores.
pub(crate) fn has_old_names(text: &str) -> bool {
    let is_old = |name: &str| {
        name.starts_with("GFP_") && !COMPOSITES.iter().any(|(known, _)| *known == name)
    };
    text.split('|').any(|part| is_old(part.trim()))
}

/// A number, decimal or hexadecimal with `0x`.
pub(crate) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Gfp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.pad("none");
        }
        let mut left = *self;
        let mut names = Vec::new();
        // The largest composite first, as kernels print them.
        for &(name, _) in COMPOSITES {
            let flags = Self::of_known(name);
            if left.contains(flags) {
                names.push(name);
                left = Self(left.0 & !flags.0);
                break;
            }
        }
        names.extend((0..NAMES.len()).filter(|bit| left.0 >> bit & 1 != 0).map(|bit| NAMES[bit]));
        if left.has_unknown() {
            names.push("unknown");
        }
        f.pad(&names.join("|"))
    }
}

/// Composites, as `include/trace/events/mmflags.h` lists them: the largest first.
const COMPOSITES: &[(&str, &[&str])] = &[
    ("GFP_TRANSHUGE", &["GFP_TRANSHUGE_LIGHT", "__GFP_DIRECT_RECLAIM"]),
    (
        "GFP_TRANSHUGE_LIGHT",
        &[
            "__GFP_HIGHMEM",
            "__GFP_MOVABLE",
            "__GFP_IO",
            "__GFP_FS",
            "__GFP_HARDWALL",
            "__GFP_COMP",
            "__GFP_NOMEMALLOC",
            "__GFP_NOWARN",
        ],
    ),
    ("GFP_HIGHUSER_MOVABLE", &["GFP_HIGHUSER", "__GFP_MOVABLE"]),
    ("GFP_HIGHUSER", &["GFP_USER", "__GFP_HIGHMEM"]),
    ("GFP_USER", &["GFP_KERNEL", "__GFP_HARDWALL"]),
    ("GFP_KERNEL_ACCOUNT", &["GFP_KERNEL", "__GFP_ACCOUNT"]),
    ("GFP_KERNEL", &["__GFP_RECLAIM", "__GFP_IO", "__GFP_FS"]),
    ("GFP_NOFS", &["__GFP_RECLAIM", "__GFP_IO"]),
    ("GFP_ATOMIC", &["__GFP_HIGH", "__GFP_KSWAPD_RECLAIM"]),
    ("GFP_NOIO", &["__GFP_RECLAIM"]),
    ("GFP_NOWAIT", &["__GFP_KSWAPD_RECLAIM"]),
    ("GFP_DMA", &["__GFP_DMA"]),
    ("GFP_DMA32", &["__GFP_DMA32"]),
    ("__GFP_RECLAIM", &["__GFP_DIRECT_RECLAIM", "__GFP_KSWAPD_RECLAIM"]),
];

/// What old kernels call otherwise.
const OLD_NAMES: &[(&str, &[&str])] = &[
    ("GFP_TEMPORARY", &["GFP_KERNEL", "__GFP_RECLAIMABLE"]),
    ("GFP_WAIT", &["__GFP_RECLAIM"]),
    ("__GFP_WAIT", &["__GFP_RECLAIM"]),
    ("GFP_REPEAT", &["__GFP_RETRY_MAYFAIL"]),
    ("__GFP_REPEAT", &["__GFP_RETRY_MAYFAIL"]),
];

/// The bits of flags from 2.6.31 to 4.3, in their order from bit 0; empty for those without a name
/// here.
const BITS_BEFORE_4_4: [&str; 25] = [
    "__GFP_DMA",
    "__GFP_HIGHMEM",
    "__GFP_DMA32",
    "__GFP_MOVABLE",
    "__GFP_WAIT",
    "__GFP_HIGH",
    "__GFP_IO",
    "__GFP_FS",
    "",
    "__GFP_NOWARN",
    "__GFP_REPEAT",
    "__GFP_NOFAIL",
    "__GFP_NORETRY",
    "__GFP_MEMALLOC",
    "__GFP_COMP",
    "__GFP_ZERO",
    "__GFP_NOMEMALLOC",
    "__GFP_HARDWALL",
    "__GFP_THISNODE",
    "__GFP_RECLAIMABLE",
    "",
    "",
    "",
    "",
    "__GFP_WRITE",
];

/// Which bit of one kernel is which flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GfpLayout {
    /// By the kernel's bit.
    flags: [Gfp; 64],
}

impl GfpLayout {
    /// The bits of a kernel, from names and values. Values of several bits are composites and
    /// passed over.
    pub fn new(values: impl IntoIterator<Item = (u64, String)>) -> Self {
        let mut flags = [OTHER; 64];
        for (value, name) in values {
            if let Some(flag) = Gfp::from_name(&name).filter(|_| value.is_power_of_two()) {
                flags[value.trailing_zeros() as usize] = flag;
            }
        }
        Self { flags }
    }

    /// The bits of kernels before 4.4.
    pub(crate) fn before_4_4() -> Self {
        let named = BITS_BEFORE_4_4.iter().enumerate();
        Self::new(named.map(|(bit, name)| (1 << bit, (*name).to_owned())))
    }

    /// The flags that a kernel's number means.
    pub fn translate(&self, bits: u64) -> Gfp {
        let set = (0..64).filter(|bit| bits >> bit & 1 != 0);
        set.map(|bit| self.flags[bit]).fold(Gfp::NONE, Gfp::with)
    }
}

impl Default for GfpLayout {
    /// The bits of Linux 6.10 and later (`include/linux/gfp_types.h`), for texts that have numbers
    /// and do not say of which kernel.
    fn default() -> Self {
        let named = NAMES.iter().enumerate().filter(|(_, name)| **name != "__GFP_ATOMIC");
        Self::new(named.map(|(bit, name)| (1 << bit, (*name).to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kernels_print_is_read_and_printed_again() {
        let layout = GfpLayout::default();
        for text in [
            "none",
            "GFP_KERNEL",
            "GFP_HIGHUSER_MOVABLE|__GFP_ZERO|__GFP_COMP",
            "GFP_TRANSHUGE|__GFP_ZERO",
            "GFP_NOWAIT|__GFP_NOWARN|__GFP_COMP",
            "GFP_ATOMIC|__GFP_MEMALLOC",
        ] {
            let flags = Gfp::parse(text, &layout).unwrap();
            assert_eq!(Gfp::parse(&flags.to_string(), &layout), Ok(flags), "{text}");
            assert!(!flags.has_unknown(), "{text}");
        }
        assert_eq!(Gfp::parse("GFP_KERNEL", &layout).unwrap().to_string(), "GFP_KERNEL");
    }

    #[test]
    fn numbers_are_of_the_layout() {
        let by_name = Gfp::parse("GFP_HIGHUSER_MOVABLE|__GFP_ZERO", &GfpLayout::default());
        assert_eq!(Gfp::parse("0x100dca", &GfpLayout::default()), by_name);
        let other = GfpLayout::new([(4, "__GFP_ZERO".to_owned()), (6, "GFP_KERNEL".to_owned())]);
        assert_eq!(other.translate(4), Gfp::ZERO);
        assert!(other.translate(2).has_unknown());
    }

    #[test]
    fn what_is_no_flag_is_named() {
        let layout = GfpLayout::default();
        assert_eq!(Gfp::parse("GFP_KERNEL|zero", &layout), Err("zero".to_owned()));
        assert!(Gfp::parse("__GFP_OF_TOMORROW", &layout).unwrap().has_unknown());
    }
}
