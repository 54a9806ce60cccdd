//! The second thread of the tracer: looks now and then at threads that are in a call for long, and
//! says when the time is up.
//!
//! The counters of a thread say for how long it was blocked, not in which way; its state does,
//! while it is. So the time between two looks counts as what the later one saw. Calls too short to
//! be looked at are judged by what they are ([`Blocked::unseen`]).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use holdfast_sys::ptrace::WakeUp;

use crate::machine::now_ns;
use crate::{Object, StopFlag};

/// Between two looks while there is something new to look at, and the most when there is not.
const LOOK_NS_MIN: u64 = 1_000_000;
const LOOK_NS_MAX: u64 = 16_000_000;
/// So many looks that find a thread ready are no chance.
const READY_LOOKS_MIN: u32 = 4;

/// In which ways a thread was blocked in a call; nanoseconds, of which only the proportions count.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Blocked {
    pub(super) sleep_ns: u64,
    pub(super) wait_ns: u64,
    pub(super) io_wait_ns: u64,
    /// It was not blocked: it ran, or was ready to.
    pub(super) ready_ns: u64,
    /// How often it was found so.
    pub(super) ready_looks: u32,
}

impl Blocked {
    /// Of vfork, whatever was seen: it waits uninterruptibly for its child, in a function of the
    /// kernel without a name of its own.
    pub(super) const FOR_CHILD: Blocked =
        Blocked { sleep_ns: 0, wait_ns: 1, io_wait_ns: 0, ready_ns: 0, ready_looks: 0 };

    /// Of a call that was not looked at: calls about files wait for the device, others sleep.
    pub(super) fn unseen(object: Object) -> Blocked {
        match object {
            Object::File | Object::Directory | Object::BlockDevice => {
                Blocked { io_wait_ns: 1, ..Blocked::default() }
            }
            _ => Blocked { sleep_ns: 1, ..Blocked::default() },
        }
    }

    /// Whether it was looked at for most of a time, and always found ready to run. What its
    /// counters do not have of that time a virtual machine's host took.
    pub(super) fn is_never_in(self, time_ns: u64) -> bool {
        let blocked_ns = self.sleep_ns | self.wait_ns | self.io_wait_ns;
        // A call that is looked at once or twice may have been woken just then.
        blocked_ns == 0 && self.ready_ns > time_ns / 2 && self.ready_looks >= READY_LOOKS_MIN
    }

    /// Whether what was seen says in which way it was blocked within a time, if it was.
    pub(super) fn tells_of(self, time_ns: u64) -> bool {
        self.sleep_ns | self.wait_ns | self.io_wait_ns != 0 || self.is_never_in(time_ns)
    }

    fn is_empty(self) -> bool {
        self == Blocked::default()
    }

    /// A time in these proportions: asleep, waiting, waiting for a device. Their sum is the time.
    pub(super) fn divide(self, time_ns: u64) -> (u64, u64, u64) {
        let total =
            u128::from(self.sleep_ns) + u128::from(self.wait_ns) + u128::from(self.io_wait_ns);
        if total == 0 {
            return (time_ns, 0, 0);
        }
        let part = |share: u64| (u128::from(time_ns) * u128::from(share) / total) as u64;
        let (wait_ns, io_wait_ns) = (part(self.wait_ns), part(self.io_wait_ns));
        match (self.sleep_ns, self.wait_ns) {
            // What rounding leaves goes to a part that is there.
            (0, 0) => (0, 0, time_ns),
            (0, _) => (0, time_ns - io_wait_ns, io_wait_ns),
            _ => (time_ns - wait_ns - io_wait_ns, wait_ns, io_wait_ns),
        }
    }
}

/// What tracer and watcher share of one thread.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) process: u32,
    pub(super) thread: u32,
    /// When its call began; 0 outside of calls.
    entered_ns: AtomicU64,
    seen: Mutex<Blocked>,
    gone: AtomicBool,
}

impl Slot {
    /// A call begins.
    pub(super) fn enter(&self, at_ns: u64) {
        self.entered_ns.store(at_ns, Ordering::Release);
    }

    /// The thread is gone.
    pub(super) fn close(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// The call is over; what was seen of it, if anything.
    pub(super) fn leave(&self, at_ns: u64) -> Option<Blocked> {
        let entered_ns = self.entered_ns.swap(0, Ordering::AcqRel);
        // Shorter calls are not looked at, so the lock is not needed in most.
        if at_ns.saturating_sub(entered_ns) < LOOK_NS_MIN {
            return None;
        }
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        (!seen.is_empty()).then_some(seen)
    }
}

/// All threads that are looked at.
#[derive(Debug, Default, Clone)]
pub(super) struct Slots(Arc<Mutex<Vec<Arc<Slot>>>>);

impl Slots {
    pub(super) fn add(&self, process: u32, thread: u32) -> Arc<Slot> {
        let slot = Arc::new(Slot {
            process,
            thread,
            entered_ns: AtomicU64::new(0),
            seen: Mutex::default(),
            gone: AtomicBool::new(false),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&slot));
        slot
    }
}

/// What the watcher has to know.
pub(super) struct Orders {
    pub(super) slots: Slots,
    pub(super) tracer: WakeUp,
    pub(super) stop: StopFlag,
    pub(super) stop_after_end: StopFlag,
    pub(super) until: Option<Instant>,
}

/// The watcher's thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Watcher {
    thread: Option<std::thread::JoinHandle<()>>,
    done: Arc<AtomicBool>,
}

impl Watcher {
    pub(super) fn start(orders: Orders) -> std::io::Result<Watcher> {
        let done = Arc::new(AtomicBool::new(false));
        let is_done = Arc::clone(&done);
        let thread = std::thread::Builder::new()
            .name("trace-watch".to_owned())
            .spawn(move || watch(&orders, &is_done))?;
        Ok(Watcher { thread: Some(thread), done })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic; if it did, there would be nothing to do about it here.
            let _ = thread.join();
        }
    }
}

fn watch(orders: &Orders, done: &AtomicBool) {
    let mut look_ns = LOOK_NS_MIN;
    let mut looked_ns = now_ns();
    while !done.load(Ordering::Relaxed) {
        std::thread::park_timeout(Duration::from_nanos(look_ns));
        let is_raised = orders.stop.is_raised() || orders.stop_after_end.is_raised();
        if is_raised || orders.until.is_some_and(|until| Instant::now() >= until) {
            // Again and again: one that comes just before the tracer waits is not noticed.
            orders.tracer.wake();
        }
        let slots: Vec<_> = {
            let mut slots = orders.slots.0.lock().unwrap_or_else(PoisonError::into_inner);
            slots.retain(|slot| !slot.gone.load(Ordering::Relaxed));
            slots.clone()
        };
        let before_ns = std::mem::replace(&mut looked_ns, now_ns());
        let is_new =
            slots.iter().fold(false, |any_new, slot| look(slot, before_ns, looked_ns) | any_new);
        look_ns = if is_new { LOOK_NS_MIN } else { (look_ns * 2).min(LOOK_NS_MAX) };
    }
}

/// Looks at a thread, if it is in a call for long enough; whether its call began since the last
/// look.
fn look(slot: &Slot, before_ns: u64, now_ns: u64) -> bool {
    let entered_ns = slot.entered_ns.load(Ordering::Acquire);
    if entered_ns == 0 || now_ns.saturating_sub(entered_ns) < LOOK_NS_MIN {
        return entered_ns != 0;
    }
    let weight_ns = now_ns.saturating_sub(before_ns.max(entered_ns));
    let state = state_of(slot.process, slot.thread);
    let mut seen = slot.seen.lock().unwrap_or_else(PoisonError::into_inner);
    // Not of the next call.
    if slot.entered_ns.load(Ordering::Acquire) == entered_ns {
        match state {
            State::Asleep => seen.sleep_ns += weight_ns,
            State::Waiting => seen.wait_ns += weight_ns,
            State::WaitingForDevice => seen.io_wait_ns += weight_ns,
            State::Ready => {
                seen.ready_ns += weight_ns;
                seen.ready_looks += 1;
            }
            State::Other => {}
        }
    }
    entered_ns > before_ns
}

enum State {
    Asleep,
    Waiting,
    WaitingForDevice,
    /// Running, or on the run queue.
    Ready,
    /// Stopped by the tracer, or gone.
    Other,
}

/// The kernel does not tell `in_iowait`, so of those that wait uninterruptibly it is judged by
/// the function in which they do.
fn state_of(process: u32, thread: u32) -> State {
    let read =
        |what| std::fs::read(format!("/proc/{process}/task/{thread}/{what}")).unwrap_or_default();
    match state_letter(&read("stat")) {
        Some(b'S') => State::Asleep,
        Some(b'R') => State::Ready,
        Some(b'D') if is_no_device(&read("wchan")) => State::Waiting,
        Some(b'D') => State::WaitingForDevice,
        _ => State::Other,
    }
}

/// The third field of `proc_pid_stat(5)`, behind the name in parentheses.
fn state_letter(stat: &[u8]) -> Option<u8> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(name_end + 2).copied()
}

/// Whether a function of the kernel is one in which threads wait for each other.
fn is_no_device(function: &[u8]) -> bool {
    let function = String::from_utf8_lossy(function);
    ["mutex", "rwsem", "down", "rwbase", "rt_mutex", "synchronize_rcu", "exit_mm", "coredump"]
        .iter()
        .any(|word| function.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_divided_time_loses_nothing() {
        let of = |sleep_ns, wait_ns, io_wait_ns| Blocked {
            sleep_ns,
            wait_ns,
            io_wait_ns,
            ready_ns: 9,
            ready_looks: 9,
        };
        for (blocked, expected) in [
            (Blocked::default(), (100, 0, 0)),
            (of(1, 1, 1), (34, 33, 33)),
            (of(0, 1, 2), (0, 34, 66)),
            (of(0, 0, 7), (0, 0, 100)),
            (of(u64::MAX, 0, u64::MAX), (50, 0, 50)),
        ] {
            assert_eq!(blocked.divide(100), expected, "{blocked:?}");
        }
    }

    #[test]
    fn the_state_of_a_thread_is_found_behind_any_name() {
        assert_eq!(state_letter(b"12 (a) S) D 1 2"), Some(b'D'));
        assert_eq!(state_letter(b"12 (sh) S 1"), Some(b'S'));
        assert_eq!(state_letter(b""), None);
        assert!(is_no_device(b"__mutex_lock") && is_no_device(b"rwsem_down_write_slowpath"));
        assert!(!is_no_device(b"folio_wait_bit_common") && !is_no_device(b"0"));
    }
}
