//! Any text as a recording.

use std::time::Duration;

use super::{BadLines, TextError, import, import_with};
use crate::gfp::{Gfp, GfpLayout};

#[test]
fn any_text_is_imported_or_refused() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|text: &[u8]| {
        let lines = text.split(|byte| *byte == b'\n').count();
        match import(text) {
            Ok(imported) => {
                assert!(imported.events.is_sorted_by_key(|event| event.time_ns));
                assert!(imported.events.iter().all(|event| event.what.is_possible()));
                // A line of old kernels may be a free, and one of a group.
                let events = imported.events.len() as u64;
                assert!(events.div_ceil(2) + imported.others <= lines as u64);
                assert_eq!((imported.bad_lines, &imported.first_bad), (0, &None));
                assert_eq!(import_with(text, BadLines::LeaveOut).unwrap(), imported);
            }
            Err(TextError::BadLine { line, .. }) => {
                assert!((1..=lines).contains(&line));
                match import_with(text, BadLines::LeaveOut) {
                    Ok(rest) => assert_eq!(rest.first_bad.unwrap().0, line),
                    Err(TextError::BadLine { line: first, .. }) => assert_eq!(first, line),
                    Err(TextError::Differences { .. }) => {}
                    Err(error) => panic!("it has an event: {error}"),
                }
            }
            Err(TextError::Differences { line, back, of }) => {
                assert!((1..=lines).contains(&line) && back <= of && of <= lines as u64);
            }
            Err(TextError::NoEvents { lines: read, mention }) => {
                assert!(read <= lines && mention.is_none_or(|line| (1..=lines).contains(&line)));
            }
            Err(TextError::Binary { what, .. }) => assert!(!what.is_empty()),
            Err(TextError::Io { .. }) => panic!("memory can be read"),
        }
    });
}

#[test]
fn any_process_is_read_by_the_form_of_its_line() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|name: &[u8]| {
        // A kernel's names have 15 bytes, and divide lines if they have an end of one.
        // function_graph ends columns by a bar.
        let ends = |byte: &u8| !matches!(byte, b'\n' | b'|');
        let name: Vec<_> = name.iter().copied().take(15).filter(ends).collect();
        let name = String::from_utf8_lossy(&name);
        let free = "mm_page_free: page=0x8 pfn=0x8 order=3";
        for text in [
            format!("{name:>16}-1234    [001] d.s..   100.000003: {free}"),
            format!("{name:>16.8}-1234      1d.s.. 20287us : {free}"),
            format!("{name:>16}  1234 [001]   100.000003: kmem:{free}"),
            format!("1.000003 |   1)  {name:.7}-1234  |   |  /* {free} */"),
        ] {
            let imported =
                import(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
            let [event] = imported.events[..] else { panic!("{text}: {:?}", imported.events) };
            assert_eq!((event.cpu, event.pid), (1, 1234), "{text}");
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
