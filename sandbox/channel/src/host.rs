//! Waiting in a process with a standard library, and a [`Bell`] that ends a wait from another
//! thread.
//!
//! A sleeper sleeps on a word that the peer may write to, so a bell cannot rely on the word's
//! value: it notes in private memory what it has to say, and wakes again and again until the
//! sleeper, who says in private memory that it sleeps, does not any more.
//!
//! A peer can also move a sleeper to another word of shared memory (`FUTEX_REQUEUE`), where no bell
//! looks for it; so no host sleeps for long without a look. An applet trusts its host, and is
//! spared the timer that each such sleep needs.
//!
//! Invariants: after [`Bell::peer_is_gone`] no wait of a host's endpoint lasts longer than
//! [`NAP_NS_MAX`]; nothing that the peer does, short of not being gone, can prevent that. A waiter
//! keeps the memory mapped on whose words it sleeps.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use holdfast_sys::futex;

use crate::Side;
use crate::layout::CONTROL_BYTES;
use crate::memory::ChannelMemory;
use crate::ring::{AWAKE, DATA_WORD, ROOM_WORD};
use crate::shared::Shared;
use crate::wait::{Deadline, SPIN_NS_MAX, Wait};

/// How often a bell rings for a sleeper that does not wake, which is one that has no processor.
const RINGS_MAX: u32 = 2_000;
/// Between two of them.
const RING_PAUSE: Duration = Duration::from_micros(100);

/// The longest sleep without a look, in nanoseconds.
const NAP_NS_MAX: u64 = 1_000_000_000;

/// What one endpoint and its bells share.
#[derive(Debug)]
struct Waiting {
    /// Control page of the ring from which the endpoint receives, and of the one to which it sends.
    from: Shared,
    to: Shared,
    is_gone: AtomicBool,
    interrupted: AtomicBool,
    sleeping: AtomicBool,
    spin_ns_max: AtomicU64,
    naps: bool,
    /// Keeps the words mapped.
    _memory: Arc<ChannelMemory>,
}

/// Waits with futexes and the monotonic clock.
#[derive(Debug)]
pub struct HostWait {
    waiting: Arc<Waiting>,
}

/// Ends the waits of an endpoint from any thread. Copies ring for the same endpoint.
#[derive(Debug, Clone)]
pub struct Bell {
    waiting: Arc<Waiting>,
}

impl HostWait {
    pub(crate) fn new(memory: Arc<ChannelMemory>, side: Side) -> Option<(HostWait, Bell)> {
        let control = |offset| memory.shared().part(offset, CONTROL_BYTES);
        let host = control(memory.layout().host_ring_offset())?;
        let applet = control(memory.layout().applet_ring_offset())?;
        let (from, to) = match side {
            Side::Host => (applet, host),
            Side::Applet => (host, applet),
        };
        let waiting = Arc::new(Waiting {
            from,
            to,
            is_gone: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            spin_ns_max: AtomicU64::new(SPIN_NS_MAX),
            naps: side == Side::Host,
            _memory: memory,
        });
        Some((HostWait { waiting: Arc::clone(&waiting) }, Bell { waiting }))
    }

    /// Sets the longest spin, at most [`SPIN_NS_MAX`]; 0 sleeps at once.
    pub fn set_spin_ns_max(&self, ns: u64) {
        self.waiting.spin_ns_max.store(ns.min(SPIN_NS_MAX), Ordering::Relaxed);
    }
}

impl Wait for HostWait {
    fn now_ns(&self) -> u64 {
        futex::now_ns()
    }

    fn sleep(&self, word: &AtomicU32, expected: u32, deadline: Deadline) {
        let Waiting { is_gone, interrupted, sleeping, .. } = &*self.waiting;
        sleeping.store(true, Ordering::SeqCst);
        // A bell that rang before has not seen the line above; one that rings from now on has.
        if !is_gone.load(Ordering::SeqCst) && !interrupted.load(Ordering::SeqCst) {
            // Why it ended is found out by looking.
            let until = if self.waiting.naps {
                Deadline::at_ns(self.now_ns().saturating_add(NAP_NS_MAX)).min(deadline)
            } else {
                deadline
            };
            let _ = futex::wait(word, expected, until.ns());
        }
        sleeping.store(false, Ordering::SeqCst);
    }

    fn wake(&self, word: &AtomicU32) {
        // It fails for words that are not mapped, and this one is.
        let _ = futex::wake(word, 1);
    }

    fn peer_is_gone(&self) -> bool {
        self.waiting.is_gone.load(Ordering::SeqCst)
    }

    fn take_interrupt(&self) -> bool {
        let interrupted = &self.waiting.interrupted;
        interrupted.load(Ordering::Relaxed) && interrupted.swap(false, Ordering::SeqCst)
    }

    fn spin_ns_max(&self) -> u64 {
        self.waiting.spin_ns_max.load(Ordering::Relaxed)
    }
}

impl Bell {
    /// The peer's process has ended: waits end at once, when what it has sent before is received.
    pub fn peer_is_gone(&self) {
        self.waiting.is_gone.store(true, Ordering::SeqCst);
        self.ring(|| false);
    }

    /// Whether that was said.
    #[must_use]
    pub fn has_gone(&self) -> bool {
        self.waiting.is_gone.load(Ordering::SeqCst)
    }

    /// Makes the wait in progress, or else the next receive, return
    /// [`Interrupted`](crate::ChannelError::Interrupted), once.
    pub fn interrupt(&self) {
        let interrupted = &self.waiting.interrupted;
        interrupted.store(true, Ordering::SeqCst);
        // Who has heard it may go on waiting: in the middle of a message it is told afterwards.
        self.ring(|| !interrupted.load(Ordering::SeqCst));
    }

    /// Rings until the sleeper is awake, or has heard what there is to say.
    fn ring(&self, has_heard: impl Fn() -> bool) {
        let words = [self.waiting.from.half(DATA_WORD), self.waiting.to.half(ROOM_WORD)];
        for _ in 0..RINGS_MAX {
            if has_heard() || !self.waiting.sleeping.load(Ordering::SeqCst) {
                return;
            }
            for word in words.into_iter().flatten() {
                word.store(AWAKE, Ordering::SeqCst);
                // All of them: the peer may have put sleepers of its own there.
                let _ = futex::wake(word, u32::MAX);
            }
            std::thread::sleep(RING_PAUSE);
        }
    }
}
