//! Beginning to trace processes that run, and having threads stop.

use std::io;

use holdfast_sys::ptrace;

use super::tracer::Tracer;
use crate::status::ThreadStatus;
use crate::{Result, TraceError};

/// Traces all threads of a process from now on. They run on up to [`interrupt_all`]. The process
/// may be named by any of its threads, and more than once.
pub(super) fn attach(tracer: &mut Tracer, process: u32) -> Result<()> {
    let process = field(process, "Tgid:").ok_or(TraceError::NoProcess { process })?;
    let mut traces_any = false;
    let mut refused = None;
    // Until a look finds no new ones: those that a seized thread makes are seized by the kernel.
    loop {
        let mut is_new = false;
        for thread in threads_of(process).ok_or(TraceError::NoProcess { process })? {
            if tracer.threads.contains_key(&thread) {
                traces_any = true;
                continue;
            }
            match ptrace::seize(thread) {
                Ok(()) => {
                    let parent = if thread == process { parent_of(process) } else { process };
                    tracer.add(process, thread, parent, false);
                    (is_new, traces_any) = (true, true);
                }
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
                // Also said of a thread that ended and is not yet gone, as first threads of
                // processes can be.
                Err(error) => refused = Some(error),
            }
        }
        if !is_new {
            break;
        }
    }
    match refused {
        Some(error) if !traces_any => Err(denied(process, &error)),
        _ if !traces_any => Err(TraceError::NoProcess { process }),
        _ => Ok(()),
    }
}

/// Has every thread stop, if it is not stopped already.
pub(super) fn interrupt_all(tracer: &Tracer) {
    for thread in tracer.threads.keys() {
        // One that is gone is reported by the kernel.
        let _ = ptrace::interrupt(*thread);
    }
}

fn threads_of(process: u32) -> Option<Vec<u32>> {
    let entries = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    Some(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
}

fn field(process: u32, name: &str) -> Option<u32> {
    ThreadStatus::of(process)?.number(name)
}

fn parent_of(process: u32) -> u32 {
    field(process, "PPid:").unwrap_or(0)
}

/// Why the kernel does not let this user trace a process, and what to do.
fn denied(process: u32, error: &io::Error) -> TraceError {
    if let Some(tracer) = field(process, "TracerPid:").filter(|tracer| *tracer != 0) {
        return TraceError::AlreadyTraced { process, tracer };
    }
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    TraceError::AttachDenied { process, why: reason(process, scope.trim(), error) }
}

fn reason(process: u32, yama_scope: &str, error: &io::Error) -> String {
    let own_user = rustix::process::geteuid().as_raw();
    let user = field(process, "Uid:");
    match yama_scope {
        _ if process == std::process::id() => "it is this one".to_owned(),
        _ if std::fs::read(format!("/proc/{process}/maps")).is_ok_and(|maps| maps.is_empty()) && own_user == 0 => {
            "it is a thread of the kernel, or ends just now".to_owned()
        }
        _ if user.is_some_and(|user| user != own_user) => {
            format!("it belongs to another user ({error}); run this as that user, or as root")
        }
        "3" => "kernel.yama.ptrace_scope is 3, which forbids it to everybody until the next boot; start the program with `holdfast trace run`"
            .to_owned(),
        "1" | "2" => format!(
            "kernel.yama.ptrace_scope is {yama_scope}, which keeps users from their own processes; run this as root, start the program with \
             `holdfast trace run`, or allow it with `sudo sysctl kernel.yama.ptrace_scope=0`"
        ),
        _ => format!("{error}; it may have more rights than you (a set-user-ID program), so run this as root"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: trace/clean-refusal
    #[test]
    fn a_refusal_names_its_reason_and_the_remedy() {
        let error = io::Error::from_raw_os_error(libc::EPERM);
        let child = std::process::Command::new("sleep").arg("100").spawn();
        let mut child = child.unwrap();
        assert!(reason(child.id(), "1", &error).contains("sysctl kernel.yama.ptrace_scope=0"));
        assert!(reason(child.id(), "3", &error).contains("next boot"));
        assert!(reason(child.id(), "", &error).contains("root"));
        assert!(reason(std::process::id(), "", &error).contains("this one"));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
