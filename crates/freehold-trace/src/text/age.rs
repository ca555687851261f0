//! What texts of old kernels mean in the terms of those of today.

use super::Doubt;
use super::line::{Name, Page};
use crate::event::{Event, Kind, MigrateType, What};
use crate::gfp::{Gfp, GfpLayout};

/// How many events of a CPU stand between `mm_pagevec_free` and the free of that frame, at most.
const BETWEEN_MAX: usize = 16;

/// What the events of a text say of the age of its kernel.
#[derive(Debug, Default)]
pub(super) struct Age {
    /// An event or a flag has a name of an old kernel.
    has_old_names: bool,
    /// Allocations whose migratetype is that of their flags as kernels before 4.4 number it.
    before_4_4: u64,
    /// The same for later kernels.
    since_4_4: u64,
    /// Events with numbers for GFP flags, by place.
    gfp_bits: Vec<(usize, u64)>,
    /// The places of `mm_pagevec_free`.
    pagevec: Vec<usize>,
}

impl Age {
    /// Takes notice of an event that gets this place.
    pub(super) fn see(&mut self, place: usize, page: &Page) {
        let Page { event, name: Name { kind, old, .. }, old_flags, gfp_bits } = page;
        self.has_old_names |= old | old_flags;
        self.gfp_bits.extend(gfp_bits.map(|bits| (place, bits)));
        if *old && *kind == Kind::FreeBatched {
            self.pagevec.push(place);
        }
        // The kernel derives the type from the flags. The bit of `__GFP_MOVABLE` is the same in
        // all kernels, that of `__GFP_RECLAIMABLE` is not.
        if let What::Alloc { gfp, migratetype, .. } = event.what {
            let movable = gfp.contains(Gfp::MOVABLE);
            let reclaimable = gfp.contains(Gfp::RECLAIMABLE) && !movable && gfp_bits.is_none();
            match migratetype.0 {
                1 if reclaimable => self.before_4_4 += 1,
                2 if movable => self.before_4_4 += 1,
                1 if movable => self.since_4_4 += 1,
                2 if reclaimable => self.since_4_4 += 1,
                _ => {}
            }
        }
    }

    /// What is to be known of the age.
    pub(super) fn doubts(&self) -> impl Iterator<Item = Doubt> {
        let allocations = self.before_4_4.min(self.since_4_4);
        let of = self.before_4_4 + self.since_4_4;
        let mixed = (allocations > 0).then_some(Doubt::Migratetypes { allocations, of });
        let numbers = self.gfp_bits.len() as u64;
        let age = match self.is_before_4_4() {
            true => Some(Doubt::Before44),
            false => (numbers > 0).then_some(Doubt::GfpNumbers { allocations: numbers }),
        };
        mixed.into_iter().chain(age)
    }

    /// Whether the kernel is one before 4.4: flags and types of allocations say so; if none does,
    /// names do.
    fn is_before_4_4(&self) -> bool {
        match (self.before_4_4, self.since_4_4) {
            (0, 0) => self.has_old_names,
            (before, since) => before > since,
        }
    }

    /// Makes the events those of a kernel of today. They are in the order of the text.
    pub(super) fn modernize(&self, events: &mut Vec<Event>) {
        if self.is_before_4_4() {
            let layout = GfpLayout::before_4_4();
            for &(place, bits) in &self.gfp_bits {
                if let What::Alloc { gfp, .. } = &mut events[place].what {
                    *gfp = layout.translate(bits);
                }
            }
            events.iter_mut().for_each(|event| renumber(&mut event.what));
        }
        for &place in &self.pagevec {
            let Event { cpu, what: What::FreeBatched { pfn }, .. } = events[place] else {
                continue;
            };
            // Kernels since 2.6.37 free each frame with an event of its own, just behind this one.
            let again = |what: What| matches!(what, What::Alloc { pfn: Some(at), .. } if at == pfn);
            let later = events[place + 1..].iter().enumerate();
            let later = later.take_while(|(_, event)| !again(event.what));
            let mut of_cpu = later.filter(|(_, event)| event.cpu == cpu).take(BETWEEN_MAX);
            let free = What::Free { pfn, order: 0 };
            let own = of_cpu.find(|(_, event)| event.what == free).map(|(at, _)| place + 1 + at);
            let batched = std::mem::replace(&mut events[place].what, free);
            match own {
                Some(own) => events[own].what = batched,
                None => events.push(Event { what: batched, ..events[place] }),
            }
        }
    }
}

/// Kernels before 4.4 have movable and reclaimable content the other way round.
fn renumber(what: &mut What) {
    if let What::Alloc { migratetype, .. }
    | What::PcpuDrain { migratetype, .. }
    | What::ZoneLocked { migratetype, .. } = what
    {
        *migratetype = match *migratetype {
            MigrateType::MOVABLE => MigrateType::RECLAIMABLE,
            MigrateType::RECLAIMABLE => MigrateType::MOVABLE,
            other => other,
        };
    }
}
