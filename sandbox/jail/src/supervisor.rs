//! The one thread that starts all jailed programs of this process, answers their questions and sees
//! their ends.
//!
//! Why one: a program dies with the *thread* that started it, so that must be one that lives as
//! long as the process. It does nothing that takes long: what is to be done for a program in one
//! turn is bounded, and programs take turns.
//!
//! Invariant: it never waits for a program, for the host's output, or for a lock that is held for
//! long.

#![forbid(unsafe_code)]

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use holdfast_sys::spawn::{Child, Steps};
use rustix::event::{EventfdFlags, epoll};
use rustix::process::Pid;

use crate::answer::answer;
use crate::end::{End, KillReason, LimitHit};
use crate::inmate::Inmate;

/// Events that are taken from the kernel at once.
const EVENTS: usize = 64;
/// Output that is read from one stream in one turn.
const OUTPUT_BYTES: usize = 64 << 10;
/// A program that could not be reaped because its memory was being read is tried again after this.
const RETRY: Duration = Duration::from_millis(1);
/// CPU time is looked at no more often than this.
const CPU_GRAIN: Duration = Duration::from_millis(1);
/// The longest sleep at a time: what is beyond 24 days takes a call that kernels before 5.11, and
/// filters of some containers, do not have.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 3600);
/// Kinds of descriptors; the token of one is the program's number times this many, plus the kind.
const KINDS: u64 = 4;
const PROCESS: u64 = 0;
const LISTENER: u64 = 1;
const STDOUT: u64 = 2;
const STDERR: u64 = 3;
const WAKE: u64 = 0;
/// Held while the supervisor is started.
static STARTING: Mutex<()> = Mutex::new(());

/// What is to be supervised.
pub(crate) struct Charge {
    pub(crate) inmate: Arc<Inmate>,
    pub(crate) listener: Arc<OwnedFd>,
    /// Read ends of its standard output and standard error.
    pub(crate) streams: [Option<OwnedFd>; 2],
    /// When it is looked at next, whatever happens.
    next_look: Option<Instant>,
    /// The kernel tells of its end; of one that it does not watch the look does.
    is_watched: bool,
}

impl Charge {
    pub(crate) fn new(
        inmate: Arc<Inmate>,
        listener: OwnedFd,
        streams: [Option<OwnedFd>; 2],
    ) -> Charge {
        let listener = Arc::new(listener);
        Charge { inmate, listener, streams, next_look: None, is_watched: true }
    }
}

enum Command {
    Start { steps: Box<Steps>, flags: i32, reply: SyncSender<io::Result<Child>> },
    Supervise(Box<Charge>),
}

/// The supervisor of this process.
pub(crate) struct Supervisor {
    pid: u32,
    thread: ThreadId,
    tid: Pid,
    commands: Arc<Mutex<Vec<Command>>>,
    wake: Arc<OwnedFd>,
}

impl Supervisor {
    /// Starts it at the first call.
    pub(crate) fn get() -> io::Result<&'static Supervisor> {
        static SUPERVISOR: OnceLock<Supervisor> = OnceLock::new();
        // First without the lock: in a forked copy, the thread that held it at that moment never
        // gives it back.
        let supervisor = match SUPERVISOR.get() {
            Some(supervisor) => supervisor,
            None => {
                let _starting = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
                match SUPERVISOR.get() {
                    Some(supervisor) => supervisor,
                    None => {
                        let started = Supervisor::start()?;
                        SUPERVISOR.get_or_init(|| started)
                    }
                }
            }
        };
        if supervisor.pid != std::process::id() {
            return Err(io::Error::other("a forked process has no supervisor; exec first"));
        }
        Ok(supervisor)
    }

    fn start() -> io::Result<Supervisor> {
        let wake =
            Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &*wake, epoll::EventData::new_u64(WAKE), epoll::EventFlags::IN)?;
        let commands = Arc::new(Mutex::new(Vec::new()));
        let warden = Warden::new(poll, wake.clone(), commands.clone());
        let (tell, told) = sync_channel(1);
        let run = move || {
            let _ = tell.send(rustix::thread::gettid());
            warden.run();
        };
        let thread = std::thread::Builder::new().name("holdfast-jail".to_owned()).spawn(run)?;
        let tid = told.recv().map_err(|_| io::Error::other("the supervisor is gone"))?;
        Ok(Supervisor {
            pid: std::process::id(),
            thread: thread.thread().id(),
            tid,
            commands,
            wake,
        })
    }

    /// How nice its thread is; what it starts is as nice or nicer.
    pub(crate) fn nice(&self) -> i32 {
        rustix::process::getpriority_process(Some(self.tid)).unwrap_or(0)
    }

    /// Whether this is its thread.
    pub(crate) fn is_this_thread(&self) -> bool {
        std::thread::current().id() == self.thread
    }

    /// Starts a child of the supervisor's thread.
    pub(crate) fn spawn(&self, steps: Steps, flags: i32) -> io::Result<Child> {
        if self.is_this_thread() {
            return Err(io::Error::other("a jail cannot be started within `on_end`"));
        }
        let (reply, answer) = sync_channel(1);
        self.send(Command::Start { steps: Box::new(steps), flags, reply })?;
        answer.recv().map_err(|_| io::Error::other("the supervisor is gone"))?
    }

    /// Hands a program over to it.
    pub(crate) fn supervise(&self, charge: Charge) -> io::Result<()> {
        self.send(Command::Supervise(Box::new(charge)))
    }

    fn send(&self, command: Command) -> io::Result<()> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner).push(command);
        rustix::io::write(&*self.wake, &1_u64.to_ne_bytes())?;
        Ok(())
    }
}

/// The thread's own state.
struct Warden {
    poll: OwnedFd,
    wake: Arc<OwnedFd>,
    commands: Arc<Mutex<Vec<Command>>>,
    charges: HashMap<u64, Charge>,
    /// When to look at which program, whatever happens: [`Charge::next_look`] of each.
    times: BTreeSet<(Instant, u64)>,
    next: u64,
    /// CPUs that a program can use at once.
    cpus: u32,
    buffer: Vec<u8>,
}

impl Warden {
    fn new(poll: OwnedFd, wake: Arc<OwnedFd>, commands: Arc<Mutex<Vec<Command>>>) -> Warden {
        Warden {
            poll,
            wake,
            commands,
            charges: HashMap::new(),
            times: BTreeSet::new(),
            next: 1,
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32),
            buffer: vec![0; OUTPUT_BYTES],
        }
    }

    fn run(mut self) {
        // Programs wait for its answers; without a short slice it may wait behind others that only
        // compute.
        let _ = holdfast_sys::scheduling::prefer_latency();
        let mut events = Vec::with_capacity(EVENTS);
        loop {
            events.clear();
            let left =
                self.times.first().map(|(at, _)| at.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| left.min(SLEEP_MAX).try_into().ok());
            let _ = epoll::wait(
                &self.poll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            );
            for event in &events {
                match event.data.u64() {
                    WAKE => self.obey(),
                    token => self.serve(token / KINDS, token % KINDS, event.flags),
                }
            }
            self.look_at_times();
        }
    }

    fn obey(&mut self) {
        let mut count = [0; 8];
        // It says no more than that there are commands.
        let _ = rustix::io::read(&*self.wake, &mut count);
        let commands =
            std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner));
        for command in commands {
            match command {
                // The asker may have gone; the child is then ended by its drop.
                Command::Start { steps, flags, reply } => drop(reply.send(steps.start(flags))),
                Command::Supervise(charge) => self.take_charge(*charge),
            }
        }
    }

    fn take_charge(&mut self, mut charge: Charge) {
        let number = self.next;
        self.next += 1;
        let token = |kind| epoll::EventData::new_u64(number * KINDS + kind);
        let add =
            |fd: &OwnedFd, kind| epoll::add(&self.poll, fd, token(kind), epoll::EventFlags::IN);
        let added =
            add(&charge.inmate.pidfd, PROCESS).and_then(|()| add(&charge.listener, LISTENER));
        let added =
            charge.streams.iter().zip([STDOUT, STDERR]).fold(added, |added, (stream, kind)| {
                added.and_then(|()| stream.as_ref().map_or(Ok(()), |stream| add(stream, kind)))
            });
        if added.is_err() {
            let what =
                "the kernel has no room to watch it; see fs.epoll.max_user_watches".to_owned();
            charge.inmate.finish(End::Killed(KillReason::Other { what }));
            charge.is_watched = false;
        }
        self.charges.insert(number, charge);
        self.look_at(number);
    }

    fn serve(&mut self, number: u64, kind: u64, flags: epoll::EventFlags) {
        let Some(charge) = self.charges.get_mut(&number) else { return };
        match kind {
            // No process is left who could ask; receiving would wait for ever.
            LISTENER if !flags.contains(epoll::EventFlags::IN) => {
                let _ = epoll::delete(&self.poll, &charge.listener);
            }
            LISTENER => {
                if let Err(error) = answer(charge) {
                    // The thread died while it waited: nothing to answer. Anything else would come
                    // again at once, and the program would wait for its answers for ever.
                    if error.raw_os_error() != Some(libc::ENOENT)
                        && error.raw_os_error() != Some(libc::EINTR)
                    {
                        let _ = epoll::delete(&self.poll, &charge.listener);
                        let what = format!("its system calls cannot be answered: {error}");
                        charge.inmate.finish(End::Killed(KillReason::Other { what }));
                    }
                }
            }
            STDOUT | STDERR => {
                let index = usize::from(kind == STDERR);
                if drain(charge, index, &mut self.buffer)
                    && let Some(stream) = charge.streams.get_mut(index).and_then(Option::take)
                {
                    let _ = epoll::delete(&self.poll, &stream);
                }
            }
            _ => self.see_the_end(number),
        }
    }

    /// Its process is gone: takes what it wrote last, and its status.
    fn see_the_end(&mut self, number: u64) {
        let Some(charge) = self.charges.get_mut(&number) else { return };
        for index in [0, 1] {
            // A pipe holds no more than this many turns.
            for _ in 0..64 {
                if charge.streams[index].is_none() || drain(charge, index, &mut self.buffer) {
                    break;
                }
            }
        }
        unwatch(&self.poll, charge);
        if charge.inmate.reap() {
            self.look_again(number, None);
            self.charges.remove(&number);
        } else {
            self.look_again(number, Some(Instant::now() + RETRY));
        }
    }

    /// Sets when a program is looked at next; in place of what was set before.
    fn look_again(&mut self, number: u64, at: Option<Instant>) {
        let Some(charge) = self.charges.get_mut(&number) else { return };
        if let Some(before) = std::mem::replace(&mut charge.next_look, at) {
            self.times.remove(&(before, number));
        }
        self.times.extend(at.map(|at| (at, number)));
    }

    fn look_at_times(&mut self) {
        let now = Instant::now();
        while let Some(&(at, number)) = self.times.first() {
            if at > now {
                break;
            }
            self.times.remove(&(at, number));
            self.look_at(number);
        }
    }

    /// Whether it has used up its time, and when to look again.
    fn look_at(&mut self, number: u64) {
        let Some(charge) = self.charges.get(&number) else { return };
        let inmate = &charge.inmate;
        if has_ended(inmate) {
            self.see_the_end(number);
            return;
        }
        let now = Instant::now();
        let mut next = (!charge.is_watched).then_some(now + RETRY);
        let mut also_at = |at: Option<Instant>| next = next.into_iter().chain(at).min();
        if let Some(limit) = inmate.limits.wall_time {
            if inmate.started.elapsed() >= limit {
                inmate.finish(End::Limit(LimitHit::WallTime { limit }));
            } else {
                also_at(inmate.started.checked_add(limit));
            }
        }
        if let Some(limit) = inmate.limits.cpu_time {
            let used = inmate.cpu_time();
            if used >= limit {
                inmate.finish(End::Limit(LimitHit::CpuTime { limit }));
            } else {
                // No sooner can that many CPUs use the rest up.
                let rest = (limit - used) / self.cpus.min(inmate.limits.threads).max(1);
                also_at(now.checked_add(rest.max(CPU_GRAIN)));
            }
        }
        self.look_again(number, next);
    }
}

/// Has its descriptors wake this thread no more. That they are closed is not enough: a holder that
/// keeps the program's handle, and a child that is being started at this moment, have them as well,
/// and an end stays readable for ever.
fn unwatch(poll: &OwnedFd, charge: &Charge) {
    let own = [&*charge.inmate.pidfd, &charge.listener];
    for descriptor in own.into_iter().chain(charge.streams.iter().flatten()) {
        // Some are not watched any more.
        let _ = epoll::delete(poll, descriptor);
    }
}

fn has_ended(inmate: &Inmate) -> bool {
    let mut poll = [rustix::event::PollFd::new(&inmate.pidfd, rustix::event::PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut poll, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Reads once from one of its streams; true at the stream's end.
fn drain(charge: &mut Charge, index: usize, buffer: &mut [u8]) -> bool {
    let Some(stream) = charge.streams.get(index).and_then(Option::as_ref) else { return true };
    let bytes = match rustix::io::read(stream, &mut *buffer) {
        Ok(0) => return true,
        Ok(count) => buffer.get(..count).unwrap_or_default(),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {
            return has_ended(&charge.inmate);
        }
        Err(_) => return true,
    };
    if charge.inmate.discards_output {
        return false;
    }
    {
        let mut book = charge.inmate.book();
        let Some(kept) = book.output.get_mut(index) else { return true };
        let room = charge.inmate.kept_bytes.saturating_sub(kept.len()).min(bytes.len());
        kept.extend_from_slice(bytes.get(..room).unwrap_or_default());
        book.is_truncated |= room < bytes.len();
    }
    charge.inmate.count_output(bytes.len());
    false
}

#[cfg(test)]
mod tests;
