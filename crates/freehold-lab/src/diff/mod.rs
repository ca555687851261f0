//! `freehold diff`: two stored documents, figure by figure, and what of their difference counts.

mod cell;
mod change;
mod data;
mod document;
mod interval;
mod text;

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::cli::DiffArgs;
use crate::report::out;
use cell::matched;
use change::{Changes, Verdict};
use document::Document;

/// Some figures are worse. Exits with code 3.
#[derive(Debug)]
pub(crate) struct Regression {
    file: String,
    worse: usize,
    count: usize,
}

impl fmt::Display for Regression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Regression { file, worse, count } = self;
        write!(f, "{file} is worse in {worse} of {count} figures")
    }
}

impl std::error::Error for Regression {}

/// Compares the documents and prints what has changed.
pub(crate) fn diff(args: &DiffArgs) -> Result<()> {
    let (a, b) = (Document::read(&args.a)?, Document::read(&args.b)?);
    if a.schema != b.schema {
        bail!(
            "{} is of schema {}, but {} of {}: give two documents of one command",
            a.name,
            a.schema,
            b.name,
            b.schema,
        );
    }
    let files = || format!("{} and {}", a.name, b.name);
    let matched = matched(&a.cells, &b.cells).with_context(files)?;
    if matched.both.is_empty() {
        let (one, other) = (a.cells[0].in_words_beside(&b.cells), b.cells[0].in_words());
        bail!(
            "{} have no cell in common, such as {one} in the first and {other} in the second: run \
             the same command twice",
            files(),
        );
    }
    let changes = Changes::of(&matched, args.threshold);
    if args.json {
        out!("{:#}", data::document(&a, &b, &changes, args.threshold));
    } else {
        out!("{}", text::lines(&a, &b, &changes, args.threshold).join("\n"));
    }
    let (worse, count) = (changes.count(Verdict::Worse), changes.all.len());
    match worse {
        0 => Ok(()),
        _ => Err(Regression { file: b.name, worse, count }.into()),
    }
}
