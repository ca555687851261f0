//! What stands behind the name of an event: `name=value`.

use crate::event::{Kind, MigrateType, What};
use crate::gfp::{Gfp, GfpLayout};

/// `name=value` of an event.
pub(super) struct Fields<'a>(pub(super) &'a str);

impl<'a> Fields<'a> {
    fn text(&self, name: &str) -> Result<&'a str, String> {
        let mut words = self.0.split_whitespace();
        words
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| format!("it has no {name}="))
    }

    fn number(&self, name: &str) -> Result<u64, String> {
        let text = self.text(name)?;
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        number.map_err(|_| format!("{name}={text} is no number"))
    }

    fn small(&self, name: &str) -> Result<u8, String> {
        let number = self.number(name)?;
        u8::try_from(number).map_err(|_| format!("{name}={number} is too large"))
    }

    fn migratetype(&self) -> Result<MigrateType, String> {
        self.small("migratetype").map(MigrateType)
    }

    /// A frame that addresses of 64 bits reach.
    fn pfn(&self) -> Result<u64, String> {
        let pfn = self.number("pfn")?;
        match pfn >> 52 {
            0 => Ok(pfn),
            _ => Err(format!("pfn={pfn:#x}: no machine has this frame")),
        }
    }

    /// The first frame of an allocation; none if it was refused. Kernels record -1 then, and print
    /// no page; its number is 0, or, before 3.4, what comes of no page.
    fn allocated(&self) -> Result<Option<u64>, String> {
        if self.text("pfn") == Ok("-1") {
            return Ok(None);
        }
        let pfn = self.number("pfn")?;
        let page = self.text("page");
        let refused = match page {
            Ok("") => self.0.contains("(null)") || self.0.contains("(nil)"),
            Ok(page) => {
                let digits = page.trim_start_matches("0x");
                matches!(page, "(null)" | "(nil)") || digits.bytes().all(|byte| byte == b'0')
            }
            // Without a page, as raw fields are: -1, of kernels with 32 bits as well.
            Err(_) => pfn == u64::from(u32::MAX),
        };
        match refused || pfn == u64::MAX {
            true => Ok(None),
            false => self.pfn().map(Some),
        }
    }

    /// The GFP flags as they are printed.
    pub(super) fn gfp(&self) -> Result<&'a str, String> {
        self.text("gfp_flags")
    }

    /// What happened.
    pub(super) fn what(&self, kind: Kind, gfp: &GfpLayout) -> Result<What, String> {
        if self.0.is_empty() {
            return Err("it has no fields: perf prints them with `-F +trace`".to_owned());
        }
        let what = match kind {
            Kind::Alloc => What::Alloc {
                pfn: self.allocated()?,
                order: self.small("order")?,
                gfp: Gfp::parse(self.gfp()?, gfp)
                    .map_err(|part| format!("gfp_flags: `{part}` is no flag"))?,
                migratetype: self.migratetype()?,
            },
            Kind::Free => What::Free { pfn: self.pfn()?, order: self.small("order")? },
            Kind::FreeBatched => What::FreeBatched { pfn: self.pfn()? },
            Kind::PcpuDrain => What::PcpuDrain {
                pfn: self.pfn()?,
                order: self.small("order")?,
                migratetype: self.migratetype()?,
            },
            Kind::ZoneLocked | Kind::Lost => What::ZoneLocked {
                pfn: self.pfn()?,
                order: self.small("order")?,
                migratetype: self.migratetype()?,
                // Kernels before 5.19 report refills alone.
                refill: match self.text("percpu_refill") {
                    Ok(_) => self.number("percpu_refill")? == 1,
                    Err(_) => true,
                },
            },
        };
        if !what.is_possible() {
            return Err("no block of this order begins at this frame".to_owned());
        }
        Ok(what)
    }
}
