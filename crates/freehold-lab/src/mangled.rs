//! Text as users damage it, for the tests of parsers: a good file of which parts are cut out,
//! doubled, replaced and moved.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// What takes the place of a part, beside other parts of the text: what parsers stumble over.
const WORDS: &[&str] = &[
    "",
    "0",
    "-1",
    "1e308",
    "18446744073709551616",
    "4294967295",
    "nan",
    "null",
    "true",
    "''",
    "\"",
    "[",
    "]",
    "{",
    "}",
    "=",
    "#",
    "\n",
    "\u{0}",
    "\u{1b}[2J",
    "ä€\u{1f980}",
    "1979-05-27T07:32:00Z",
];

/// Texts with up to eight changes to `good`. Half of the changes end at the edges of words.
pub(crate) fn of(good: &'static str) -> impl Strategy<Value = String> {
    let change = (any::<[Index; 4]>(), any::<[bool; 3]>(), select(WORDS));
    vec(change, 0..8).prop_map(move |changes| {
        let mut text = good.to_owned();
        for (indices, [whole_words, from_text, keep], word) in changes {
            let mut places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            if whole_words {
                let edge = |at: &usize| !text[*at..].starts_with(char::is_alphanumeric);
                places.retain(edge);
            }
            places.extend([0, text.len()]);
            let [mut from, mut to, one, other] = indices.map(|index| *index.get(&places));
            (from, to) = (from.min(to), from.max(to));
            let mut put = word.to_owned();
            if from_text {
                put = text[one.min(other)..one.max(other)].to_owned();
            }
            // Most changes are small: large ones leave nothing of the text's form.
            if keep || to - from > 40 {
                to = from;
            }
            text.replace_range(from..to, &put);
        }
        text
    })
}
