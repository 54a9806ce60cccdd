//! A line of `holdfast doctor`: something that the machine offers or lacks.
//!
//! Each program examines what it needs itself: `holdfast-NAME doctor --json` prints an array of
//! these, and `holdfast doctor` shows them after its own.

use serde::{Deserialize, Serialize};

/// How good a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// As it should be.
    Ok,
    /// It works, at a cost.
    Weaker,
    /// Nothing works without it.
    Missing,
    /// Worth knowing.
    Note,
}

/// One line of the report.
#[derive(Debug, Serialize, Deserialize)]
pub struct Finding {
    pub what: String,
    pub grade: Grade,
    pub found: String,
    /// What the lack costs, and the remedy.
    pub cost: Option<String>,
}

impl Finding {
    /// A finding that is as it should be has no cost.
    pub fn new(what: &str, grade: Grade, found: impl Into<String>, cost: &str) -> Finding {
        let cost = (grade != Grade::Ok && !cost.is_empty()).then(|| cost.to_owned());
        Finding { what: what.to_owned(), grade, found: found.into(), cost }
    }
}
