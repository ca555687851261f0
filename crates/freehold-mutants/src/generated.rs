//! The mutants that cargo-mutants would try, of its list: it builds the tests anew for each, which
//! takes a minute, and here they are built once with all of them.
//!
//! What cannot be a choice at run time is left out: what is evaluated by the compiler, conditions
//! with `let`, fields of structs, match arms that have a guard (their guards have mutants of their
//! own).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result};
use proc_macro2::LineColumn;
use serde::Deserialize;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::schemata::{Change, Variant};

/// A mutant of the list, as cargo-mutants writes it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Generated {
    /// Where it is and what it does.
    pub(crate) name: String,
    /// The source file, from the root of the repository.
    pub(crate) file: String,
    genre: String,
    replacement: String,
    span: Span,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Span {
    start: At,
}

/// Lines and columns count from one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
struct At {
    line: usize,
    column: usize,
}

impl From<LineColumn> for At {
    fn from(of: LineColumn) -> Self {
        At { line: of.line, column: of.column + 1 }
    }
}

/// Reads what `cargo mutants --list --json` has printed.
pub(crate) fn read(path: &Path) -> Result<Vec<Generated>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is no list of mutants: make it with `cargo mutants --list --json`",
            path.display()
        )
    })
}

/// The mutants of a source, each by its number; those that cannot be chosen at run time are absent.
pub(crate) fn variants(source: &str, mutants: &[(usize, &Generated)]) -> Result<Vec<Variant>> {
    let mut places = Places::default();
    places.visit_file(&syn::parse_file(source)?);
    let variant = |&(number, mutant): &(usize, &Generated)| {
        let (span, change) = places.change(source, mutant)?;
        Some(Variant { number, name: mutant.name.clone(), span, change })
    };
    Ok(mutants.iter().filter_map(variant).collect())
}

/// What can be changed in a source, by where cargo-mutants says that it begins.
#[derive(Default)]
struct Places {
    /// By their operator: the whole, and both sides.
    binary: BTreeMap<At, [Range<usize>; 3]>,
    /// By their operator: the whole, and the operand.
    unary: BTreeMap<At, [Range<usize>; 2]>,
    guards: BTreeMap<At, Range<usize>>,
    /// Patterns of match arms without a guard.
    patterns: BTreeMap<At, Range<usize>>,
    /// All statements of functions.
    bodies: BTreeMap<At, Range<usize>>,
}

fn start(of: &impl Spanned) -> At {
    of.span().start().into()
}

fn range(of: &impl Spanned) -> Range<usize> {
    of.span().byte_range()
}

impl Places {
    fn change(&self, source: &str, mutant: &Generated) -> Option<(Range<usize>, Change)> {
        let at = mutant.span.start;
        let text = |range: &Range<usize>| &source[range.clone()];
        let replacement = mutant.replacement.clone();
        match mutant.genre.as_str() {
            "BinaryOperator" => {
                let [whole, left, right] = self.binary.get(&at)?;
                let mutated = format!("({}) {replacement} ({})", text(left), text(right));
                Some((whole.clone(), Change::Replace(mutated)))
            }
            "UnaryOperator" => {
                let [whole, operand] = self.unary.get(&at)?;
                Some((whole.clone(), Change::Replace(text(operand).to_owned())))
            }
            "MatchArmGuard" => Some((self.guards.get(&at)?.clone(), Change::Replace(replacement))),
            "MatchArm" => Some((self.patterns.get(&at)?.clone(), Change::NoMatch)),
            "FnValue" => Some((self.bodies.get(&at)?.clone(), Change::Return(replacement))),
            _ => None,
        }
    }

    fn body(&mut self, block: &syn::Block) {
        if let [first, .., last] | [first @ last] = block.stmts.as_slice() {
            self.bodies.insert(start(first), range(first).start..range(last).end);
        }
    }
}

/// Whether an expression binds names by `let`, which end with it.
fn binds(expression: &syn::Expr) -> bool {
    struct Finder(bool);
    impl Visit<'_> for Finder {
        fn visit_expr_let(&mut self, _: &syn::ExprLet) {
            self.0 = true;
        }
        fn visit_block(&mut self, _: &syn::Block) {}
    }
    let mut finder = Finder(false);
    finder.visit_expr(expression);
    finder.0
}

/// What the compiler evaluates is not gone into.
impl<'a> Visit<'a> for Places {
    fn visit_item_const(&mut self, _: &'a syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'a syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'a syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'a syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'a syn::ExprConst) {}
    fn visit_variant(&mut self, _: &'a syn::Variant) {}
    fn visit_type(&mut self, _: &'a syn::Type) {}
    fn visit_generic_argument(&mut self, _: &'a syn::GenericArgument) {}
    fn visit_pat(&mut self, _: &'a syn::Pat) {}
    fn visit_attribute(&mut self, _: &'a syn::Attribute) {}

    fn visit_expr_repeat(&mut self, repeat: &'a syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_fn(&mut self, function: &'a syn::ItemFn) {
        if function.sig.constness.is_none() {
            self.body(&function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'a syn::ImplItemFn) {
        if function.sig.constness.is_none() {
            self.body(&function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'a syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.body(block);
            visit::visit_trait_item_fn(self, function);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'a syn::ExprBinary) {
        if !binds(&binary.left) && !binds(&binary.right) {
            let ranges = [range(binary), range(&binary.left), range(&binary.right)];
            self.binary.insert(start(&binary.op), ranges);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'a syn::ExprUnary) {
        self.unary.insert(start(&unary.op), [range(unary), range(&unary.expr)]);
        visit::visit_expr_unary(self, unary);
    }

    /// With an arm less, another one must still match all that is left.
    fn visit_expr_match(&mut self, of: &'a syn::ExprMatch) {
        let patterns = of.arms.iter().filter(|arm| arm.guard.is_none()).map(|arm| &arm.pat);
        let (all, some): (Vec<_>, Vec<_>) =
            patterns.partition(|pattern| matches!(pattern, syn::Pat::Wild(_)));
        if !all.is_empty() {
            self.patterns.extend(some.into_iter().map(|pattern| (start(pattern), range(pattern))));
        }
        let guards = of.arms.iter().filter_map(|arm| Some(&*arm.guard.as_ref()?.1));
        for guard in guards.filter(|guard| !binds(guard)) {
            self.guards.insert(start(guard), range(guard));
        }
        visit::visit_expr_match(self, of);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schemata::with_variants;

    const SOURCE: &str = "\
const C: u32 = 1 + 2;
fn f(a: u32, b: bool) -> u32 {
    let mut c = a * 2 + 1;
    c += 3;
    match c {
        1 | 2 => 0,
        n if !b => n,
        _ => c,
    }
}
";

    fn mutated(genre: &str, at: (usize, usize), replacement: &str) -> Option<String> {
        let at = At { line: at.0, column: at.1 };
        let mutant = Generated {
            name: "m".into(),
            file: "a.rs".into(),
            genre: genre.into(),
            replacement: replacement.into(),
            span: Span { start: at },
        };
        let variants = variants(SOURCE, &[(0, &mutant)]).expect("it parses");
        let is_there = !variants.is_empty();
        let text = with_variants(SOURCE, variants).expect("it fits");
        let changed = text.lines().zip(SOURCE.lines()).find(|(new, old)| new != old);
        is_there.then(|| changed.expect("a line has changed").0.trim().to_owned())
    }

    fn active(text: &str) -> Option<String> {
        Some(text.replace("active", "crate::mutants::is_active(0)"))
    }

    #[test]
    fn mutants_of_each_genre_become_choices() {
        let sum = "let mut c = (if active { (a * 2) - (1) } else { a * 2 + 1 });";
        assert_eq!(mutated("BinaryOperator", (3, 23), "-"), active(sum));
        let assigned = "(if active { (c) -= (3) } else { c += 3 });";
        assert_eq!(mutated("BinaryOperator", (4, 7), "-="), active(assigned));
        let negated = "n if (if active { b } else { !b }) => n,";
        assert_eq!(mutated("UnaryOperator", (7, 14), ""), active(negated));
        let guarded = "n if (if active { true } else { !b }) => n,";
        assert_eq!(mutated("MatchArmGuard", (7, 14), "true"), active(guarded));
        assert_eq!(mutated("MatchArm", (6, 9), ""), active("1 | 2 if !active => 0,"));
        let body = "if active { return 1; } let mut c = a * 2 + 1;";
        assert_eq!(mutated("FnValue", (3, 5), "1"), active(body));
    }

    #[test]
    fn what_the_compiler_evaluates_is_left_out() {
        assert_eq!(mutated("BinaryOperator", (1, 18), "-"), None);
        assert_eq!(mutated("StructField", (3, 5), ""), None);
    }
}
