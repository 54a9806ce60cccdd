//! From a builder to a running program: sees the child's list of steps through.
//!
//! Invariants:
//! - The list is complete before the child exists; the child only makes its calls.
//! - The program's file runs only by the last step, which the filter lets pass once; whatever fails
//!   before ends the child, and what fails after (a thread for its output) ends the program.

#![forbid(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use holdfast_crossings::Mark;
use holdfast_sys::seccomp;
use holdfast_sys::spawn::{Child, Progress};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::process::{DumpableBehavior, PidfdGetfdFlags};

use crate::end::{End, KillReason};
use crate::error::JailError;
use crate::groups::Groups;
use crate::inmate::{Inmate, Particulars};
use crate::jail::choice::{Chosen, choose};
use crate::jail::prepare::prepare;
use crate::jail::{Jail, JailStdio, attributes};
use crate::layers::{Layer, Weakness};
use crate::machine::{Machine, map_ids};
use crate::policy::{Given, Group};
use crate::program::ElfProgram;
use crate::relay::{self, Stream};
use crate::supervisor::{Charge, Supervisor};

/// How long a child may take for its steps.
const SET_UP_TIME: Duration = Duration::from_secs(10);

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
    // A path that begins in a directory would lead out of its root.
    let may_be_directory = |file: &OwnedFd| {
        let found = rustix::fs::fstat(file);
        !found.is_ok_and(|found| FileType::from_raw_mode(found.st_mode) != FileType::Directory)
    };
    if jail.stdin.as_ref().is_some_and(may_be_directory) {
        return Err(JailError::Input);
    }
    if let Some((&number, _)) = jail.descriptors.iter().find(|(_, file)| may_be_directory(file)) {
        return Err(JailError::Directory { number });
    }
    let machine = Machine::get();
    let supervisor = Supervisor::get()
        .map_err(|source| JailError::Host { what: "start the supervisor", source })?;
    let program = ElfProgram::open(&jail.program, jail.examined.as_ref())?;
    // The set-up takes milliseconds, in which a file can change and a sealed copy cannot.
    let examined = jail.examined.clone().filter(|_| !program.is_sealed);
    let is_still_that = || program.check(examined.as_ref());
    let chosen = choose(&jail, machine, &program)?;
    let mut policy = jail.policy;
    if jail.paths.is_empty() {
        jail.limits.file_size_bytes = 0;
    } else {
        policy = policy.with(Group::Directories);
    }
    if chosen.layers.has(Layer::Mounts) {
        policy = attributes::allow(policy.with(Group::OwnRoot), &jail.paths);
    }
    if jail.region_count == 0 {
        policy = policy.with(Group::SharedMemory);
    }
    let discards_output = jail.stdio == JailStdio::Null;
    // Of its output it may make copies, and change the mode of a copy: of no device of the host's.
    let may_change = policy.has(Group::Attributes) || policy.has(Group::Modes);
    if discards_output && may_change {
        jail.stdio = JailStdio::Capture { limit_bytes: 0 };
    }
    // No process gets a better place than its parent has: that is refused.
    jail.limits.nice = jail.limits.nice.clamp(0, 19).max(supervisor.nice());
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
        groups
            .add(child.pid())
            .map_err(|source| failure(&child, JailError::Step { step, source }))?;
    }
    child.let_go(1);
    if chosen.changes_user {
        meet(&mut child, 2)?;
        child.let_go(2);
    }
    // A child that failed has ended, and much fails then; what it says came first.
    let listener = listener(&mut child, jail.crossings, is_still_that)
        .map_err(|seen| failure(&child, seen))?;
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
        discards_output,
        on_end: jail.on_end,
        groups,
        crossings: jail.crossings,
    }));
    let mut streams = prepared.streams;
    let relayed = if jail.stdio == JailStdio::Relay {
        streams.each_mut().map(Option::take)
    } else {
        [None, None]
    };
    let charge = Charge::new(inmate.clone(), listener, streams);
    // From here on its end is seen to, also when something fails below.
    supervisor
        .supervise(charge)
        .map_err(|source| JailError::Host { what: "tell the supervisor", source })?;
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
    let program = ElfProgram::open(&jail.program, None)?;
    Ok(choose(jail, Machine::get(), &program)?.weaker)
}

/// What the child says failed, if it says so; else what the parent saw.
fn failure(child: &Child, seen: JailError) -> JailError {
    match child.failure() {
        Some((step, errno)) => {
            JailError::Step { step, source: io::Error::from_raw_os_error(errno) }
        }
        None => seen,
    }
}

/// Waits until the child waits for this process, and dies with it.
fn meet(child: &mut Child, number: u32) -> Result<(), JailError> {
    if child.has_arrived(number, SET_UP_TIME) {
        return Ok(());
    }
    let step = child.position();
    let seen = match child.wait_until_gone(Duration::ZERO) {
        true => JailError::Died { step },
        false => JailError::Stuck { step, limit: SET_UP_TIME },
    };
    Err(failure(child, seen))
}

/// Takes the filter's listener from the child, lets the program start if it is still the one that
/// is meant, and sees that it has.
fn listener(
    child: &mut Child,
    crossings: Mark,
    is_still_that: impl FnOnce() -> Result<(), JailError>,
) -> Result<OwnedFd, JailError> {
    let number = match child.wait(SET_UP_TIME) {
        Progress::Announced(number) => number,
        Progress::Gone => return Err(JailError::Died { step: child.position() }),
        Progress::Nothing => {
            return Err(JailError::Stuck { step: child.position(), limit: SET_UP_TIME });
        }
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
        let mut both =
            [PollFd::new(&listener, PollFlags::IN), PollFd::new(&**child.pidfd(), PollFlags::IN)];
        match rustix::event::poll(&mut both, Some(&timeout)) {
            Ok(0) => return Err(stuck),
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(step("exec")(error.into())),
        }
        // Receiving would wait for ever when no process is left who could ask.
        if !both[0].revents().contains(PollFlags::IN) || both[1].revents().contains(PollFlags::IN) {
            return Err(JailError::Died { step: "exec" });
        }
        let asked = seccomp::receive(listener.as_fd()).map_err(step("exec"))?;
        // The child is still ours: it makes one call, the last of its list.
        if i64::from(asked.number) != libc::SYS_execveat {
            return Err(JailError::Died { step: "exec" });
        }
        // From here on only the kernel is in between.
        is_still_that()?;
        crossings.runs_as(child.pid());
        seccomp::carry_out(listener.as_fd(), asked.id).map_err(step("exec"))?;
        break;
    }
    if !child.wait_until_gone(SET_UP_TIME) {
        return Err(JailError::Stuck { step: "exec", limit: SET_UP_TIME });
    }
    match child.failure() {
        Some((step, errno)) => {
            Err(JailError::Step { step, source: io::Error::from_raw_os_error(errno) })
        }
        None => Ok(listener),
    }
}

fn make_groups(
    jail: &Jail,
    machine: &Machine,
    chosen: &Chosen,
) -> Result<Option<Groups>, JailError> {
    if !chosen.layers.has(Layer::ControlGroup) {
        return Ok(None);
    }
    let Ok(hierarchies) = machine.groups() else { return Ok(None) };
    Groups::make(hierarchies, &jail.limits)
        .map(Some)
        .map_err(|source| JailError::Step { step: "make a control group", source })
}

/// While a child that shares this process's memory changes its user, that memory must not be open
/// to other processes of that user. The kernel sees to it by making it undumpable; this puts it
/// back when the child has left the memory, and lets no two such children overlap.
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
        if let Some(before @ (DumpableBehavior::Dumpable | DumpableBehavior::NotDumpable)) =
            self.before
        {
            let _ = rustix::process::set_dumpable_behavior(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A child that dies before the handshake is reported as dead and not as slow.
    ///
    /// Guarantee: sandbox/supervisor
    #[test]
    fn child_dead_before_the_handshake_is_reported() {
        let mut steps = holdfast_sys::spawn::Steps::new();
        steps.exit();
        let mut child = steps.start(0).unwrap();
        let met = meet(&mut child, 1);
        assert!(matches!(met, Err(JailError::Died { .. })), "{met:?}");
    }
}
