//! A call with its options, and what it comes to.
#![forbid(unsafe_code)]

use std::time::Duration;

use crate::buffer::SharedBuffer;
use crate::metrics::CallMetrics;

/// A call with all its options.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call<'a> {
    pub(crate) function: &'a str,
    pub(crate) input: &'a [u8],
    pub(crate) buffer: Option<&'a SharedBuffer>,
    pub(crate) time_limit: Option<Duration>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// What the function answered; streamed parts in order, and then the result.
    pub bytes: Vec<u8>,
    /// What the call cost.
    pub metrics: CallMetrics,
}

impl<'a> Call<'a> {
    /// Of a function, with its input.
    pub fn new(function: &'a str, input: &'a [u8]) -> Call<'a> {
        Call { function, input, buffer: None, time_limit: None }
    }

    /// Hands the function a shared buffer, without a copy.
    #[must_use]
    pub fn buffer(self, buffer: &'a SharedBuffer) -> Call<'a> {
        Call { buffer: Some(buffer), ..self }
    }

    /// Limits its wall time, instead of [`Limits::call_timeout`]. Past it the applet is killed.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Call<'a> {
        Call { time_limit: Some(limit), ..self }
    }
}
