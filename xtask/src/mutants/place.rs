//! Locating a text in a source file: in which item, and where in that.
//!
//! An item is found by what its first line contains, and ends at the line with the brace of the
//! same indentation: sources are formatted by rustfmt. In the item, the text must occur exactly
//! once. Any amount of white space matches any other, so a text may break its lines elsewhere.

use std::ops::Range;

use anyhow::{Context, Result, bail};

use crate::mutants::table::Place;

/// Where the text of a place lies in a source.
pub(crate) fn locate(source: &str, place: &Place) -> Result<Range<usize>> {
    let item = item(source, &place.within)
        .with_context(|| format!("mutant {place}; correct its name or `in`"))?;
    let found = occurrences(&source[item.clone()], &place.find);
    match found.as_slice() {
        [span] => Ok(item.start + span.start..item.start + span.end),
        [] => bail!(
            "mutant {place}: {:?} does not contain\n{}\ncorrect `find`, or take the mutant out of \
             the table if its line is gone",
            place.within,
            place.find
        ),
        more => bail!(
            "mutant {place}: {:?} contains this {} times:\n{}\nmake `find` longer",
            place.within,
            more.len(),
            place.find
        ),
    }
}

/// The lines of the item whose first line contains `header`.
fn item(source: &str, header: &str) -> Result<Range<usize>> {
    let mut lines = Vec::new();
    let mut at = 0;
    for line in source.split_inclusive('\n') {
        lines.push((at, line));
        at += line.len();
    }
    let is_first = |&(_, (_, line)): &(usize, &(usize, &str))| {
        !line.trim_start().starts_with("//") && contains_word(line, header)
    };
    let found: Vec<_> = lines.iter().enumerate().filter(is_first).collect();
    let (number, (start, line)) = match found.as_slice() {
        [one] => *one,
        [] => bail!("no line contains {header:?}"),
        more => bail!("{} lines contain {header:?}", more.len()),
    };
    let indent = &line[..line.len() - line.trim_start().len()];
    let is_last = |&&(_, line): &&(usize, &str)| line.trim_end() == format!("{indent}}}");
    let last = lines[number..].iter().find(is_last);
    let (at, line) = last.with_context(|| format!("the item {header:?} does not end"))?;
    Ok(*start..at + line.len())
}

/// Whether a line contains a text that is not just the beginning of a longer name.
fn contains_word(line: &str, text: &str) -> bool {
    let goes_on = |rest: &str| rest.starts_with(|next: char| next.is_alphanumeric() || next == '_');
    line.match_indices(text).any(|(at, _)| !goes_on(&line[at + text.len()..]))
}

/// Where a text occurs, treating all white space alike.
fn occurrences(source: &str, text: &str) -> Vec<Range<usize>> {
    let words: Vec<_> = text.split_whitespace().collect();
    let Some(first) = words.first() else { return Vec::new() };
    let begins = source.match_indices(first).map(|(at, _)| at);
    begins.filter_map(|start| Some(start..end_of(source, start, &words)?)).collect()
}

/// The end of words that begin at `start`, if they follow there.
fn end_of(source: &str, start: usize, words: &[&str]) -> Option<usize> {
    let mut rest = &source[start..];
    for (nth, word) in words.iter().enumerate() {
        let next = rest.trim_start();
        if nth > 0 && next.len() == rest.len() {
            return None;
        }
        rest = next.strip_prefix(word)?;
    }
    Some(source.len() - rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::table::Fate;

    const SOURCE: &str = "\
impl A {
    /// As `fn other`.
    fn one(&self) {
        self.step(1,
            2);
        self.step(3);
    }

    fn one_more(&self) {
        self.step(3);
        self.step(3);
    }
}
";

    fn found(within: &str, find: &str) -> Result<String> {
        let place = Place {
            name: "one: broken".into(),
            file: "a.rs".into(),
            within: within.into(),
            find: find.into(),
            replace: Some(String::new()),
            test: "t".into(),
            fate: Fate::Killed,
        };
        locate(SOURCE, &place).map(|span| SOURCE[span].to_owned())
    }

    fn error(within: &str, find: &str) -> String {
        format!("{:#}", found(within, find).expect_err("it is not there once"))
    }

    #[test]
    fn a_text_is_found_in_its_item_however_its_lines_break() {
        assert_eq!(found("fn one", "self.step(3);").expect("it is there"), "self.step(3);");
        let broken = found("fn one", "self.step(1, 2);").expect("it is there");
        assert_eq!(broken, "self.step(1,\n            2);");
        found("impl A", "self.step(1, 2); self.step(3);").expect("it is there");
    }

    #[test]
    fn a_text_that_is_missing_or_there_twice_is_an_error_with_a_remedy() {
        let missing = error("fn one", "self.step(4);");
        assert!(missing.contains("a.rs") && missing.contains("one: broken"), "{missing}");
        assert!(missing.contains("correct `find`"), "{missing}");
        assert!(error("fn one_more", "self.step(3);").contains("make `find` longer"));
        assert!(error("fn other", "x").contains("no line contains"));
        assert!(error("self.step", "x").contains("4 lines contain"));
    }
}
