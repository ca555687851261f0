//! Who the tenants are, and what each may have.

use std::fmt;

use freehold::FrameCount;

use crate::task::lru::Bounds;

/// What a tenant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Reads a set of blocks again and again, for which its share suffices.
    Hot,
    /// Half of its reads are such ones, of a smaller set; the others go through a long file.
    Scan,
    /// Reads more than all memory holds, most of it once.
    Noisy,
}

impl Sort {
    pub(super) const ALL: [Sort; 3] = [Sort::Hot, Sort::Scan, Sort::Noisy];
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sort::Hot => "hot",
            Sort::Scan => "scan",
            Sort::Noisy => "noisy",
        })
    }
}

/// What keeps the content of one tenant from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protect {
    Nothing,
    /// Tenants that are not noisy keep their share while others have something to reclaim.
    Low,
    /// No tenant has more than its share.
    Max,
}

/// The tenants. All have the same share of the memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tenancy {
    pub(super) tenants: usize,
    pub(super) noisy: usize,
    pub(super) share_frames: u64,
}

impl Tenancy {
    /// Every so many tenants one is noisy, the last of them; the others take turns.
    pub(super) fn sort(&self, tenant: usize) -> Sort {
        let noisy_before = |tenant: usize| tenant * self.noisy / self.tenants;
        let before = noisy_before(tenant);
        match (tenant - before) % 2 {
            _ if noisy_before(tenant + 1) > before => Sort::Noisy,
            0 => Sort::Hot,
            _ => Sort::Scan,
        }
    }

    /// The shares of all.
    pub(super) fn shares(&self) -> u64 {
        self.share_frames * self.tenants as u64
    }

    /// The blocks at the beginning of its file that a tenant reads again and again.
    pub(super) fn hot_blocks(&self, sort: Sort) -> u64 {
        match sort {
            Sort::Hot => self.share_frames * 3 / 4,
            Sort::Scan => self.share_frames / 2,
            Sort::Noisy => 0,
        }
    }

    /// The blocks behind them, which it reads in order.
    pub(super) fn cold_blocks(&self, sort: Sort) -> u64 {
        match sort {
            Sort::Hot => 0,
            Sort::Scan => self.share_frames * 8,
            Sort::Noisy => self.shares() * 2,
        }
    }

    /// The size of a tenant's file.
    pub(super) fn file_blocks(&self, tenant: usize) -> u64 {
        let sort = self.sort(tenant);
        self.hot_blocks(sort) + self.cold_blocks(sort)
    }

    /// What the group of a tenant may have.
    pub(super) fn bounds(&self, tenant: usize, protect: Protect) -> Bounds {
        let share = FrameCount::new(self.share_frames);
        match protect {
            Protect::Max => Bounds { max: Some(share), ..Bounds::default() },
            Protect::Low if self.sort(tenant) != Sort::Noisy => Bounds { max: None, low: share },
            Protect::Low | Protect::Nothing => Bounds::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorts(tenants: usize, noisy: usize) -> Vec<Sort> {
        let tenancy = Tenancy { tenants, noisy, share_frames: 64 };
        (0..tenants).map(|tenant| tenancy.sort(tenant)).collect()
    }

    #[test]
    fn sorts_are_spread_over_the_tenants() {
        use Sort::{Hot, Noisy, Scan};
        assert_eq!(sorts(1, 0), [Hot]);
        assert_eq!(sorts(2, 1), [Hot, Noisy]);
        assert_eq!(sorts(4, 1), [Hot, Scan, Hot, Noisy]);
        assert_eq!(sorts(6, 2), [Hot, Scan, Noisy, Hot, Scan, Noisy]);
        for (tenants, noisy) in [(104, 6), (112, 7), (5, 4), (9, 0)] {
            let sorts = sorts(tenants, noisy);
            let count = |sort| sorts.iter().filter(|&&of| of == sort).count();
            assert_eq!(count(Noisy), noisy);
            assert!(count(Hot) - count(Scan) <= 1, "{tenants} {noisy}");
        }
    }

    #[test]
    fn well_behaved_tenants_fit_and_noisy_ones_do_not() {
        let tenancy = Tenancy { tenants: 4, noisy: 1, share_frames: 64 };
        assert!(Sort::ALL.iter().all(|&sort| tenancy.hot_blocks(sort) < 64));
        assert!(tenancy.file_blocks(1) > 64, "the scan");
        assert!(tenancy.file_blocks(3) > tenancy.shares(), "the noisy neighbour");
        let bounds = |tenant, protect| {
            let bounds = tenancy.bounds(tenant, protect);
            (bounds.max.map(FrameCount::get), bounds.low.get())
        };
        assert_eq!(bounds(0, Protect::Low), (None, 64));
        assert_eq!(bounds(3, Protect::Low), (None, 0));
        assert_eq!(bounds(3, Protect::Max), (Some(64), 0));
        assert_eq!(bounds(0, Protect::Nothing), (None, 0));
    }
}
