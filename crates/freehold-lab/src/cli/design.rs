//! Designs on the command line.

use std::sync::LazyLock;

use clap::ValueEnum;

use crate::designs::{DesignName, SimDesign};

/// A design by its name, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DesignChoice {
    All,
    One(SimDesign),
}

impl ValueEnum for DesignChoice {
    fn value_variants<'a>() -> &'a [Self] {
        static CHOICES: LazyLock<Vec<DesignChoice>> = LazyLock::new(|| {
            let designs =
                SimDesign::value_variants().iter().map(|&design| DesignChoice::One(design));
            designs.chain([DesignChoice::All]).collect()
        });
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        match self {
            DesignChoice::All => Some(clap::builder::PossibleValue::new("all")),
            DesignChoice::One(design) => design.to_possible_value(),
        }
    }
}

/// Every chosen design once, in the order of the command line.
pub(crate) fn chosen_designs(choices: &[DesignChoice]) -> Vec<SimDesign> {
    let mut designs = Vec::new();
    for choice in choices {
        let chosen = match choice {
            DesignChoice::All => {
                DesignName::value_variants().iter().copied().map(SimDesign::Real).collect()
            }
            DesignChoice::One(design) => vec![*design],
        };
        for design in chosen {
            if !designs.contains(&design) {
                designs.push(design);
            }
        }
    }
    designs
}
