//! What is predicted, beside what was published.

use anyhow::{Context, Result};
use serde_json::Value;

use super::item::{Figure, Item, Unit};

/// A figure and its prediction.
#[derive(Debug)]
pub(super) struct Outcome<'a> {
    pub(super) figure: &'a Figure,
    pub(super) predicted: f64,
    /// The same with what Linux costs, if that was run.
    pub(super) as_linux: Option<f64>,
}

/// The predictions of an item's figures, from the results of its runs.
pub(super) fn outcomes<'a, 'r>(
    item: &'a Item,
    of: impl Fn(&str) -> &'r Value,
) -> Result<Vec<Outcome<'a>>> {
    let predict = |figure: &Figure, run: &dyn Fn(&str) -> String| {
        let missing = || format!("{}: its results have no {}", item.name, figure.at);
        let at = |name: &str| value(figure, of(&run(name))).with_context(missing);
        let base = figure.to.as_deref().map_or(Ok(1.0), at)?;
        anyhow::Ok(at(figure.run(item))? / base)
    };
    let outcome = |figure: &'a Figure| {
        let predicted = predict(figure, &str::to_owned)?;
        let as_linux = |run: &str| item.as_linux(run).unwrap_or_default();
        let as_linux = item.linux.as_ref().map(|_| predict(figure, &as_linux)).transpose()?;
        Ok(Outcome { figure, predicted, as_linux })
    };
    item.figures.iter().map(outcome).collect()
}

/// A figure's value in a result.
fn value(figure: &Figure, result: &Value) -> Option<f64> {
    let value = at(&figure.at, result)?;
    match &figure.per {
        Some(per) => Some(value / at(per, result)?),
        None => Some(value),
    }
}

/// The number at a JSON pointer. In a list, a part that is no number is the name of an element.
fn at(pointer: &str, result: &Value) -> Option<f64> {
    let step = |value: &'_ Value, part: &str| -> Option<Value> {
        match value {
            Value::Array(all) => match part.parse::<usize>() {
                Ok(nth) => all.get(nth).cloned(),
                Err(_) => all.iter().find(|element| element["name"] == part).cloned(),
            },
            other => other.get(part).cloned(),
        }
    };
    let parts = pointer.split('/').skip(1).map(|part| part.replace("~1", "/"));
    let mut value = result.clone();
    for part in parts {
        value = step(&value, &part)?;
    }
    value.as_f64()
}

impl Outcome<'_> {
    /// The prediction as a multiple of what was published; of a share near 0, none.
    pub(super) fn ratio(&self) -> Option<f64> {
        ratio(self.figure, self.predicted)
    }

    /// How close it is; with what Linux costs, if `as_linux` and that was run.
    pub(super) fn closeness(&self, as_linux: bool) -> Closeness {
        let predicted = self.as_linux.filter(|_| as_linux).unwrap_or(self.predicted);
        let points = (predicted - self.figure.published).abs() * 100.0;
        if self.figure.unit == Unit::Share && points <= 2.0 {
            return Closeness::Tenth;
        }
        let ratio = ratio(self.figure, predicted);
        match ratio.map_or(f64::INFINITY, |ratio| ratio.max(1.0 / ratio)) {
            ..=1.1 => Closeness::Tenth,
            ..=1.5 => Closeness::Half,
            ..=2.0 => Closeness::Twice,
            _ => Closeness::Further,
        }
    }
}

/// A prediction as a multiple of what was published; of a share near 0, none.
pub(super) fn ratio(figure: &Figure, predicted: f64) -> Option<f64> {
    (figure.published.abs() >= 0.02).then_some(predicted / figure.published)
}

/// How close a prediction is to what was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Closeness {
    /// To a tenth; a share to two points.
    Tenth,
    /// To a factor of 1.5.
    Half,
    /// To a factor of 2.
    Twice,
    Further,
}

impl Closeness {
    pub(super) const ALL: [Closeness; 4] =
        [Closeness::Tenth, Closeness::Half, Closeness::Twice, Closeness::Further];

    pub(super) fn in_words(self) -> &'static str {
        match self {
            Closeness::Tenth => "within 10 % (a share: or 2 points)",
            Closeness::Half => "within a factor of 1.5",
            Closeness::Twice => "within a factor of 2",
            Closeness::Further => "further off",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::item::Published;
    use super::*;

    fn published(figure: &str) -> Published {
        let text = format!(
            "[[source]]\nid = \"a\"\ntext = \"A\"\n[[result]]\nname = \"one\"\nwhat = \"w\"\n\
             source = \"a\"\nmachine = \"m\"\nkernel = \"k\"\nrun = \"x\"\n[[result.figure]]\n\
             what = \"f\"\n{figure}"
        );
        Published::parse(&text).unwrap()
    }

    fn outcome_of(figure: &str) -> (f64, Option<f64>, Closeness) {
        let published = published(figure);
        let x = json!({
            "work": {"per_second": 6.0},
            "locks": [
                {"name": "other", "hold_ns": 1},
                {"name": "zone_lock", "hold_ns": 90, "n": 3},
            ],
            "time_share": {"zone_lock": 0.5},
        });
        let y = json!({"work": {"per_second": 4.0}});
        let of = |run: &str| if run == "x" { &x } else { &y };
        let outcome = outcomes(&published.items[0], of).unwrap().pop().unwrap();
        (outcome.predicted, outcome.ratio(), outcome.closeness(false))
    }

    #[test]
    fn a_change_is_a_ratio_of_two_runs() {
        let change = "unit = \"ratio\"\nat = \"/work/per_second\"\nto = \"y\"\npublished = ";
        let outcome = outcome_of(&format!("{change}1.25"));
        assert_eq!(outcome, (1.5, Some(1.2), Closeness::Half));
        assert_eq!(outcome_of(&format!("{change}0.5")).2, Closeness::Further);
    }

    #[test]
    fn shares_are_close_by_points() {
        let share = "unit = \"share\"\nat = \"/time_share/zone_lock\"\npublished = ";
        assert_eq!(outcome_of(&format!("{share}0.515")).2, Closeness::Tenth);
        assert_eq!(outcome_of(&format!("{share}0.3")).2, Closeness::Twice);
        assert_eq!(outcome_of(&format!("{share}0.0")).1, None, "a multiple of nothing");
        assert_eq!(outcome_of(&format!("{share}0.0")).2, Closeness::Further);
    }

    #[test]
    fn elements_of_lists_have_names() {
        let hold = "unit = \"ns\"\npublished = 30.0\nat = \"/locks/zone_lock/hold_ns\"\n\
                    per = \"/locks/zone_lock/n\"";
        assert_eq!(outcome_of(hold).0, 30.0);
        let missing = published("unit = \"ns\"\npublished = 30.0\nat = \"/locks/no/hold_ns\"");
        let x = json!({"locks": []});
        let error = outcomes(&missing.items[0], |_| &x).unwrap_err();
        assert!(error.to_string().contains("have no /locks/no"), "{error}");
    }
}
