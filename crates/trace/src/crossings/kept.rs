//! What is kept of calls until the host's record is there.

use std::collections::HashMap;

use crate::classes::{self, Scheme, Subclass};
use crate::{Abi, Event};

/// Calls that are kept; some 50 bytes each.
pub const KEPT_MAX: usize = 1 << 22;
/// Kinds that are told apart; a program can make up numbers.
const KINDS_MAX: usize = 4096;

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptCall {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) start_ns: u64,
    pub(super) wall_ns: u64,
    pub(super) awake_ns: u64,
    /// Its place in [`Kept::kinds`].
    pub(super) kind: u16,
    pub(super) has_failed: bool,
}

/// What a call is.
#[derive(Clone, Debug)]
pub(super) struct CallKind {
    pub(super) name: String,
    /// Its number on x86-64, of calls that came by that door.
    pub(super) number: Option<u32>,
    pub(super) subclass: Subclass,
}

/// Calls as they came.
#[derive(Debug, Default)]
pub struct Kept {
    scheme: Scheme,
    pub(super) kinds: Vec<CallKind>,
    known: HashMap<(Abi, u32, Subclass), u16>,
    pub(super) calls: Vec<KeptCall>,
    pub(super) passed_over: u64,
}

impl Kept {
    /// Of nothing; the classes of calls are those of this scheme.
    #[must_use]
    pub fn new(scheme: Scheme) -> Kept {
        Kept { scheme, ..Kept::default() }
    }

    /// Keeps a call; of other events there is nothing to keep.
    pub fn add(&mut self, event: &Event) {
        let Event::Call(call) = event else { return };
        if self.calls.len() >= KEPT_MAX {
            self.passed_over += 1;
            return;
        }
        let entry = (call.abi == Abi::X86_64).then(|| classes::by_number(call.number)).flatten();
        let place = classes::place(self.scheme, entry, &call.arguments, call.object);
        let key = (call.abi, call.number, place.subclass);
        let kind = match self.known.get(&key) {
            Some(kind) => *kind,
            None if self.kinds.len() >= KINDS_MAX => (KINDS_MAX - 1) as u16,
            None => {
                let is_last = self.kinds.len() == KINDS_MAX - 1;
                let name = if is_last { "others".to_owned() } else { call.name().into_owned() };
                let number = (call.abi == Abi::X86_64 && !is_last).then_some(call.number);
                self.kinds.push(CallKind { name, number, subclass: place.subclass });
                let kind = (self.kinds.len() - 1) as u16;
                self.known.insert(key, kind);
                kind
            }
        };
        self.calls.push(KeptCall {
            process: call.process,
            thread: call.thread,
            start_ns: call.start_ns,
            wall_ns: call.time.wall_ns,
            awake_ns: call.time.wall_ns.saturating_sub(call.time.sleep_ns),
            kind,
            has_failed: call.error().is_some(),
        });
    }
}
