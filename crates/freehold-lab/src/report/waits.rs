//! The share of the time spent waiting for locks, by class.

use super::document::Simulated;

/// Waiting by class of lock as a share of CPU time outside barriers, the largest first.
pub(super) fn waits_by_class(simulated: &Simulated) -> Vec<(&str, f64)> {
    // In addition to the classes there are classes with a path, such as `zone_lock.alloc`.
    let classes = simulated.time_share.iter().filter(|(name, _)| !name.contains('.'));
    let mut classes: Vec<_> = classes.map(|(name, share)| (name.as_str(), *share)).collect();
    classes.sort_by(|one, other| other.1.total_cmp(&one.1));
    classes
}

/// The class of locks with the most waiting, and how much; a dash if there is none.
pub(crate) fn most_waited_for(simulated: &Simulated) -> String {
    match waits_by_class(simulated).first() {
        Some((class, share)) if *share > 0.0 => {
            format!("{} {}", lock_in_words(class), percent(*share))
        }
        _ => "-".to_owned(),
    }
}

/// Waiting for all locks as a share of CPU time outside barriers.
pub(crate) fn wait_share(simulated: &Simulated) -> f64 {
    // A plain sum of no shares would be -0, and be printed like that.
    waits_by_class(simulated).iter().fold(0.0, |sum, (_, share)| sum + share)
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The name of a class of locks in words.
pub(super) fn lock_in_words(class: &str) -> String {
    class.replace('_', " ")
}
