//! Python beside the applets.

use std::cell::RefCell;

use serde_json::Value;

use crate::measure::Measure;
use holdfast_command::exit::{Failure, host};
pub(crate) use holdfast_model::outside::{KeptIn, Task};
use holdfast_model::outside::{Language, Outside};

/// A running `python3` that answers one computation at a time.
pub(crate) struct Python(Outside);

impl Python {
    pub(crate) fn start() -> Result<Python, Failure> {
        Outside::start(Language::Python).map(Python).map_err(host)
    }

    /// `3.13.1`.
    pub(crate) fn version(&self) -> &str {
        self.0.version()
    }

    /// Does a task so many times: microseconds for once, and the last result.
    pub(crate) fn run(&mut self, task: &Task, times: u32) -> Result<(f64, Value), Failure> {
        self.0.run(task, times).map_err(host)
    }
}

/// A task as something to be measured.
pub(crate) fn in_python<'a>(python: &'a RefCell<Python>, task: &Task) -> Measure<'a> {
    let task = task.clone();
    Box::new(move |times| python.borrow_mut().run(&task, times).map(|(us, _)| us))
}
