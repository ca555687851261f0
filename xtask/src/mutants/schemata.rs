//! One source with all its mutants, of which an environment variable selects one at run time, so
//! that the tests are compiled once (mutant schemata; Untch, Offutt, Harrold 1993).
//!
//! With `active` for `crate::mutants::is_active(7)`, where 7 is the number of the mutant:
//!
//! | found | becomes |
//! |---|---|
//! | an expression `E` | `(if active { MUTANT } else { E })` |
//! | one that the mutant omits | `(if active { None } else { Some(E) })` |
//! | statements `S;`, up to their semicolon | `if active { MUTANT } else { S; }` |
//! | a point | as one or the other, with `{ active; E }` |
//!
//! Mutants of the same text are tested one after the other, and a text may be nested in another. A
//! name bound by `let` would go out of scope at the closing brace: find the expression in it, or
//! all that follows in its block.

use std::ops::Range;

use anyhow::{Result, bail, ensure};

use crate::mutants::place::locate;
use crate::mutants::table::Place;

/// One mutant of a source.
struct Variant {
    /// What selects it.
    number: usize,
    /// How it is called in errors.
    name: String,
    /// The text that it changes.
    span: Range<usize>,
    change: Change,
}

/// What becomes of a text.
#[derive(Debug, PartialEq, Eq)]
enum Change {
    /// Another expression, or other statements.
    Replace(String),
    /// No value, where there was one.
    Omit,
    /// The same; only whether it is reached matters.
    Point,
}

/// A text and its mutants.
struct Site {
    span: Range<usize>,
    variants: Vec<Variant>,
}

/// The source with the mutants of these places, each of which has a number.
pub(crate) fn with_mutants(source: &str, places: &[(usize, &Place)]) -> Result<String> {
    let mut variants = Vec::new();
    for &(number, place) in places {
        let span = locate(source, place)?;
        let change = match place.replace.as_deref() {
            None => Change::Point,
            Some("") if !source[span.clone()].ends_with(';') => Change::Omit,
            Some(mutant) => Change::Replace(mutant.to_owned()),
        };
        variants.push(Variant { number, name: place.to_string(), span, change });
    }
    let mut sites: Vec<Site> = Vec::new();
    for variant in variants {
        let span = variant.span.clone();
        match sites.iter_mut().find(|site| site.span == span) {
            Some(site) => site.variants.push(variant),
            None => sites.push(Site { span, variants: vec![variant] }),
        }
    }
    // Sites that contain others come before these.
    sites.sort_by_key(|site| (site.span.start, usize::MAX - site.span.end));
    for (nth, outer) in sites.iter().enumerate() {
        for inner in &sites[nth + 1..] {
            let is_apart = inner.span.start >= outer.span.end;
            ensure!(
                is_apart || inner.span.end <= outer.span.end,
                "the texts of {} and {} overlap: make them the same, or one part of the other",
                outer.variants[0].name,
                inner.variants[0].name
            );
        }
        check(source, outer)?;
    }
    Ok(rewrite(source, 0..source.len(), &sites))
}

fn check(source: &str, site: &Site) -> Result<()> {
    let (name, text) = (&site.variants[0].name, &source[site.span.clone()]);
    if text.starts_with("let ") && text.ends_with(';') {
        bail!("mutant {name}: what `let` names would end there; find the expression in it");
    }
    let has = |wanted: fn(&Change) -> bool| site.variants.iter().any(|of| wanted(&of.change));
    ensure!(
        !has(|change| *change == Change::Omit) || !has(|of| matches!(of, Change::Replace(_))),
        "mutant {name}: one mutant leaves this expression out and another one does not, which \
         gives it two types; say what the first one has instead"
    );
    Ok(())
}

/// A part of the source that contains these sites.
fn rewrite(source: &str, part: Range<usize>, sites: &[Site]) -> String {
    let (mut text, mut at, mut rest) = (String::new(), part.start, sites);
    while let [site, behind @ ..] = rest {
        let inner = behind.iter().take_while(|inner| inner.span.end <= site.span.end).count();
        text += &source[at..site.span.start];
        let normal = rewrite(source, site.span.clone(), &behind[..inner]);
        text += &wrap(normal, source[site.span.clone()].ends_with(';'), &site.variants);
        (at, rest) = (site.span.end, &behind[inner..]);
    }
    text + &source[at..part.end]
}

/// A text with its mutants.
fn wrap(normal: String, is_statement: bool, variants: &[Variant]) -> String {
    let mut wrapped = normal;
    if variants.iter().any(|variant| variant.change == Change::Omit) {
        wrapped = format!("Some({wrapped})");
    }
    for variant in variants {
        let is_active = format!("crate::mutants::is_active({})", variant.number);
        wrapped = match &variant.change {
            Change::Point => format!("{{ {is_active}; {wrapped} }}"),
            Change::Omit => format!("if {is_active} {{ None }} else {{ {wrapped} }}"),
            Change::Replace(mutant) => {
                format!("if {is_active} {{ {mutant} }} else {{ {wrapped} }}")
            }
        };
    }
    if !is_statement { format!("({wrapped})") } else { wrapped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::table::parse;

    const SOURCE: &str = "\
fn f() -> bool {
    let _section = section();
    step(1);
    done() && !more(2)
}
";

    /// The source with mutants of such texts.
    fn mutated(mutants: &[(&str, &str)]) -> Result<String> {
        let mut table = "file = \"a.rs\"\n".to_owned();
        for (nth, (find, replace)) in mutants.iter().enumerate() {
            table += &format!(
                "[[mutant]]\nname = \"f: {nth}\"\nfind = '{find}'\nreplace = '{replace}'\n\
                 killed_by = \"t\"\n"
            );
        }
        let places = parse(&table)?;
        let numbered: Vec<_> = places.iter().enumerate().collect();
        with_mutants(SOURCE, &numbered)
    }

    fn line(mutants: &[(&str, &str)], number: usize) -> String {
        let text = mutated(mutants).expect("they fit");
        text.lines().nth(number).expect("there are so many").trim().to_owned()
    }

    #[test]
    fn an_expression_and_a_statement_become_choices() {
        let expected = "done() && !(if crate::mutants::is_active(0) { true } else { more(2) })";
        assert_eq!(line(&[("more(2)", "true")], 3), expected);
        let expected = "if crate::mutants::is_active(0) {  } else { step(1); }";
        assert_eq!(line(&[("step(1);", "")], 2), expected);
    }

    #[test]
    fn an_expression_that_is_left_out_becomes_an_option() {
        let expected = "let _section = (if crate::mutants::is_active(0) { None } \
                        else { Some(section()) });";
        assert_eq!(line(&[("section()", "")], 1), expected);
    }

    #[test]
    fn two_mutants_of_one_text_and_one_within_it() {
        let text = line(&[("more(2)", "1"), ("2", "3"), ("more(2)", "4")], 3);
        let inner = "more((if crate::mutants::is_active(1) { 3 } else { 2 }))";
        let first = format!("if crate::mutants::is_active(0) {{ 1 }} else {{ {inner} }}");
        let both = format!("(if crate::mutants::is_active(2) {{ 4 }} else {{ {first} }})");
        assert_eq!(text, format!("done() && !{both}"));
    }

    #[test]
    fn statements_that_end_with_a_mutant_are_statements_still() {
        let text = mutated(&[("step(1); done() && !more(2)", "true"), ("step(1);", "")]);
        let text = text.expect("they fit");
        assert!(
            text.contains("{ if crate::mutants::is_active(1) {  } else { step(1); }\n"),
            "{text}"
        );
        let source = "fn f() {\n    one();\n    two();\n}\n";
        let table = "file = \"a.rs\"\n[[mutant]]\nname = \"f: a\"\nfind = \"one(); two();\"\n\
                     replace = \"\"\nkilled_by = \"t\"\n[[point]]\nname = \"f: b\"\n\
                     find = \"two();\"\nreached_by = \"t\"\n";
        let places = parse(table).expect("it is right");
        let numbered: Vec<_> = places.iter().enumerate().collect();
        let text = with_mutants(source, &numbered).expect("they fit");
        assert!(text.contains("    if crate::mutants::is_active(0)"), "{text}");
    }

    #[test]
    fn what_cannot_be_done_is_said() {
        let error = |mutants: &[_]| format!("{:#}", mutated(mutants).expect_err("it cannot"));
        let overlap = error(&[("step(1); done()", "x"), ("done() && !more(2)", "y")]);
        assert!(overlap.contains("\"f: 0\"") && overlap.contains("\"f: 1\""), "{overlap}");
        assert!(error(&[("let _section = section();", "")]).contains("`let`"));
        assert!(error(&[("more(2)", ""), ("more(2)", "true")]).contains("two types"));
    }
}
