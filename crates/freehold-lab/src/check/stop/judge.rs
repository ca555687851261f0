//! Which calls may wait forever for a stopped CPU: those that wait for a lock that it holds, for a
//! section that it is in, or for another call that waits for these. In the designs without a zone
//! lock a free waits only for a free that breaks up the same huge block, and an allocation with
//! `nowait` for nothing.

use anyhow::{Result, bail, ensure};
use freehold::{Order, Pfn};
use freehold_sim::{Halted, Waiting};

use super::super::actor::is_nowait;
use super::watch::{About, Call, Watched};

/// The state when no waiting CPU can proceed.
pub(super) struct Judge<'a> {
    pub(super) is_lock_free: bool,
    pub(super) watched: &'a Watched,
    pub(super) halted: Option<Halted>,
    pub(super) waiting: Vec<Waiting>,
    /// Whether the stopped CPU is in a section.
    pub(super) in_section: bool,
}

impl Judge<'_> {
    /// Whether the stopped CPU has anything that calls other than frees may have to wait for.
    fn keeps(&self) -> bool {
        self.in_section || self.halted.as_ref().is_some_and(|halted| !halted.locks.is_empty())
    }

    /// Fails if a call waits that must not, or one would not wait although there was nothing to
    /// wait for.
    pub(super) fn judge(&self) -> Result<()> {
        for waiting in &self.waiting {
            if let Err(error) = self.judge_one(waiting) {
                bail!("CPU {} waits forever {error:#}; {}", waiting.cpu, self.state());
            }
        }
        let refused = self.watched.refused_alone();
        ensure!(
            refused == 0 || self.keeps(),
            "{refused} allocations would have waited for nothing; {}",
            self.state()
        );
        Ok(())
    }

    fn judge_one(&self, waiting: &Waiting) -> Result<()> {
        let Some(call) = self.watched.call_of(waiting.cpu) else { bail!("outside all calls") };
        let strictly = |call: &Call| self.is_lock_free.then_some(call.about.clone());
        match strictly(&call) {
            Some(About::Free(blocks, _)) => {
                ensure!(self.breaks_up(&blocks), "in {}, which may wait for nothing", call.name);
                return Ok(());
            }
            Some(About::Alloc(request)) => {
                ensure!(!is_nowait(&request), "in {}, which must not wait", call.name);
            }
            _ => {}
        }
        if let Some((lock, _)) = &waiting.lock {
            ensure!(
                self.leads_to_stopped(waiting),
                "in {} for {lock}, to which no stopped CPU is related",
                call.name
            );
        }
        ensure!(self.keeps(), "in {}, and no stopped CPU holds anything", call.name);
        Ok(())
    }

    fn is_halted(&self, cpu: usize) -> bool {
        self.halted.as_ref().is_some_and(|halted| halted.cpu == cpu)
    }

    /// Whether the holder of the lock that a CPU waits for has stopped, or waits for one that has.
    fn leads_to_stopped(&self, waiting: &Waiting) -> bool {
        let mut lock = waiting.lock.as_ref();
        // A circle of CPUs that wait for each other has no end.
        for _ in 0..=self.waiting.len() {
            // One that waits in a loop is judged separately.
            let Some(&(_, holder)) = lock else { return true };
            if self.is_halted(holder) {
                return true;
            }
            match self.waiting.iter().find(|waiting| waiting.cpu == holder) {
                Some(next) => lock = next.lock.as_ref(),
                None => return false,
            }
        }
        false
    }

    /// Whether the stopped call is breaking up a huge block that one of these blocks is a part of.
    fn breaks_up(&self, blocks: &[Pfn]) -> bool {
        let Some(halted) = &self.halted else { return false };
        let stopped = self.watched.call_of(halted.cpu);
        let Some(Call { about: About::Free(parts, _), .. }) = stopped else { return false };
        let huge = |pfn: &Pfn| pfn.get() >> Order::BUDDY_MAX.get();
        halted.irqs_off
            && parts.iter().any(|part| blocks.iter().any(|block| huge(block) == huge(part)))
    }

    /// Which CPU has stopped, and which wait.
    fn state(&self) -> String {
        let call_of = |cpu: usize| {
            let call = self.watched.call_of(cpu);
            call.map_or("no call".to_owned(), |call| call.to_string())
        };
        let stopped = self.halted.as_ref().map_or("no CPU has stopped".to_owned(), |halted| {
            let (locks, cpu) = (halted.locks.join(", "), halted.cpu);
            let no_lock = locks.is_empty();
            format!(
                "CPU {cpu} has stopped in {}, with {}{}{}",
                call_of(cpu),
                if no_lock { "no lock" } else { &locks },
                if self.in_section { ", in a section" } else { "" },
                if halted.irqs_off { ", interrupts off" } else { "" },
            )
        });
        let waiting = self.waiting.iter().map(|waiting| {
            let lock = waiting.lock.as_ref();
            let lock = lock.map(|(lock, holder)| format!(" for {lock} of CPU {holder}"));
            format!("CPU {} in {}{}", waiting.cpu, call_of(waiting.cpu), lock.unwrap_or_default())
        });
        format!("{stopped}; waiting: {}", waiting.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use freehold::Request;

    use super::super::watch::tests::watched_by;
    use super::*;

    const STOPPED: usize = 0;

    fn free_of(pfn: u64) -> About {
        About::Free(vec![Pfn::new(pfn)], Order::ZERO)
    }

    /// Judges CPU 1, which waits in such a call in a loop, against the state of CPU 0.
    fn waits(about: About, keeps: [bool; 3], of_stopped: About, is_lock_free: bool) -> bool {
        let (watched, _) = watched_by(4);
        watched.begin(STOPPED, "stopped", of_stopped, 0);
        watched.begin(1, "waiting", about, 0);
        let [has_lock, in_section, irqs_off] = keeps;
        let locks = if has_lock { vec!["a lock".to_owned()] } else { vec![] };
        let halted = Some(Halted { cpu: STOPPED, locks, irqs_off });
        let waiting = vec![Waiting { cpu: 1, lock: None }];
        Judge { is_lock_free, watched: &watched, halted, waiting, in_section }.judge().is_ok()
    }

    #[test]
    fn a_call_waits_only_for_what_the_stopped_one_keeps() {
        let alloc = || About::Alloc(Request::default());
        let nowait = || About::Alloc(Request::default().nowait());
        let (lock, section, irqs) =
            ([true, false, false], [false, true, false], [false, false, true]);
        for (about, keeps, of_stopped, may, may_elsewhere) in [
            (alloc(), [false; 3], About::Other, false, false),
            (alloc(), lock, About::Other, true, true),
            (alloc(), section, About::Other, true, true),
            (alloc(), irqs, free_of(0), false, false),
            (nowait(), section, About::Other, false, true),
            (free_of(5), lock, alloc(), false, true),
            (free_of(5), section, alloc(), false, true),
            (free_of(5), irqs, alloc(), false, false),
            (free_of(5), irqs, free_of(9), true, false),
            (free_of(5), irqs, free_of(1024), false, false),
        ] {
            let case = format!("{about:?} waits for {of_stopped:?} that keeps {keeps:?}");
            assert_eq!(waits(about.clone(), keeps, of_stopped.clone(), true), may, "{case}");
            assert_eq!(waits(about, keeps, of_stopped, false), may_elsewhere, "{case}");
        }
    }

    #[test]
    fn a_chain_of_locks_has_to_lead_to_the_stopped_cpu() {
        let (watched, _) = watched_by(4);
        (0..4).for_each(|cpu| watched.begin(cpu, "drain", About::Other, 0));
        let judge = |holders: &[usize]| {
            let of = |(nth, &holder)| Waiting {
                cpu: nth + 1,
                lock: Some((format!("lock {nth}"), holder)),
            };
            let locks = vec!["a lock".to_owned()];
            let halted = Some(Halted { cpu: STOPPED, locks, irqs_off: false });
            let waiting = holders.iter().enumerate().map(of).collect();
            let judge =
                Judge { is_lock_free: true, watched: &watched, halted, waiting, in_section: false };
            judge.judge().is_ok()
        };
        assert!(judge(&[STOPPED]));
        assert!(judge(&[STOPPED, 1, 2]));
        assert!(!judge(&[2]), "its holder does not wait");
        assert!(!judge(&[2, 1]), "they wait for each other");
        assert!(!judge(&[STOPPED, 3, 2]));
    }
}
