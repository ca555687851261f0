//! The last resort of an allocation: it has a block, or knows that there is none.
//!
//! No zone that it may use can serve the request now. But what is free may be out of its reach, in
//! one of three places, and for each there is a remedy:
//!
//! | free frames are | remedy |
//! |---|---|
//! | in caches of CPUs, which are marked | drain these: [`drain_cached`](Freehold::drain_cached) |
//! | in the hands of a call in a section | look again, until it has put them somewhere |
//! | in a pageblock that it has marked as queued and not pushed | collect them: `collect_marked` |
//!
//! So it goes round: drains, tries to take a block, and ends if at some moment nothing was in any
//! of these places and no zone could serve it: `zones/sections.rs` says how it knows.
//!
//! The first round waits for no lock: most often some cache that is not in use has what is wanted.
//! Only then does a call that may wait take the locks one after the other, and revoke leases.
//!
//! A call that ends soon needs no help, and the help costs a look at every pageblock. So a call
//! that may wait helps rarely: for a call that is stopped, such as one that a signal handler has
//! interrupted which now allocates. A call that may not wait has two rounds, and helps in the
//! last.
//!
//! Single frames may move for ever, so a request for more does not wait for a moment at which
//! nothing does: after some rounds it ends once each CPU, one after the other, was seen in no
//! section or to have ended one, and no zone can serve it after another drain. So it finds a block
//! that is free all the time, unless another call has moved that meanwhile, or is interrupted on
//! its CPU with it in hand.

use crate::Error;
use crate::designs::Context;
use crate::designs::freehold::Freehold;
use crate::designs::freehold::pageblocks::state::Holder;
use crate::memmap::index::ZoneIndex;
use crate::platform::Platform;
use crate::request::Request;
use crate::units::Order;

/// In each of so many rounds, a call that may wait helps once.
const PATIENT_ROUNDS: u32 = 64;

/// So many rounds has a call that may not wait.
const HASTY_ROUNDS: u32 = 2;

/// In so many rounds, a request for more than a frame looks for a moment at which nothing moves.
const QUIET_ROUNDS: u32 = 2;

impl<P: Platform> Freehold<P> {
    /// Takes a block of any zone, as deep as the request may go, whatever caches hold.
    ///
    /// # Errors
    ///
    /// At some moment no zone could serve the request, or none that other calls did not move:
    /// [`Error::BelowWatermark`] if only watermarks stand in the way, or else
    /// [`Error::OutOfMemory`]. [`Error::WouldWait`]: a request that may not wait does not know.
    pub(super) fn alloc_last_resort<Z: Iterator<Item = ZoneIndex>>(
        &self,
        context: Context<'_, P>,
        zones: impl Fn() -> Z,
        request: &Request,
    ) -> Result<u32, Error> {
        // Only after a look that shows a block. Of many calls that fail at the same time, none may
        // move anything, or they would keep each other from seeing that there is nothing.
        let serving = || zones().filter(|&zone| self.zones.serves(zone, request));
        let take = || serving().find_map(|zone| self.alloc_in(context, zone, request));
        zones().for_each(|zone| {
            self.drain_cached(context, zone, false);
        });
        if let Some(frame) = take() {
            return Ok(frame);
        }
        let may_wait = request.may_wait();
        let rounds = if may_wait { PATIENT_ROUNDS } else { HASTY_ROUNDS };
        let is_block = request.order() > Order::ZERO;
        let cpus = self.zones.cpu_count();
        let mut unseen = zones().flat_map(|zone| (0..cpus).map(move |cpu| (cpu, zone))).peekable();
        for round in 1_u32.. {
            let is_last = round.is_multiple_of(rounds);
            if round > QUIET_ROUNDS && is_block {
                let idles =
                    |&place: &_| self.zones.leaves_sections(context, request.order(), place);
                while unseen.next_if(idles).is_some() {}
            }
            let all_seen = unseen.peek().is_none();
            let drain = |zone| self.drain_cached(context, zone, may_wait);
            let is_kept = zones().fold(false, |is_kept, zone| drain(zone) | is_kept);
            if is_last {
                zones().for_each(|zone| self.collect_marked(context, zone));
            }
            if let Some(frame) = take() {
                return Ok(frame);
            }
            // No allocation is promised what a lease keeps.
            let is_exempt = |cpu| is_kept && self.per_cpu(cpu).lease.has_lock();
            if all_seen || self.zones.is_short(&zones, request, is_exempt) {
                break;
            }
            if is_last && !may_wait {
                return Err(Error::WouldWait);
            }
            context.platform.relax();
        }
        match zones().any(|zone| self.zones.has_run(zone, request.order())) {
            true => Err(Error::BelowWatermark),
            false => Err(Error::OutOfMemory),
        }
    }

    /// Collects from pageblocks that are marked as queued and that their cache cannot find: a call
    /// has not pushed them yet, or they have left a cache that is leased now. Other frees have
    /// relied on that mark meanwhile, and need not wait.
    ///
    /// Cost: a look at every pageblock.
    #[cold]
    pub(crate) fn collect_marked(&self, context: Context<'_, P>, zone: ZoneIndex) {
        let here = context.cpu_here();
        for pageblock in self.zones.pageblocks_of(zone) {
            let state = self.pageblocks().state(pageblock);
            if !state.is_split() || !state.is_queued() || !self.pageblocks().has_remote(pageblock) {
                continue;
            }
            match state.holder() {
                Holder::Cpu(cpu) => {
                    if let Some(guard) = self.try_lock(context.pin().1, cpu, zone) {
                        guard.release_if_full(pageblock);
                    }
                }
                // The release collects.
                Holder::None => {
                    self.zones.with_acquired(here, zone, pageblock, || Some(()));
                }
                Holder::Walker => {}
            }
        }
    }
}
