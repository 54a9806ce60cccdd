//! A result that comes in parts.
#![forbid(unsafe_code)]

use std::sync::MutexGuard;

use crate::applet::{Applet, State};
use crate::buffer::Part;
use crate::error::CallError;
use crate::metrics::CallMetrics;
use crate::session::Step;

/// One part of a streamed result.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The part of the shared buffers that it speaks of, if any; untrusted: [`crate::SharedBuffer::locate`] says whether it is one.
    pub part: Option<Part>,
}

/// The parts of a result, in order. The applet does nothing else until it is used up or dropped.
pub struct Stream<'applet> {
    applet: &'applet Applet,
    state: MutexGuard<'applet, State>,
    is_over: bool,
}

impl<'applet> Stream<'applet> {
    pub(crate) fn new(applet: &'applet Applet, state: MutexGuard<'applet, State>) -> Stream<'applet> {
        Stream { applet, state, is_over: false }
    }

    /// What the call cost, once it is over.
    #[must_use]
    pub fn metrics(&self) -> Option<CallMetrics> {
        self.is_over.then(|| self.state.last_call())
    }
}

impl Iterator for Stream<'_> {
    type Item = Result<Chunk, CallError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        match self.applet.step(&mut self.state) {
            Ok(Step::Chunk(bytes, part)) => Some(Ok(Chunk { bytes, part: Part::of(part) })),
            Ok(Step::Done(bytes)) => {
                self.is_over = true;
                (!bytes.is_empty()).then_some(Ok(Chunk { bytes, part: None }))
            }
            Ok(Step::Refused(error)) | Err(error) => {
                self.is_over = true;
                Some(Err(error))
            }
        }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The grace of a cancelled call bounds this.
        self.applet.cancel();
        while !self.is_over {
            self.next();
        }
    }
}
