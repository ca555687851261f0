//! A ledger of what is allocated beside an arena, and calls of it, right and wrong.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};

use freehold_c::freehold_error::{self, *};
use freehold_c::*;

pub(crate) const FRAMES: usize = 4096;
/// The largest page that a machine has.
pub(crate) const FRAME: usize = 64 << 10;

/// What decides which calls are made.
pub(crate) trait Choices {
    /// A number below `bound`.
    fn below(&mut self, bound: usize) -> usize;
}

/// The result of a call with one.
pub(crate) fn result<T: Copy>(
    call: impl FnOnce(Option<&mut MaybeUninit<T>>) -> freehold_error,
) -> Result<T, freehold_error> {
    let mut value = MaybeUninit::uninit();
    match call(Some(&mut value)) {
        // SAFETY: Every function with a result writes it, and certainly without an error.
        FREEHOLD_OK => Ok(unsafe { value.assume_init() }),
        error => Err(error),
    }
}

/// The arena, and how many frames each allocation has, by its first.
pub(crate) struct Ledger<'a> {
    pub(crate) arena: Option<&'a freehold_arena>,
    pub(crate) base: usize,
    pub(crate) frame: usize,
    pub(crate) held: BTreeMap<usize, usize>,
}

impl Ledger<'_> {
    pub(crate) fn address(&self, frame: usize) -> *mut c_void {
        freehold_base(self.arena).wrapping_byte_add(frame * self.frame)
    }

    fn note(&mut self, block: *mut c_void, frames: usize) {
        let first = (block.addr() - self.base) / self.frame;
        let before = self.held.range(..first + frames).next_back();
        assert!(before.is_none_or(|(start, length)| start + length <= first), "handed out twice");
        assert!(first + frames <= FRAMES);
        assert_eq!(
            result(|out| freehold_usable_bytes(self.arena, block, out)),
            Ok(frames * self.frame)
        );
        self.held.insert(first, frames);
    }

    pub(crate) fn allocate(&mut self, random: &mut impl Choices) {
        let (kind, arena) = (random.below(4), self.arena);
        let most = [8, 40, 600, 1500][random.below(4)];
        let frames = 1 + random.below(most);
        let bytes = frames * self.frame - random.below(self.frame);
        let (allocated, frames) = match kind {
            0 => {
                let order = frames.next_power_of_two().ilog2();
                (result(|out| freehold_alloc(arena, order, out)), 1 << order)
            }
            1 => {
                let is_block = frames <= 512 || frames.is_power_of_two();
                let size = if is_block { frames.next_power_of_two() } else { frames };
                (result(|out| freehold_alloc_bytes(arena, bytes, out)), size)
            }
            2 => {
                let align = self.frame << random.below(6);
                // SAFETY: No request.
                let call = |out: Option<&mut _>| unsafe {
                    freehold_alloc_range(arena, bytes, align, null(), out)
                };
                let block = result(call);
                assert!(block.is_err() || block.is_ok_and(|block| block.addr() % align == 0));
                (block, frames)
            }
            _ => {
                let mut blocks = [null_mut(); 100];
                let (order, count) = (random.below(4) as u32, random.below(101));
                // SAFETY: There is room for `count` blocks.
                let call = |out: Option<&mut _>| unsafe {
                    freehold_alloc_bulk(arena, order, null(), blocks.as_mut_ptr(), count, out)
                };
                let got = result(call).unwrap_or(0);
                blocks[..got].iter().for_each(|block| self.note(*block, 1 << order));
                return;
            }
        };
        match allocated {
            Ok(block) => self.note(block, frames),
            Err(error) => assert!(
                matches!(error, FREEHOLD_ENOMEM | FREEHOLD_EWATERMARK | FREEHOLD_EBUSY),
                "{error:?}"
            ),
        }
    }

    /// What freeing an address must lead to.
    fn expected(&self, address: *mut c_void) -> freehold_error {
        let offset = address.addr().wrapping_sub(self.base);
        if address.is_null() || offset >= FRAMES * self.frame {
            return if address.is_null() { FREEHOLD_ENULL } else { FREEHOLD_EFOREIGN };
        }
        let frame = offset / self.frame;
        match self.held.range(..=frame).next_back() {
            Some((&first, _)) if first * self.frame == offset => FREEHOLD_OK,
            Some((first, frames)) if frame < first + frames => FREEHOLD_EINTERIOR,
            _ => FREEHOLD_EDOUBLEFREE,
        }
    }

    /// Frees an address that may be anything.
    pub(crate) fn free(&mut self, random: &mut impl Choices) {
        let nth = random.below(self.held.len().max(1));
        let right = self.held.keys().nth(nth).map_or(null_mut(), |first| self.address(*first));
        let address = match random.below(8) {
            0 => self.address(random.below(FRAMES + 10)),
            1 => right.wrapping_byte_add(1 + random.below(self.frame)),
            _ => right,
        };
        let expected = self.expected(address);
        let got = match random.below(2) {
            0 => freehold_free(self.arena, address),
            _ => freehold_free_nowait(self.arena, address),
        };
        assert_eq!(got, expected);
        if got == FREEHOLD_OK {
            self.held.remove(&((address.addr() - self.base) / self.frame));
        }
    }

    /// Frees several, of which some may be wrong or twice there.
    pub(crate) fn free_bulk(&mut self, random: &mut impl Choices) {
        let step = 1 + random.below(3);
        let mut blocks: Vec<_> = self.held.keys().step_by(step).copied().collect();
        blocks.truncate(random.below(200));
        if !blocks.is_empty() && random.below(3) == 0 {
            let (from, to) = (random.below(blocks.len()), random.below(blocks.len()));
            blocks[to] = if random.below(2) == 0 { blocks[from] } else { random.below(FRAMES) };
        }
        let addresses: Vec<_> = blocks.iter().map(|frame| self.address(*frame)).collect();
        let mut freed = MaybeUninit::new(0);
        let (start, count) = (addresses.as_ptr(), addresses.len());
        // SAFETY: There are so many addresses.
        let error = unsafe { freehold_free_bulk(self.arena, start, count, Some(&mut freed)) };
        // SAFETY: It was initialised above.
        let freed = unsafe { freed.assume_init() };
        for address in &addresses[..freed] {
            let first = (address.addr() - self.base) / self.frame;
            assert!(self.held.remove(&first).is_some(), "freed what was not held");
        }
        let expected = addresses.get(freed).map_or(FREEHOLD_OK, |next| self.expected(*next));
        assert_eq!(error, expected, "after {freed} of {count}");
        assert!(error != FREEHOLD_OK || freed == count);
    }

    pub(crate) fn check(&self) {
        let mut census = MaybeUninit::<freehold_census>::zeroed();
        // SAFETY: All its fields may be 0.
        let census = unsafe { census.assume_init_mut() };
        census.size = size_of::<freehold_census>();
        // SAFETY: The struct says its size.
        assert_eq!(unsafe { freehold_validate(self.arena, census) }, FREEHOLD_OK);
        let held: usize = self.held.values().sum();
        assert_eq!(census.allocated as usize, held);
        assert_eq!(census.managed as usize, FRAMES);
    }
}

/// Has `play` make calls of a new arena; then frees what is left.
pub(crate) fn with_arena(flags: u32, play: impl FnOnce(&mut Ledger<'_>)) {
    let options = freehold_options {
        size: size_of::<freehold_options>(),
        bytes: FRAMES * FRAME,
        frame_bytes: FRAME,
        cpus: 2,
        nodes: 1,
        flags,
        ..Default::default()
    };
    // SAFETY: The struct says its size.
    let handle = result(|out| unsafe { freehold_arena_new(&options, out) }).unwrap();
    // SAFETY: The arena is there until the end of this function.
    let arena = Some(unsafe { &*handle });
    let base = freehold_base(arena).addr();
    let mut ledger = Ledger { arena, base, frame: FRAME, held: BTreeMap::new() };
    play(&mut ledger);
    for first in std::mem::take(&mut ledger.held).into_keys() {
        assert_eq!(freehold_free(arena, ledger.address(first)), FREEHOLD_OK);
    }
    ledger.check();
    // SAFETY: Nothing uses the arena any more.
    unsafe { freehold_arena_destroy(handle) };
}
