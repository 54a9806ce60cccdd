//! Handles each stop of a traced thread.
//!
//! Invariants:
//! - Between a stop and the thread's going on there are as few system calls as can be: what a call
//!   was, the thread's counters, and on.
//! - A thread that was killed while it was stopped is no error: its end is reported by the kernel
//!   in its time.
//! - Every call that was entered is reported once, whatever becomes of its thread.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;

use holdfast_sys::ptrace::{self, AtCall, Made, PtraceEvent};

use super::descriptors::Descriptors;
use super::thread::{CloneFlags, Correction, Entered, Raw, Thread, begins_again, looks_killed};
use super::watch::Slots;
use crate::machine::now_ns;
use crate::status::ThreadStatus;
use crate::{Call, End, Event};

/// `si_code` of a SIGSYS that a seccomp filter raised.
const SYS_SECCOMP: c_int = 1;

/// Whether threads run on or are let go at their stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The started child is not yet the program.
    SettingUp,
    Tracing,
    LettingGo,
}

/// The tracer: its threads, descriptors and output.
pub(super) struct Tracer<'a> {
    sink: &'a mut dyn FnMut(Event),
    pub(super) phase: Phase,
    pub(super) threads: HashMap<u32, Thread>,
    /// Threads that were made and have not been seen yet: their process, and the one that made it.
    unseen: HashMap<u32, (u32, u32)>,
    /// Threads that were seen before the stop of the ones that made them, and may be gone by then.
    early: HashSet<u32>,
    /// How many threads of each process there are.
    processes: HashMap<u32, usize>,
    descriptors: Descriptors,
    pub(super) slots: Slots,
    correction: Correction,
    /// On the CPU for each call, outside of it: what a stop costs before the tracer sees it.
    outside_bias_ns: u64,
    /// Told of each call when the bias is measured.
    pub(super) measured: Option<Vec<Raw>>,
    /// The command's process, and its end.
    pub(super) command: Option<u32>,
    pub(super) end: Option<End>,
    /// Threads and processes that were made with CLONE_UNTRACED: traced from a moment after their
    /// beginning on, and not at all.
    pub(super) seen_late: u64,
    pub(super) never_seen: u64,
    /// A thread's counters could not be read.
    pub(super) is_uncounted: bool,
    /// Of so many threads at most the counters are kept open.
    open_max: usize,
}

impl<'a> Tracer<'a> {
    pub(super) fn new(
        sink: &'a mut dyn FnMut(Event),
        correction: Correction,
        outside_bias_ns: u64,
    ) -> Tracer<'a> {
        Tracer {
            sink,
            phase: Phase::Tracing,
            threads: HashMap::new(),
            unseen: HashMap::new(),
            early: HashSet::new(),
            processes: HashMap::new(),
            descriptors: Descriptors::default(),
            slots: Slots::default(),
            correction,
            outside_bias_ns,
            measured: None,
            command: None,
            end: None,
            seen_late: 0,
            never_seen: 0,
            is_uncounted: false,
            open_max: rustix::process::getrlimit(rustix::process::Resource::Nofile)
                .current
                .unwrap_or(1 << 20) as usize
                / 2,
        }
    }

    /// A thread is traced from now on.
    pub(super) fn add(&mut self, process: u32, thread: u32, parent: u32, is_born: bool) {
        let slot = self.slots.add(process, thread);
        let record = Thread::new(slot, is_born, self.threads.len() < self.open_max);
        if let Some(before) = self.threads.insert(thread, record) {
            before.slot.close();
        }
        *self.processes.entry(process).or_default() += 1;
        if self.phase != Phase::SettingUp {
            self.tell_beginning(process, thread, parent);
        }
    }

    fn tell_beginning(&mut self, process: u32, thread: u32, parent: u32) {
        let command = command_of(process, thread);
        (self.sink)(Event::Began { at_ns: now_ns(), process, thread, parent, command });
    }

    /// Whether a thread is traced, or about to be.
    pub(super) fn has_threads(&self) -> bool {
        !self.threads.is_empty() || !self.unseen.is_empty()
    }

    /// Something happened to a thread.
    pub(super) fn on(&mut self, tid: u32, happened: PtraceEvent) {
        self.decide(tid, happened);
        match happened {
            PtraceEvent::AtCall => self.at_call(tid),
            PtraceEvent::Exited(status) => self.ended(tid, End::Exited(status as u8)),
            PtraceEvent::Killed(signal) => self.ended(tid, End::Killed(signal as u8)),
            _ if !self.is_known(tid) => self.pass_over(tid, happened),
            PtraceEvent::Made(made) => self.made(tid, made),
            PtraceEvent::Exec => self.exec(tid),
            PtraceEvent::Exiting => self.exiting(tid),
            PtraceEvent::GroupStop(_) if self.phase == Phase::LettingGo => self.go_on(tid, 0),
            // Killed meanwhile, if it fails.
            PtraceEvent::GroupStop(_) => drop(ptrace::listen(tid)),
            PtraceEvent::Trap => self.go_on(tid, 0),
            PtraceEvent::Signal(signal) => self.signal(tid, signal),
        }
    }

    /// Tells a call that may not have returned, once it is known whether it did.
    fn decide(&mut self, tid: u32, happened: PtraceEvent) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| thread.undecided.is_some())
        else {
            return;
        };
        // One that was sent has another code.
        let is_raised = happened == PtraceEvent::Signal(libc::SIGSYS)
            && ptrace::signal_code(tid).is_ok_and(|code| code == SYS_SECCOMP);
        let is_trapped = is_raised && is_caught(tid, libc::SIGSYS);
        let is_by_filter = match happened {
            // The kernel shows these before the signal of a filter.
            PtraceEvent::Trap | PtraceEvent::GroupStop(_) if self.phase != Phase::LettingGo => {
                return;
            }
            // No handler takes it, so it will end the thread. Kernels before 5.16 show it of a filter
            // that kills, too.
            _ if is_raised && !is_trapped => return,
            PtraceEvent::Killed(signal) => signal == libc::SIGSYS,
            // With the status as wait(2) has it. SIGSYS may also be sent by anyone, and all threads
            // of a process end by it when a filter kills the process for a call of one of them. A
            // thread without a filter is told from the killed one here; where such another thread
            // has a filter, too, its call is taken for one that did not return.
            PtraceEvent::Exiting => {
                let status = ptrace::event_message(tid);
                status.is_ok_and(|status| libc::WTERMSIG(status as c_int) == libc::SIGSYS)
                    && may_have_filter(tid)
            }
            _ => false,
        };
        let mut undecided = thread.undecided.take();
        if let Some((call, _)) = undecided.as_mut().filter(|_| is_trapped) {
            call.result = Some(Call::TRAPPED);
        }
        if let Some((call, _)) = undecided.as_mut().filter(|_| is_by_filter) {
            call.result = None;
        }
        self.tell_call(undecided);
    }

    /// Whether a thread is, or can now be, among the known ones.
    fn is_known(&mut self, tid: u32) -> bool {
        if self.threads.contains_key(&tid) {
            return true;
        }
        // Its first stop. The stop of the one that made it may come later.
        let Some((process, parent)) = self.unseen.remove(&tid).or_else(|| {
            self.early.insert(tid);
            family_of(tid)
        }) else {
            return false;
        };
        self.add(process, tid, parent, true);
        true
    }

    /// The kernel tells of a thread that was made: its first stop comes, or came.
    fn expect(&mut self, child: u32, process: u32, parent: u32) {
        if !self.early.remove(&child) && !self.threads.contains_key(&child) {
            self.unseen.insert(child, (process, parent));
        }
    }

    /// A stop of a thread of which nothing can be read, which is no reason for it to stand still.
    fn pass_over(&mut self, tid: u32, happened: PtraceEvent) {
        match happened {
            PtraceEvent::GroupStop(_) if self.phase != Phase::LettingGo => {
                drop(ptrace::listen(tid));
            }
            PtraceEvent::Signal(signal) => self.go_on(tid, signal),
            _ => self.go_on(tid, 0),
        }
    }

    fn go_on(&mut self, tid: u32, signal: c_int) {
        // It fails if the thread was killed meanwhile; its end comes.
        let _ = match self.phase {
            Phase::LettingGo => ptrace::detach(tid, signal),
            _ => ptrace::resume(tid, signal),
        };
        if self.phase == Phase::LettingGo {
            self.forget(tid);
        }
    }

    fn at_call(&mut self, tid: u32) {
        let at_ns = now_ns();
        let at = match ptrace::at_call(tid) {
            Ok(at) => at,
            // Killed meanwhile; its end comes.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return,
            // The kernel does not tell, which is no reason for the thread to stand still.
            Err(_) => return self.go_on(tid, 0),
        };
        if !self.is_known(tid) {
            return self.go_on(tid, 0);
        }
        let Some(thread) = self.threads.get_mut(&tid) else { return };
        match at {
            // It is let go: the call is made, but not seen.
            AtCall::Entry { .. } if self.phase == Phase::LettingGo => self.go_on(tid, 0),
            AtCall::Entry { arch, number, arguments, instruction, stack } => {
                let entered = Entered::of(arch, number, arguments, (instruction, stack));
                let unfinished = thread.leave(None, at_ns, &self.correction);
                let (abi, number) = (entered.abi, entered.number);
                let object =
                    self.descriptors.object(thread.process, tid, abi, number, &entered.arguments);
                thread.read();
                thread.enter(entered, object, now_ns());
                self.go_on(tid, 0);
                self.tell_call(unfinished);
            }
            AtCall::Exit { result } => {
                thread.read();
                // The tracer interrupted it to let the thread go: it begins again, untraced.
                let goes_on = self.phase == Phase::LettingGo && begins_again(result);
                let made = thread.inside().is_some_and(|inside| inside.made_unseen(result));
                let child = (made && self.phase == Phase::Tracing).then_some(result);
                let result = (!goes_on).then_some(result);
                let done = thread.leave(result, at_ns, &self.correction);
                if let Some((call, _)) = &done {
                    let (process, arguments) = (call.process, &call.arguments);
                    self.descriptors.after(process, call.abi, call.number, arguments, call.result);
                }
                if let (Some(child), Some((call, _))) = (child, &done) {
                    self.follow_unseen(call, child);
                }
                let is_undecided = self.phase != Phase::LettingGo
                    && done.as_ref().is_some_and(|(call, _)| looks_killed(call));
                if let Some(thread) = self.threads.get_mut(&tid).filter(|_| is_undecided) {
                    thread.undecided = done;
                    return self.go_on(tid, 0);
                }
                self.go_on(tid, 0);
                self.tell_call(done);
            }
            AtCall::Elsewhere => self.go_on(tid, 0),
        }
    }

    fn tell_call(&mut self, call: Option<(Call, Raw)>) {
        let Some((call, raw)) = call else { return };
        if let Some(measured) = &mut self.measured {
            measured.push(raw);
        } else if self.phase != Phase::SettingUp {
            (self.sink)(Event::Call(call));
        }
    }

    fn made(&mut self, tid: u32, made: Made) {
        let since_ns = now_ns();
        if let (Ok(child), Some(thread)) = (ptrace::event_message(tid), self.threads.get(&tid)) {
            // Not known of a thread that was seized within the call, or just before it, and where
            // they cannot be read.
            let flags = thread.inside().and_then(|inside| match inside.entered.flags_of_clone() {
                CloneFlags::Are(flags) => Some(flags),
                CloneFlags::At(address) => first_word(tid, address),
            });
            let process = thread.process;
            let flag = |flag: c_int| flags.map(|flags| flags & flag as u64 != 0);
            // By which event it is told depends on the signal of its end, which a thread may be
            // given, too.
            let is_thread =
                flag(libc::CLONE_THREAD).unwrap_or_else(|| is_thread_of(child, process));
            let child_process = if is_thread { process } else { child };
            // A process with the descriptors of its maker, or a thread with its own. Where the
            // flags are not known, a process may have those of its maker.
            if flag(libc::CLONE_FILES).map_or(!is_thread, |shares| shares != is_thread) {
                self.descriptors.change_unseen([process, child_process]);
            }
            self.expect(child, child_process, process);
        }
        if let Some(inside) = self.threads.get_mut(&tid).and_then(Thread::inside_mut) {
            inside.waits_for_child |= made == Made::Vfork;
            inside.was_stopped(since_ns, now_ns());
        }
        self.go_on(tid, 0);
    }

    /// A thread or process that was made with CLONE_UNTRACED, of which the kernel tells no tracer:
    /// it runs already, and is traced from here on. Its maker is stopped, and still there.
    fn follow_unseen(&mut self, call: &Call, child: i64) {
        // Where a seccomp filter refused the call its number is the answer, and there is no child.
        if looks_killed(call) && may_have_filter(call.thread) {
            return;
        }
        let process = call.process;
        // The number is that of the maker's name space of processes. Where that is another one it
        // means another thread, or none.
        let child = u32::try_from(child).ok().filter(|child| !self.threads.contains_key(child));
        let family = child.and_then(|child| Some((child, family_of(child)?)));
        let Some((child, (child_process, parent))) =
            family.filter(|(_, (_, parent))| *parent == process)
        else {
            self.never_seen += 1;
            return;
        };
        // It may have ended by now.
        if ptrace::seize(child).and_then(|()| ptrace::interrupt(child)).is_err() {
            self.never_seen += 1;
            return;
        }
        self.seen_late += 1;
        // A process may share the descriptors of its maker, and a thread may have its own.
        self.descriptors.change_unseen([process, child_process]);
        self.add(child_process, child, parent, false);
    }

    fn exec(&mut self, tid: u32) {
        let since_ns = now_ns();
        let former = ptrace::event_message(tid).unwrap_or(tid);
        if former != tid {
            self.take_over(tid, former, since_ns);
        }
        self.descriptors.forget_process(tid);
        let command = command_of(tid, tid);
        if self.phase == Phase::SettingUp {
            self.phase = Phase::Tracing;
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.begin_to_count();
            }
            let parent = std::process::id();
            (self.sink)(Event::Began {
                at_ns: since_ns,
                process: tid,
                thread: tid,
                parent,
                command,
            });
        } else {
            (self.sink)(Event::Exec {
                at_ns: since_ns,
                process: tid,
                former_thread: former,
                command,
            });
        }
        if let Some(inside) = self.threads.get_mut(&tid).and_then(Thread::inside_mut) {
            inside.was_stopped(since_ns, now_ns());
        }
        self.go_on(tid, 0);
    }

    /// A thread that is not the first one called exec: it has the process's number now, and the
    /// first one is gone without a word of the kernel.
    fn take_over(&mut self, process: u32, former: u32, at_ns: u64) {
        if self.threads.contains_key(&process) {
            self.lose(process, at_ns);
        }
        // Its maker was a thread of this process, and is gone: its stop does not come any more.
        self.early.remove(&former);
        let slot = self.slots.add(process, process);
        if let Some(mut thread) = self.threads.remove(&former) {
            thread.renumber(slot);
            self.threads.insert(process, thread);
        }
    }

    /// A thread is about to end: the last look at its counters.
    fn exiting(&mut self, tid: u32) {
        self.account(tid, now_ns());
        self.go_on(tid, 0);
    }

    fn signal(&mut self, tid: u32, signal: c_int) {
        let is_told = self.phase != Phase::SettingUp && !is_ignored(tid, signal);
        if let Some(thread) = self.threads.get(&tid).filter(|_| is_told) {
            let process = thread.process;
            (self.sink)(Event::Signal {
                at_ns: now_ns(),
                process,
                thread: tid,
                signal: signal as u8,
            });
        }
        self.go_on(tid, signal);
    }

    fn ended(&mut self, tid: u32, end: End) {
        self.unseen.remove(&tid);
        if self.command == Some(tid) {
            self.end = Some(end);
        }
        if !self.threads.contains_key(&tid) {
            return;
        }
        let at_ns = now_ns();
        self.account(tid, at_ns);
        let process = self.threads.get(&tid).map_or(tid, |thread| thread.process);
        if self.phase != Phase::SettingUp {
            (self.sink)(Event::Ended { at_ns, process, thread: tid, end: Some(end) });
        }
        self.forget(tid);
    }

    /// A thread ended, and how was not seen.
    fn lose(&mut self, tid: u32, at_ns: u64) {
        self.account(tid, at_ns);
        let process = self.threads.get(&tid).map_or(tid, |thread| thread.process);
        if self.phase != Phase::SettingUp {
            (self.sink)(Event::Ended { at_ns, process, thread: tid, end: None });
        }
        self.forget(tid);
    }

    /// There are no threads any more.
    pub(super) fn lose_all(&mut self) {
        self.unseen.clear();
        self.early.clear();
        for tid in self.known() {
            self.lose(tid, now_ns());
        }
    }

    /// Tells what is known of the threads that are left.
    pub(super) fn account_all(&mut self) {
        for tid in self.known() {
            if let Some(thread) = self.threads.get_mut(&tid) {
                thread.is_away = true;
            }
            self.account(tid, now_ns());
        }
    }

    fn known(&self) -> Vec<u32> {
        self.threads.keys().copied().collect()
    }

    /// Tells the call that a thread is in, and what it used; once.
    fn account(&mut self, tid: u32, at_ns: u64) {
        let Some(thread) = self.threads.get_mut(&tid).filter(|thread| !thread.is_accounted) else {
            return;
        };
        thread.is_accounted = true;
        let undecided = thread.undecided.take();
        thread.read();
        let used = thread.used();
        self.is_uncounted |= used.turns == 0 && thread.calls > 0;
        let call = thread.leave(None, at_ns, &self.correction);
        let bias = self.correction.cost;
        let cpu_bias_ns = (bias.cpu_bias_ns + self.outside_bias_ns).saturating_mul(thread.calls);
        let time = Event::ThreadTime {
            at_ns,
            process: thread.process,
            thread: tid,
            cpu_ns: self.correction.cpu_ns(used.cpu_ns, cpu_bias_ns, thread.calls),
            queue_ns: used
                .queue_ns
                .saturating_sub(bias.queue_bias_ns.saturating_mul(2 * thread.calls)),
        };
        self.tell_call(undecided);
        self.tell_call(call);
        if self.phase != Phase::SettingUp && self.measured.is_none() {
            (self.sink)(time);
        }
    }

    /// A thread is traced no more.
    fn forget(&mut self, tid: u32) {
        if self.phase == Phase::LettingGo {
            self.account(tid, now_ns());
        }
        let Some(thread) = self.threads.remove(&tid) else { return };
        thread.slot.close();
        if let Some(left) = self.processes.get_mut(&thread.process) {
            *left -= 1;
            if *left == 0 {
                self.processes.remove(&thread.process);
                self.descriptors.forget_process(thread.process);
            }
        }
    }
}

/// The name that the kernel has for a thread.
fn command_of(process: u32, thread: u32) -> String {
    let name = std::fs::read(format!("/proc/{process}/task/{thread}/comm")).unwrap_or_default();
    String::from_utf8_lossy(&name).trim_end_matches('\n').to_owned()
}

/// The process of a thread, and the one that made it.
fn family_of(thread: u32) -> Option<(u32, u32)> {
    let status = ThreadStatus::of(thread)?;
    let (process, parent) = (status.number("Tgid:")?, status.number("PPid:")?);
    Some((process, if process == thread { parent } else { process }))
}

/// Whether a thread is one of this process, as far as it can be seen.
fn is_thread_of(thread: u32, process: u32) -> bool {
    family_of(thread).is_some_and(|(its_process, _)| its_process == process)
}

/// Whether a thread ignores a signal: untraced it would not be delivered, and only tracers are told
/// of it.
fn is_ignored(thread: u32, signal: c_int) -> bool {
    const BY_DEFAULT: [c_int; 4] = [libc::SIGCHLD, libc::SIGCONT, libc::SIGURG, libc::SIGWINCH];
    let Some(status) = ThreadStatus::of(thread) else { return false };
    is_among(&status, "SigIgn:", signal)
        || (BY_DEFAULT.contains(&signal) && !is_among(&status, "SigCgt:", signal))
}

/// Whether a thread has a handler for a signal.
fn is_caught(thread: u32, signal: c_int) -> bool {
    ThreadStatus::of(thread).is_some_and(|status| is_among(&status, "SigCgt:", signal))
}

fn is_among(status: &ThreadStatus, field: &str, signal: c_int) -> bool {
    status.bits(field).is_some_and(|signals| signals >> ((signal - 1) & 63) & 1 == 1)
}

/// Whether seccomp restricts the calls of a thread, as far as the kernel tells.
fn may_have_filter(thread: u32) -> bool {
    ThreadStatus::of(thread).is_none_or(|status| status.number("Seccomp:") != Some(0))
}

/// The first word of `struct clone_args`: the flags. None if it cannot be read.
fn first_word(thread: u32, address: u64) -> Option<u64> {
    let mut word = [0; 8];
    holdfast_sys::remote_memory::read(thread, address, &mut word).ok()?;
    Some(u64::from_ne_bytes(word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Object;

    /// A thread that ended before the stop of the one that made it is not waited for.
    ///
    /// Guarantee: trace/ends-in-time
    #[test]
    fn thread_gone_before_its_makers_stop_is_not_expected() {
        let mut events: Vec<Event> = Vec::new();
        let mut sink = |event: Event| events.push(event);
        let mut tracer = Tracer::new(&mut sink, Correction::default(), 0);
        // Any thread that is there.
        let thread = std::process::id();
        assert!(tracer.is_known(thread));
        tracer.ended(thread, End::Exited(0));
        tracer.expect(thread, thread, 1);
        assert!(!tracer.has_threads());
        // One that has its number later.
        tracer.expect(thread, thread, 1);
        assert!(tracer.is_known(thread) && tracer.has_threads());
        drop(tracer);
        let parents: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Began { parent, .. } => Some(*parent),
                _ => None,
            })
            .collect();
        assert_eq!(parents.len(), 2);
        assert_eq!(parents[1], 1);
    }

    /// A stop that the kernel shows before the signal of a filter does not tell what became of the
    /// call.
    ///
    /// Guarantee: trace/every-call
    #[test]
    fn stop_before_sigsys_leaves_a_call_undecided() {
        let mut events: Vec<Event> = Vec::new();
        let mut sink = |event: Event| events.push(event);
        let mut tracer = Tracer::new(&mut sink, Correction::default(), 0);
        // Any thread that is there.
        let tid = std::process::id();
        tracer.add(tid, tid, 1, false);
        let entered = Entered::of(ptrace::ARCH_X86_64, 110, [0; 6], (0, 0));
        let thread = tracer.threads.get_mut(&tid).unwrap();
        thread.enter(entered, Object::None, 1);
        thread.undecided = thread.leave(Some(110), 2, &Correction::default());
        tracer.decide(tid, PtraceEvent::GroupStop(libc::SIGSTOP));
        tracer.decide(tid, PtraceEvent::Trap);
        tracer.decide(tid, PtraceEvent::Killed(libc::SIGSYS));
        drop(tracer);
        let results: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Call(call) => Some(call.result),
                _ => None,
            })
            .collect();
        assert_eq!(results, [None::<i64>]);
    }

    /// The number of a thread that called exec is free: a thread that has it later is expected.
    ///
    /// Guarantee: trace/ends-in-time
    #[test]
    fn number_given_up_by_exec_is_expected_again() {
        let mut sink = |_: Event| {};
        let mut tracer = Tracer::new(&mut sink, Correction::default(), 0);
        // Any thread that is there, seen before the stop of its maker, and any other number.
        let (former, process) = (std::process::id(), u32::MAX >> 2);
        assert!(tracer.is_known(former));
        tracer.take_over(process, former, now_ns());
        tracer.expect(former, process, process);
        assert!(tracer.unseen.contains_key(&former));
    }
}
