//! The page allocator on a platform that delays its threads at any step: real threads, so that
//! whatever the machine does happens too, and far more of it than the machine would do by itself.

use std::thread;

use anyhow::{Context, Result};
use freehold::{Design, Settings};

use super::crew::{check_none, join_all};
use super::rounds::play_on;
use crate::check::case::Case;
use crate::check::scenario::draw_settings;
use crate::check::tally::{Count, ThreadsTally};
use crate::designs::{DesignName, with_design};
use crate::host::tasks::start;
pub(super) use fights::FIGHT;
pub(super) use plan::Plan;
use platform::{Chaos, Weather, enter};
pub(super) use storm::STEPS;
use storm::Storm;

mod fights;
mod plan;
mod platform;
mod storm;

/// The scenario of a case, in words.
pub(super) fn describe(case: &Case) -> String {
    let mut text = format!("chaos: {}", Plan::of(case));
    with_design!(case.design, Chaos, D => {
        let settings: <D as Design<Chaos>>::Settings = draw_settings(case.seed);
        settings.for_each(&mut |name, value| text += &format!(", {name}={value}"));
    });
    text
}

/// Plays a case to its end.
pub(super) fn play(case: &Case) -> Result<ThreadsTally> {
    with_design!(case.design, Chaos, D => play_design::<D>(case))
}

fn play_design<D: Design<Chaos> + Sync>(case: &Case) -> Result<ThreadsTally> {
    platform::clear();
    let plan = Plan::of(case);
    let settings = draw_settings(case.seed);
    let allocator = plan
        .build::<D>(&settings)
        .with_context(|| format!("the scenario itself is wrong: {plan}"))?;
    let storm = Storm::new(&plan, allocator, &settings)?;
    let play = || {
        let _inside = enter(Weather::CALM, case.seed);
        play_on(case, &plan.crew, &storm)
    };
    let mut panics = Vec::new();
    let played = thread::scope(|scope| join_all(vec![start(scope, play)], &mut panics));
    check_none(&panics)?;
    let mut tally = ThreadsTally::default();
    for of_case in played {
        tally.add(&of_case?)?;
    }
    tally.leased = u64::from(case.design == DesignName::Freehold);
    Ok(tally)
}
