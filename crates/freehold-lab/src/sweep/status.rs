//! How far a campaign is, as text and as JSON.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::campaign::{Campaign, Cell};
use super::store::{State, Store};
use crate::error::refuse;
use crate::report::out;

const SCHEMA: &str = "freehold.sweep/1";

/// Cells, in the order of the file, and how far each is.
pub(super) struct Status {
    pub(super) cells: Vec<(Arc<Cell>, State)>,
}

impl Status {
    pub(super) fn of(store: &Store, cells: &[Arc<Cell>]) -> Result<Self> {
        let with_state = |cell: &Arc<Cell>| Ok((Arc::clone(cell), store.state(cell)?));
        Ok(Status { cells: cells.iter().map(with_state).collect::<Result<_>>()? })
    }

    pub(super) fn done(&self) -> usize {
        self.cells.iter().filter(|(_, state)| *state == State::Done).count()
    }

    /// Whether all of these cells are done. Looks no further than the first that is not, so that
    /// each of many parts of a campaign need not read what all others have written.
    pub(super) fn are_all_done(store: &Store, cells: &[Arc<Cell>]) -> Result<bool> {
        for cell in cells {
            if store.state(cell)? != State::Done {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The cells that are left to run. One that has changed since it was done is refused, unless by
    /// `force`.
    pub(super) fn left(&self, force: bool) -> Result<Vec<Arc<Cell>>> {
        let mut left = Vec::new();
        for (cell, state) in &self.cells {
            match state {
                State::Done => continue,
                State::Missing | State::Failed(_) => {}
                State::Changed if force => {}
                State::Changed => {
                    return refuse(format!(
                        "{}: its definition has changed since it was done: add --force to run such \
                         cells again, or name another folder with --output",
                        cell.name
                    ));
                }
            }
            left.push(Arc::clone(cell));
        }
        Ok(left)
    }

    /// Prints each cell.
    pub(super) fn list(&self, as_json: bool) -> Result<()> {
        if as_json {
            out!("{}", serde_json::to_string_pretty(&self.document(None))?);
            return Ok(());
        }
        for (cell, state) in &self.cells {
            out!("{:7}  {}", state.name(), cell.name);
        }
        out!("{} of {} cells are done", self.done(), self.cells.len());
        Ok(())
    }

    /// Says what a command has done, of which so many cells `ran`.
    ///
    /// # Errors
    ///
    /// If a cell has failed.
    pub(super) fn report(
        &self,
        campaign: &Campaign,
        ran: usize,
        results: Option<&Path>,
        as_json: bool,
    ) -> Result<()> {
        let failed = self.failed();
        if as_json {
            out!("{}", serde_json::to_string_pretty(&self.document(results))?);
        } else {
            for (name, error) in &failed {
                out!("failed  {name}: {error}");
            }
            let (all, of_file) = (self.cells.len(), campaign.cells.len());
            let part = if all == of_file { String::new() } else { format!(" of {of_file}") };
            out!("{all}{part} cells: {} were done, {ran} ran", all - ran);
            match results {
                Some(results) => out!("All results are in {}", results.display()),
                None => out!("No results.json yet: not all cells of the file are done"),
            }
        }
        match failed.len() {
            0 => Ok(()),
            count => bail!("{count} of {} cells failed", self.cells.len()),
        }
    }

    fn failed(&self) -> Vec<(&str, &str)> {
        let failed = self.cells.iter().filter_map(|(cell, state)| match state {
            State::Failed(error) => Some((cell.name.as_str(), error.as_str())),
            _ => None,
        });
        failed.collect()
    }

    fn document(&self, results: Option<&Path>) -> Value {
        let cells = self.cells.iter().map(|(cell, state)| {
            let mut shown = json!({"name": cell.name, "state": state.name()});
            if *state == State::Done {
                shown["document"] = json!(format!("cells/{}.json", cell.stem));
            }
            if let State::Failed(error) = state {
                shown["error"] = json!(error);
            }
            shown
        });
        json!({"schema": SCHEMA, "cells": cells.collect::<Vec<_>>(), "results": results})
    }
}
