//! Intervals of time by whose they are, to be found by a moment in them.

use std::collections::HashMap;

/// An interval, and what it is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start_ns: u64,
    pub(super) end_ns: u64,
    pub(super) what: usize,
}

/// Intervals of threads, or of applets. Those of one hardly overlap; where they do, the one that
/// began last counts.
#[derive(Debug, Default)]
pub(super) struct Spans(HashMap<u32, Vec<Span>>);

impl Spans {
    pub(super) fn add(&mut self, of: u32, start_ns: u64, end_ns: u64, what: usize) {
        self.0.entry(of).or_default().push(Span { start_ns, end_ns, what });
    }

    /// To be called once, when all are there.
    pub(super) fn sort(&mut self) {
        self.0.values_mut().for_each(|spans| spans.sort_by_key(|span| span.start_ns));
    }

    pub(super) fn of(&self, of: u32) -> &[Span] {
        self.0.get(&of).map_or(&[], Vec::as_slice)
    }

    pub(super) fn has(&self, of: u32) -> bool {
        self.0.contains_key(&of)
    }

    /// The one that this moment is in.
    pub(super) fn at(&self, of: u32, at_ns: u64) -> Option<Span> {
        /// So many that began before are looked at: one may lie within another.
        const LOOKED_AT: usize = 8;
        let spans = self.of(of);
        let after = spans.partition_point(|span| span.start_ns <= at_ns);
        spans[..after].iter().rev().take(LOOKED_AT).find(|span| at_ns <= span.end_ns).copied()
    }

    /// How much of an interval is in those of one.
    pub(super) fn covered_ns(&self, of: u32, start_ns: u64, end_ns: u64) -> u64 {
        let spans = self.of(of);
        let first = spans.partition_point(|span| span.end_ns < start_ns);
        let inside = spans[first..].iter().take_while(|span| span.start_ns < end_ns);
        inside
            .map(|span| span.end_ns.min(end_ns).saturating_sub(span.start_ns.max(start_ns)))
            .fold(0, u64::saturating_add)
    }
}
