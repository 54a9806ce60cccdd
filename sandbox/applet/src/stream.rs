//! A result that comes in parts.
#![forbid(unsafe_code)]

use std::marker::PhantomData;

use crate::applet::Applet;
use crate::buffer::Part;
use crate::error::CallError;
use crate::metrics::CallMetrics;
use crate::session::Step;
use crate::state::State;

/// One part of a streamed result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The part of the shared buffers that it speaks of, if any; untrusted:
    /// [`crate::SharedBuffer::locate`] says whether it is one.
    pub part: Option<Part>,
}

/// The parts of a result, in order. The applet does nothing else until it is used up or dropped.
pub struct Stream<'applet> {
    applet: &'applet Applet,
    /// What the call cost, once it is over.
    metrics: Option<CallMetrics>,
    is_over: bool,
    /// The thread that has it is known by its number, and may not change.
    here: PhantomData<*const ()>,
}

impl<'applet> Stream<'applet> {
    /// Of the call that was begun.
    pub(crate) fn new(applet: &'applet Applet) -> Stream<'applet> {
        Stream { applet, metrics: None, is_over: false, here: PhantomData }
    }

    /// What the call cost, once it is over.
    #[must_use]
    pub fn metrics(&self) -> Option<CallMetrics> {
        self.metrics
    }

    fn end(&mut self, state: &mut State) {
        self.is_over = true;
        self.metrics = Some(match state {
            State::Serving(session) => session.last_call,
            State::Dead(..) => CallMetrics::default(),
        });
        self.applet.end_stream(state);
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Chunk, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let mut state = match self.applet.lock() {
            Ok(state) => state,
            Err(error) => {
                self.is_over = true;
                return Some(Err(error));
            }
        };
        loop {
            let step = state.step();
            return match step {
                Ok(Step::Look) => continue,
                Ok(Step::Chunk(bytes, part)) => Some(Ok(Chunk { bytes, part: Part::of(part) })),
                Ok(Step::Done(bytes)) => {
                    self.end(&mut state);
                    (!bytes.is_empty()).then_some(Ok(Chunk { bytes, part: None }))
                }
                Ok(Step::Refused(error)) | Err(error) => {
                    self.end(&mut state);
                    Some(Err(error))
                }
            };
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // In a forked copy of the host there is nothing to end.
        let Ok(mut state) = self.applet.lock() else { return };
        if let State::Serving(session) = &mut *state {
            session.drop_result();
        }
        // The grace of a cancelled call bounds this.
        while let Ok(Step::Chunk(..) | Step::Look) = state.step() {}
        self.end(&mut state);
    }
}
