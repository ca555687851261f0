//! The tests that reach and kill the mutants: of `native` and `steps` those of the design
//! `freehold` and of the LRU alone, so that the program is built soon, and the models. In the copy
//! of the allocator that `cargo xtask mutants` makes, this is the program `native`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/freehold_models.rs"]
mod freehold_models;
#[path = "../common/loom_platform.rs"]
mod loom_platform;
#[path = "../common/loom_runs.rs"]
mod loom_runs;
#[path = "../common/loom_threads.rs"]
mod loom_threads;
#[path = "../common/lru_models.rs"]
mod lru_models;
#[path = "../common/machine.rs"]
mod machine;
#[path = "../common/random.rs"]
mod random;
#[path = "../common/lru.rs"]
mod room;
#[path = "../common/steps.rs"]
mod steps;

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

#[path = "../steps/freehold_between.rs"]
mod freehold_between;
mod freehold_design;
#[path = "../steps/freehold_found.rs"]
mod freehold_found;
#[path = "../steps/freehold_last.rs"]
mod freehold_last;
#[path = "../steps/freehold_parts.rs"]
mod freehold_parts;
mod freehold_paths;
#[path = "../steps/freehold_queued.rs"]
mod freehold_queued;
#[path = "../steps/freehold_remove.rs"]
mod freehold_remove;
#[path = "../steps/freehold_runs.rs"]
mod freehold_runs;
mod lease;
#[path = "../steps/lru_stops.rs"]
mod lru_stops;
mod revocable;
#[path = "../steps/stop.rs"]
mod stop;

#[path = "../models/designs_loom.rs"]
mod designs_loom;
#[path = "../models/freehold_loom.rs"]
mod freehold_loom;
#[path = "../models/freehold_loom_compact.rs"]
mod freehold_loom_compact;
#[path = "../models/freehold_loom_events.rs"]
mod freehold_loom_events;
#[path = "../models/freehold_loom_frees.rs"]
mod freehold_loom_frees;
#[path = "../models/freehold_loom_leases.rs"]
mod freehold_loom_leases;
#[path = "../models/freehold_loom_remove.rs"]
mod freehold_loom_remove;
#[path = "../models/lru_loom.rs"]
mod lru_loom;
#[path = "../models/lru_loom_groups.rs"]
mod lru_loom_groups;
#[path = "../models/seam_loom.rs"]
mod seam_loom;
