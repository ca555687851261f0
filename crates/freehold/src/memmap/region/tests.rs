//! Tables in a buffer of the caller's.

extern crate std;

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::*;
use crate::memmap::zeroable::zeroable;
use crate::platform::{Native, OneCpu, Platform, Word, ZeroBytes};
use std::boxed::Box;
use std::vec;

fn leak(len: usize) -> Metadata {
    Metadata::from_static(Box::leak(vec![MaybeUninit::<u8>::uninit(); len].into_boxed_slice()))
}

#[test]
fn tables_lie_on_lines_of_their_own() {
    fn plan(builder: &mut LayoutBuilder<'_>) -> Result<(), Error> {
        builder.table::<u16>(SectionKind::Topology, 3)?;
        builder.strided_table::<u32>(SectionKind::Frames, 10, 16).map(drop)
    }
    let layout = MetadataLayout::of(Pfn::new(0), plan).unwrap();
    let mut sections = layout.sections();
    assert_eq!(sections.next().unwrap().len_bytes, 6);
    let frames = sections.next().unwrap();
    assert_eq!((frames.offset_bytes, frames.stride_bytes, frames.len_bytes), (64, 16, 160));
    assert_eq!(layout.size(), 256);
    assert_eq!(layout.align(), 64);
    let mut unrecorded = LayoutBuilder::new();
    plan(&mut unrecorded).unwrap();
    assert_eq!(unrecorded.finish().size_bytes, 256);
}

#[test]
fn a_table_larger_than_the_address_space_is_refused() {
    let mut builder = LayoutBuilder::new();
    let table = builder.table::<u64>(SectionKind::Frames, usize::MAX / 4);
    assert_eq!(table.unwrap_err(), Error::SpanTooLarge);
}

#[test]
fn too_small_or_misaligned_metadata_is_refused() {
    let mut builder = LayoutBuilder::new();
    builder.table::<u64>(SectionKind::Frames, 100).unwrap();
    let layout = builder.finish();
    assert_eq!(Carver::new(leak(64), &layout).unwrap_err(), Error::MetadataTooSmall);
    let metadata = leak(4096);
    let odd = NonNull::new(metadata.base.as_ptr().wrapping_add(1)).unwrap();
    let metadata = Metadata { base: odd, len_bytes: 4095, is_zeroed: false };
    // One of two neighbouring addresses is misaligned for sure.
    assert!(
        !odd.addr().get().is_multiple_of(64) || Carver::new(metadata, &layout).is_ok(),
        "an aligned buffer is accepted"
    );
    let metadata = Metadata { base: odd, len_bytes: 4095, is_zeroed: false };
    if !odd.addr().get().is_multiple_of(64) {
        assert!(Carver::new(metadata, &layout).is_ok(), "there is room for an aligned one");
    }
    let metadata = leak(4096);
    let mut odd = (0..64).map(|at| metadata.base.as_ptr().wrapping_add(at));
    let odd = odd.find(|at| at.addr() % 64 == 1).and_then(NonNull::new).unwrap();
    let metadata = Metadata { base: odd, len_bytes: layout.size_bytes + 62, is_zeroed: false };
    assert_eq!(Carver::new(metadata, &layout).unwrap_err(), Error::MetadataMisaligned);
}

struct Pair<P: Platform>(P::U32, [P::U64; 2]);

zeroable!(Pair { 0: P::U32::ZERO_BYTES, 1: ZeroBytes::array(P::U64::ZERO_BYTES) });

type TestPair = Pair<Native<OneCpu>>;

/// A table of one pair in a buffer that says it is zeroed, though it holds the bytes 1; and how
/// often `init` ran.
fn pair_of_ones(is_zeroed: bool, strided: bool) -> (u32, u64, usize) {
    let mut builder = LayoutBuilder::new();
    let plan = builder.strided_table::<TestPair>(SectionKind::Frames, 1, 32).unwrap();
    let side_by_side = builder.table::<TestPair>(SectionKind::Frames, 1).unwrap();
    let layout = builder.finish();
    let ones = vec![MaybeUninit::new(1); layout.size_unaligned()];
    let metadata = Metadata { is_zeroed, ..Metadata::from_static(Box::leak(ones.into())) };
    let mut carver = Carver::new(metadata, &layout).unwrap();
    let mut inits = 0;
    let init = |_| {
        inits += 1;
        Pair(AtomicU32::new(0), [0, 0].map(AtomicU64::new))
    };
    let (word, words) = match strided {
        true => {
            let table = carver.zero_strided_table(plan, init);
            (table.get(0).0.load(Relaxed), table.get(0).1[1].load(Relaxed))
        }
        false => {
            let table = carver.zero_table(side_by_side, init);
            (table.get(0).0.load(Relaxed), table.get(0).1[1].load(Relaxed))
        }
    };
    (word, words, inits)
}

#[test]
fn zeroed_bytes_are_left_as_they_are() {
    const ONES: (u32, u64) = (0x0101_0101, 0x0101_0101_0101_0101);
    for strided in [false, true] {
        assert_eq!(pair_of_ones(true, strided), (ONES.0, ONES.1, 0));
        assert_eq!(pair_of_ones(false, strided), (0, 0, 1));
    }
}
