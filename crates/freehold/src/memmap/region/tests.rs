//! Tables in a buffer of the caller's.

extern crate std;

use super::*;
use std::boxed::Box;
use std::vec;

fn leak(len: usize) -> Metadata {
    Metadata::from_static(Box::leak(vec![MaybeUninit::<u8>::uninit(); len].into_boxed_slice()))
}

#[test]
fn tables_lie_on_lines_of_their_own() {
    let mut builder = LayoutBuilder::new(Pfn::new(0));
    builder.table::<u16>(SectionKind::Topology, 3).unwrap();
    builder.strided_table::<u32>(SectionKind::Frames, 10, 16).unwrap();
    let layout = builder.finish();
    let mut sections = layout.sections();
    assert_eq!(sections.next().unwrap().len_bytes, 6);
    let frames = sections.next().unwrap();
    assert_eq!((frames.offset_bytes, frames.stride_bytes, frames.len_bytes), (64, 16, 160));
    assert_eq!(layout.size(), 256);
    assert_eq!(layout.align(), 64);
}

#[test]
fn a_table_larger_than_the_address_space_is_refused() {
    let mut builder = LayoutBuilder::new(Pfn::new(0));
    let table = builder.table::<u64>(SectionKind::Frames, usize::MAX / 4);
    assert_eq!(table.unwrap_err(), Error::SpanTooLarge);
}

#[test]
fn too_small_or_misaligned_metadata_is_refused() {
    let mut builder = LayoutBuilder::new(Pfn::new(0));
    builder.table::<u64>(SectionKind::Frames, 100).unwrap();
    let layout = builder.finish();
    assert_eq!(Carver::new(leak(64), &layout).unwrap_err(), Error::MetadataTooSmall);
    let metadata = leak(4096);
    let odd = NonNull::new(metadata.base.as_ptr().wrapping_add(1)).unwrap();
    let metadata = Metadata { base: odd, len_bytes: 4095 };
    // One of two neighbouring addresses is misaligned for sure.
    assert!(
        !odd.addr().get().is_multiple_of(64) || Carver::new(metadata, &layout).is_ok(),
        "an aligned buffer is accepted"
    );
    let metadata = Metadata { base: odd, len_bytes: 4095 };
    if !odd.addr().get().is_multiple_of(64) {
        assert!(Carver::new(metadata, &layout).is_ok(), "there is room for an aligned one");
    }
    let metadata = leak(4096);
    let mut odd = (0..64).map(|at| metadata.base.as_ptr().wrapping_add(at));
    let odd = odd.find(|at| at.addr() % 64 == 1).and_then(NonNull::new).unwrap();
    let metadata = Metadata { base: odd, len_bytes: layout.size() + 62 };
    assert_eq!(Carver::new(metadata, &layout).unwrap_err(), Error::MetadataMisaligned);
}
