//! Why a design is as fast as it is, in words, from nothing but what a result says.

use serde_json::Value;

use super::document::{RunResult, Simulated, number};

/// A share of the time below which nothing is said.
const SHARE_MIN: f64 = 0.01;

/// The reasons for a result, the weightiest first. `baseline` is the result that it is compared
/// with, if it is not that itself.
pub(crate) fn reasons(result: &RunResult, baseline: Option<&RunResult>) -> Vec<String> {
    let mut reasons = Vec::new();
    match &result.simulated {
        Some(simulated) => {
            reasons.push(lock_waits(simulated));
            reasons.extend(lock_uses(result, simulated, baseline));
            reasons.extend(calls(result));
            reasons.extend(misses(result));
            reasons.extend(interrupts(simulated));
        }
        None => {
            reasons.extend(one_cpu(result));
            reasons.extend(spread(result, baseline));
        }
    }
    reasons.extend(fragmentation(result));
    reasons
}

/// Waiting by class of lock as a share of all CPU time, the largest first.
pub(crate) fn waits_by_class(simulated: &Simulated) -> Vec<(&str, f64)> {
    // Beside the classes stand classes with a path, such as `zone_lock.alloc`.
    let classes = simulated.time_share.iter().filter(|(name, _)| !name.contains('.'));
    let mut classes: Vec<_> = classes.map(|(name, share)| (name.as_str(), *share)).collect();
    classes.sort_by(|one, other| other.1.total_cmp(&one.1));
    classes
}

/// Waiting for all locks as a share of all CPU time.
pub(crate) fn wait_share(simulated: &Simulated) -> f64 {
    waits_by_class(simulated).iter().map(|(_, share)| share).sum()
}

/// A share as a percentage.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// The name of a class of locks as people write it.
pub(crate) fn lock_in_words(class: &str) -> String {
    class.replace('_', " ")
}

fn lock_waits(simulated: &Simulated) -> String {
    let total = wait_share(simulated);
    let mut top = waits_by_class(simulated);
    top.retain(|(_, share)| *share >= SHARE_MIN);
    let lock = |&(class, share): &(&str, f64)| {
        format!("the {} ({})", lock_in_words(class), paths(simulated, class, share))
    };
    match &top[..] {
        [] => format!("waits {} of the time for locks", percent(total)),
        [only] => format!("waits {} of the time for {}", percent(total), lock(only)),
        [first, second, ..] => format!(
            "waits {} of the time for locks: {} for {}, {} for {}",
            percent(total),
            percent(first.1),
            lock(first),
            percent(second.1),
            lock(second)
        ),
    }
}

/// On which paths a class of locks is waited for, but for those that hardly matter.
fn paths(simulated: &Simulated, class: &str, of_class: f64) -> String {
    const PATHS: [(&str, &str); 3] =
        [("alloc", "on allocation"), ("free", "on free"), ("other", "outside the allocator")];
    let share = |path: &str| simulated.time_share.get(&format!("{class}.{path}")).copied();
    let mut paths: Vec<_> =
        PATHS.iter().filter_map(|(path, words)| Some((share(path)?, *words))).collect();
    paths.retain(|(share, _)| *share >= of_class / 20.0);
    paths.sort_by(|one, other| other.0.total_cmp(&one.0));
    match paths[..] {
        [(_, words)] => words.to_owned(),
        _ => {
            let parts: Vec<_> =
                paths.iter().map(|(share, words)| format!("{} {words}", percent(*share))).collect();
            parts.join(", ")
        }
    }
}

/// How often the locks are taken that are waited for most, here and in the baseline, and for how
/// long.
fn lock_uses(
    result: &RunResult,
    simulated: &Simulated,
    baseline: Option<&RunResult>,
) -> Vec<String> {
    let of_baseline = baseline.and_then(|baseline| baseline.simulated.as_ref());
    let both = [Some(simulated), of_baseline].into_iter().flatten();
    let tops = both.filter_map(|simulated| waits_by_class(simulated).into_iter().next());
    let tops = tops.filter(|(_, share)| *share >= SHARE_MIN);
    let mut classes: Vec<_> = tops.map(|(class, _)| class).collect();
    classes.dedup();
    let uses = classes.into_iter().filter_map(|class| {
        let (times, hold_ns) = lock_use(result, class)?;
        let (lock, unit, hold) = (lock_in_words(class), result.work.unit, time_in_words(hold_ns));
        let mut text = format!("takes the {lock} {times:.1} times in 1000 {unit}, for {hold} each");
        if let Some(baseline) = baseline
            && let Some((times, hold_ns)) = lock_use(baseline, class)
        {
            let (design, hold) = (&baseline.design, time_in_words(hold_ns));
            text += &format!(" ({design}: {times:.1} times, for {hold})");
        }
        Some(text)
    });
    uses.collect()
}

/// How often a lock was taken for 1000 units of work, and for how many ns on average.
fn lock_use(result: &RunResult, class: &str) -> Option<(f64, f64)> {
    let lock = result.simulated.as_ref()?.locks.iter().find(|lock| lock.name == class)?;
    let acquisitions = lock.acquisitions as f64;
    let per_thousand = acquisitions * 1000.0 / result.work.count as f64;
    Some((per_thousand, lock.hold_ns / acquisitions.max(1.0)))
}

/// How much of the time is the allocator's at all.
fn calls(result: &RunResult) -> Option<String> {
    let paths = result.workload_specific.get("paths")?;
    let of_path = |path: &str| -> f64 {
        let spent = paths[path].as_object();
        spent.into_iter().flat_map(|spent| spent.values()).filter_map(Value::as_f64).sum()
    };
    let share = (of_path("alloc") + of_path("free")) / all_ns(result)?;
    Some(format!("allocation and free take {} of the time, waiting included", percent(share)))
}

/// Which kinds of metadata miss the cache, and how much time that takes.
fn misses(result: &RunResult) -> Option<String> {
    let all_ns = all_ns(result)?;
    let data = result.workload_specific.get("data")?.as_array()?;
    let mut kinds: Vec<_> = data
        .iter()
        // What the workload itself shares is no metadata.
        .filter(|kind| kind["data"] != "workload")
        .filter_map(|kind| {
            let served = kind["served"].as_object()?;
            // A core's own caches; everything else is a miss.
            let missed =
                || served.iter().filter(|(place, _)| !matches!(place.as_str(), "l1" | "l2"));
            let share =
                |time: &str| missed().map(|(_, by)| number(by.get(time))).sum::<f64>() / all_ns;
            Some((kind["data"].as_str()?, share("time_ns"), share("time_under_lock_ns")))
        })
        .collect();
    kinds.sort_by(|one, other| other.1.total_cmp(&one.1));
    let total: f64 = kinds.iter().map(|(_, share, _)| share).sum();
    if total < SHARE_MIN {
        return None;
    }
    let top: Vec<_> = kinds
        .iter()
        .take(2)
        .filter(|(_, share, _)| *share >= total / 20.0)
        .map(|(kind, share, locked)| {
            format!("{} on {kind} ({} under locks)", percent(*share), percent(*locked))
        })
        .collect();
    let (total, top) = (percent(total), top.join(", "));
    Some(format!("misses in metadata take {total} of the time: {top}"))
}

fn interrupts(simulated: &Simulated) -> Option<String> {
    let irq_off = &simulated.irq_off;
    (irq_off.share >= SHARE_MIN).then(|| {
        let (share, longest) = (percent(irq_off.share), time_in_words(irq_off.ns_max));
        format!("interrupts are off {share} of the time, for {longest} at the longest")
    })
}

/// What the yardstick of a measured run says.
fn one_cpu(result: &RunResult) -> Option<String> {
    let median = |name: &str| result.workload_specific.get(name)?.get("median")?.as_f64();
    let (pair_ns, lock_pairs) = (median("pair_ns")?, median("pair_lock_pairs")?);
    Some(format!(
        "one CPU alone allocates and frees a frame in {pair_ns:.1} ns, which is {lock_pairs:.1} \
         uncontended lock pairs"
    ))
}

/// How sure a measured difference is.
fn spread(result: &RunResult, baseline: Option<&RunResult>) -> Option<String> {
    let spread_of = |result: &RunResult| result.workload_specific.get("spread")?.as_f64();
    let spread = spread_of(result)?;
    let mut text = format!("its samples spread by {}", percent(spread));
    if let Some(baseline) = baseline {
        let largest = spread.max(spread_of(baseline)?);
        let difference = (result.work.per_second / baseline.work.per_second - 1.0).abs();
        if difference <= largest {
            text += &format!(", so that its distance to {} may be chance", baseline.design);
        }
    }
    Some(text)
}

/// Whatever numbers a workload gives of fragmentation.
fn fragmentation(result: &RunResult) -> Option<String> {
    let fields = result.workload_specific.get("fragmentation")?.as_object()?;
    let numbers = fields.iter().filter_map(|(name, value)| Some((name, value.as_f64()?)));
    let parts: Vec<_> =
        numbers.map(|(name, value)| format!("{} {value:.3}", name.replace('_', " "))).collect();
    (!parts.is_empty()).then(|| format!("fragmentation: {}", parts.join(", ")))
}

/// All time of all virtual CPUs.
fn all_ns(result: &RunResult) -> Option<f64> {
    result.workload_specific.get("time")?.get("all_ns")?.as_f64()
}

fn time_in_words(ns: f64) -> String {
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} µs", ns / 1e3),
        _ => format!("{:.1} ms", ns / 1e6),
    }
}
