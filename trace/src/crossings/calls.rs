//! The calls that are kept until the host's record is there.

use std::collections::HashMap;

use crate::classes::{self, Scheme, Subclass};
use crate::{Abi, Event};

/// Calls that are kept; some 40 bytes each, and a place of eight while they are joined.
pub(super) const CALLS_MAX: usize = 1 << 22;
/// Kinds that are distinguished; a program can make up numbers.
const KINDS_MAX: usize = 4096;

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptCall {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) start_ns: u64,
    pub(super) wall_ns: u64,
    pub(super) awake_ns: u64,
    /// Its place in [`CallsInMemory::kinds`].
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
pub struct CallsInMemory {
    scheme: Scheme,
    kinds: Vec<CallKind>,
    known: HashMap<(Abi, u32, Subclass), u16>,
    calls: Vec<KeptCall>,
    /// Where those of each process are, once they are [in order](CallsInMemory::put_in_order):
    /// there may be thousands of hosts.
    places: HashMap<u32, Vec<usize>>,
    passed_over: u64,
}

impl CallsInMemory {
    /// What calls are, by the numbers in [`KeptCall`].
    pub(super) fn kinds(&self) -> &[CallKind] {
        &self.kinds
    }

    /// The calls.
    pub(super) fn calls(&self) -> &[KeptCall] {
        &self.calls
    }

    /// Calls that found no room.
    pub(super) fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Of nothing; the classes of calls are those of this scheme.
    #[must_use]
    pub fn new(scheme: Scheme) -> CallsInMemory {
        CallsInMemory { scheme, ..CallsInMemory::default() }
    }

    /// Keeps a call; of other events there is nothing to keep.
    pub fn add(&mut self, event: &Event) {
        let Event::Call(call) = event else { return };
        if self.calls.len() >= CALLS_MAX {
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
            has_failed: call.has_failed(),
        });
    }

    /// Sorts the calls: those of each thread in order, as what its next call was is asked. To be
    /// called once, when all are there.
    pub(super) fn put_in_order(&mut self) {
        self.calls.sort_by_key(|call| (call.thread, call.start_ns));
        for (place, call) in self.calls.iter().enumerate() {
            self.places.entry(call.process).or_default().push(place);
        }
    }

    /// Whether there is a call of a process.
    pub(super) fn has(&self, process: u32) -> bool {
        self.places.contains_key(&process)
    }

    /// The calls of a process, with their places in [`CallsInMemory::calls`].
    pub(super) fn of(&self, process: u32) -> impl Iterator<Item = (usize, &KeptCall, &CallKind)> {
        let places = self.places.get(&process).map_or(&[][..], Vec::as_slice);
        places.iter().filter_map(|place| {
            let call = self.calls.get(*place)?;
            Some((*place, call, self.kinds.get(usize::from(call.kind))?))
        })
    }
}
