//! From records of the trace buffers to events.

use super::layout::{Field, Fields, Layout};
use crate::event::{Context, Kind, MigrateType, What};
use crate::gfp::GfpLayout;

/// Reads the records of the kernel's page events, whichever fields this kernel gives them.
#[derive(Debug)]
pub(super) struct Decoder {
    /// The events, and the numbers that begin their records.
    kinds: Vec<(u16, OfKind)>,
    common: Common,
    gfp: GfpLayout,
}

/// What all records have.
#[derive(Clone, Copy, Debug)]
struct Common {
    id: Field,
    flags: Field,
    pid: Field,
}

/// The fields of an event.
#[derive(Clone, Copy, Debug)]
struct OfKind {
    kind: Kind,
    pfn: Field,
    order: Option<Field>,
    migratetype: Option<Field>,
    gfp: Option<Field>,
    /// Absent in kernels before 5.19, which report refills alone.
    refill: Option<Field>,
}

/// In the common flags (`enum trace_flag_type`): a hard interrupt or a soft one was under way.
const HARD_IRQ: u64 = 0x08;
const SOFT_IRQ: u64 = 0x10;
/// One that cannot be masked.
const NMI: u64 = 0x40;

/// The frame number of an allocation that failed.
const NO_PFN: u64 = u64::MAX;

impl Decoder {
    /// Of the texts of the `format` files.
    ///
    /// # Errors
    ///
    /// What is missing, and in the format of which event.
    pub(super) fn new<'a>(formats: impl Iterator<Item = (Kind, &'a str)>) -> Result<Self, String> {
        let mut kinds = Vec::new();
        let (mut common, mut gfp) = (None, GfpLayout::default());
        for (kind, text) in formats {
            let (id, of_kind, of_all) = Layout::parse(text)
                .and_then(|layout| {
                    if kind == Kind::Alloc {
                        gfp = layout.gfp.clone();
                    }
                    let fields = &layout.fields;
                    Ok((layout.id, OfKind::new(kind, fields)?, Common::new(fields)?))
                })
                .map_err(|problem| format!("the format of {}: {problem}", kind.name()))?;
            kinds.push((id, of_kind));
            common = Some(of_all);
        }
        Ok(Decoder { kinds, common: common.ok_or("no event has a format")?, gfp })
    }

    /// What a record says, of which process, in which context; nothing if it is of another event or
    /// cut short.
    pub(super) fn read(&self, record: &[u8]) -> Option<(u32, Context, What)> {
        let id = self.common.id.read(record)?;
        let (_, of_kind) = self.kinds.iter().find(|(known, _)| u64::from(*known) == id)?;
        let what = of_kind.read(record, &self.gfp)?;
        let flags = self.common.flags.read(record)?;
        let context = match () {
            () if flags & (HARD_IRQ | NMI) != 0 => Context::HardIrq,
            () if flags & SOFT_IRQ != 0 => Context::SoftIrq,
            () => Context::Task,
        };
        let pid = self.common.pid.read(record)? as u32;
        what.is_possible().then_some((pid, context, what))
    }
}

impl Common {
    fn new(fields: &Fields) -> Result<Self, String> {
        Ok(Common {
            id: fields.get("common_type")?,
            flags: fields.get("common_flags")?,
            pid: fields.get("common_pid")?,
        })
    }
}

impl OfKind {
    fn new(kind: Kind, fields: &Fields) -> Result<Self, String> {
        let need =
            |name: &str, of: &[Kind]| of.contains(&kind).then(|| fields.get(name)).transpose();
        let sized = [Kind::Alloc, Kind::Free, Kind::PcpuDrain, Kind::ZoneLocked];
        let typed = [Kind::Alloc, Kind::PcpuDrain, Kind::ZoneLocked];
        Ok(OfKind {
            kind,
            pfn: fields.get("pfn")?,
            order: need("order", &sized)?,
            migratetype: need("migratetype", &typed)?,
            gfp: need("gfp_flags", &[Kind::Alloc])?,
            refill: fields.get("percpu_refill").ok(),
        })
    }

    fn read(&self, record: &[u8], gfp: &GfpLayout) -> Option<What> {
        let number = |field: Option<Field>| field?.read(record);
        let pfn = self.pfn.read(record)?;
        let order = || u8::try_from(number(self.order)?).ok();
        let migratetype = || Some(MigrateType(u8::try_from(number(self.migratetype)?).ok()?));
        Some(match self.kind {
            Kind::Alloc => What::Alloc {
                pfn: (pfn != NO_PFN).then_some(pfn),
                order: order()?,
                gfp: gfp.translate(number(self.gfp)?),
                migratetype: migratetype()?,
            },
            Kind::Free => What::Free { pfn, order: order()? },
            Kind::FreeBatched => What::FreeBatched { pfn },
            Kind::PcpuDrain => {
                What::PcpuDrain { pfn, order: order()?, migratetype: migratetype()? }
            }
            Kind::ZoneLocked => What::ZoneLocked {
                pfn,
                order: order()?,
                migratetype: migratetype()?,
                refill: self.refill.is_none_or(|field| field.read(record) == Some(1)),
            },
            Kind::Lost => return None,
        })
    }
}
