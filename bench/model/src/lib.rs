//! The cost model of *High-Performance Binary Applets* (Erlingsson 1997, section 3): when a call
//! into an applet pays, with its tables and plots.
//!
//! A computation may be done in the host's own language, slowly, or in an applet, fast, after a
//! call that costs something. [`break_even`] says how long a computation has to be for the call to
//! pay; [`Workload`] predicts the times of one computation over sizes of its input; [`Comparison`]
//! says how far measured times are off.
//!
//! Invariants: nothing here measures or runs anything, but for the interpreters of [`outside`], which
//! say what a computation takes them; what is not a time (negative, not finite) is
//! refused where it comes in, so that results are finite. All times are microseconds, as in the
//! paper.
//!
//! ```
//! let at = holdfast_model::break_even(holdfast_model::Microseconds::new(1000.0)?, 10.0).unwrap();
//! assert_eq!(format!("{:.2}", at.applet_us), "111.11");
//! assert_eq!(format!("{:.2}", at.interface_us), "1111.11");
//! # Ok::<(), holdfast_model::ModelError>(())
//! ```

#![forbid(unsafe_code)]

mod break_even;
mod comparison;
mod error;
pub mod outside;
#[cfg(feature = "program")]
mod plot;
mod table;
mod time;
mod workload;

pub use break_even::{BreakEven, BreakEvens, break_even};
pub use comparison::{Comparison, Deviation, Point, Sample};
pub use error::ModelError;
#[cfg(feature = "program")]
pub use plot::{Format, plot_break_evens, plot_comparison};
pub use time::Microseconds;
pub use workload::{Cost, Workload};
