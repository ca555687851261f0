//! The names of cells, which say all of their values and nothing else: as file names, as patterns,
//! as shares of a campaign.

use sha2::{Digest, Sha256};

/// A file name of a document has at most so many bytes before `.json`; most file systems allow 255
/// in all.
const STEM_MAX: usize = 200;

/// Hexadecimal digits of a hash in a file name that would be too long.
const HASH_DIGITS: usize = 16;

/// A name from its parts, which are joined by `/`. What is neither a letter, a digit nor one of
/// `-_.=:,` is written as `%` and two hexadecimal digits a byte, `/` within a part too.
pub(super) fn join(parts: &[String]) -> String {
    let escaped: Vec<_> = parts.iter().map(|part| escape(part)).collect();
    escaped.join("/")
}

fn escape(part: &str) -> String {
    let mut escaped = String::new();
    for byte in part.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.=:,".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

/// The name as a file name without an extension: with `+` for `/`. A name that is too long ends
/// with `~` and a hash of all of it.
pub(super) fn stem(name: &str) -> String {
    let stem = name.replace('/', "+");
    if stem.len() <= STEM_MAX {
        return stem;
    }
    let kept = &stem[..STEM_MAX - HASH_DIGITS - 1];
    format!("{kept}~{}", &sha256(name.as_bytes())[..HASH_DIGITS])
}

/// Whether a pattern, in which each `*` stands for any text, is that of a name.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let mut pieces: Vec<_> = rest.split('*').collect();
    let end = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = name.find(piece) else { return false };
        name = &name[at + piece.len()..];
    }
    name.ends_with(end)
}

/// Which of `shards` shares of a campaign a cell belongs to: by its name alone, so that other cells
/// that come or go do not move it.
pub(super) fn shard(name: &str, shards: u32) -> u32 {
    let digest = Sha256::digest(name.as_bytes());
    let number = digest[..8].iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
    (number % u64::from(shards)) as u32
}

/// A hash in hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_values_have_different_names_and_files() {
        let parts = |value: &str| ["bulk".to_owned(), format!("node_memory={value}")];
        let name = join(&parts("1/4"));
        assert_eq!(name, "bulk/node_memory=1%2F4");
        assert_eq!(stem(&name), "bulk+node_memory=1%2F4");
        let tricky =
            ["a/b", "a+b", "a%2Fb", "a b", "a\nb", "ä", "a"].map(|value| join(&parts(value)));
        let mut stems: Vec<_> = tricky.iter().map(|name| stem(name)).collect();
        stems.sort();
        stems.dedup();
        assert_eq!(stems.len(), tricky.len());
        assert!(stems.iter().all(|stem| !stem.contains(['/', ' ', '\n']) && stem.is_ascii()));
    }

    #[test]
    fn long_names_stay_apart() {
        let long = |last: &str| format!("{}/seed={last}", "x".repeat(300));
        let (one, two) = (stem(&long("1")), stem(&long("2")));
        assert_ne!(one, two);
        assert_eq!((one.len(), two.len()), (STEM_MAX, STEM_MAX));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        let name = "page-fault/freehold/uma-2/cpus=2/seed=1";
        for pattern in ["*", name, "page-fault/*", "*/seed=1", "*cpus=2*", "page*/uma-2/*=1"] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in ["", "page-fault", "*/seed=2", "*cpus=2", "bulk/*", "*uma-2*uma-2*"] {
            assert!(!matches(pattern, name), "{pattern}");
        }
        assert!(!matches("ab*ba", "aba"), "the ends do not overlap");
    }

    #[test]
    fn shards_share_all_cells_about_equally() {
        let mut counts = [0; 8];
        for seed in 0..800 {
            counts[shard(&format!("bulk/freehold/uma-2/cpus=2/seed={seed}"), 8) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (60..=140).contains(count)), "{counts:?}");
    }
}
