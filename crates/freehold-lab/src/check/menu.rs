//! What CPUs do in a scenario: kinds of steps by weight, any of which can be left out.
//!
//! Each step draws from a seed of its own, so that a step that is left out changes no other one of
//! its CPU.

use fastrand::Rng;

/// A kind of step: its name in saved cases, its weight, and what it does.
pub(super) struct Dish<A> {
    pub(super) name: &'static str,
    weight: u32,
    act: fn(&mut A),
}

impl<A> Dish<A> {
    pub(super) const fn new(name: &'static str, weight: u32, act: fn(&mut A)) -> Self {
        Dish { name, weight, act }
    }

    /// Takes the step.
    pub(super) fn act(&self, actor: &mut A) {
        (self.act)(actor);
    }
}

/// The random numbers of one step of a CPU.
pub(super) fn of_step(seed: u64, step: usize) -> Rng {
    Rng::with_seed(seed ^ (step as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Draws a kind of step by weight; `None` if that kind is left out.
pub(super) fn draw<A: 'static>(
    menu: &'static [Dish<A>],
    rng: &mut Rng,
    without: &[String],
) -> Option<&'static Dish<A>> {
    let all: u32 = menu.iter().map(|dish| dish.weight).sum();
    let mut left = rng.u32(..all);
    let drawn = menu.iter().find(|dish| match left.checked_sub(dish.weight) {
        Some(rest) => {
            left = rest;
            false
        }
        None => true,
    });
    drawn.filter(|dish| !without.iter().any(|name| name == dish.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    static MENU: [Dish<[u32; 2]>; 2] = [
        Dish::new("often", 3, |counts: &mut [u32; 2]| counts[0] += 1),
        Dish::new("seldom", 1, |counts: &mut [u32; 2]| counts[1] += 1),
    ];

    fn counts(without: &[String]) -> [u32; 2] {
        let mut counts = [0; 2];
        for step in 0..4000 {
            if let Some(dish) = draw(&MENU, &mut of_step(7, step), without) {
                dish.act(&mut counts);
            }
        }
        counts
    }

    #[test]
    fn steps_are_drawn_by_weight() {
        let [often, seldom] = counts(&[]);
        assert_eq!(often + seldom, 4000);
        assert!((2800..3200).contains(&often), "{often}");
    }

    #[test]
    fn a_kind_that_is_left_out_changes_no_other_step() {
        assert_eq!(counts(&["often".to_owned()]), [0, counts(&[])[1]]);
    }
}
