//! Names of roots, as they come out of a heap: its author chose them.
//!
//! Invariant: JSON has a name as it is stored, text never has what would steer the terminal: as
//! names are of this type, no command can forget that.

use std::fmt;

use holdfast_sys::terminal::Shown;
use serde::Serialize;

/// The name of a root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RootName(String);

impl From<&str> for RootName {
    fn from(name: &str) -> RootName {
        RootName(name.to_owned())
    }
}

impl fmt::Display for RootName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown(&self.0).fmt(f)
    }
}
