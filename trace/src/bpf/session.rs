//! One trace: from the first thread that is named to the programs in the kernel to the last record.

use std::cell::RefCell;
use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use holdfast_sys::child::{Status, reap};
use holdfast_sys::counted::counted;
use libbpf_rs::{RingBuffer, RingBufferBuilder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, getpriority_process, pidfd_open, setpriority_process};

use super::cost::{NullCalls, cost};
use super::groups::Groups;
use super::layout::{Counters, ThreadRecord, WANTED_FROM_EXEC, WANTED_NOW};
use super::programs::{Options, Programs, Watch, kernel};
use super::record::decode;
use crate::machine::{now_ns, null_call_ns};
use crate::program::Waiting;
use crate::status::ThreadStatus;
use crate::{
    Backend, BackendKind, End, Event, Outcome, Result, Settings, Target, TraceDescription,
    TraceError,
};

/// How often the buffer is emptied. Nothing wakes the tracer, which would cost each call more than
/// its record.
const TICK: Duration = Duration::from_millis(5);
/// A buffer that had more events than this is looked at again at once. A record may be several.
const HURRY_EVENTS: usize = 20_000;
/// So many records at most are read before anything else is looked at: who fills the buffer as fast
/// as it is read must not keep the tracer from its end.
const ROUND_RECORDS: usize = 50_000;
/// So many at most are in the usual buffer: each has the kernel's head of 8 bytes.
const BUFFER_RECORDS: usize = super::BUFFER_BYTES as usize / (8 + size_of::<ThreadRecord>());
/// How nice the tracer is.
const NICE: i32 = -10;
/// How often control groups are looked through for processes that are not traced yet.
const GROUPS_AFTER: Duration = Duration::from_millis(100);
/// A process that makes threads while its threads are marked is looked through again, this often at
/// most.
const PASSES_MOST: u32 = 20;

/// See the module above.
#[derive(Debug)]
pub struct BpfBackend {
    settings: Settings,
    programs: Programs,
    about: TraceDescription,
}

impl BpfBackend {
    /// The backend for one run, its programs loaded into the kernel.
    ///
    /// # Errors
    /// [`TraceError::Unavailable`]: this user may not, or this kernel cannot.
    pub fn new(settings: Settings) -> Result<BpfBackend> {
        BpfBackend::with_buffer(settings, super::BUFFER_BYTES)
    }

    /// The same with another size of the buffer between the kernel and the tracer: a power of two
    /// and a multiple of the size of a page.
    ///
    /// # Errors
    /// As for [`BpfBackend::new`].
    pub fn with_buffer(settings: Settings, buffer_bytes: u32) -> Result<BpfBackend> {
        BpfBackend::load(settings, Options { buffer_bytes, only_copies: false })
    }

    fn load(settings: Settings, options: Options) -> Result<BpfBackend> {
        let programs = Programs::load(options)?;
        let mut about = TraceDescription::before(&settings, BackendKind::Bpf);
        if programs.missing.contains(&"on_operation") {
            about.notes.push(
                "Operations of io_uring could not be counted: the kernel has no tracepoint for them."
                    .to_owned(),
            );
        }
        Ok(BpfBackend { settings, programs, about })
    }
}

impl Backend for BpfBackend {
    fn about(&self) -> TraceDescription {
        self.about.clone()
    }

    fn run(self: Box<Self>, sink: &mut dyn FnMut(Event)) -> Result<Outcome> {
        let BpfBackend { settings, programs, mut about } = *self;
        let target = Chosen::new(&settings)?;
        // After the program was started, which is as nice as it would be untraced.
        let _priority = Priority::raise();
        let untraced = NullCalls::run(|_| Ok(()), || ())?;
        let null_call_ns = null_call_ns();
        let watch = programs.attach(matches!(target, Chosen::Group(_)))?;
        let events = RefCell::new(Events {
            sink,
            ignored: HashSet::new(),
            null_calls_ns: Vec::new(),
            came: 0,
        });
        let map = programs.records()?;
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&map, |record| {
                decode(record, &mut |event| events.borrow_mut().pass_on(event));
                0
            })
            .and_then(|builder| std::mem::take(builder).build())
            .map_err(|error| kernel("map the buffer of records", &error))
            .and_then(|ring| {
                let mut run = Run {
                    settings: &settings,
                    programs: &programs,
                    watch: Some(watch),
                    events: &events,
                    ring,
                    before: Counters::default(),
                    told_lost: 0,
                    command: None,
                    groups: None,
                };
                run.measure_cost(&untraced, null_call_ns, &mut about)?;
                about.begin();
                let end = run.follow(target)?;
                run.conclude(&mut about)?;
                Ok(Outcome { end, about })
            })
    }
}

/// The tracer has little to do, and must do it in time: a buffer that is not emptied loses records.
struct Priority(Option<i32>);

impl Priority {
    /// Of this thread. Where that is not allowed, it stays as it is.
    fn raise() -> Priority {
        let before = getpriority_process(None).ok();
        Priority(before.filter(|before| *before > NICE && setpriority_process(None, NICE).is_ok()))
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // To be nicer is always allowed.
            let _ = setpriority_process(None, before);
        }
    }
}

/// What is to be traced, looked at before anything else is done.
enum Chosen {
    Start(Waiting),
    Processes(Vec<u32>),
    Group(PathBuf),
}

impl Chosen {
    fn new(settings: &Settings) -> Result<Chosen> {
        match &settings.target {
            Target::Start(program) => {
                Ok(Chosen::Start(program.start(settings.pin, &settings.environment)?))
            }
            Target::Attach(processes) => {
                let processes = processes.iter().map(|process| group_of(*process));
                processes.collect::<Result<_>>().map(Chosen::Processes)
            }
            Target::Cgroup(path) => match Groups::below(path) {
                Ok(_) => Ok(Chosen::Group(path.clone())),
                Err(source) => Err(TraceError::NoCgroup { path: path.clone(), source }),
            },
        }
    }
}

/// The process of a thread, or the process itself.
fn group_of(process: u32) -> Result<u32> {
    let group = ThreadStatus::of(process).and_then(|status| status.number("Tgid:"));
    let group = group.ok_or(TraceError::NoProcess { process })?;
    if group == std::process::id() {
        let why = "it is the tracer itself; choose another one".to_owned();
        return Err(TraceError::AttachDenied { process, why });
    }
    Ok(group)
}

/// On the way to the reader.
struct Events<'a> {
    sink: &'a mut dyn FnMut(Event),
    /// Processes of the tracer's own, with which it measures.
    ignored: HashSet<u32>,
    /// How long their calls took that do nothing.
    null_calls_ns: Vec<u64>,
    /// Since the buffer was looked at last.
    came: usize,
}

impl Events<'_> {
    fn pass_on(&mut self, event: Event) {
        self.came += 1;
        match &event {
            Event::Call(call)
                if self.ignored.is_empty() || !self.ignored.contains(&call.process) => {}
            Event::Call(call) => {
                if call.number == libc::SYS_getppid as u32 {
                    self.null_calls_ns.push(call.time.wall_ns);
                }
                return;
            }
            Event::Began { process, .. }
            | Event::Exec { process, .. }
            | Event::Ended { process, .. }
            | Event::ThreadTime { process, .. }
            | Event::Signal { process, .. }
            | Event::IoUring { process, .. }
                if self.ignored.contains(process) =>
            {
                return;
            }
            _ => {}
        }
        (self.sink)(event);
    }
}

/// A control group whose processes are traced.
struct Watched {
    path: PathBuf,
    looked_at: Instant,
    /// At the last look.
    found: Groups,
}

/// A command that was started.
struct Command {
    process: u32,
    handle: OwnedFd,
    end: Option<End>,
}

struct Run<'a, 'sink> {
    settings: &'a Settings,
    programs: &'a Programs,
    watch: Option<Watch>,
    events: &'a RefCell<Events<'sink>>,
    ring: RingBuffer<'a>,
    /// What was counted before the trace began.
    before: Counters,
    told_lost: u64,
    command: Option<Command>,
    groups: Option<Watched>,
}

impl Run<'_, '_> {
    fn measure_cost(
        &mut self,
        untraced: &NullCalls,
        null_call_ns: u64,
        about: &mut TraceDescription,
    ) -> Result<()> {
        let traced = NullCalls::run(
            |process| {
                self.events.borrow_mut().ignored.insert(process);
                self.programs.want(process, WANTED_NOW)?;
                self.mark()
            },
            || {
                // They have ended, and no other one is traced yet.
                self.ring.consume_raw();
            },
        )?;
        about.cost = Some(cost(untraced, &traced));
        let mut seen_ns = std::mem::take(&mut self.events.borrow_mut().null_calls_ns);
        seen_ns.sort_unstable();
        if let Some(median_ns) = seen_ns.get(seen_ns.len() / 2) {
            about.notes.push(format!(
                "A call that does nothing takes {null_call_ns} ns untraced and reads {median_ns} ns here: the way into the kernel and \
                 back is not in a call's time, a part of what recording it costs is, and nothing was taken off."
            ));
        }
        // Their numbers may come to mean other processes.
        for process in self.events.borrow_mut().ignored.drain() {
            self.programs.want_no_more(process)?;
        }
        self.before = self.programs.counters()?;
        Ok(())
    }

    fn mark(&self) -> Result<()> {
        self.watch.as_ref().map_or(Ok(()), Watch::mark)
    }

    /// Marks until there is nothing new: threads may be made by threads that are not marked yet.
    fn mark_all(&self) -> Result<()> {
        let mut marked = self.programs.counters()?.marked;
        for _ in 0..PASSES_MOST {
            self.mark()?;
            let now = self.programs.counters()?.marked;
            if now == marked {
                break;
            }
            marked = now;
        }
        Ok(())
    }

    /// Traces until it is over.
    fn follow(&mut self, target: Chosen) -> Result<Option<End>> {
        match target {
            Chosen::Start(waiting) => self.start(waiting)?,
            Chosen::Processes(processes) => {
                for process in &processes {
                    self.programs.want(*process, WANTED_NOW)?;
                }
                self.mark_all()?;
            }
            Chosen::Group(path) => {
                self.groups =
                    Some(Watched { path, looked_at: Instant::now(), found: Groups::default() });
                self.look_through_groups()?;
            }
        }
        // None, too, for one that no clock reaches.
        let deadline = self.settings.limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            // In this order: when no thread is left, all has been recorded.
            let live = self.programs.counters()?.live;
            self.ring.consume_raw_n(ROUND_RECORDS);
            let came = std::mem::take(&mut self.events.borrow_mut().came);
            self.tell_losses()?;
            // In this order: a signal that ends the command as well is no sign for what it leaves.
            let had_ended = self.command.as_ref().is_some_and(|command| command.end.is_some());
            let is_given_up = self.settings.stop_after_end.take() && had_ended;
            self.look_at_command()?;
            let is_over = live <= 0
                && self.groups.is_none()
                && self.command.as_ref().is_none_or(|command| command.end.is_some());
            let is_late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if is_over || is_late || is_given_up || self.settings.stop.is_raised() {
                return Ok(self.command.as_ref().and_then(|command| command.end));
            }
            if self
                .groups
                .as_ref()
                .is_some_and(|watched| watched.looked_at.elapsed() >= GROUPS_AFTER)
            {
                self.look_through_groups()?;
            }
            if came < HURRY_EVENTS {
                self.wait_a_tick();
            }
        }
    }

    fn start(&mut self, waiting: Waiting) -> Result<()> {
        let failed = |source| TraceError::Kernel { step: "start the program", source };
        let Waiting { path, mut started } = waiting;
        let process = started.pid();
        let number = i32::try_from(process).ok().and_then(Pid::from_raw);
        let number = number.ok_or_else(|| failed(std::io::ErrorKind::InvalidData.into()))?;
        let handle =
            pidfd_open(number, PidfdFlags::empty()).map_err(|error| failed(error.into()))?;
        self.programs.want(process, WANTED_FROM_EXEC)?;
        self.mark()?;
        started.let_go().map_err(failed)?;
        if let Some(source) = started.failure().map_err(failed)? {
            // It has ended, or is about to.
            let _ = reap(process, true);
            return Err(TraceError::NotExecutable { program: path, source });
        }
        self.command = Some(Command { process, handle, end: None });
        Ok(())
    }

    fn look_at_command(&mut self) -> Result<()> {
        if let Some(command) = self.command.as_mut().filter(|command| command.end.is_none()) {
            let reaped = reap(command.process, false)
                .map_err(|source| TraceError::Kernel { step: "wait for the program", source })?;
            command.end = reaped.map(|reaped| match reaped.status {
                Status::Exited(code) => End::Exited(code as u8),
                Status::Signal(signal) => End::Killed(signal as u8),
            });
        }
        Ok(())
    }

    /// The end of the command ends the wait.
    fn wait_a_tick(&self) {
        match self.command.as_ref().filter(|command| command.end.is_none()) {
            Some(command) => {
                let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
                // A signal ends it, too, and is looked at in the next round.
                let _ = poll(
                    &mut [PollFd::from_borrowed_fd(command.handle.as_fd(), PollFlags::IN)],
                    Some(&tick),
                );
            }
            None => std::thread::sleep(TICK),
        }
    }

    fn look_through_groups(&mut self) -> Result<()> {
        let Some(watched) = &mut self.groups else { return Ok(()) };
        watched.looked_at = Instant::now();
        // A group that was removed has no processes any more.
        let mut now = Groups::below(&watched.path).unwrap_or_default();
        now.processes.remove(&std::process::id());
        let changes = watched.found.become_and_compare(now);
        for id in changes.gone_ids {
            self.programs.want_group_no_more(id)?;
        }
        for id in changes.new_ids {
            self.programs.want_group(id)?;
        }
        // All that are new, those of which threads are traced among them: of a process that is
        // moved the kernel tells one thread.
        for process in &changes.new_processes {
            self.programs.want(*process, WANTED_NOW)?;
        }
        if !changes.new_processes.is_empty() {
            self.mark_all()?;
        }
        for process in changes.new_processes {
            self.programs.want_no_more(process)?;
        }
        Ok(())
    }

    fn lost(&self, counters: &Counters) -> u64 {
        (counters.lost_calls + counters.lost_others)
            .saturating_sub(self.before.lost_calls + self.before.lost_others)
    }

    fn tell_losses(&mut self) -> Result<()> {
        let lost = self.lost(&self.programs.counters()?);
        if lost > self.told_lost {
            self.events.borrow_mut().pass_on(Event::Lost { events: lost - self.told_lost });
            self.told_lost = lost;
        }
        Ok(())
    }

    fn conclude(&mut self, about: &mut TraceDescription) -> Result<()> {
        if let Some(watch) = self.watch.take() {
            watch.freeze()?;
            // Room for the reports of those that are detached. Only threads that came into a
            // control group since then add to the buffer.
            self.ring.consume_raw_n(BUFFER_RECORDS);
            watch.let_go()?;
        }
        // To the last: nothing writes there any more.
        self.ring.consume_raw();
        self.tell_losses()?;
        about.lost = self.told_lost;
        about.lasted_ns = now_ns().saturating_sub(about.began_ns);
        let missed =
            self.programs.counters()?.missed_threads.saturating_sub(self.before.missed_threads);
        if missed > 0 {
            about.notes.push(format!(
                "{} could not be traced: the kernel had no memory to keep account of that.",
                counted(missed, "thread")
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Object, Program};

    /// Names and descriptors of a command's calls.
    fn objects(only_copies: bool) -> Result<Vec<(String, Object)>> {
        let command = ["sh", "-c", "cat /etc/hostname | cat >/dev/null; ls /proc/self/fd"]
            .map(Into::into)
            .to_vec();
        let options = Options { buffer_bytes: 4 << 20, only_copies };
        let backend = BpfBackend::load(Settings::new(Target::Start(Program { command })), options)?;
        let mut objects = Vec::new();
        Box::new(backend).run(&mut |event| {
            if let Event::Call(call) = event
                && call.object != Object::None
            {
                objects.push((call.name().into_owned(), call.object));
            }
        })?;
        objects.sort_unstable();
        Ok(objects)
    }

    /// The fallback for older kernels finds the same descriptors as the newer interface.
    ///
    /// Guarantee: trace/descriptors
    #[test]
    fn older_kernel_reader_finds_same_descriptors() {
        match objects(true) {
            Ok(by_copies) => {
                assert!(
                    by_copies
                        .iter()
                        .any(|(name, object)| name == "read" && *object == Object::Pipe)
                );
                assert_eq!(by_copies, objects(false).unwrap());
            }
            Err(error) => println!("not run: {error}"),
        }
    }
}
