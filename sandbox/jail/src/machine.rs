//! The layers that this machine offers, found once by trying them in a child that does nothing
//! else.

#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::time::Duration;

use holdfast_sys::spawn::{Child, Steps};
use rustix::process::PidfdFlags;
use rustix::thread::CapabilitySet;

use crate::groups::Hierarchies;
use crate::root;

/// The user that a host that is root starts programs as.
pub(crate) const NOBODY: u32 = 65_534;
const PROBE_TIME: Duration = Duration::from_secs(10);

/// Why something cannot be had: the step that failed, and its error number.
pub(crate) type Refusal = (String, i32);

/// What can be had.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Name spaces are made within a user name space; false when this process may make them
    /// without, and not so.
    pub(crate) user_name_space: bool,
    pub(crate) mounts: Result<(), Refusal>,
    pub(crate) processes: Result<(), Refusal>,
    pub(crate) network: Result<(), Refusal>,
    pub(crate) ipc: Result<(), Refusal>,
    /// The version of its interface.
    pub(crate) landlock: Result<u32, Refusal>,
    /// The effective user.
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) capabilities: CapabilitySet,
    pub(crate) last_capability: u32,
    /// The user and the group [`NOBODY`] exist in this process's user name space.
    knows_nobody: bool,
    /// See [`holdfast_sys::seccomp::wait_flag`].
    pub(crate) wait_flag: u32,
    groups: OnceLock<Result<Hierarchies, Refusal>>,
}

impl Machine {
    /// This machine.
    pub(crate) fn get() -> &'static Machine {
        static MACHINE: OnceLock<Machine> = OnceLock::new();
        MACHINE.get_or_init(Machine::look)
    }

    pub(crate) fn look() -> Machine {
        let capabilities = rustix::thread::capabilities(None)
            .map_or(CapabilitySet::empty(), |sets| sets.effective);
        let last_capability = fs::read_to_string("/proc/sys/kernel/cap_last_cap")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(40);
        let mut machine = Machine {
            user_name_space: true,
            mounts: Ok(()),
            processes: Ok(()),
            network: Ok(()),
            ipc: Ok(()),
            landlock: landlock(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            capabilities,
            last_capability,
            knows_nobody: ["/proc/self/uid_map", "/proc/self/gid_map"]
                .iter()
                .all(|path| fs::read_to_string(path).is_ok_and(|map| covers(&map, NOBODY))),
            wait_flag: holdfast_sys::seccomp::wait_flag(),
            groups: OnceLock::new(),
        };
        if probe(&machine, libc::CLONE_NEWUSER, false).is_err()
            && capabilities.contains(CapabilitySet::SYS_ADMIN)
        {
            machine.user_name_space = false;
        }
        let all = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | IPC;
        if probe(&machine, machine.flags(all), true).is_err() {
            machine.mounts = probe(&machine, machine.flags(libc::CLONE_NEWNS), true);
            machine.processes = probe(&machine, machine.flags(libc::CLONE_NEWPID), false);
            machine.network = probe(&machine, machine.flags(libc::CLONE_NEWNET), false);
            machine.ipc = probe(&machine, machine.flags(IPC), false);
        }
        machine
    }

    /// With the user name space that others need, if they do.
    pub(crate) fn flags(&self, name_spaces: i32) -> i32 {
        if name_spaces != 0 && self.user_name_space {
            name_spaces | libc::CLONE_NEWUSER
        } else {
            name_spaces
        }
    }

    /// Control groups of this process that it can make children of; not looked for before a caller
    /// wants one.
    pub(crate) fn groups(&self) -> &Result<Hierarchies, Refusal> {
        self.groups.get_or_init(crate::groups::find)
    }

    /// Whether it is root in the sense that counts: it can become another user, and still
    /// supervise that one.
    pub(crate) fn can_change_user(&self) -> Result<(), Refusal> {
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::SYS_PTRACE;
        if !self.capabilities.contains(needed) {
            return Err(("CAP_SETUID, CAP_SETGID and CAP_SYS_PTRACE".to_owned(), libc::EPERM));
        }
        match self.knows_nobody {
            true => Ok(()),
            false => Err((format!("the user {NOBODY} in this user name space"), libc::EINVAL)),
        }
    }
}

/// Whether a map of users or groups has this one: lines of the first one inside, the first one
/// outside, and how many.
fn covers(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|field| field.parse::<u64>().unwrap_or(0));
        let (first, count) = (fields.next().unwrap_or(0), fields.nth(1).unwrap_or(0));
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

/// Name spaces of [`crate::Layer::Ipc`].
pub(crate) const IPC: i32 = libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

fn landlock() -> Result<u32, Refusal> {
    let refusal =
        |error: io::Error| ("landlock".to_owned(), error.raw_os_error().unwrap_or(libc::ENOSYS));
    holdfast_sys::probe::landlock_abi().map_err(refusal)
}

/// Has a child in these name spaces, which makes a root of its own if it shall, and ends.
fn probe(machine: &Machine, flags: i32, with_root: bool) -> Result<(), Refusal> {
    let failed =
        |step: &str, error: io::Error| (step.to_owned(), error.raw_os_error().unwrap_or(libc::EIO));
    let own = rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty())
        .map_err(|error| failed("pidfd_open", error.into()))?;
    let mut steps = Steps::new();
    steps.die_with_parent();
    steps.await_parent(own.as_raw_fd());
    if with_root {
        root::steps(&mut steps, &root::Plan::default());
    }
    steps.exit();
    let mut child = steps.start(flags).map_err(|error| failed("clone", error))?;
    if !child.has_arrived(1, PROBE_TIME) {
        return Err((
            child.position().to_owned(),
            child.failure().map_or(libc::ETIMEDOUT, |(_, errno)| errno),
        ));
    }
    if flags & libc::CLONE_NEWUSER != 0 {
        map_ids(&child, machine.user, machine.group, false)
            .map_err(|(step, error)| failed(step, error))?;
    }
    child.let_go(1);
    if !child.wait_until_gone(PROBE_TIME) {
        return Err((child.position().to_owned(), libc::ETIMEDOUT));
    }
    match child.failure() {
        None => Ok(()),
        Some((step, errno)) => Err((step.to_owned(), errno)),
    }
}

/// Maps one user and one group of a child's name space to themselves. Privileged processes may map
/// others than their own, and leave it to the child to change its groups.
pub(crate) fn map_ids(
    child: &Child,
    user: u32,
    group: u32,
    privileged: bool,
) -> Result<(), (&'static str, io::Error)> {
    let write = |step, file: &str, text: &str| {
        fs::write(format!("/proc/{}/{file}", child.pid()), text).map_err(|error| (step, error))
    };
    if !privileged {
        write("forbid setgroups", "setgroups", "deny")?;
    }
    write("map the user", "uid_map", &format!("{user} {user} 1"))?;
    write("map the group", "gid_map", &format!("{group} {group} 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_in_a_map_or_not() {
        assert!(covers("         0          0 4294967295\n", NOBODY));
        assert!(covers("0 1000 1\n65534 100000 1\n", NOBODY));
        assert!(!covers("0 1000 1\n1 100000 65533\n", NOBODY));
        assert!(!covers("", 0));
    }
}
