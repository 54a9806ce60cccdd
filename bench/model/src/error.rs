//! The errors of the model: bad input, or a picture that cannot be drawn.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Not a time.
    #[error("{value} us is not a time; give a finite number of microseconds, 0 or more")]
    NotATime {
        /// What was given.
        value: f64,
    },
    /// A sample of nothing.
    #[error("there are no measured times; measure at least once")]
    NoTimes,
    /// No curve to draw, or no point.
    #[error("there is nothing to draw; give at least one {what}")]
    NothingToDraw {
        /// What is missing.
        what: &'static str,
    },
    /// The name of a file says nothing about its format.
    #[error("{name} ends neither in .svg nor in .png; these are the formats of plots")]
    UnknownFormat {
        /// The file's name.
        name: String,
    },
    /// The drawing library refused.
    #[error("the plot could not be drawn ({what}); the table and --json have the same numbers")]
    Draw {
        /// What it said.
        what: String,
    },
}
