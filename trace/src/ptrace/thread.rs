//! One traced thread: the call that it is in, and what of its time belongs to that call.

use std::sync::Arc;

use holdfast_sys::ptrace::ARCH_I386;

use super::times::{Reading, Times};
use super::watch::{Blocked, Slot};
use crate::{Abi, Call, Cost, Object, Split};

/// In the number of a call through the door of x32.
const X32_BIT: u64 = 1 << 30;
/// `ERESTARTSYS`, `ERESTARTNOINTR`, `ERESTARTNOHAND`, `ERESTART_RESTARTBLOCK`: the call begins
/// again, unless a handler runs that does not want it.
const RESTARTS: [i64; 4] = [-512, -513, -514, -516];
const EINTR: i64 = -4;

/// Whether a call with this result may be one that a seccomp filter killed the thread for: the
/// kernel leaves the number of the call for an answer then. So do some calls that returned, such as
/// a read, whose number is 0, at the end of a file.
pub(super) fn looks_killed(call: &Call) -> bool {
    call.result.is_some_and(|result| {
        result as u64 & !X32_BIT == u64::from(call.number) && result >> 31 == 0
    })
}

/// Whether a call with this result has not returned to its program.
pub(super) fn begins_again(result: i64) -> bool {
    RESTARTS.contains(&result)
}

/// A call as it is at its entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entered {
    pub(super) abi: Abi,
    pub(super) number: u32,
    pub(super) arguments: [u64; 6],
    /// Behind the instruction that made it, and the stack pointer: a call that begins again has the
    /// same.
    pub(super) place: (u64, u64),
}

impl Entered {
    pub(super) fn of(arch: u32, number: u64, arguments: [u64; 6], place: (u64, u64)) -> Entered {
        // A number that fits no call is reported as the kernel saw it, which looks at the lower
        // half.
        let (abi, number) = match number {
            number if arch == ARCH_I386 => (Abi::I386, number as u32),
            number if number & X32_BIT != 0 && number >> 31 == 0 => {
                (Abi::X32, (number & !X32_BIT) as u32)
            }
            number => (Abi::X86_64, number as u32),
        };
        let arguments = if abi == Abi::I386 {
            arguments.map(|argument| argument & 0xffff_ffff)
        } else {
            arguments
        };
        Entered { abi, number, arguments, place }
    }

    fn is(&self, x86_64: &[u32], i386: &[u32]) -> bool {
        match self.abi {
            Abi::X86_64 => x86_64.contains(&self.number),
            Abi::I386 => i386.contains(&self.number),
            // `rt_sigreturn` has a number of its own; the others have none.
            Abi::X32 => x86_64.contains(&self.number) || self.number == 513 && x86_64.contains(&15),
        }
    }

    /// It begins a call again that slept for a certain time.
    fn is_restart(&self) -> bool {
        self.is(&[219], &[0])
    }

    fn is_return_from_handler(&self) -> bool {
        self.is(&[15], &[119, 173])
    }

    /// Whether it is clone or clone3.
    fn is_clone(&self) -> bool {
        self.is(&[56, 435], &[120, 435])
    }

    /// If it makes a thread or process.
    pub(super) fn flags_of_clone(&self) -> CloneFlags {
        match self.abi {
            Abi::X86_64 | Abi::X32 if self.number == 56 => CloneFlags::Are(self.arguments[0]),
            Abi::I386 if self.number == 120 => CloneFlags::Are(self.arguments[0]),
            _ if self.number == 435 => CloneFlags::At(self.arguments[0]),
            _ => CloneFlags::Are(0),
        }
    }
}

/// The flags of a call that makes a thread or process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CloneFlags {
    Are(u64),
    /// At this address of the caller: the first word of `struct clone_args`.
    At(u64),
}

/// The call that a thread is in.
#[derive(Debug)]
pub(super) struct Inside {
    pub(super) entered: Entered,
    pub(super) object: Object,
    restarted: bool,
    /// It waits for the process that it makes.
    pub(super) waits_for_child: bool,
    start_ns: u64,
    at_entry: Reading,
    /// Stops within the call (a thread was made, a program was replaced): how many, and how long
    /// they took.
    stops: u64,
    stopped_ns: u64,
}

/// What the counters say of a call, nothing taken off.
#[derive(Debug, Clone, Copy)]
pub(super) struct Raw {
    pub(super) start_ns: u64,
    pub(super) wall_ns: u64,
    /// What the thread had at its entry, and what was added up to its return.
    pub(super) at_entry: Reading,
    pub(super) counted: Reading,
    /// How often it got a CPU only because it had been stopped by the tracer.
    pub(super) stops: u64,
}

/// What is taken off each call for its stops.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Correction {
    pub(super) cost: Cost,
    /// What a call that does nothing takes untraced: no call is made shorter than this. Stops may
    /// cost less during the trace than when they were measured.
    pub(super) null_call_ns: u64,
}

impl Correction {
    /// Time on the CPU, of so many calls, without that of their stops.
    pub(super) fn cpu_ns(&self, counted_ns: u64, bias_ns: u64, calls: u64) -> u64 {
        let least_ns = self.null_call_ns.saturating_mul(calls).min(counted_ns);
        counted_ns.saturating_sub(bias_ns).max(least_ns)
    }
}

impl Raw {
    /// The parts of the time. A thread that got a CPU only as often as it was stopped was never off
    /// it by itself: all else that the clock shows is the tracer's.
    pub(super) fn split(&self, correction: &Correction, blocked: Blocked) -> Split {
        let (stops, bias) = (self.stops, &correction.cost);
        if self.counted.turns == 0 {
            let wall_ns = self.wall_ns.saturating_sub(bias.blocked_bias_ns);
            if self.at_entry.turns == 0 {
                // It ran, so the kernel does not count.
                return Split::of(wall_ns, 0, 0, 0, 0);
            }
            // It was gone before its counters could be read again: it has not run much since it was
            // blocked.
            let (sleep_ns, wait_ns, io_wait_ns) = blocked.divide(wall_ns);
            return Split::of(0, sleep_ns, wait_ns, io_wait_ns, 0);
        }
        let cpu_ns = correction.cpu_ns(self.counted.cpu_ns, bias.cpu_bias_ns * stops, 1);
        if self.counted.turns <= stops {
            return Split::of(cpu_ns, 0, 0, 0, 0);
        }
        let queue_ns = self.counted.queue_ns.saturating_sub(bias.queue_bias_ns * stops);
        let running_ns = self.counted.cpu_ns.saturating_add(self.counted.queue_ns);
        let blocked_ns =
            self.wall_ns.saturating_sub(running_ns).saturating_sub(bias.blocked_bias_ns);
        if blocked.is_never_in(self.wall_ns) {
            return Split::of(cpu_ns, 0, 0, 0, queue_ns.saturating_add(blocked_ns));
        }
        let (sleep_ns, wait_ns, io_wait_ns) = blocked.divide(blocked_ns);
        Split::of(cpu_ns, sleep_ns, wait_ns, io_wait_ns, queue_ns)
    }
}

/// A call that was interrupted and may begin again.
#[derive(Debug, Clone, Copy)]
struct Interrupted {
    number: u32,
    place: (u64, u64),
}

/// A traced thread and its call under way.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) slot: Arc<Slot>,
    times: Times,
    /// When its tracing began.
    base: Reading,
    /// The newest one.
    latest: Reading,
    pub(super) calls: u64,
    inside: Option<Inside>,
    interrupted: Option<Interrupted>,
    /// A call whose end looks like that of one that a seccomp filter killed the thread for: what
    /// comes next tells.
    pub(super) undecided: Option<(Call, Raw)>,
    /// It is off its CPU in a call, to which the kernel has not counted the turn that it will get.
    pub(super) is_away: bool,
    /// Its times were reported.
    pub(super) is_accounted: bool,
}

impl Thread {
    /// A thread of which nothing counts yet; `is_born` if it began with its tracing.
    /// `keeps_open` allows it a descriptor.
    pub(super) fn new(slot: Arc<Slot>, is_born: bool, keeps_open: bool) -> Thread {
        let (process, thread) = (slot.process, slot.thread);
        let times = Times::of(process, thread, keeps_open);
        let base = if is_born { Reading::default() } else { times.read().unwrap_or_default() };
        Thread {
            process,
            thread,
            slot,
            times,
            base,
            latest: base,
            calls: 0,
            inside: None,
            interrupted: None,
            undecided: None,
            is_away: false,
            is_accounted: false,
        }
    }

    /// What it has used from now on counts.
    pub(super) fn begin_to_count(&mut self) {
        self.read();
        self.base = self.latest;
        self.calls = 0;
    }

    /// Its number and its process's are now these: it called exec, which leaves its counters as
    /// they are.
    pub(super) fn renumber(&mut self, slot: Arc<Slot>) {
        self.slot.close();
        (self.process, self.thread) = (slot.process, slot.thread);
        self.times = Times::of(slot.process, slot.thread, self.times.keeps_open());
        if let Some(inside) = &self.inside {
            slot.enter(inside.start_ns);
        }
        self.slot = slot;
    }

    pub(super) fn read(&mut self) -> Reading {
        // One that is gone has no more than it had.
        if let Some(reading) = self.times.read() {
            self.latest = Reading { turns: reading.turns + u64::from(self.is_away), ..reading };
        }
        self.latest
    }

    /// What it used since its tracing began.
    pub(super) fn used(&self) -> Reading {
        self.latest.since(self.base)
    }

    pub(super) fn inside(&self) -> Option<&Inside> {
        self.inside.as_ref()
    }

    pub(super) fn inside_mut(&mut self) -> Option<&mut Inside> {
        self.inside.as_mut()
    }

    /// A call begins; the thread runs on right after this.
    pub(super) fn enter(&mut self, entered: Entered, object: Object, at_ns: u64) {
        let again = self.interrupted.take_if(|before| {
            entered.is_restart() || before.number == entered.number && before.place == entered.place
        });
        self.calls += 1;
        self.inside = Some(Inside {
            entered,
            object,
            restarted: again.is_some(),
            waits_for_child: false,
            start_ns: at_ns,
            at_entry: self.latest,
            stops: 1,
            stopped_ns: 0,
        });
        self.slot.enter(at_ns);
    }

    /// The call is over: it returned, or the thread ends. With what the counters say of it.
    pub(super) fn leave(
        &mut self,
        result: Option<i64>,
        at_ns: u64,
        correction: &Correction,
    ) -> Option<(Call, Raw)> {
        let inside = self.inside.take()?;
        let wall_ns = at_ns.saturating_sub(inside.start_ns).saturating_sub(inside.stopped_ns);
        let (start_ns, at_entry) = (inside.start_ns, inside.at_entry);
        let raw = Raw {
            start_ns,
            wall_ns,
            at_entry,
            counted: self.latest.since(at_entry),
            stops: inside.stops,
        };
        let seen = self.slot.leave(at_ns);
        let blocked = match seen {
            _ if inside.waits_for_child => Blocked::FOR_CHILD,
            Some(seen) if seen.tells_of(wall_ns) => seen,
            _ => Blocked::unseen(inside.object),
        };
        self.note_restart(&inside, result);
        let call = Call {
            process: self.process,
            thread: self.thread,
            abi: inside.entered.abi,
            number: inside.entered.number,
            arguments: inside.entered.arguments,
            result,
            start_ns: inside.start_ns,
            time: raw.split(correction, blocked),
            object: inside.object,
            restarted: inside.restarted,
        };
        Some((call, raw))
    }

    fn note_restart(&mut self, inside: &Inside, result: Option<i64>) {
        let Some(result) = result else { return };
        if begins_again(result) {
            self.interrupted =
                Some(Interrupted { number: inside.entered.number, place: inside.entered.place });
        } else if inside.entered.is_return_from_handler() && result == EINTR {
            // The handler's return makes the interrupted call fail: what the program does then is a
            // new call.
            self.interrupted = None;
        }
    }
}

impl Inside {
    /// Whether it made a thread or process of which the kernel did not tell, if it returns this:
    /// those of all others are a stop within the call.
    pub(super) fn made_unseen(&self, result: i64) -> bool {
        self.entered.is_clone() && self.stops == 1 && result > 0
    }

    /// The thread was stopped within the call, from this instant to now.
    pub(super) fn was_stopped(&mut self, since_ns: u64, now_ns: u64) {
        self.stops += 1;
        self.stopped_ns += now_ns.saturating_sub(since_ns);
    }
}

#[cfg(test)]
mod tests {
    use holdfast_sys::ptrace::ARCH_X86_64;

    use super::*;

    const BIAS: Correction = Correction {
        cost: Cost {
            slowdown_ns: 0,
            cpu_bias_ns: 10,
            queue_bias_ns: 20,
            blocked_bias_ns: 30,
            calls: 1,
        },
        null_call_ns: 0,
    };

    fn split(counted: [u64; 3], had_turns: u64) -> Split {
        split_seen(counted, had_turns, Blocked { io_wait_ns: 1, ..Blocked::default() })
    }

    fn split_seen(counted: [u64; 3], had_turns: u64, seen: Blocked) -> Split {
        let reading = |[cpu_ns, queue_ns, turns]: [u64; 3]| Reading { cpu_ns, queue_ns, turns };
        let at_entry = reading([0, 0, had_turns]);
        let raw = Raw { start_ns: 0, wall_ns: 1000, at_entry, counted: reading(counted), stops: 1 };
        raw.split(&BIAS, seen)
    }

    /// A thread that ran in one turn on a CPU was never blocked, even if the clock shows a gap.
    #[test]
    fn thread_with_one_turn_was_never_blocked() {
        assert_eq!(split([110, 500, 1], 7), Split::of(100, 0, 0, 0, 0));
        assert_eq!(split([5, 0, 1], 7), Split::default());
    }

    /// Stops that cost less than when they were measured make no call shorter than one that does
    /// nothing.
    ///
    /// Guarantee: trace/overhead
    #[test]
    fn no_call_is_made_shorter_than_a_null_call() {
        let correction = Correction { null_call_ns: 7, ..BIAS };
        assert_eq!(
            [100, 17, 16, 12, 7, 3, 0].map(|ns| correction.cpu_ns(ns, 10, 1)),
            [90, 7, 7, 7, 7, 3, 0]
        );
        assert_eq!(correction.cpu_ns(100, 95, 3), 21);
        let counted = Reading { cpu_ns: 12, queue_ns: 0, turns: 1 };
        let at_entry = Reading { turns: 7, ..Reading::default() };
        let raw = Raw { start_ns: 0, wall_ns: 1000, at_entry, counted, stops: 1 };
        assert_eq!(raw.split(&correction, Blocked::default()), Split::of(7, 0, 0, 0, 0));
    }

    /// Time that a thread spends neither on a CPU nor on the run queue is blocked time.
    ///
    /// Guarantee: trace/overhead
    #[test]
    fn time_off_cpu_and_queue_is_blocked() {
        assert_eq!(split([110, 220, 2], 7), Split::of(100, 0, 0, 640, 200));
        assert_eq!(split([900, 200, 3], 7), Split::of(890, 0, 0, 0, 180));
    }

    /// A thread that was ready each time it was looked at was not blocked.
    #[test]
    fn ready_thread_was_not_blocked() {
        let ready = |ready_ns, ready_looks| Blocked { ready_ns, ready_looks, ..Blocked::default() };
        assert_eq!(split_seen([110, 220, 2], 7, ready(600, 4)), Split::of(100, 0, 0, 0, 840));
        assert_eq!(split_seen([110, 220, 2], 7, ready(400, 4)), Split::of(100, 640, 0, 0, 200));
        // Once may be chance.
        assert_eq!(split_seen([110, 220, 2], 7, ready(900, 1)), Split::of(100, 640, 0, 0, 200));
    }

    /// A thread that is gone counts as blocked, and one without counters counts as running.
    #[test]
    fn gone_thread_was_blocked_uncounted_one_ran() {
        assert_eq!(split([0, 0, 0], 7), Split::of(0, 0, 0, 970, 0));
        assert_eq!(split([0, 0, 0], 0), Split::of(970, 0, 0, 0, 0));
    }

    #[test]
    fn a_number_is_taken_as_the_door_has_it() {
        let of = |arch, number| {
            let entered = Entered::of(arch, number, [u64::MAX; 6], (0, 0));
            (entered.abi, entered.number, entered.arguments[0])
        };
        assert_eq!(of(ARCH_I386, 20), (Abi::I386, 20, 0xffff_ffff));
        assert_eq!(of(ARCH_X86_64, 39), (Abi::X86_64, 39, u64::MAX));
        assert_eq!(of(ARCH_X86_64, X32_BIT | 39), (Abi::X32, 39, u64::MAX));
        assert_eq!(of(ARCH_X86_64, u64::from(u32::MAX)), (Abi::X86_64, u32::MAX, u64::MAX));
    }
}
