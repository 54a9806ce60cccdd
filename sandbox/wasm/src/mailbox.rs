//! The mailbox between an applet and its host: messages to the applet, the one message of the
//! applet that the host has not taken yet, and what is known of the applet while it is suspended.
//!
//! Invariants:
//! - Bounded both ways: the applet cannot send before the host has taken what it sent last, and the
//!   host's messages wait up to [`QUEUE_BYTES_MAX`].
//! - The lock is held for a few instructions only, never while the applet runs.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use holdfast_channel::Header;
use holdfast_channel::protocol::{MESSAGE_BYTES_MAX, MessageKind};

/// The longest payload of one message, in either direction.
pub const PAYLOAD_BYTES_MAX: usize = MESSAGE_BYTES_MAX as usize;
/// What may wait for the applet, in bytes; a single message always may.
pub(crate) const QUEUE_BYTES_MAX: usize = 2 * PAYLOAD_BYTES_MAX;
/// How many messages may wait for the applet.
pub(crate) const QUEUE_MESSAGES_MAX: usize = 4096;

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) header: Header,
    pub(crate) payload: Vec<u8>,
}

/// What an applet gets that asks for a message.
pub(crate) enum NextMessage {
    Message(Message),
    /// It has room for less than these bytes; the message stays.
    Larger(usize),
}

/// What the host sees of an applet that is suspended.
pub(crate) enum AppletEvent {
    /// It sent this.
    Sent(Message),
    /// It waits for a message, and there is none.
    Idle,
    /// It waits for something else: a clock, a stream.
    Waiting,
}

/// What is known of a running applet, as of its last import of module `holdfast`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Wall and CPU time from the instantiation's start to its end, once it is over.
    pub(crate) instantiated: Option<(Duration, Duration)>,
    pub(crate) fuel_left: Option<u64>,
    pub(crate) peak_volatile_bytes: u64,
}

#[derive(Default)]
struct MailboxState {
    to_applet: VecDeque<Message>,
    to_applet_bytes: usize,
    from_applet: Option<Message>,
    is_idle: bool,
    progress: Progress,
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<MailboxState>);

impl Mailbox {
    pub(crate) fn new() -> Arc<Mailbox> {
        Arc::default()
    }

    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // --- the host's side
    // -----------------------------------------------------------------------------

    /// Puts a message for the applet at the end of the queue; an error is what waits there already,
    /// in bytes.
    pub(crate) fn post(&self, message: Message) -> Result<(), usize> {
        let mut inner = self.lock();
        let bytes = inner.to_applet_bytes.saturating_add(message.payload.len());
        if inner.to_applet.len() >= QUEUE_MESSAGES_MAX
            || (bytes > QUEUE_BYTES_MAX && !inner.to_applet.is_empty())
        {
            return Err(inner.to_applet_bytes);
        }
        inner.to_applet_bytes = bytes;
        inner.to_applet.push_back(message);
        Ok(())
    }

    /// Looks at what the applet does after it was suspended, and takes what it sent.
    pub(crate) fn look(&self) -> AppletEvent {
        let mut inner = self.lock();
        match inner.from_applet.take() {
            Some(message) => AppletEvent::Sent(message),
            None if inner.is_idle => AppletEvent::Idle,
            None => AppletEvent::Waiting,
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.lock().progress
    }

    // --- the applet's side
    // ---------------------------------------------------------------------------

    pub(crate) fn note(&self, change: impl FnOnce(&mut Progress)) {
        change(&mut self.lock().progress);
    }

    /// The next message for the applet, if it has room for `capacity` bytes; to be asked again
    /// while it is pending.
    pub(crate) fn poll_next(&self, capacity: usize) -> Poll<NextMessage> {
        let mut inner = self.lock();
        let needed = inner.to_applet.front().map(|message| message.payload.len());
        inner.is_idle = needed.is_none();
        match needed {
            None => Poll::Pending,
            Some(needed) if needed > capacity => Poll::Ready(NextMessage::Larger(needed)),
            Some(needed) => {
                inner.to_applet_bytes -= needed;
                inner
                    .to_applet
                    .pop_front()
                    .map_or(Poll::Pending, |message| Poll::Ready(NextMessage::Message(message)))
            }
        }
    }

    /// Whether the host has said that it does not want the result of that call any more.
    pub(crate) fn is_cancelled(&self, call: u64) -> bool {
        let is_it =
            |header: &Header| header.kind() == Some(MessageKind::Cancel) && header.call == call;
        self.lock().to_applet.iter().any(|message| is_it(&message.header))
    }

    /// Shows the host a message; what was sent before must have been taken.
    pub(crate) fn show(&self, message: Message) {
        self.lock().from_applet = Some(message);
    }

    /// Whether the host has taken what was sent.
    pub(crate) fn poll_taken(&self) -> Poll<()> {
        if self.lock().from_applet.is_none() { Poll::Ready(()) } else { Poll::Pending }
    }
}
