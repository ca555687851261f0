//! Suggestions for misspelt names.

/// The known name nearest to `name`, if one is near: at most half of its letters differ.
pub(super) fn nearest(
    name: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    known
        .map(|candidate| (strsim::levenshtein(name, candidate), candidate))
        .filter(|(differing, candidate)| differing * 2 <= candidate.len())
        .min_by_key(|(differing, _)| *differing)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_near_if_half_of_its_letters_are_there() {
        assert_eq!(nearest("abx", ["abc", "xyz"].into_iter()), Some("abc"));
        assert_eq!(nearest("qqq", ["abc", "xyz"].into_iter()), None);
    }
}
