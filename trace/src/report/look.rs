//! The look of a report on a terminal.

/// Of what the tables are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Grouping {
    /// Classes and their parts.
    Class,
    /// Calls.
    Call,
    /// Threads.
    Thread,
    /// Processes.
    Process,
    /// What crossed sandboxes.
    Crossing,
}

/// How a report looks.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Characters in a line.
    pub width: usize,
    /// Whether colours are wanted.
    pub colour: bool,
    /// Rows of lists of calls, threads and processes.
    pub top: usize,
    /// One kind of table in full; without it a bit of each.
    pub by: Option<Grouping>,
}

impl Default for Look {
    fn default() -> Look {
        Look { width: 80, colour: false, top: 10, by: None }
    }
}
