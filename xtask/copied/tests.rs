//! The tests that reach and kill the mutants: of `native` and `steps` those of the design
//! `freehold` and of the LRU alone, so that the program is built soon, and the models. In the copy
//! of the core that `cargo xtask mutants` makes, this is the program `mutants`.

#[path = "../../../freehold/tests/common/mod.rs"]
mod common;
#[expect(unused_macros, reason = "below is one for fewer designs")]
#[path = "../../../freehold/tests/common/designs.rs"]
mod designs;
#[path = "../../../freehold/tests/common/freehold_models.rs"]
mod freehold_models;
#[path = "../../../freehold/tests/common/loom_platform.rs"]
mod loom_platform;
#[path = "../../../freehold/tests/common/loom_runs.rs"]
mod loom_runs;
#[path = "../../../freehold/tests/common/loom_threads.rs"]
mod loom_threads;
#[path = "../models/sound.rs"]
mod sound;
#[path = "../../../freehold/tests/common/machine.rs"]
mod machine;
#[path = "../../../freehold/tests/common/random.rs"]
mod random;
#[path = "../common/room.rs"]
mod room;
#[path = "../../../freehold/tests/common/steps.rs"]
mod steps;
#[path = "../../../freehold/tests/common/tested.rs"]
mod tested;

/// As in `designs.rs`, for one of them.
macro_rules! test_designs {
    ($platform:ident: [$($test:ident),* $(,)?]) => {
        mod freehold_design {
            $(
                #[test]
                fn $test() {
                    super::$test::<freehold::designs::Freehold<super::$platform>>();
                }
            )*
        }
    };
}

#[path = "../../../freehold/tests/steps/freehold_between.rs"]
mod freehold_between;
#[path = "../../../freehold/tests/native/freehold_design.rs"]
mod freehold_design;
#[path = "../../../freehold/tests/steps/freehold_found.rs"]
mod freehold_found;
#[path = "../../../freehold/tests/steps/freehold_last.rs"]
mod freehold_last;
#[path = "../../../freehold/tests/steps/freehold_parts.rs"]
mod freehold_parts;
#[path = "../../../freehold/tests/native/freehold_paths.rs"]
mod freehold_paths;
#[path = "../../../freehold/tests/steps/freehold_queued.rs"]
mod freehold_queued;
#[path = "../../../freehold/tests/steps/freehold_remove.rs"]
mod freehold_remove;
#[path = "../../../freehold/tests/steps/freehold_runs.rs"]
mod freehold_runs;
#[path = "../../../freehold/tests/native/lease.rs"]
mod lease;
#[path = "../../../freehold/tests/native/sparing.rs"]
mod sparing;
#[path = "../steps/stops.rs"]
mod stops;
#[path = "../../../freehold/tests/steps/stop/mod.rs"]
mod stop;

#[path = "../../../freehold/tests/models/designs_loom.rs"]
mod designs_loom;
#[path = "../../../freehold/tests/models/freehold_loom.rs"]
mod freehold_loom;
#[path = "../../../freehold/tests/models/freehold_loom_compact.rs"]
mod freehold_loom_compact;
#[path = "../../../freehold/tests/models/freehold_loom_events.rs"]
mod freehold_loom_events;
#[path = "../../../freehold/tests/models/freehold_loom_frees.rs"]
mod freehold_loom_frees;
#[path = "../../../freehold/tests/models/freehold_loom_leases.rs"]
mod freehold_loom_leases;
#[path = "../../../freehold/tests/models/freehold_loom_remove.rs"]
mod freehold_loom_remove;
#[path = "../../../freehold/tests/models/llfree_loom.rs"]
mod llfree_loom;
#[path = "../models/frames.rs"]
mod frames;
#[path = "../models/groups.rs"]
mod groups;
#[path = "../models/shards.rs"]
mod shards;
#[path = "../../../freehold/tests/models/seam_loom.rs"]
mod seam_loom;
