//! Any bytes for what reads the kernel's files.

use std::time::Duration;

use super::decode::Decoder;
use super::expression::named_values;
use super::page::PageLayout;
use crate::event::Kind;

const PAGE: &str = "\
\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;
\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;
\tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;
";

const FREE: &str = "\
ID: 5
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;
\tfield:unsigned long pfn;\toffset:8;\tsize:8;\tsigned:0;
\tfield:unsigned int order;\toffset:16;\tsize:4;\tsigned:0;
";

/// Reads a page, and each record of it as an event.
fn read(layout: PageLayout, decoder: &Decoder, page: &[u8]) {
    let mut bytes = 0;
    let lost = layout.read(page, |record| {
        bytes += record.data.len();
        decoder.read(record.data);
    });
    assert!(bytes <= page.len());
    if let Err(bad) = lost {
        assert!(bad.at <= page.len(), "{bad}");
    }
}

#[test]
fn any_page_is_read_or_refused() {
    let layout = PageLayout::parse(PAGE).expect("the layout is right");
    let decoder = Decoder::new([(Kind::Free, FREE)].into_iter()).expect("the format is right");
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|bytes: &[u8]| {
        read(layout, &decoder, bytes);
        // With a length that fits, so that records are reached.
        let length = (bytes.len() as u64).to_le_bytes();
        read(layout, &decoder, &[&[0; 8], &length, bytes].concat());
    });
}

/// Formats as no kernel has them: all kinds in one, then a page after a zero byte.
#[test]
fn any_format_is_read_or_refused() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|bytes: &[u8]| {
        let mut parts = bytes.splitn(2, |byte| *byte == 0);
        let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
        let page = parts.next().unwrap_or_default();
        named_values(&text);
        let Ok(layout) = PageLayout::parse(&text) else { return };
        for kind in Kind::OF_KERNEL {
            if let Ok(decoder) = Decoder::new([(kind, &*text)].into_iter()) {
                read(layout, &decoder, page);
            }
        }
    });
}

/// An expression that names a flag.
#[test]
fn any_expression_is_read_or_refused() {
    bolero::check!().with_test_time(Duration::from_millis(200)).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let named = named_values(&format!("{{{text}, \"__GFP_ZERO\"}}"));
        assert!(named.len() <= 1 + text.matches('{').count());
    });
}
