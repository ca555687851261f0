//! The contestants, and their preparation for a heat.

use std::sync::LazyLock;

use crate::peers::{Bitmap1M, Bitmap16M, Bitmap64K, Buddy, Kernel, Peer, Plugin};
#[cfg(feature = "mallocs")]
use crate::peers::{Jemalloc, Mimalloc};
use anyhow::{Context, Result};
use clap::ValueEnum;
use clap::builder::PossibleValue;
use freehold_host::Host;

use super::crew::Crew;
use super::design::DesignPeer;
use super::entrant::{Entered, Entrant};
use super::lease::LeasePeer;
use super::referee::Failure;
use crate::catalog::{BenchName, PeerName, name_of};
use crate::designs::{DesignName, with_design};
use crate::error::refuse;

/// A contestant with a name on the command line, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ContestantChoice {
    All,
    Design(DesignName),
    Peer(PeerName),
}

impl ValueEnum for ContestantChoice {
    fn value_variants<'a>() -> &'a [Self] {
        static CHOICES: LazyLock<Vec<ContestantChoice>> = LazyLock::new(|| {
            let designs = DesignName::value_variants().iter().copied();
            let peers = PeerName::value_variants().iter().copied();
            let designs = designs.map(ContestantChoice::Design);
            designs
                .chain(peers.map(ContestantChoice::Peer))
                .chain([ContestantChoice::All])
                .collect()
        });
        &CHOICES
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        match self {
            ContestantChoice::All => Some(PossibleValue::new("all")),
            ContestantChoice::Design(design) => design.to_possible_value(),
            ContestantChoice::Peer(peer) => peer.to_possible_value(),
        }
    }
}

impl ContestantChoice {
    fn is_built_in(&self) -> bool {
        !matches!(self, ContestantChoice::Peer(peer) if !peer.is_built_in())
    }
}

/// One contestant.
#[derive(Clone, Copy)]
pub(super) enum Contestant<'p> {
    Design(DesignName),
    Peer(PeerName),
    Plugin(&'p Plugin),
}

/// Every chosen contestant, once, in the order of the command line.
///
/// # Errors
///
/// A contestant was named that this program was built without.
pub(super) fn chosen(choices: &[ContestantChoice]) -> Result<Vec<Contestant<'static>>> {
    if let Some(missing) = choices.iter().find(|choice| !choice.is_built_in()) {
        let name = name_of(missing);
        return refuse(format!(
            "--contestants {name}: this program was built without {name}: build it with \
             --features mallocs, which needs a C compiler and make"
        ));
    }
    let all = ContestantChoice::value_variants();
    let each = choices.iter().flat_map(|choice| match choice {
        ContestantChoice::All => all,
        one => std::slice::from_ref(one),
    });
    let mut chosen: Vec<ContestantChoice> = Vec::new();
    for choice in each.filter(|choice| choice.is_built_in()) {
        if !chosen.contains(choice) {
            chosen.push(*choice);
        }
    }
    let contestant = |choice| match choice {
        ContestantChoice::All => None,
        ContestantChoice::Design(design) => Some(Contestant::Design(design)),
        ContestantChoice::Peer(peer) => Some(Contestant::Peer(peer)),
    };
    Ok(chosen.into_iter().filter_map(contestant).collect())
}

/// How a contestant starts a heat.
pub(super) enum Start<'p> {
    /// It runs.
    Runs(Box<dyn Entrant + 'p>),
    /// It has already been found to cheat.
    Fails(Failure),
    /// The heat does not apply to it.
    Skips(String),
}

/// The common parameters of all contestants of a heat.
#[derive(Clone, Copy)]
pub(super) struct Stake<'a> {
    pub(super) bench: BenchName,
    /// How many threads call them.
    pub(super) threads: usize,
    /// How many frames they manage, if they manage any.
    pub(super) frames: u64,
    pub(super) crew: &'a Crew,
}

impl<'p> Contestant<'p> {
    pub(super) fn name(self) -> String {
        match self {
            Contestant::Design(design) => name_of(&design),
            Contestant::Peer(peer) => name_of(&peer),
            Contestant::Plugin(plugin) => plugin.name().to_owned(),
        }
    }

    /// Whether it takes memory from the machine for each frame that it allocates, and keeps it.
    pub(super) fn takes_memory(self) -> bool {
        matches!(self, Contestant::Peer(PeerName::Mimalloc | PeerName::Jemalloc))
    }

    /// Whether it may write into all of the memory that it manages.
    pub(super) fn may_fill_memory(self) -> bool {
        matches!(self, Contestant::Plugin(_))
    }

    /// Whether it is not Freehold's own.
    pub(super) fn is_peer(self) -> bool {
        match self {
            Contestant::Design(_) | Contestant::Peer(PeerName::Lease) => false,
            Contestant::Peer(_) | Contestant::Plugin(_) => true,
        }
    }

    /// Remarks about its figures in a bench.
    pub(super) fn notes(self, bench: BenchName, entrant: &dyn Entrant) -> Vec<&'static str> {
        let kernel = matches!(self, Contestant::Peer(PeerName::HostKernel));
        let singly = bench == BenchName::Bulk && !entrant.has_bulk();
        let notes = [
            kernel.then_some("it also maps, clears and unmaps what it allocates"),
            singly.then_some("it has no bulk calls: 64 single ones"),
            entrant.note(),
        ];
        notes.into_iter().flatten().collect()
    }

    /// Prepares it for a heat.
    ///
    /// # Errors
    ///
    /// The machine cannot provide what it needs.
    pub(super) fn start(self, stake: Stake<'_>) -> Result<Start<'p>> {
        let frames = stake.frames;
        let started = match self {
            Contestant::Design(design) => with_design!(design, Host, D => {
                enter(DesignPeer::<D>::new(frames)?, stake)
            }),
            Contestant::Peer(PeerName::Lease) => match LeasePeer::new(frames, stake.threads)? {
                Some(peer) => enter(peer, stake),
                None => Start::Skips("it has one thread a CPU".to_owned()),
            },
            Contestant::Peer(PeerName::BuddySystem) => enter(Buddy::new(frames), stake),
            Contestant::Peer(PeerName::BitmapAllocator) => enter_bitmap(stake),
            #[cfg(feature = "mallocs")]
            Contestant::Peer(PeerName::Mimalloc) => enter(Mimalloc::new(), stake),
            #[cfg(feature = "mallocs")]
            Contestant::Peer(PeerName::Jemalloc) => enter(Jemalloc::new(), stake),
            #[cfg(not(feature = "mallocs"))]
            Contestant::Peer(PeerName::Mimalloc | PeerName::Jemalloc) => {
                unreachable!("only what is built in is chosen")
            }
            Contestant::Peer(PeerName::HostKernel) => enter(Kernel::new(), stake),
            Contestant::Plugin(plugin) => {
                let peer = plugin.create(frames, stake.threads);
                let of = || format!("the peer {}", plugin.path().display());
                enter(peer.with_context(of)?, stake)
            }
        };
        Ok(started)
    }
}

/// Enters the smallest type of bitmap that has enough bits, as its users would.
fn enter_bitmap<'p>(stake: Stake<'_>) -> Start<'p> {
    let frames = stake.frames;
    if let Some(bitmap) = Bitmap64K::new(frames) {
        enter(bitmap, stake)
    } else if let Some(bitmap) = Bitmap1M::new(frames) {
        enter(bitmap, stake)
    } else if let Some(bitmap) = Bitmap16M::new(frames) {
        enter(bitmap, stake)
    } else {
        Start::Skips(format!("it has no bitmap of {frames} frames"))
    }
}

fn enter<'p, P: Peer + 'p>(peer: P, stake: Stake<'_>) -> Start<'p> {
    match Entered::new(peer, stake.threads, stake.crew) {
        Err(failure) => Start::Fails(failure),
        Ok(entrant) => match entrant.unfit_for(stake.bench) {
            Some(reason) => Start::Skips(reason.to_owned()),
            None => Start::Runs(Box::new(entrant)),
        },
    }
}
