//! All designs, each with its own settings: the contract is tested for every one of them.

use freehold::Order;
use freehold::designs::Settings;
use freehold_linux::zone_lock::ZoneLockSettings;

/// Generates a test from each generic function for each design on this platform, or for those of
/// Linux. A new design is one line here.
macro_rules! test_designs {
    ($platform:ident: $tests:tt) => {
        test_designs!($platform, of Linux: $tests);
        test_designs!(llfree, freehold_llfree::Llfree<super::$platform>, $tests);
        test_designs!(freehold_design, freehold::designs::Freehold<super::$platform>, $tests);
    };
    ($platform:ident, of Linux: $tests:tt) => {
        test_designs!(zone_lock, freehold_linux::ZoneLock<super::$platform>, $tests);
        test_designs!(lazy_merge, freehold_linux::LazyMerge<super::$platform>, $tests);
        test_designs!(cluster, freehold_linux::Cluster<super::$platform>, $tests);
        test_designs!(merge_ahead, freehold_linux::MergeAhead<super::$platform>, $tests);
        test_designs!(block_owner, freehold_linux::BlockOwner<super::$platform>, $tests);
    };
    ($module:ident, $design:ty, [$($test:ident),* $(,)?]) => {
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::$test::<$design>();
                }
            )*
        }
    };
}

/// Whether the design leaves single frames unmerged when they return to the zone: then a drain does
/// not merge all that is free.
pub(crate) fn is_lazy(design: &str) -> bool {
    ["lazy-merge", "cluster"].contains(&design)
}

/// Whether the design uses up what a CPU holds before it checks the level of a zone, and so may
/// serve a request from another zone than the levels predict.
pub(crate) fn uses_up_first(design: &str) -> bool {
    ["freehold", "llfree"].contains(&design)
}

/// For how many frames together the design records whether their content can move. If one of them
/// held immovable content, it may take the others for immovable as long as any of them is in use.
pub(crate) fn movable_together(design: &str) -> u64 {
    // 64 marks for a pageblock, and at least one for each word of its bitmap.
    let marked_together = (Order::PAGEBLOCK.frames().get() / 64).min(64);
    match design {
        "freehold" => marked_together,
        // It knows it of each block, but separates no types: in any pageblock is some of each.
        "llfree" => Order::PAGEBLOCK.frames().get(),
        _ => 1,
    }
}

/// Every combination of the design's own settings, the default first.
pub(crate) fn variants<S: Settings>() -> Vec<S> {
    let mut variants = vec![S::default()];
    let common = ["pcp", "batch", "high", "batch_scale", "locking", "counters"];
    let of_its_own = |name| !common.contains(&name);
    for setting in S::TABLE.iter().filter(|setting| of_its_own(setting.name)) {
        let others = setting.values.split('|').filter(|&value| value != setting.default);
        let changed: Vec<_> = others
            .flat_map(|value| {
                variants.iter().map(move |variant| with(variant, setting.name, value))
            })
            .collect();
        variants.extend(changed);
    }
    // Not in combination with each of them: their effect is the same for all.
    if S::TABLE.iter().any(|setting| setting.name == "locking") {
        let irq = with(&S::default(), "locking", "irq");
        let exact = with(&S::default(), "counters", "exact");
        let one_batch = with(&S::default(), "batch_scale", "0");
        variants.extend([with(&irq, "counters", "exact"), irq, exact, one_batch]);
    }
    variants
}

/// These settings with one changed.
pub(crate) fn with<S: Settings>(settings: &S, name: &str, value: &str) -> S {
    let mut settings = settings.clone();
    settings.set(name, value).expect("the setting has this value");
    settings
}

/// These settings with per-CPU lists of constant size, for a design that has such lists.
pub(crate) fn fixed<S: Settings>(own: &S, batch: u32, high: u32) -> S {
    if S::TABLE.iter().all(|setting| setting.name != "pcp") {
        return own.clone();
    }
    let settings = with(&with(own, "pcp", "fixed"), "batch", &batch.to_string());
    with(&settings, "high", &high.to_string())
}

// Not every binary uses everything here.
const _: () = {
    let _: [fn(&str) -> bool; 2] = [is_lazy, uses_up_first];
    let _: fn(&str) -> u64 = movable_together;
    let _: fn() -> Vec<ZoneLockSettings> = variants;
    let _: fn(&ZoneLockSettings, u32, u32) -> ZoneLockSettings = fixed;
};
