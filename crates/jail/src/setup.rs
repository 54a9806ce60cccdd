//! From a builder to a running program: writes the child's list of steps, and sees it through.
//!
//! Invariants:
//! - The list is complete before the child exists; the child only makes its calls.
//! - The program's file runs only by the last step, which the filter lets pass once; whatever fails before ends the
//!   child.
//! - Every layer of [`crate::choice`] is in the list.

#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_sys::seccomp;
use holdfast_sys::spawn::{Child, Limit, Progress, Steps};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::pipe::PipeFlags;
use rustix::process::{DumpableBehavior, PidfdFlags, PidfdGetfdFlags};
use rustix::thread::CapabilitySet;

use crate::choice::{Chosen, choose};
use crate::end::{End, KillReason};
use crate::error::JailError;
use crate::filter;
use crate::groups::Groups;
use crate::inmate::{Inmate, Particulars};
use crate::jail::{Jail, JailStdio};
use crate::layers::{Layer, Weakness};
use crate::machine::{IPC, Machine, NOBODY, map_ids};
use crate::policy::{Given, Group, Policy};
use crate::program::Program;
use crate::relay::{self, Stream};
use crate::root;
use crate::ruleset;
use crate::supervisor::{Charge, Supervisor};

/// How long a child may take for its steps.
const SET_UP_TIME: Duration = Duration::from_secs(10);
/// Descriptors for the child are kept above those that it will have.
const FIRST_OWN: RawFd = 128;

/// A program that runs.
pub(crate) struct Started {
    pub(crate) inmate: Arc<Inmate>,
    pub(crate) weaker: Vec<Weakness>,
}

/// Starts it.
pub(crate) fn start(mut jail: Jail) -> Result<Started, JailError> {
    if let Some(number) = jail.wrong_descriptor {
        return Err(JailError::Descriptor { number });
    }
    let machine = Machine::get();
    let supervisor =
        Supervisor::get().map_err(|source| JailError::Host { what: "start the supervisor", source })?;
    let program = Program::open(&jail.program)?;
    let chosen = choose(&jail, machine, &program)?;
    let mut policy = jail.policy;
    if jail.paths.is_empty() {
        jail.limits.file_size_bytes = 0;
    } else {
        policy = policy.with(Group::Directories);
    }
    if chosen.layers.has(Layer::Mounts) {
        policy = policy.with(Group::OwnRoot);
    }
    let groups = make_groups(&jail, machine, &chosen)?;
    let mut prepared = prepare(&mut jail, machine, &program, &chosen, policy)?;
    if let Some(step) = jail.failing_step {
        prepared.steps.fail(step, libc::EIO);
    }
    let _undumpable = chosen.changes_user.then(Undumpable::begin);
    let started = Instant::now();
    let mut child = supervisor
        .spawn(prepared.steps, prepared.flags)
        .map_err(|source| JailError::Step { step: "clone", source })?;
    meet(&mut child, 1)?;
    if prepared.flags & libc::CLONE_NEWUSER != 0 {
        map_ids(&child, chosen.user, chosen.group, chosen.changes_user)
            .map_err(|(step, source)| failure(&child, JailError::Step { step, source }))?;
    }
    if let Some(groups) = &groups {
        let step = "join the control group";
        groups.add(child.pid()).map_err(|source| failure(&child, JailError::Step { step, source }))?;
    }
    child.let_go(1);
    if chosen.changes_user {
        meet(&mut child, 2)?;
        child.let_go(2);
    }
    // A child that failed has ended, and much fails then; what it says came first.
    let listener = listener(&mut child).map_err(|seen| failure(&child, seen))?;
    let (pid, pidfd) = (child.pid(), child.pidfd().clone());
    let mut given = prepared.given;
    if given.own_process == Given::UNKNOWN_PROCESS {
        given.own_process = pid;
    }
    if !child.hand_over() {
        return Err(JailError::Stuck { step: child.position(), limit: SET_UP_TIME });
    }
    let kept_bytes = match jail.stdio {
        JailStdio::Capture { limit_bytes } => limit_bytes,
        JailStdio::Null | JailStdio::Relay => 0,
    };
    let inmate = Arc::new(Inmate::new(Particulars {
        pid,
        pidfd,
        policy,
        given,
        limits: jail.limits,
        started,
        kept_bytes,
        on_end: jail.on_end,
        groups,
    }));
    let mut streams = prepared.streams;
    let relayed =
        if jail.stdio == JailStdio::Relay { streams.each_mut().map(Option::take) } else { [None, None] };
    let charge = Charge { inmate: inmate.clone(), listener, streams };
    // From here on somebody sees to its end, also when something fails below.
    supervisor.supervise(charge).map_err(|source| JailError::Host { what: "tell the supervisor", source })?;
    for (reader, to) in relayed.into_iter().zip([Stream::Output, Stream::Error]) {
        let Some(reader) = reader else { continue };
        if let Err(source) = relay::start(inmate.clone(), reader.into(), to) {
            inmate.finish(End::Killed(KillReason::Dropped));
            return Err(JailError::Host { what: "start a thread for its output", source });
        }
    }
    Ok(Started { inmate, weaker: chosen.weaker })
}

/// What this machine lacks of a jail's layers.
pub(crate) fn missing(jail: &Jail) -> Result<Vec<Weakness>, JailError> {
    let program = Program::open(&jail.program)?;
    Ok(choose(jail, Machine::get(), &program)?.weaker)
}

/// What the child says failed, if it says so; else what the parent saw.
fn failure(child: &Child, seen: JailError) -> JailError {
    match child.failure() {
        Some((step, errno)) => JailError::Step { step, source: io::Error::from_raw_os_error(errno) },
        None => seen,
    }
}

/// Waits until the child waits for this process, and dies with it.
fn meet(child: &mut Child, number: u32) -> Result<(), JailError> {
    if child.has_arrived(number, SET_UP_TIME) {
        return Ok(());
    }
    let step = child.position();
    Err(failure(child, JailError::Stuck { step, limit: SET_UP_TIME }))
}

/// Takes the filter's listener from the child, lets the program start, and sees that it has.
fn listener(child: &mut Child) -> Result<OwnedFd, JailError> {
    let number = match child.wait(SET_UP_TIME) {
        Progress::Announced(number) => number,
        Progress::Gone => return Err(JailError::Died { step: child.position() }),
        Progress::Nothing => return Err(JailError::Stuck { step: child.position(), limit: SET_UP_TIME }),
    };
    let step = |step| move |source: io::Error| JailError::Step { step, source };
    let listener = rustix::process::pidfd_getfd(&**child.pidfd(), number, PidfdGetfdFlags::empty())
        .map_err(|error| step("fetch the listener")(error.into()))?;
    // Older kernels do not know it, and are slower.
    let _ = seccomp::wake_synchronously(listener.as_fd());
    let deadline = Instant::now() + SET_UP_TIME;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let stuck = JailError::Stuck { step: "exec", limit: SET_UP_TIME };
        let timeout = Timespec::try_from(left).map_err(|_| JailError::Died { step: "exec" })?;
        let mut both = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&**child.pidfd(), PollFlags::IN)];
        match rustix::event::poll(&mut both, Some(&timeout)) {
            Ok(0) => return Err(stuck),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(step("exec")(error.into())),
        }
        // Receiving would wait for ever when nobody is left who could ask.
        if !both[0].revents().contains(PollFlags::IN) || both[1].revents().contains(PollFlags::IN) {
            return Err(JailError::Died { step: "exec" });
        }
        let asked = seccomp::receive(listener.as_fd()).map_err(step("exec"))?;
        // The child is still ours: it makes one call, the last of its list.
        if i64::from(asked.number) != libc::SYS_execveat {
            return Err(JailError::Died { step: "exec" });
        }
        seccomp::carry_out(listener.as_fd(), asked.id).map_err(step("exec"))?;
        break;
    }
    if !child.wait_until_gone(SET_UP_TIME) {
        return Err(JailError::Stuck { step: "exec", limit: SET_UP_TIME });
    }
    match child.failure() {
        Some((step, errno)) => Err(JailError::Step { step, source: io::Error::from_raw_os_error(errno) }),
        None => Ok(listener),
    }
}

fn make_groups(jail: &Jail, machine: &Machine, chosen: &Chosen) -> Result<Option<Groups>, JailError> {
    if !chosen.layers.has(Layer::ControlGroup) {
        return Ok(None);
    }
    let Ok(hierarchies) = machine.groups() else { return Ok(None) };
    Groups::make(hierarchies, &jail.limits)
        .map(Some)
        .map_err(|source| JailError::Step { step: "make a control group", source })
}

/// The child's list, and what belongs to it.
struct Prepared {
    steps: Steps,
    flags: i32,
    given: Given,
    streams: [Option<OwnedFd>; 2],
    /// Open until the child has its copies.
    _kept: Vec<OwnedFd>,
}

fn prepare(
    jail: &mut Jail,
    machine: &Machine,
    program: &Program,
    chosen: &Chosen,
    policy: Policy,
) -> Result<Prepared, JailError> {
    let host = |what| move |source: io::Error| JailError::Host { what, source };
    let mut kept = Vec::new();
    let mut keep = |fd: OwnedFd| -> Result<RawFd, JailError> {
        let high = rustix::io::fcntl_dupfd_cloexec(&fd, FIRST_OWN)
            .map_err(|error| host("copy a descriptor")(error.into()))?;
        kept.push(high);
        Ok(kept.last().map_or(-1, AsRawFd::as_raw_fd))
    };
    let itself = rustix::process::getpid();
    let own = rustix::process::pidfd_open(itself, PidfdFlags::empty())
        .map_err(|error| host("open this process")(error.into()))?;
    let own = keep(own)?;
    let program_file = keep(program.file.try_clone().map_err(host("copy a descriptor"))?.into())?;
    let null = File::options().read(true).write(true).open("/dev/null").map_err(host("open /dev/null"))?;
    let null = keep(null.into())?;
    let mut installed = vec![null, null, null];
    if let Some(source) = jail.stdin.take() {
        installed[0] = keep(source)?;
    }
    let mut streams = [None, None];
    if jail.stdio != JailStdio::Null {
        for (stream, number) in streams.iter_mut().zip([1, 2]) {
            let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
                .map_err(|error| host("make a pipe")(error.into()))?;
            // A relay waits for more on a thread of its own; the supervisor never waits.
            let is_polled = jail.stdio != JailStdio::Relay;
            rustix::io::ioctl_fionbio(&reader, is_polled)
                .map_err(|error| host("make a pipe")(error.into()))?;
            installed[number] = keep(writer)?;
            *stream = Some(reader);
        }
    }
    for (number, descriptor) in std::mem::take(&mut jail.descriptors) {
        // A number in between is no hole into which a file of the program's could come.
        while (installed.len() as RawFd) < number {
            installed.push(null);
        }
        installed.push(keep(descriptor)?);
    }
    let ruleset = if chosen.layers.has(Layer::Landlock) {
        let step = |source| JailError::Step { step: "make the Landlock ruleset", source };
        let ruleset = ruleset::build(program, &jail.paths).map_err(step)?;
        let missing = || step(io::ErrorKind::Unsupported.into());
        Some(keep(ruleset.ok_or_else(missing)?)?)
    } else {
        None
    };
    let given = Given {
        first_free_descriptor: installed.len() as u32,
        region_data_offset: jail.region_data_offset,
        program_descriptor: installed.len() as u32,
        // In a process name space of its own it is the first; elsewhere the supervisor alone knows.
        own_process: if chosen.layers.has(Layer::Processes) { 1 } else { Given::UNKNOWN_PROCESS },
    };
    let filter = filter::of(policy, &given)
        .ok_or_else(|| host("compile the policy")(io::Error::other("it is too long for the kernel")))?;

    let mut flags = 0;
    for (layer, flag) in [
        (Layer::Mounts, libc::CLONE_NEWNS),
        (Layer::Processes, libc::CLONE_NEWPID),
        (Layer::Network, libc::CLONE_NEWNET),
        (Layer::Ipc, IPC),
    ] {
        if chosen.layers.has(layer) {
            flags |= flag;
        }
    }
    let flags = machine.flags(flags);
    let in_user_name_space = flags & libc::CLONE_NEWUSER != 0;

    let mut steps = Steps::new();
    steps.die_with_parent();
    steps.await_parent(own);
    steps.new_session();
    steps.private_files();
    if chosen.layers.has(Layer::Capabilities)
        && (in_user_name_space || machine.capabilities.contains(CapabilitySet::SETPCAP))
    {
        steps.drop_bounding_set(machine.last_capability);
    }
    // Within a user name space nobody else is known there, so files could not be made before.
    if chosen.changes_user && in_user_name_space {
        steps.become_user(NOBODY);
    }
    if chosen.layers.has(Layer::Mounts) {
        root::steps(&mut steps, &root::Plan::new(program.is_dynamic, &jail.paths)?);
    }
    if chosen.changes_user && !in_user_name_space {
        steps.become_user(NOBODY);
    }
    if chosen.layers.has(Layer::Capabilities) {
        steps.drop_capabilities();
    }
    if chosen.changes_user {
        steps.die_with_parent();
        steps.await_parent(own);
    }
    steps.no_new_privileges();
    if let Some(ruleset) = ruleset {
        steps.restrict(ruleset);
    }
    for (to, from) in installed.iter().enumerate() {
        steps.duplicate(*from, to as RawFd, false);
    }
    steps.duplicate(program_file, given.program_descriptor as RawFd, true);
    steps.close_range(given.program_descriptor + 1, u32::MAX);
    for (name, limit) in limits(jail, &given, in_user_name_space) {
        steps.limit(name, limit);
    }
    // Nobody gets a better place than the host has: that is refused.
    let own_nice = rustix::process::getpriority_process(None).unwrap_or(0);
    steps.be_nice(jail.limits.nice.clamp(0, 19).max(own_nice));
    steps.default_signals();
    steps.install_filter(filter, machine.wait_flag);
    let name = program.path.as_os_str();
    let args: Result<Vec<_>, _> = std::iter::once(name)
        .chain(jail.args.iter().map(|arg| &**arg))
        .map(|arg| text("the argument", arg))
        .collect();
    let mut env = Vec::new();
    for (name, value) in &jail.env {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        env.push(text("the variable", &variable)?);
    }
    steps.execute(given.program_descriptor as RawFd, args?, env);
    Ok(Prepared { steps, flags, given, streams, _kept: kept })
}

fn text(what: &'static str, value: &OsStr) -> Result<CString, JailError> {
    CString::new(value.as_bytes()).map_err(|_| JailError::Text {
        what,
        value: value.display().to_string(),
        advice: "remove the NUL byte",
    })
}

/// Resource limits. How many processes there are is counted for each user of each user name space: that is the
/// program's own number in one of its own; elsewhere others are counted too, and the supervisor alone counts.
fn limits(jail: &Jail, given: &Given, in_user_name_space: bool) -> Vec<(&'static str, Limit)> {
    let limit = |name, resource, value| (name, Limit { resource, value });
    let ours = &jail.limits;
    let files = given.first_free_descriptor + ours.open_files.max(2);
    let mut limits = vec![
        limit("limit the address space", libc::RLIMIT_AS, ours.address_space_bytes),
        limit("limit the data", libc::RLIMIT_DATA, ours.private_bytes),
        limit("limit the stack", libc::RLIMIT_STACK, ours.stack_bytes),
        limit("limit the files", libc::RLIMIT_NOFILE, files.into()),
        limit("limit the size of files", libc::RLIMIT_FSIZE, ours.file_size_bytes),
        limit("limit core dumps", libc::RLIMIT_CORE, 0),
        limit("limit locked memory", libc::RLIMIT_MEMLOCK, 0),
        limit("limit message queues", libc::RLIMIT_MSGQUEUE, 0),
        limit("limit real-time priority", libc::RLIMIT_RTPRIO, 0),
        limit("limit priority", libc::RLIMIT_NICE, 0),
        limit("limit signals that wait", libc::RLIMIT_SIGPENDING, 64),
    ];
    if let Some(time) = ours.cpu_time {
        // The supervisor is exact; this is for when it is late.
        limits.push(limit("limit CPU time", libc::RLIMIT_CPU, time.as_secs() + 2));
    }
    if in_user_name_space {
        limits.push(limit("limit processes", libc::RLIMIT_NPROC, ours.threads.into()));
    }
    limits
}

/// While a child that shares this process's memory changes its user, that memory must not be open to other processes
/// of that user. The kernel sees to it by making it undumpable; this puts it back when the child has left the memory,
/// and lets no two such children overlap.
struct Undumpable {
    before: Option<DumpableBehavior>,
    _one: MutexGuard<'static, ()>,
}

impl Undumpable {
    fn begin() -> Undumpable {
        static ONE: Mutex<()> = Mutex::new(());
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        Undumpable { before: rustix::process::dumpable_behavior().ok(), _one: one }
    }
}

impl Drop for Undumpable {
    fn drop(&mut self) {
        if let Some(before @ (DumpableBehavior::Dumpable | DumpableBehavior::NotDumpable)) = self.before {
            let _ = rustix::process::set_dumpable_behavior(before);
        }
    }
}
