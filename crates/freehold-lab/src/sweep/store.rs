//! The folder of a sweep's results: what is done, and what it was.
//!
//! Each cell has a document, and a record beside it, which is written after it. A cell is done if
//! its record has its name and definition, and the hash of the document that is there; so what a
//! kill leaves between the two, and what was damaged since, counts as missing.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::campaign::{Campaign, Cell};
use super::name::sha256;
use crate::output::Output;

const RECORD_SCHEMA: &str = "freehold.sweep-record/1";
const MANIFEST_SCHEMA: &str = "freehold.sweep-manifest/1";

/// What became of a cell.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: String,
    cell: String,
    definition: String,
    /// The hash of the document, if the cell has finished.
    #[serde(skip_serializing_if = "Option::is_none")]
    document_sha256: Option<String>,
    /// Why there is no document.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// How far a cell is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Missing,
    Done,
    /// It ran and failed; the error.
    Failed(String),
    /// It has finished, but was another one then.
    Changed,
}

impl State {
    /// The word for it in lists.
    pub(super) fn name(&self) -> &'static str {
        match self {
            State::Missing => "missing",
            State::Done => "done",
            State::Failed(_) => "failed",
            State::Changed => "changed",
        }
    }
}

/// The folder.
pub(super) struct Store {
    folder: PathBuf,
}

impl Store {
    pub(super) fn new(folder: PathBuf) -> Self {
        Store { folder }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// All results in one document.
    pub(super) fn results(&self) -> PathBuf {
        self.folder.join("results.json")
    }

    /// A cell's document.
    pub(super) fn document(&self, cell: &Cell) -> PathBuf {
        self.folder.join("cells").join(format!("{}.json", cell.stem))
    }

    fn record(&self, cell: &Cell) -> PathBuf {
        self.folder.join("cells").join(format!("{}.record.json", cell.stem))
    }

    /// Makes the folder, and says in it which file is which cell.
    pub(super) fn prepare(&self, campaign: &Campaign) -> Result<()> {
        let cells = self.folder.join("cells");
        fs::create_dir_all(&cells).with_context(|| cells.display().to_string())?;
        let listed = campaign.cells.iter().map(|cell| {
            json!({
                "name": cell.name,
                "document": format!("cells/{}.json", cell.stem),
                "definition": cell.definition,
            })
        });
        let manifest = json!({
            "schema": MANIFEST_SCHEMA,
            "file": campaign.file.file_name().map(|name| name.to_string_lossy()),
            "cells": listed.collect::<Vec<_>>(),
        });
        write(&self.folder.join("manifest.json"), &pretty(&manifest)?)
    }

    /// How far a cell is.
    pub(super) fn state(&self, cell: &Cell) -> Result<State> {
        let Some(text) = read(&self.record(cell))? else { return Ok(State::Missing) };
        // What is no record of this cell is overwritten by one.
        let record = serde_json::from_slice(&text).ok();
        let Some(record) = record.filter(|record: &Record| record.cell == cell.name) else {
            return Ok(State::Missing);
        };
        let is_same = record.definition == cell.definition;
        match record {
            Record { document_sha256: Some(hash), .. } => {
                let document = read(&self.document(cell))?;
                let is_whole = document.is_some_and(|document| sha256(&document) == hash);
                Ok(match (is_whole, is_same) {
                    (false, _) => State::Missing,
                    (true, true) => State::Done,
                    (true, false) => State::Changed,
                })
            }
            Record { error: Some(error), .. } if is_same => Ok(State::Failed(error)),
            _ => Ok(State::Missing),
        }
    }

    /// Keeps what a cell came to.
    pub(super) fn keep(&self, cell: &Cell, outcome: &Result<String, String>) -> Result<()> {
        let (mut document_sha256, mut error) = (None, None);
        match outcome {
            Ok(document) => {
                write(&self.document(cell), document)?;
                document_sha256 = Some(sha256(document.as_bytes()));
            }
            Err(why) => error = Some(why.clone()),
        }
        let (schema, definition) = (RECORD_SCHEMA.to_owned(), cell.definition.clone());
        let cell_name = cell.name.clone();
        let record = Record { schema, cell: cell_name, definition, document_sha256, error };
        write(&self.record(cell), &pretty(&record)?)
    }

    /// Takes away what a cell came to when it was another one.
    pub(super) fn forget(&self, cell: &Cell) -> Result<()> {
        remove(&self.record(cell))?;
        remove(&self.document(cell))
    }

    /// Takes away the results of all cells, which some of them are no longer part of.
    pub(super) fn forget_results(&self) -> Result<()> {
        remove(&self.results())
    }

    /// Puts the documents of all cells, which are done, into one: each result with the name of its
    /// cell.
    pub(super) fn merge(&self, campaign: &Campaign) -> Result<()> {
        let mut results = Vec::new();
        for cell in &campaign.cells {
            let path = self.document(cell);
            let text = fs::read(&path).with_context(|| path.display().to_string())?;
            let mut document: Value =
                serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
            let of_cell = document.get_mut("results").and_then(Value::as_array_mut);
            for result in of_cell.into_iter().flat_map(std::mem::take) {
                let mut named = json!({"cell": cell.name});
                if let (Some(named), Value::Object(fields)) = (named.as_object_mut(), result) {
                    named.extend(fields);
                }
                results.push(named);
            }
        }
        let document = json!({"schema": crate::report::document::SCHEMA, "results": results});
        write(&self.results(), &pretty(&document)?)
    }
}

fn pretty(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value)? + "\n")
}

/// Writes a file that is there in full or not at all.
fn write(path: &Path, text: &str) -> Result<()> {
    let output = Output::new(path)?;
    let mut writer = output.writer();
    writer.write_all(text.as_bytes()).with_context(|| path.display().to_string())?;
    writer.flush().with_context(|| path.display().to_string())?;
    drop(writer);
    output.keep().map(drop)
}

/// The bytes of a file, if there is one.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(Some).with_context(|| path.display().to_string()),
    }
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| path.display().to_string()),
    }
}
