//! A call with its options, and what it comes to.
#![forbid(unsafe_code)]

use std::time::Duration;

use holdfast_channel::Handle;

use crate::buffer::SharedBuffer;
use crate::metrics::CallMetrics;
use crate::session::Request;

/// A call with all its options.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call<'a> {
    function: &'a str,
    input: &'a [u8],
    buffer: Option<&'a SharedBuffer>,
    time_limit: Option<Duration>,
    look: Option<Look<'a>>,
}

/// What is asked while a call goes on.
#[derive(Clone, Copy)]
struct Look<'a> {
    every: Duration,
    goes_on: &'a (dyn Fn() -> bool + Sync),
}

impl std::fmt::Debug for Look<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Look").field("every", &self.every).finish_non_exhaustive()
    }
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
        Call { function, input, buffer: None, time_limit: None, look: None }
    }

    /// The buffer that the function gets.
    pub(crate) fn shared_buffer(&self) -> Option<&'a SharedBuffer> {
        self.buffer
    }

    /// Whether the caller, who is asked while the call goes on, wants it to.
    pub(crate) fn goes_on(&self) -> bool {
        self.look.is_none_or(|look| (look.goes_on)())
    }

    /// The call as the applet gets it: with the buffer's place in the shared memory, and the time
    /// limit that holds without one of its own.
    pub(crate) fn request(
        &self,
        buffer: Handle,
        usual_limit: Option<Duration>,
        is_streamed: bool,
        is_counted: bool,
    ) -> Request<'a> {
        Request {
            function: self.function,
            input: self.input,
            buffer,
            time_limit: self.time_limit.or(usual_limit),
            is_streamed,
            look_every: self.look.filter(|_| !is_streamed).map(|look| look.every),
            is_counted,
        }
    }

    /// Hands the function a shared buffer, without a copy.
    #[must_use]
    pub fn buffer(self, buffer: &'a SharedBuffer) -> Call<'a> {
        Call { buffer: Some(buffer), ..self }
    }

    /// Asks, on the calling thread, every so often whether to go on, also while the applet sends
    /// without end; without it that thread does nothing but wait. `false` cancels the call, as
    /// [`Applet::cancel`](crate::Applet::cancel) does; a panic does, too, and goes on once the call
    /// is over. (A stream does not ask.) Of the applet `goes_on` can use nothing but `cancel`: a
    /// call is [`CallError::Busy`](crate::CallError::Busy) there, and there are no metrics.
    #[must_use]
    pub fn look(self, every: Duration, goes_on: &'a (dyn Fn() -> bool + Sync)) -> Call<'a> {
        Call { look: Some(Look { every, goes_on }), ..self }
    }

    /// Limits its wall time, instead of [`Limits::call_timeout`]. Past it the applet is killed.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Call<'a> {
        Call { time_limit: Some(limit), ..self }
    }
}
