//! Who may wait for ever for a CPU that has stopped: whoever waits for a lock that it holds, or
//! for a section that it is in, or for one that such a call has.

use anyhow::{Result, bail, ensure};
use freehold::{Order, Pfn};
use freehold_sim::{Halted, Waiting};

use super::super::actor::is_nowait;
use super::watch::{About, Call, Watched};

/// How things stand when no CPU can go on that waits.
pub(super) struct Judge<'a> {
    pub(super) is_freehold: bool,
    pub(super) watched: &'a Watched,
    pub(super) halted: Halted,
    /// Whether the stopped CPU is in a section.
    pub(super) in_section: bool,
}

impl Judge<'_> {
    /// Whether the stopped CPU has what others may have to wait for.
    fn keeps(&self) -> bool {
        !self.halted.locks.is_empty() || self.in_section || self.halted.irqs_off
    }

    /// Fails if a call waits that must not, or would not wait though it need not.
    pub(super) fn judge(&self) -> Result<()> {
        for waiting in &self.halted.waiting {
            if let Err(error) = self.judge_one(waiting) {
                bail!("{error:#}; {}", self.stopped());
            }
        }
        let refused = self.watched.refused_alone();
        ensure!(
            refused == 0 || self.keeps(),
            "{refused} allocations would have waited for nothing; {}",
            self.stopped()
        );
        Ok(())
    }

    fn judge_one(&self, waiting: &Waiting) -> Result<()> {
        let cpu = waiting.cpu;
        let Some(call) = self.watched.call_of(cpu) else {
            bail!("CPU {cpu} waits for ever outside all calls")
        };
        let call_name = call.name;
        if let Some((lock, _)) = &waiting.lock {
            let last = self.last_holder(waiting);
            ensure!(
                last.is_some(),
                "CPU {cpu} waits for ever in {call_name} for {lock}, which the stopped CPU has \
                 nothing to do with"
            );
        }
        ensure!(
            self.keeps(),
            "CPU {cpu} waits for ever in {call_name}, and the stopped CPU keeps nothing"
        );
        if !self.is_freehold {
            return Ok(());
        }
        match &call.about {
            About::Free(blocks, order) => ensure!(
                self.breaks_up(blocks, *order),
                "CPU {cpu} waits for ever in {call_name} of {order} from {:?}",
                blocks.first()
            ),
            About::Alloc(request) => {
                ensure!(
                    !is_nowait(request),
                    "CPU {cpu} waits for ever in {call_name} that must not wait: {request:?}"
                );
            }
            About::Move | About::Other => {}
        }
        Ok(())
    }

    /// The stopped CPU, if a lock that is waited for is its, or that of one that waits for it.
    fn last_holder(&self, waiting: &Waiting) -> Option<usize> {
        let mut holder = waiting.lock.as_ref()?.1;
        // A circle of CPUs that wait for each other does not lead to the stopped one.
        for _ in 0..=self.halted.waiting.len() {
            if holder == self.halted.cpu {
                return Some(holder);
            }
            let next = self.halted.waiting.iter().find(|waiting| waiting.cpu == holder)?;
            match &next.lock {
                Some((_, of_next)) => holder = *of_next,
                // That one is judged by itself.
                None => return Some(self.halted.cpu),
            }
        }
        None
    }

    /// Whether the stopped call is breaking up a huge block that parts of lie in these blocks.
    fn breaks_up(&self, blocks: &[Pfn], _order: Order) -> bool {
        let stopped = self.watched.call_of(self.halted.cpu);
        let Some(Call { about: About::Free(parts, _), .. }) = stopped else { return false };
        let huge = |pfn: &Pfn| pfn.get() >> Order::BUDDY_MAX.get();
        self.halted.irqs_off
            && parts.iter().any(|part| blocks.iter().any(|block| huge(block) == huge(part)))
    }

    fn stopped(&self) -> String {
        let call = self.watched.call_of(self.halted.cpu);
        format!(
            "CPU {} has stopped for ever in {}, holding {:?}{}{}",
            self.halted.cpu,
            call.map_or("no call", |call| call.name),
            self.halted.locks,
            if self.in_section { ", in a section" } else { "" },
            if self.halted.irqs_off { ", interrupts off" } else { "" },
        )
    }
}
