//! The numbers that shape an allocator when it is compiled. No other file repeats one. Two are
//! knobs:
//!
//! | knob | environment variable | default | range |
//! |---|---|---|---|
//! | [`FRAME_BYTES`] | `FREEHOLD_FRAME_BYTES` | 4096 | powers of two from 4 KiB to 1 GiB |
//! | [`PAGEBLOCK_ORDER`] | `FREEHOLD_PAGEBLOCK_ORDER` | 9 | 7 to 13 |
//!
//! A knob is turned by its variable at build time, or by its default here. Cargo sees a variable
//! that changes and builds anew; `[env]` in a project's `.cargo/config.toml` sets one for good. A
//! value that is no number or out of range does not compile.
//!
//! What can be chosen as an allocator is built is no knob but a field of
//! [`Config`](crate::Config): the size of its frames too, of which only the default stands here.

/// The size of a frame in bytes where nothing else is said: the default of
/// [`Config::frame_size`](crate::Config::frame_size).
///
/// A power of two from 4 KiB to 1 GiB. Costs nothing: an allocator counts in frames, and looks at
/// their size only to find how many make up what a formula has in bytes.
pub const FRAME_BYTES: usize = FRAME.value();

/// The order of a pageblock, the unit of migratetypes and, in `freehold`, of what a CPU holds.
///
/// 7 to 13: a bitmap of 2 words to one of 128. A pageblock should be as large as a huge page of the
/// machine: order 9 with frames of 4 KiB (2 MiB), 11 with 16 KiB (32 MiB), 13 with 64 KiB (512
/// MiB), as on Linux for aarch64.
///
/// Larger pageblocks keep more movable memory clear of what cannot move. But memory is claimed in
/// larger pieces: each CPU of `freehold` holds pageblocks of its own, by migratetype and zone, so
/// a machine should have many times as many pageblocks as CPUs. Metadata shrinks a little with a
/// larger order, from 0.44 bytes a frame at 9 to 0.39 at 13 in `freehold`; below 9, where bitmaps
/// fill no cache line, it grows: 0.63 at 8, 0.75 at 7. The lists of a CPU and zone in the
/// other designs take 24 bytes an order.
///
/// [`Order::BUDDY_MAX`](crate::Order::BUDDY_MAX) follows from it as on Linux: order 10, or that of
/// a pageblock if that is larger.
pub const PAGEBLOCK_ORDER: u8 = PAGEBLOCK.value() as u8;

/// The most CPUs that an allocator keeps books for, with any design: the length of
/// [`Config::cpu_nodes`](crate::Config::cpu_nodes).
///
/// Records name the CPU that holds a block or a pageblock in 16 bits, of which two values mean
/// something else. Tables are as long as there are CPUs.
pub const CPUS_MAX: usize = 65_534;

/// The most stacks of a remote queue of `freehold`: of pageblocks in which other CPUs have freed
/// frames. There are as many as CPUs, rounded up to a power of two, up to this.
///
/// A power of two; 16 fill a cache line that is there anyway. With more of them, more CPUs push at
/// the same time without trying again, and the CPU that takes the pageblocks in looks at more.
pub const STACKS_MAX: usize = 16;

const FRAME: Knob = Knob {
    set: option_env!("FREEHOLD_FRAME_BYTES"),
    default: 4096,
    least: 4096,
    most: 1 << 30,
    power_of_two: true,
};

const PAGEBLOCK: Knob = Knob {
    set: option_env!("FREEHOLD_PAGEBLOCK_ORDER"),
    default: 9,
    least: 7,
    most: 13,
    power_of_two: false,
};

const _: () = {
    assert!(FRAME.is_allowed(), "FREEHOLD_FRAME_BYTES is no power of two from 4096 to 1073741824");
    assert!(PAGEBLOCK.is_allowed(), "FREEHOLD_PAGEBLOCK_ORDER is not in 7 to 13");
};

/// A number that is chosen at build time.
struct Knob {
    /// The value of its environment variable.
    set: Option<&'static str>,
    default: usize,
    least: usize,
    most: usize,
    power_of_two: bool,
}

impl Knob {
    const fn wish(&self) -> Option<usize> {
        let Some(text) = self.set else { return Some(self.default) };
        match usize::from_str_radix(text, 10) {
            Ok(number) => Some(number),
            Err(_) => None,
        }
    }

    const fn is_allowed(&self) -> bool {
        match self.wish() {
            Some(number) => {
                let fits = !self.power_of_two || number.is_power_of_two();
                fits && number >= self.least && number <= self.most
            }
            None => false,
        }
    }

    /// The wish, or the least where it is not allowed: then one assertion fails, and no code that
    /// could not be compiled with the wish adds errors of its own.
    const fn value(&self) -> usize {
        match self.wish() {
            Some(number) if self.is_allowed() => number,
            _ => self.least,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: Knob = Knob { set: None, default: 8, least: 2, most: 16, power_of_two: true };

    fn value(text: &'static str, knob: Knob) -> Option<usize> {
        let knob = Knob { set: Some(text), ..knob };
        knob.is_allowed().then(|| knob.value())
    }

    #[test]
    fn a_knob_has_its_default_or_what_is_wished_for_if_that_is_allowed() {
        assert!(EVEN.is_allowed());
        assert_eq!(EVEN.value(), 8);
        assert_eq!(["2", "16"].map(|text| value(text, EVEN)), [Some(2), Some(16)]);
        assert_eq!(["1", "3", "32", "", "x", "-2", "8 "].map(|text| value(text, EVEN)), [None; 7]);
        let any = || Knob { power_of_two: false, ..EVEN };
        assert_eq!([value("3", any()), value("17", any())], [Some(3), None]);
    }
}
