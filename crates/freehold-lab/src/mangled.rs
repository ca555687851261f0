//! Text as users damage it, for the tests of parsers: a good file of which parts are cut out,
//! doubled, replaced and moved.

use fastrand::Rng;

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

/// Texts with up to seven changes to `good`, the same on every run. Half of the changes end at the
/// edges of words.
pub(crate) fn of(good: &str) -> impl Iterator<Item = String> {
    (0..300).map(move |seed| {
        let mut rng = Rng::with_seed(seed);
        let mut text = good.to_owned();
        for _ in 0..rng.u8(..8) {
            let mut places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
            if rng.bool() {
                let edge = |at: &usize| !text[*at..].starts_with(char::is_alphanumeric);
                places.retain(edge);
            }
            places.extend([0, text.len()]);
            let [mut from, mut to, one, other] =
                [(); 4].map(|()| places[rng.usize(..places.len())]);
            (from, to) = (from.min(to), from.max(to));
            let put = match rng.bool() {
                true => text[one.min(other)..one.max(other)].to_owned(),
                false => WORDS[rng.usize(..WORDS.len())].to_owned(),
            };
            // Most changes are small: large ones leave nothing of the text's form.
            if rng.bool() || to - from > 40 {
                to = from;
            }
            text.replace_range(from..to, &put);
        }
        text
    })
}
