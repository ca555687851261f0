//! Suggestions for misspelt names.

/// The known name nearest to `name`, if one is near: at most half of its letters differ.
pub(super) fn nearest(
    name: &str,
    known: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(differing, candidate)| differing * 2 <= candidate.len())
        .min_by_key(|(differing, _)| *differing)
        .map(|(_, candidate)| candidate)
}

/// How many letters must be inserted, deleted or replaced, after Levenshtein.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        assert_eq!((distance("kitten", "sitting"), distance("", "abc")), (3, 3));
        assert_eq!(nearest("abx", ["abc", "xyz"].into_iter()), Some("abc"));
        assert_eq!(nearest("qqq", ["abc", "xyz"].into_iter()), None);
    }
}
