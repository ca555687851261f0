//! Why a design is as fast as it is, in words, derived only from results.

use std::fmt;

use super::columns::Telling;
use super::document::{RunResult, Simulated, number};
use super::waits::{lock_in_words, percent, wait_share, waits_by_class};
use super::words::time_in_words;

/// Shares of the time below this are not mentioned.
const SHARE_MIN: f64 = 0.01;

/// The reasons for a result, the most important first: the workload's own numbers, then those that
/// every result has. `baseline` is the result for comparison, if it is a different one.
pub(crate) fn reasons(
    result: &RunResult,
    baseline: Option<&RunResult>,
    telling: &[Telling],
) -> Vec<String> {
    let mut reasons = Vec::from_iter(told(result, baseline, telling));
    match &result.simulated {
        Some(simulated) => {
            reasons.push(lock_waits(simulated));
            reasons.extend(lock_uses(result, simulated, baseline));
            reasons.extend(calls(result));
            reasons.extend(misses(result));
            reasons.extend(interrupts(simulated));
        }
        None => {
            reasons.push(cpu_time(result));
            reasons.extend(one_cpu(result));
            reasons.extend(spread(result, baseline));
        }
    }
    reasons.extend(fragmentation(result));
    reasons
}

/// The reason for a result in half a line.
pub(crate) fn in_short(result: &RunResult) -> String {
    let parts = match &result.simulated {
        Some(simulated) => {
            let top = waits_by_class(simulated).into_iter().next();
            let top = top.filter(|(_, share)| *share >= SHARE_MIN);
            let lock =
                top.map(|(class, share)| format!("{} {}", lock_in_words(class), percent(share)));
            let besides = calls_share(result, |spent| spent != "lock_wait_ns");
            [lock, besides.map(|share| format!("allocator {}", percent(share)))]
        }
        None => [
            yardstick(result, "pair_ns").map(|ns| format!("{ns:.1} ns")),
            yardstick(result, "pair_lock_pairs").map(|pairs| format!("{pairs:.1} lock pairs")),
        ],
    };
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
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
        [only] => format!("waits {} of the time for {}", percent(only.1), lock(only)),
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

/// The paths on which a class of locks is waited for, except those that hardly matter.
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

/// How often the most contended locks are taken, here and in the baseline, and for how long.
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
        let own = LockUse::of(result, class)?;
        let of_baseline = baseline.and_then(|baseline| {
            let other = LockUse::of(baseline, class)?;
            Some(match own.is_like(&other) {
                true => format!(", as {} does", baseline.design),
                false => format!(" ({}: {other})", baseline.design),
            })
        });
        let (lock, unit) = (lock_in_words(class), &result.work.unit);
        let of_baseline = of_baseline.unwrap_or_default();
        Some(format!("takes the {lock}, per 1000 {unit}, {own}{of_baseline}"))
    });
    uses.collect()
}

/// How often the locks of a class are taken for 1000 units of work, and how long they are held.
struct LockUse {
    times: f64,
    hold_ns: f64,
}

impl LockUse {
    fn of(result: &RunResult, class: &str) -> Option<Self> {
        let lock = result.simulated.as_ref()?.locks.iter().find(|lock| lock.name == class)?;
        let acquisitions = lock.acquisitions as f64;
        let times = acquisitions * 1000.0 / result.work.count as f64;
        Some(LockUse { times, hold_ns: lock.hold_ns / acquisitions.max(1.0) })
    }

    /// Whether the difference is too small to mention.
    fn is_like(&self, other: &Self) -> bool {
        let alike = |one: f64, other: f64| (one - other).abs() <= 0.1 * one.max(other);
        alike(self.times, other.times) && alike(self.hold_ns, other.hold_ns)
    }
}

impl fmt::Display for LockUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.times == 0.0 {
            return f.write_str("not once");
        }
        write!(f, "{:.1} times for {} each", self.times, time_in_words(self.hold_ns))
    }
}

/// How much of the time is spent in the allocator.
fn calls(result: &RunResult) -> Option<String> {
    let share = percent(calls_share(result, |_| true)?);
    Some(format!("allocation and free take {share} of the time, waiting included"))
}

/// The share of the time that allocation and free take, of what is spent as `counts` selects.
fn calls_share(result: &RunResult, counts: fn(&str) -> bool) -> Option<f64> {
    let paths = result.workload_specific.get("paths")?;
    let of_path = |path: &str| -> f64 {
        let spent = paths[path].as_object().into_iter().flatten();
        spent.filter(|(name, _)| counts(name)).filter_map(|(_, ns)| ns.as_f64()).sum()
    };
    Some((of_path("alloc") + of_path("free")) / result.working_ns()?)
}

/// Which kinds of metadata miss the cache, and how much time that takes.
fn misses(result: &RunResult) -> Option<String> {
    let working_ns = result.working_ns()?;
    let data = result.workload_specific.get("data")?.as_array()?;
    let mut kinds: Vec<_> = data
        .iter()
        // The workload's own shared data is not metadata.
        .filter(|kind| kind["data"] != "workload")
        .filter_map(|kind| {
            let served = kind["served"].as_object()?;
            // A core's own caches; everything else is a miss.
            let missed =
                || served.iter().filter(|(place, _)| !matches!(place.as_str(), "l1" | "l2"));
            let share =
                |time: &str| missed().map(|(_, by)| number(by.get(time))).sum::<f64>() / working_ns;
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

/// How long a unit of work takes while all CPUs are working.
fn cpu_time(result: &RunResult) -> String {
    let unit = result.work.unit.strip_suffix('s').unwrap_or(result.work.unit);
    let ns = f64::from(result.cpus) * 1e9 / result.work.per_second;
    format!("each CPU does a {unit} in {}", time_in_words(ns))
}

/// The yardstick of a measured run.
fn one_cpu(result: &RunResult) -> Option<String> {
    let (pair_ns, lock_pairs) =
        (yardstick(result, "pair_ns")?, yardstick(result, "pair_lock_pairs")?);
    Some(format!(
        "one CPU alone allocates and frees a frame in {pair_ns:.1} ns, as long as {lock_pairs:.1} \
         uncontended lock pairs"
    ))
}

/// The median of a number that was measured on one CPU.
fn yardstick(result: &RunResult, name: &str) -> Option<f64> {
    result.workload_specific.get(name)?.get("median")?.as_f64()
}

/// The uncertainty of a measured difference.
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

/// How much of the free memory is whole at the end, and how much CPUs hide of it.
fn fragmentation(result: &RunResult) -> Option<String> {
    let fragmentation = result.fragmentation.as_ref()?;
    let (before, after) = (&fragmentation.before_drain, &fragmentation.after_drain);
    let [whole_before, whole_after] =
        [before, after].map(|memory| percent(memory.pageblock_share()));
    Some(match before.per_cpu_frames {
        0 => format!("free memory is {whole_after} whole pageblocks, and CPUs keep none of it"),
        frames => format!(
            "free memory is {whole_before} whole pageblocks before a drain, {whole_after} after: \
             CPUs keep {frames} frames to themselves"
        ),
    })
}

/// The workload's own numbers, with those of the baseline if they differ.
fn told(result: &RunResult, baseline: Option<&RunResult>, telling: &[Telling]) -> Option<String> {
    let tell = |Telling(words, number_of): &Telling| {
        let own = number_of(result);
        let other = baseline.map(|baseline| (baseline, number_of(baseline)));
        let number = match other.filter(|(_, number)| *number != own) {
            Some((baseline, number)) => format!("{own} ({}: {number})", baseline.design),
            None => own.clone(),
        };
        (own != "-").then(|| words.replace("{}", &number))
    };
    let parts: Vec<_> = telling.iter().filter_map(tell).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::fragmentation::{Fragmentation, FreeMemory};
    use crate::report::by_hand::{measured, simulated};

    #[test]
    fn locks_and_paths_are_named_by_weight() {
        let shares = [
            ("lru_lock", 0.03),
            ("lru_lock.other", 0.03),
            ("zone_lock", 0.78),
            ("zone_lock.alloc", 0.35),
            ("zone_lock.free", 0.43),
            ("zone_lock.other", 0.0),
        ];
        let reasons = reasons(&simulated("zone-lock", 1e6, &shares), None, &[]);
        assert_eq!(
            reasons[0],
            "waits 81.0 % of the time for locks: 78.0 % for the zone lock (43.0 % on free, 35.0 % \
             on allocation), 3.0 % for the lru lock (outside the allocator)"
        );
        assert_eq!(reasons[1], "takes the zone lock, per 1000 faults, 50.0 times for 4.0 µs each");
    }

    #[test]
    fn one_lock_that_matters_is_the_only_one_named() {
        let shares = [("pcp_lock", 0.002), ("zone_lock", 0.5), ("zone_lock.free", 0.5)];
        let reasons = reasons(&simulated("zone-lock", 1e6, &shares), None, &[]);
        assert_eq!(reasons[0], "waits 50.0 % of the time for the zone lock (on free)");
    }

    #[test]
    fn locks_that_do_not_matter_are_not_named() {
        let reasons = reasons(&simulated("cluster", 1e6, &[("zone_lock", 0.004)]), None, &[]);
        assert_eq!(reasons[0], "waits 0.4 % of the time for locks");
        let without = super::reasons(&simulated("free-lunch", 1e6, &[]), None, &[]);
        assert_eq!(without[0], "waits 0.0 % of the time for locks");
        assert!(!reasons.iter().any(|reason| reason.contains("zone lock")), "{reasons:?}");
    }

    #[test]
    fn use_of_a_lock_is_compared_where_the_baseline_waits_for_it() {
        let baseline = simulated("zone-lock", 1e6, &[("zone_lock", 0.8), ("zone_lock.free", 0.8)]);
        let mut other = simulated("cluster", 2e6, &[("zone_lock", 0.0)]);
        let use_of = |other: &RunResult| reasons(other, Some(&baseline), &[])[1].clone();
        let alike = "takes the zone lock, per 1000 faults, 50.0 times for 4.0 µs each, as \
                     zone-lock does";
        assert_eq!(use_of(&other), alike);
        let lock = |other: &mut RunResult, acquisitions, hold_ns| {
            let lock = &mut other.simulated.as_mut().unwrap().locks[0];
            (lock.acquisitions, lock.hold_ns) = (acquisitions, hold_ns);
        };
        lock(&mut other, 10_000, 5e6);
        let rarer = "takes the zone lock, per 1000 faults, 10.0 times for 500 ns each \
                     (zone-lock: 50.0 times for 4.0 µs each)";
        assert_eq!(use_of(&other), rarer);
        lock(&mut other, 0, 0.0);
        assert!(use_of(&other).contains("per 1000 faults, not once (zone-lock:"));
    }

    #[test]
    fn calls_misses_and_interrupts_are_shares_of_the_time() {
        let mut result = simulated("zone-lock", 1e6, &[("zone_lock", 0.0)]);
        result.simulated.as_mut().unwrap().irq_off.share = 0.25;
        let served = |l1: f64, dram: f64, locked: f64| {
            json!({
                "l1": {"time_ns": l1, "time_under_lock_ns": l1},
                "local_dram": {"time_ns": dram, "time_under_lock_ns": locked},
            })
        };
        let specific = json!({
            "time": {"all_ns": 1000.0},
            "paths": {
                "alloc": {"compute_ns": 50.0, "lock_wait_ns": 150.0},
                "free": {"memory_ns": 100.0},
                "other": {"compute_ns": 700.0},
            },
            "data": [
                {"data": "zones", "served": served(500.0, 20.0, 20.0)},
                {"data": "frames", "served": served(0.0, 80.0, 30.0)},
                {"data": "workload", "served": served(0.0, 400.0, 0.0)},
            ],
        });
        result.workload_specific = specific.as_object().unwrap().clone();
        assert_eq!(
            reasons(&result, None, &[])[1..],
            [
                "allocation and free take 30.0 % of the time, waiting included",
                "misses in metadata take 10.0 % of the time: 8.0 % on frames (3.0 % under locks), \
                 2.0 % on zones (2.0 % under locks)",
                "interrupts are off 25.0 % of the time, for 1.5 ms at the longest",
            ]
        );
    }

    #[test]
    fn hidden_memory_is_told_of() {
        let memory = |free_pageblocks, per_cpu_frames| FreeMemory {
            free_frames: 10 * 512,
            free_pageblocks,
            per_cpu_frames,
            ..FreeMemory::default()
        };
        let told = |before_drain, after_drain| {
            let fragmentation = Some(Fragmentation { before_drain, after_drain });
            let result = RunResult { fragmentation, ..measured("cluster", 1e6, 0.1) };
            reasons(&result, None, &[]).pop().unwrap()
        };
        assert_eq!(
            told(memory(3, 1234), memory(5, 0)),
            "free memory is 30.0 % whole pageblocks before a drain, 50.0 % after: CPUs keep 1234 \
             frames to themselves"
        );
        assert_eq!(
            told(memory(4, 0), memory(4, 0)),
            "free memory is 40.0 % whole pageblocks, and CPUs keep none of it"
        );
    }

    #[test]
    fn telling_numbers_come_first_with_those_of_the_baseline() {
        const TELLING: &[Telling] = &[
            Telling("{} of the attempts succeed", |r| share(r, "success")),
            Telling("{} after a while", |r| share(r, "second.success")),
            Telling("{} frames are moved", |r| share(r, "moved")),
        ];
        use crate::report::columns::percent as share;
        let with = |design, success| {
            let mut result = measured(design, 1e6, 0.1);
            let fields = json!({"success": success, "second": {"success": 1.0}});
            result.workload_specific.extend(fields.as_object().unwrap().clone());
            result
        };
        let told = |result: &RunResult, baseline| reasons(result, baseline, TELLING)[0].clone();
        let baseline = with("zone-lock", 0.5);
        let own = "50.0 % of the attempts succeed, 100.0 % after a while";
        assert_eq!(told(&baseline, None), own, "what is missing is left out");
        assert_eq!(told(&with("cluster", 0.5), Some(&baseline)), own, "no difference");
        assert_eq!(
            told(&with("cluster", 0.75), Some(&baseline)),
            "75.0 % (zone-lock: 50.0 %) of the attempts succeed, 100.0 % after a while"
        );
    }

    #[test]
    fn a_measured_difference_within_the_spread_may_be_chance() {
        let baseline = measured("zone-lock", 1e6, 0.02);
        let verdict = |per_second| {
            let result = measured("cluster", per_second, 0.05);
            reasons(&result, Some(&baseline), &[]).last().unwrap().contains("may be chance")
        };
        assert!(verdict(1.04e6) && verdict(0.96e6));
        assert!(!verdict(1.06e6) && !verdict(0.94e6));
        assert_eq!(
            reasons(&baseline, None, &[]),
            [
                "each CPU does a fault in 2.0 µs",
                "one CPU alone allocates and frees a frame in 15.0 ns, as long as 3.0 uncontended \
                 lock pairs",
                "its samples spread by 2.0 %",
            ]
        );
    }
}
