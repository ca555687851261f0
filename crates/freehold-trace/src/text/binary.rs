//! Files that are no text, by their first bytes.

use crate::format::MAGIC;

/// What a file is, and how to make it a text.
const KINDS: [(&[u8], &str, &str); 13] = [
    (&MAGIC, "a recording already", "freehold trace info FILE"),
    (b"PERFILE2", "perf's own file", "perf script --show-lost-events -i FILE"),
    (b"2ELIFREP", "perf's own file, of a machine with another byte order", "perf script -i FILE"),
    (b"PERFFILE", "an old perf's own file", "perf script --show-lost-events -i FILE"),
    (b"\x17\x08\x44tracing", "trace-cmd's own file", "trace-cmd report FILE"),
    (b"\x1f\x8b", "compressed by gzip", "gzip -dc FILE"),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", "zstd -dc FILE"),
    (b"\xfd7zXZ\0", "compressed by xz", "xz -dc FILE"),
    (b"BZh", "compressed by bzip2", "bzip2 -dc FILE"),
    (b"\x04\x22\x4d\x18", "compressed by lz4", "lz4 -dc FILE"),
    (b"PK\x03\x04", "a zip archive", "unzip -p FILE"),
    (b"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"),
    (b"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE"),
];

/// What a file with this start is, and the command that prints it as text. None for text.
pub(super) fn kind(start: &[u8]) -> Option<(&'static str, &'static str)> {
    let known = KINDS.iter().find(|(magic, ..)| start.starts_with(magic))?;
    Some((known.1, known.2))
}
