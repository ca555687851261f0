//! Any text as a recording.

use std::time::Duration;

use super::{TextError, import};
use crate::gfp::{Gfp, GfpLayout};

#[test]
fn any_text_is_imported_or_refused() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|text: &[u8]| {
        let lines = text.split(|byte| *byte == b'\n').count();
        match import(text) {
            Ok(imported) => {
                assert!(imported.events.is_sorted_by_key(|event| event.time_ns));
                assert!(imported.events.iter().all(|event| event.what.is_possible()));
                assert!(imported.events.len() as u64 + imported.others <= lines as u64);
            }
            Err(TextError::BadLine { line, .. }) => assert!((1..=lines).contains(&line)),
            Err(TextError::NoEvents { lines: read }) => assert!(read <= lines),
            Err(TextError::Io { .. }) => panic!("memory can be read"),
        }
    });
}

#[test]
fn any_flags_are_read_or_refused() {
    let layout = GfpLayout::default();
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|text: &[u8]| {
        let text = String::from_utf8_lossy(text);
        match Gfp::parse(&text, &layout) {
            Ok(flags) if !flags.has_unknown() => {
                assert_eq!(Gfp::parse(&flags.to_string(), &layout), Ok(flags));
            }
            Ok(_) => {}
            Err(part) => assert!(text.contains(&part), "{part} is named, which is not in {text}"),
        }
    });
}
