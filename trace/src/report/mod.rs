//! Reports in all their forms, from one document ([`document::Report`]).
//!
//! Invariants: every form is made from the document alone, so all say the same. No form reads the
//! clock, the machine or the network.

pub mod document;
mod file;
mod folded;
mod html;
mod look;
pub mod perfetto;
mod source;
pub mod study;
mod table;
mod terminal;
pub mod text;
mod tsv;
pub mod watch;

use holdfast_sys::terminal::ShownJson;

pub use document::Report;
pub use file::{WholeFile, WriteError, write_whole};
pub use folded::{Part, folded};
pub use html::{Page, html};
pub use look::{Grouping, Look};
pub use table::{Align, Table};
pub use terminal::terminal;
pub use tsv::tsv;

/// The report as JSON, of which `docs/trace-report.schema.json` is the schema.
#[must_use]
pub fn json(report: &Report) -> String {
    pretty(report)
}

/// JSON of plain data, such as a comparison or a matrix.
#[must_use]
pub fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value)
        .map(|text| format!("{}\n", ShownJson(&text)))
        .unwrap_or_else(|error| {
            unreachable!("structs with string keys and finite numbers are always JSON: {error}")
        })
}

#[cfg(test)]
mod samples;
#[cfg(test)]
mod tests;
