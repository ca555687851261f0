//! The constant expressions of a `print fmt`, which say which bit of a kernel is which flag.

use std::iter::Peekable;

/// The values and names of the flags in a list such as `__print_flags(..., {VALUE, "NAME"}, ...)`.
pub(super) fn named_values(print_format: &str) -> Vec<(u64, String)> {
    let mut values = Vec::new();
    // A name follows its value: `{( unsigned long)(1UL << (8)), "__GFP_ZERO"}`.
    for entry in print_format.split('{').skip(1) {
        let Some((value, rest)) = entry.split_once('"') else { continue };
        let Some((name, _)) = rest.split_once('"') else { continue };
        let value = value.trim_end().trim_end_matches(',');
        if let Some(value) = evaluate(value) {
            values.push((value, name.to_owned()));
        }
    }
    values
}

/// The value of an expression of C, of numbers, `~`, `<<`, `&`, `|`, parentheses and casts; none if
/// there is anything else in it.
fn evaluate(text: &str) -> Option<u64> {
    let mut tokens = tokens(text)?.into_iter().peekable();
    let value = binary(&mut tokens, 0, DEPTH_MAX)?;
    tokens.next().is_none().then_some(value)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Token {
    Number(u64),
    Open,
    Close,
    Not,
    Shift,
    And,
    Or,
}

/// Casts are left out: they have no effect on what is here.
fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let length = match first {
            '0'..='9' => {
                let length = word.unwrap_or(rest.len());
                tokens.push(Token::Number(number(&rest[..length])?));
                length
            }
            '(' => match cast(rest) {
                Some(length) => length,
                None => {
                    tokens.push(Token::Open);
                    1
                }
            },
            ')' | '~' | '&' | '|' => {
                tokens.push(match first {
                    ')' => Token::Close,
                    '~' => Token::Not,
                    '&' => Token::And,
                    _ => Token::Or,
                });
                1
            }
            '<' if rest.starts_with("<<") => {
                tokens.push(Token::Shift);
                2
            }
            _ => return None,
        };
        rest = rest[length..].trim_start();
    }
    Some(tokens)
}

/// The length of a cast such as `( unsigned long)` at the start of a text.
fn cast(text: &str) -> Option<usize> {
    let inner = &text[1..];
    // No further than a name goes: there may be many parentheses.
    let end = inner.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ' ')?;
    let is_name = inner.trim_start().starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (inner[end..].starts_with(')') && is_name).then_some(end + 2)
}

/// A number of C, with its suffix.
fn number(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// Parentheses and `~` within each other: kernels have about ten, and each takes stack.
const DEPTH_MAX: usize = 64;

/// Operators from the weakest, each of which takes what binds more strongly on both sides.
const OPERATORS: [Token; 3] = [Token::Or, Token::And, Token::Shift];

fn binary(
    tokens: &mut Peekable<impl Iterator<Item = Token>>,
    level: usize,
    depth: usize,
) -> Option<u64> {
    let Some(&operator) = OPERATORS.get(level) else { return unary(tokens, depth) };
    let mut value = binary(tokens, level + 1, depth)?;
    while tokens.next_if_eq(&operator).is_some() {
        let right = binary(tokens, level + 1, depth)?;
        value = match operator {
            Token::Or => value | right,
            Token::And => value & right,
            _ => value.checked_shl(u32::try_from(right).ok()?)?,
        };
    }
    Some(value)
}

/// `depth` is how many more of these may be within this one.
fn unary(tokens: &mut Peekable<impl Iterator<Item = Token>>, depth: usize) -> Option<u64> {
    let depth = depth.checked_sub(1)?;
    match tokens.next()? {
        Token::Number(value) => Some(value),
        Token::Not => Some(!unary(tokens, depth)?),
        Token::Open => {
            let value = binary(tokens, 0, depth)?;
            tokens.next_if_eq(&Token::Close)?;
            Some(value)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_two_generations_of_kernels_are_understood() {
        let new = r#"__print_flags(REC->gfp_flags, "|",
            {( unsigned long)(( gfp_t)((((1UL))) << (8))), "__GFP_ZERO"},
            {( unsigned long)(((( gfp_t)((((1UL))) << (6))) | (( gfp_t)((((1UL))) << (7))))
                & ~(( gfp_t)((((1UL))) << (7)))), "GFP_A"},
            { 0, ((void *)0) } ) : "none""#;
        assert_eq!(named_values(new), [(256, "__GFP_ZERO".to_owned()), (64, "GFP_A".to_owned())]);
        let old = r#"{(unsigned long)((( gfp_t)0x20u)|(( gfp_t)0x80000u)), "GFP_ATOMIC"}"#;
        assert_eq!(named_values(old), [(0x80020, "GFP_ATOMIC".to_owned())]);
    }

    #[test]
    fn anything_else_is_no_number() {
        for text in ["", "1 +", "(1", "1)", "REC->order", "1 2", "~", "1 << 64", "9x"] {
            assert_eq!(evaluate(text), None, "{text}");
        }
        let deep = |depth: usize| format!("{}1{}", "(".repeat(depth), ")".repeat(depth));
        assert_eq!(evaluate(&deep(50)), Some(1));
        assert_eq!(evaluate(&deep(1_000_000)), None, "and the stack is not overrun");
    }
}
