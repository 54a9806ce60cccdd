//! Reports.
pub mod document;
