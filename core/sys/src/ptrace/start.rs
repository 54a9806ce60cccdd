//! Starting a program that can be seized before its first instruction.

use std::ffi::{CString, c_char, c_int};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;

use rustix::thread::CpuSet;

use crate::child::reap;

/// A started child that waits to be let go. If it is not, it ends with this value.
#[derive(Debug)]
pub struct Started {
    pid: u32,
    /// None once it was let go.
    go: Option<PipeWriter>,
    failure: PipeReader,
}

impl Started {
    /// Its process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Lets it go; its end is the caller's from now on.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn let_go(&mut self) -> io::Result<()> {
        if let Some(go) = &mut self.go {
            go.write_all(&[1])?;
        }
        self.go = None;
        Ok(())
    }

    /// Why it does not run the program, if it does not. Waits until that is known.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn failure(&mut self) -> io::Result<Option<io::Error>> {
        let mut code = [0; 4];
        match self.failure.read_exact(&mut code) {
            Ok(()) => Ok(Some(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut go) = self.go.take() {
            // The end of the pipe would do, too, but a child that was started meanwhile may have a
            // copy of it. It fails if this child is dead, and other code may have taken its end.
            let _ = go.write_all(&[0]);
            drop(go);
            let _ = reap(self.pid, true);
        }
    }
}

/// What a child does once it is let go.
#[derive(Debug)]
pub enum Task {
    /// Runs a program.
    Program {
        /// Its file.
        path: CString,
        /// Its arguments, its name first.
        arguments: Vec<CString>,
        /// Its environment, each as NAME=VALUE.
        environment: Vec<CString>,
        /// The only CPU that it may use.
        pin: Option<u32>,
    },
    /// Makes a call that does nothing, that many times, and ends.
    NullCalls(u32),
}

/// Starts a child of this thread with all standard streams, which waits for [`Started::let_go`].
/// Its signals are as this process found them, except that SIGPIPE, which Rust's runtime ignores,
/// is as usual again.
///
/// # Errors
/// What the kernel says, or that the CPU cannot be used.
pub fn start(task: &Task) -> io::Result<Started> {
    // Both are closed by an exec.
    let (go_out, go_in) = io::pipe()?;
    let (failure_out, failure_in) = io::pipe()?;
    let orders = Orders::of(task, &go_out, &go_in, &failure_in);
    // SAFETY: the child calls nothing but system calls, and never returns from `child`.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => child(&orders),
        1.. => Ok(Started { pid: pid as u32, go: Some(go_in), failure: failure_out }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What the child uses, all of it allocated before.
struct Orders {
    path: *const c_char,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    pin: Option<CpuSet>,
    null_calls: u32,
    go_out: c_int,
    /// The parent's end: the child closes its copy, so that it learns of the parent's death.
    go_in: c_int,
    failure_in: c_int,
}

impl Orders {
    fn of(task: &Task, go_out: &PipeReader, go_in: &PipeWriter, failure_in: &PipeWriter) -> Orders {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (go_out, go_in, failure_in) =
            (go_out.as_raw_fd(), go_in.as_raw_fd(), failure_in.as_raw_fd());
        let nothing = Orders {
            path: std::ptr::null(),
            arguments: Vec::new(),
            environment: Vec::new(),
            pin: None,
            null_calls: 0,
            go_out,
            go_in,
            failure_in,
        };
        match task {
            Task::NullCalls(count) => Orders { null_calls: *count, ..nothing },
            Task::Program { path, arguments, environment, pin } => Orders {
                path: path.as_ptr(),
                arguments: pointers(arguments),
                environment: pointers(environment),
                pin: pin.map(|cpu| {
                    let mut set = CpuSet::new();
                    set.set(cpu as usize);
                    set
                }),
                ..nothing
            },
        }
    }
}

/// What the child does.
fn child(orders: &Orders) -> ! {
    // SAFETY: nothing here allocates or takes a lock; all pointers are into what the parent made
    // before, of which the child has a copy.
    unsafe {
        libc::close(orders.go_in);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut byte = 0_u8;
        while libc::read(orders.go_out, (&raw mut byte).cast(), 1) < 0 {
            if *libc::__errno_location() != libc::EINTR {
                libc::_exit(127);
            }
        }
        if byte == 0 {
            libc::_exit(127);
        }
        if orders.path.is_null() {
            for _ in 0..orders.null_calls {
                libc::syscall(libc::SYS_getppid);
            }
            libc::_exit(0);
        }
        let mut code = 0;
        if let Some(set) = &orders.pin {
            code = rustix::thread::sched_setaffinity(None, set)
                .map_or_else(|error| error.raw_os_error(), |()| 0);
        }
        if code == 0 {
            libc::execve(orders.path, orders.arguments.as_ptr(), orders.environment.as_ptr());
            code = *libc::__errno_location();
        }
        let code = code.to_ne_bytes();
        libc::write(orders.failure_in, code.as_ptr().cast(), code.len());
        libc::_exit(127)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: trace/clean-refusal
    #[test]
    fn a_child_that_is_not_let_go_leaves_nothing_behind() {
        let child = start(&Task::NullCalls(1)).unwrap();
        let pid = child.pid();
        let _later = start(&Task::NullCalls(1)).unwrap();
        assert_eq!(reap(pid, false).unwrap(), None);
        drop(child);
        assert_eq!(reap(pid, false).unwrap_err().raw_os_error(), Some(libc::ECHILD));
    }

    #[test]
    fn the_end_of_a_child_that_was_let_go_is_the_callers() {
        let mut child = start(&Task::NullCalls(1)).unwrap();
        let pid = child.pid();
        child.let_go().unwrap();
        drop(child);
        assert!(reap(pid, true).unwrap().is_some());
    }
}
