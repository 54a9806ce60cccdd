//! The pieces of something long, each worked on by one of a few threads, which take turns where the
//! order matters: while one thread reads a piece, another sums its own, which its cache still has.
//!
//! Invariants:
//! - What is done in turn is done once for each piece, in their order, and only after all of that
//!   for the pieces before it. So result and error are the same for every number of threads: the
//!   error is that of the first piece that has one.
//! - The caller's thread is one of the threads, and alone does what is done last. Where no other
//!   thread can be made, it does everything.
//! - No thread outlives the call. What is done and not yet finished is bounded.
//!
//! It must not know what pieces are.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use holdfast_sys::quiet_thread;

/// With more, each would mostly wait for its turn.
const THREADS_MAX: usize = 4;
/// Less is done before another thread has started.
const BESIDE_BYTES_MIN: u64 = 2 << 20;
/// Pieces that are done and not finished.
const DONE_MAX: usize = 2 * THREADS_MAX;

/// What is done with a piece.
pub(crate) trait Stages: Sync {
    /// A piece, or where it is.
    type Piece: Send;
    /// What a thread needs for its pieces, such as memory.
    type Desk;
    /// What goes from each piece to the next.
    type State: Send;
    /// What is left to do with a piece in the end.
    type Done: Send;

    /// Makes what a thread needs.
    fn desk(&self) -> io::Result<Self::Desk>;

    /// Done on any thread, while others do the same with other pieces.
    fn prepare(&self, desk: &mut Self::Desk, piece: &Self::Piece) -> io::Result<()>;

    /// Done in turn, by the thread that prepared the piece.
    fn add(&self, state: &mut Self::State, desk: &mut Self::Desk, piece: Self::Piece)
    -> Self::Done;
}

/// How many threads are worth their start for so many bytes.
pub(crate) fn threads_for(bytes: u64) -> usize {
    // The question opens files: it is asked once.
    static PROCESSORS: OnceLock<usize> = OnceLock::new();
    if bytes < BESIDE_BYTES_MIN {
        return 1;
    }
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    (*PROCESSORS.get_or_init(processors)).min(THREADS_MAX)
}

/// Does all stages with all pieces on at most so many threads, `finish` in order and on this one.
/// Returns what the last piece left.
///
/// # Errors
/// That of the first piece that has one: from `pieces`, from preparing it, or from `finish`.
pub(crate) fn in_turns<S: Stages>(
    threads: usize,
    stages: &S,
    pieces: impl Iterator<Item = io::Result<S::Piece>> + Send,
    state: S::State,
    finish: impl FnMut(S::Done) -> io::Result<()>,
) -> io::Result<S::State> {
    let progress = Progress {
        pieces: pieces.fuse(),
        taken: 0,
        turn: 0,
        state,
        done: VecDeque::new(),
        is_over: false,
        is_stopped: false,
    };
    let turns = Turns { stages, progress: Mutex::new(progress), changed: Condvar::new() };
    thread::scope(|scope| {
        let turns = &turns;
        let helpers: Vec<_> = (1..threads.min(THREADS_MAX))
            .map_while(|_| {
                quiet_thread::spawn_scoped(scope, "holdfast-turns", || turns.help()).ok()
            })
            .collect();
        let led = {
            let _end = StopAtEnd { turns, is_over: false };
            turns.lead(finish)
        };
        // One that panicked left its piece undone.
        let panics = helpers.into_iter().filter_map(|helper| helper.join().err()).count();
        led.and_then(|()| if panics == 0 { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) })
    })?;
    let progress = turns.progress.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok(progress.state)
}

/// How far the work is.
struct Progress<I, S: Stages> {
    pieces: I,
    /// Pieces that some thread has, or had.
    taken: u64,
    /// The number of the piece whose turn it is.
    turn: u64,
    state: S::State,
    /// What is to be finished, in order.
    done: VecDeque<io::Result<S::Done>>,
    /// No piece is left to be taken.
    is_over: bool,
    /// A thread is gone with an error or a panic: no thread waits for its turn any more.
    is_stopped: bool,
}

impl<S: Stages, I: Iterator<Item = io::Result<S::Piece>>> Progress<I, S> {
    /// The next piece and its number. One that cannot be had has a number, too.
    fn take(&mut self) -> Option<(u64, io::Result<S::Piece>)> {
        let piece = if self.is_over { None } else { self.pieces.next() };
        self.is_over |= !matches!(piece, Some(Ok(_)));
        let number = self.taken;
        self.taken += u64::from(piece.is_some());
        piece.map(|piece| (number, piece))
    }

    /// In turn: what order matters for.
    fn add(&mut self, stages: &S, desk: &mut S::Desk, prepared: io::Result<S::Piece>) {
        let done = prepared.map(|piece| stages.add(&mut self.state, desk, piece));
        self.is_over |= done.is_err();
        self.done.push_back(done);
        self.turn += 1;
    }
}

struct Turns<'a, I, S: Stages> {
    stages: &'a S,
    /// Locked while a thread has its turn.
    progress: Mutex<Progress<I, S>>,
    changed: Condvar,
}

type Locked<'a, I, S> = MutexGuard<'a, Progress<I, S>>;

impl<S: Stages, I: Iterator<Item = io::Result<S::Piece>>> Turns<'_, I, S> {
    /// What a thread beside the caller's does.
    fn help(&self) {
        let mut end = StopAtEnd { turns: self, is_over: false };
        // Without memory for it the others do its work.
        if let Ok(mut desk) = self.stages.desk() {
            let mut progress = self.lock();
            while let Some((number, piece)) = progress.take() {
                drop(progress);
                let prepared = self.prepare(&mut desk, piece);
                progress = self.lock();
                while !progress.is_stopped
                    && (progress.turn != number || progress.done.len() >= DONE_MAX)
                {
                    progress = self.wait(progress);
                }
                if progress.is_stopped {
                    break;
                }
                progress.add(self.stages, &mut desk, prepared);
                self.changed.notify_all();
            }
        }
        end.is_over = true;
    }

    /// What the caller's thread does: the same, and the end of each piece.
    fn lead(&self, mut finish: impl FnMut(S::Done) -> io::Result<()>) -> io::Result<()> {
        let mut desk = self.stages.desk()?;
        let mut mine = None;
        let mut progress = self.lock();
        loop {
            if progress.is_stopped {
                // A helper is gone without its piece.
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if let Some(done) = progress.done.pop_front() {
                self.changed.notify_all();
                drop(progress);
                finish(done?)?;
                progress = self.lock();
                continue;
            }
            if mine.is_none()
                && let Some((number, piece)) = progress.take()
            {
                drop(progress);
                mine = Some((number, self.prepare(&mut desk, piece)));
                progress = self.lock();
                continue;
            }
            match mine.take() {
                Some((number, prepared)) if number == progress.turn => {
                    progress.add(self.stages, &mut desk, prepared);
                    self.changed.notify_all();
                }
                None if progress.turn == progress.taken => return Ok(()),
                waiting => {
                    mine = waiting;
                    progress = self.wait(progress);
                }
            }
        }
    }

    fn prepare(&self, desk: &mut S::Desk, piece: io::Result<S::Piece>) -> io::Result<S::Piece> {
        let piece = piece?;
        self.stages.prepare(desk, &piece)?;
        Ok(piece)
    }

    fn lock(&self) -> Locked<'_, I, S> {
        // After a panic `StopAtEnd` has all threads stop.
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, progress: Locked<'a, I, S>) -> Locked<'a, I, S> {
        self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets no thread wait for one that has gone: the caller's after an error, or one that panicked.
struct StopAtEnd<'a, 'b, I, S: Stages> {
    turns: &'a Turns<'b, I, S>,
    is_over: bool,
}

impl<I, S: Stages> Drop for StopAtEnd<'_, '_, I, S> {
    fn drop(&mut self) {
        if !self.is_over {
            let progress = self.turns.progress.lock();
            progress.unwrap_or_else(PoisonError::into_inner).is_stopped = true;
            self.turns.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Numbers that are doubled, strung together, and handed out.
    struct Numbers {
        bad: &'static [u32],
        panics_at: Option<u32>,
        /// Of these threads only.
        desks: AtomicUsize,
    }

    impl Numbers {
        fn new(bad: &'static [u32], desks: usize) -> Numbers {
            Numbers { bad, panics_at: None, desks: AtomicUsize::new(desks) }
        }
    }

    impl Stages for Numbers {
        type Piece = u32;
        type Desk = u32;
        type State = Vec<u32>;
        type Done = u32;

        fn desk(&self) -> io::Result<u32> {
            let left = self
                .desks
                .try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map(|_| 0).map_err(|_| io::ErrorKind::OutOfMemory.into())
        }

        fn prepare(&self, desk: &mut u32, piece: &u32) -> io::Result<()> {
            if piece.is_multiple_of(3) {
                thread::yield_now();
            }
            assert!(self.panics_at != Some(*piece), "a piece that panics");
            *desk = 2 * piece;
            if self.bad.contains(piece) { Err(io::Error::other(piece.to_string())) } else { Ok(()) }
        }

        fn add(&self, state: &mut Vec<u32>, desk: &mut u32, piece: u32) -> u32 {
            assert_eq!(*desk, 2 * piece, "the desk of another thread");
            state.push(piece);
            *desk
        }
    }

    fn run(threads: usize, numbers: &Numbers) -> (io::Result<Vec<u32>>, Vec<u32>) {
        let mut finished = Vec::new();
        let caller = thread::current().id();
        let state = in_turns(threads, numbers, (0..500).map(Ok), Vec::new(), |done| {
            assert_eq!(thread::current().id(), caller);
            finished.push(done);
            Ok(())
        });
        (state, finished)
    }

    /// Every piece once and in order, whatever the number of threads.
    #[test]
    fn pieces_are_added_and_finished_in_order() {
        for threads in [0, 1, 2, 3, 4, 100] {
            let (state, finished) = run(threads, &Numbers::new(&[], 4));
            assert_eq!(state.unwrap(), (0..500).collect::<Vec<_>>(), "{threads} threads");
            assert_eq!(finished, (0..500).map(|number| 2 * number).collect::<Vec<_>>());
        }
    }

    /// The first piece that fails gives the error, and all before it are finished, whichever thread
    /// is first.
    #[test]
    fn error_is_that_of_the_first_bad_piece() {
        for round in 0..200 {
            let (state, finished) = run(1 + round % 4, &Numbers::new(&[101, 103, 400], 4));
            assert_eq!(state.unwrap_err().to_string(), "101");
            assert_eq!(finished.len(), 101);
        }
        // One that cannot be had, and one that cannot be finished.
        let none = Numbers::new(&[], usize::MAX);
        for threads in 1..=4 {
            let pieces = (0..50).map(Ok).chain([Err(io::Error::other("none"))]).chain([Ok(7)]);
            let mut finished = 0;
            let count = |_| {
                finished += 1;
                Ok(())
            };
            let error = in_turns(threads, &none, pieces, Vec::new(), count).unwrap_err();
            assert_eq!((error.to_string().as_str(), finished), ("none", 50));
            let mut left = 20;
            let refuse = |_| {
                left -= 1;
                if left > 0 { Ok(()) } else { Err(io::Error::other("full")) }
            };
            let error = in_turns(threads, &none, (0..500).map(Ok), Vec::new(), refuse).unwrap_err();
            assert_eq!((error.to_string().as_str(), left), ("full", 0));
        }
    }

    /// Threads that get no memory leave the work to the others; without any there is an error.
    #[test]
    fn threads_without_memory_are_done_without() {
        let alone = run(4, &Numbers::new(&[], 4));
        assert_eq!(alone.0.unwrap().len(), 500);
        let error = run(4, &Numbers::new(&[], 0)).0.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    }

    /// A panic of one thread ends all of them: an error, or the caller's own panic.
    #[test]
    fn panic_of_a_thread_ends_the_others() {
        for _ in 0..50 {
            let numbers = Numbers { panics_at: Some(50), ..Numbers::new(&[], 4) };
            let ended =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(4, &numbers).0));
            assert!(!matches!(ended, Ok(Ok(_))));
        }
    }

    #[test]
    fn little_is_done_on_one_thread() {
        assert_eq!(threads_for(0), 1);
        assert_eq!(threads_for(BESIDE_BYTES_MIN - 1), 1);
        assert!((1..=THREADS_MAX).contains(&threads_for(u64::MAX)));
    }
}
