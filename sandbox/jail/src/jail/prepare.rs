//! The child's list of steps, from what was asked for and what was chosen.
//!
//! Invariants:
//! - Every layer of [`crate::jail::choice`] is in the list, but the control group, which the parent
//!   puts the child into.
//! - Nothing runs here, and nothing is given away: descriptors are copies that end with
//!   [`Prepared`].

#![forbid(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;

use holdfast_sys::spawn::Steps;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::PidfdFlags;
use rustix::thread::CapabilitySet;

use crate::error::JailError;
use crate::filter;
use crate::jail::choice::Chosen;
use crate::jail::{Jail, JailStdio};
use crate::layers::Layer;
use crate::machine::{IPC, Machine, NOBODY};
use crate::policy::{FIRST_REGION, Given, Policy};
use crate::program::ElfProgram;
use crate::resources;
use crate::root;
use crate::ruleset;

/// The child's list, and what belongs to it.
pub(crate) struct Prepared {
    pub(crate) steps: Steps,
    pub(crate) flags: i32,
    pub(crate) given: Given,
    pub(crate) streams: [Option<OwnedFd>; 2],
    /// Open until the child has its copies.
    _kept: Vec<OwnedFd>,
}

pub(crate) fn prepare(
    jail: &mut Jail,
    machine: &Machine,
    program: &ElfProgram,
    chosen: &Chosen,
    policy: Policy,
) -> Result<Prepared, JailError> {
    let host = |what| move |source: io::Error| JailError::Host { what, source };
    let mut kept = Vec::new();
    // Descriptors for the child are kept right above those that it will have, the program's own
    // file being the last of these: there may be few.
    let first_own = jail.descriptors.keys().max().map_or(2, |last| *last) + 2;
    let mut keep = |fd: OwnedFd| -> Result<RawFd, JailError> {
        let high = rustix::io::fcntl_dupfd_cloexec(&fd, first_own).map_err(|error| {
            // The number asked for is beyond the limit.
            let error = if error == Errno::INVAL { Errno::MFILE } else { error };
            host("copy a descriptor")(error.into())
        })?;
        kept.push(high);
        Ok(kept.last().map_or(-1, AsRawFd::as_raw_fd))
    };
    let itself = rustix::process::getpid();
    let own = rustix::process::pidfd_open(itself, PidfdFlags::empty())
        .map_err(|error| host("open this process")(error.into()))?;
    let own = keep(own)?;
    let program_file = keep(program.file.try_clone().map_err(host("copy a descriptor"))?.into())?;
    let null =
        File::options().read(true).write(true).open("/dev/null").map_err(host("open /dev/null"))?;
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
        last_region_descriptor: FIRST_REGION + jail.region_count - 1,
        region_data_offset: jail.region_data_offset,
        program_descriptor: installed.len() as u32,
        // In a process name space of its own it is the first; elsewhere the supervisor alone knows.
        own_process: if chosen.layers.has(Layer::Processes) { 1 } else { Given::UNKNOWN_PROCESS },
    };
    let filter = filter::of(policy, &given).ok_or_else(|| {
        host("compile the policy")(io::Error::other("it is too long for the kernel"))
    })?;

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
    // Within a user name space no other user is known there, so files could not be made before.
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
    for (name, limit) in resources::limits(&jail.limits, &given, in_user_name_space)? {
        steps.limit(name, limit);
    }
    steps.be_nice(jail.limits.nice);
    steps.default_signals();
    steps.install_filter(filter, machine.wait_flag);
    let name = jail.name.as_deref().unwrap_or(program.path.as_os_str());
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
