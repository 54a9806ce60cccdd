//! The kinds of the descriptors of traced processes.
//!
//! Asking the kernel costs more than the rest of a stop, so answers are kept until the descriptor
//! is closed. Invariants: the tracer asks again after every call that may have closed a descriptor,
//! at the call's entry and at its exit. Once it has seen a call after which a ring may close
//! descriptors, or threads of a process may have tables of their own, it keeps no answer for that
//! process.

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use crate::devices::is_terminal;
use crate::{Abi, Object, call_name, descriptor_argument};

/// What a call does with descriptors, as far as it matters here.
#[derive(Debug, Default, Clone, Copy)]
struct Shape {
    /// Which argument is one.
    argument: Option<usize>,
    /// It is `mmap`: its descriptor counts only for maps of files.
    maps: bool,
    closes: Closes,
    unseen: Unseen,
}

#[derive(Debug, Default, Clone, Copy)]
enum Closes {
    #[default]
    Nothing,
    /// The descriptor in this argument.
    One(usize),
    /// Any.
    Many,
}

/// Whether descriptors of the process may change unseen from a call on.
#[derive(Debug, Default, Clone, Copy)]
enum Unseen {
    #[default]
    Never,
    /// A ring closes descriptors without calls.
    Always,
    /// From its success on: it makes a ring.
    Once,
    /// From its success on, with this flag in this argument: the thread has a table of its own.
    IfSet(usize, u64),
}

impl Shape {
    fn of(abi: Abi, number: u32) -> Shape {
        let name = call_name(abi, number);
        let closes = match &*name {
            "close" => Closes::One(0),
            "dup2" | "dup3" => Closes::One(1),
            "close_range" | "unshare" | "execve" | "execveat" => Closes::Many,
            _ => Closes::Nothing,
        };
        let unseen = match &*name {
            "unshare" => Unseen::IfSet(0, libc::CLONE_FILES as u64),
            "close_range" => Unseen::IfSet(2, u64::from(libc::CLOSE_RANGE_UNSHARE)),
            "io_uring_setup" => Unseen::Once,
            "io_uring_enter" => Unseen::Always,
            _ => Unseen::Never,
        };
        Shape {
            argument: descriptor_argument(abi, number),
            maps: matches!(&*name, "mmap" | "mmap2"),
            closes,
            unseen,
        }
    }
}

/// The kinds of the open descriptors of each traced process.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    shapes: HashMap<(Abi, u32), Shape>,
    known: HashMap<u32, HashMap<u32, Object>>,
    /// Processes whose descriptors may change unseen, as another process or a ring closes them, or
    /// differ between their threads.
    unseen: HashSet<u32>,
}

impl Descriptors {
    /// What a call that a thread is about to make works on.
    pub(super) fn object(
        &mut self,
        process: u32,
        thread: u32,
        abi: Abi,
        number: u32,
        arguments: &[u64; 6],
    ) -> Object {
        let shape = *self.shapes.entry((abi, number)).or_insert_with(|| Shape::of(abi, number));
        let object = match shape.argument {
            None => Object::None,
            Some(_) if shape.maps && arguments[3] & libc::MAP_ANONYMOUS as u64 != 0 => {
                Object::Anonymous
            }
            // The kernel looks at the lower half alone.
            Some(at) => match arguments[at] as u32 as i32 {
                descriptor @ 0.. => self.look_up(process, thread, descriptor as u32),
                _ => Object::None,
            },
        };
        if matches!(shape.unseen, Unseen::Always) {
            self.change_unseen([process]);
        }
        self.forget(process, shape.closes, arguments);
        object
    }

    /// A call is over that may have closed descriptors, with this result if it returned.
    pub(super) fn after(
        &mut self,
        process: u32,
        abi: Abi,
        number: u32,
        arguments: &[u64; 6],
        result: Option<i64>,
    ) {
        let Some(shape) = self.shapes.get(&(abi, number)).copied() else { return };
        let changes_unseen = match shape.unseen {
            Unseen::Never | Unseen::Always => false,
            Unseen::Once => true,
            Unseen::IfSet(at, flag) => arguments[at] & flag != 0,
        };
        if changes_unseen && result.is_some_and(|result| result >= 0) {
            self.change_unseen([process]);
        }
        self.forget(process, shape.closes, arguments);
    }

    /// The descriptors of these processes may change unseen from now on.
    pub(super) fn change_unseen(&mut self, processes: impl IntoIterator<Item = u32>) {
        self.unseen.extend(processes);
    }

    /// A process is gone, or has descriptors of its own after an exec.
    pub(super) fn forget_process(&mut self, process: u32) {
        self.known.remove(&process);
        self.unseen.remove(&process);
    }

    fn forget(&mut self, process: u32, closes: Closes, arguments: &[u64; 6]) {
        match closes {
            Closes::Nothing => {}
            Closes::One(at) => {
                if let Some(known) = self.known.get_mut(&process) {
                    known.remove(&(arguments[at] as u32));
                }
            }
            Closes::Many => drop(self.known.remove(&process)),
        }
    }

    fn look_up(&mut self, process: u32, thread: u32, descriptor: u32) -> Object {
        if self.unseen.contains(&process) {
            return ask(thread, descriptor);
        }
        let known = self.known.entry(process).or_default();
        match known.get(&descriptor) {
            Some(object) => *object,
            None => {
                let object = ask(thread, descriptor);
                // One that is not open now may be at the next call.
                if object != Object::Unknown {
                    known.insert(descriptor, object);
                }
                object
            }
        }
    }
}

/// What a descriptor of a stopped thread is.
fn ask(thread: u32, descriptor: u32) -> Object {
    let path = format!("/proc/{thread}/fd/{descriptor}");
    let Ok(metadata) = std::fs::metadata(&path) else { return Object::Unknown };
    let kind = metadata.file_type();
    match () {
        () if kind.is_file() && Some(metadata.dev()) == device_of_pidfds() => Object::PidFd,
        () if kind.is_file() => Object::File,
        () if kind.is_dir() => Object::Directory,
        () if kind.is_socket() => Object::Socket,
        () if kind.is_fifo() => Object::Pipe,
        () if kind.is_block_device() => Object::BlockDevice,
        () if kind.is_char_device() => character_device(metadata.rdev()),
        () => anonymous_inode(&std::fs::read_link(path).unwrap_or_default().to_string_lossy()),
    }
}

/// Since Linux 6.9 pidfds are files of a file system of their own.
fn device_of_pidfds() -> Option<u64> {
    static DEVICE: std::sync::OnceLock<Option<u64>> = std::sync::OnceLock::new();
    *DEVICE.get_or_init(|| {
        let own = rustix::process::pidfd_open(
            rustix::process::getpid(),
            rustix::process::PidfdFlags::empty(),
        )
        .ok()?;
        let link =
            std::fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&own)))
                .ok()?;
        let is_own_system = link.to_string_lossy().starts_with("pidfd:");
        is_own_system.then(|| rustix::fs::fstat(&own).ok().map(|stat| stat.st_dev)).flatten()
    })
}

fn character_device(device: u64) -> Object {
    if is_terminal(rustix::fs::major(device)) { Object::Terminal } else { Object::CharacterDevice }
}

fn anonymous_inode(link: &str) -> Object {
    match link.trim_start_matches("anon_inode:").trim_matches(['[', ']']) {
        "eventfd" => Object::EventFd,
        "timerfd" => Object::TimerFd,
        "signalfd" => Object::SignalFd,
        "eventpoll" => Object::Epoll,
        "inotify" | "fanotify" => Object::Notify,
        "pidfd" => Object::PidFd,
        "io_uring" => Object::IoUring,
        _ => Object::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsRawFd;

    const CLOSE: u32 = 3;
    const READ: u32 = 0;
    const DUP2: u32 = 33;
    const EXECVE: u32 = 59;
    const UNSHARE: u32 = 272;
    const DUP3: u32 = 292;
    const IO_URING_SETUP: u32 = 425;
    const IO_URING_ENTER: u32 = 426;
    const CLOSE_RANGE: u32 = 436;

    fn look(descriptors: &mut Descriptors, number: u32, descriptor: i32) -> Object {
        let own = std::process::id();
        let arguments = [descriptor as u64, 0, 0, 0, 0, 0];
        descriptors.object(own, own, Abi::X86_64, number, &arguments)
    }

    #[test]
    fn every_kind_of_descriptor_is_known() {
        let mut descriptors = Descriptors::default();
        let file = tempfile::tempfile().unwrap();
        let directory = std::fs::File::open("/").unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let (pipe, _other) = std::io::pipe().unwrap();
        let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::empty()).unwrap();
        let epoll =
            rustix::event::epoll::create(rustix::event::epoll::CreateFlags::empty()).unwrap();
        let pid = rustix::process::pidfd_open(
            rustix::process::getpid(),
            rustix::process::PidfdFlags::empty(),
        )
        .unwrap();
        for (descriptor, object) in [
            (file.as_raw_fd(), Object::File),
            (directory.as_raw_fd(), Object::Directory),
            (null.as_raw_fd(), Object::CharacterDevice),
            (pipe.as_raw_fd(), Object::Pipe),
            (socket.as_raw_fd(), Object::Socket),
            (event.as_raw_fd(), Object::EventFd),
            (epoll.as_raw_fd(), Object::Epoll),
            (pid.as_raw_fd(), Object::PidFd),
            (1 << 20, Object::Unknown),
            (-1, Object::None),
        ] {
            assert_eq!(look(&mut descriptors, READ, descriptor), object);
        }
    }

    #[test]
    fn a_number_that_was_closed_is_looked_up_anew() {
        let mut descriptors = Descriptors::default();
        let file = tempfile::tempfile().unwrap();
        let number = file.as_raw_fd();
        assert_eq!(look(&mut descriptors, READ, number), Object::File);
        let (pipe, _other) = std::io::pipe().unwrap();
        // What is known of the number is forgotten before the call closes it.
        assert_eq!(look(&mut descriptors, CLOSE, number), Object::File);
        let moved = rustix::io::fcntl_dupfd_cloexec(&pipe, number + 1).unwrap();
        assert_eq!(look(&mut descriptors, READ, moved.as_raw_fd()), Object::Pipe);
        drop(file);
        assert_ne!(look(&mut descriptors, READ, number), Object::File);
    }

    /// The tracer asks again for a descriptor that a call replaced, also if another thread used it
    /// during that call.
    ///
    /// Guarantee: trace/descriptors
    #[test]
    fn replaced_descriptor_is_recognized() {
        let (pipe, _other) = std::io::pipe().unwrap();
        let own = std::process::id();
        for number in [DUP2, DUP3, CLOSE_RANGE, EXECVE] {
            let mut descriptors = Descriptors::default();
            let mut slot = rustix::fd::OwnedFd::from(tempfile::tempfile().unwrap());
            let arguments = [0, slot.as_raw_fd() as u64, 0, 0, 0, 0];
            descriptors.object(own, own, Abi::X86_64, number, &arguments);
            assert_eq!(look(&mut descriptors, READ, slot.as_raw_fd()), Object::File);
            rustix::io::dup2(&pipe, &mut slot).unwrap();
            descriptors.after(own, Abi::X86_64, number, &arguments, Some(0));
            let object = look(&mut descriptors, READ, slot.as_raw_fd());
            assert_eq!(object, Object::Pipe, "{}", call_name(Abi::X86_64, number));
        }
    }

    /// The tracer keeps no answer for a descriptor that was not open: another process may send one
    /// (SCM_RIGHTS), and pidfd_getfd takes one, without a call that closes anything.
    ///
    /// Guarantee: trace/descriptors
    #[test]
    fn descriptor_that_comes_later_is_recognized() {
        let mut descriptors = Descriptors::default();
        let (pipe, _other) = std::io::pipe().unwrap();
        // Other tests take the first numbers that are free.
        let above = rustix::io::fcntl_dupfd_cloexec(&pipe, 500).unwrap();
        let number = above.as_raw_fd();
        drop(above);
        assert_eq!(look(&mut descriptors, READ, number), Object::Unknown);
        let received = rustix::io::fcntl_dupfd_cloexec(&pipe, number).unwrap();
        assert_eq!(look(&mut descriptors, READ, received.as_raw_fd()), Object::Pipe);
    }

    /// After a call from which on descriptors may change unseen, a number means what it means now.
    ///
    /// Guarantee: trace/descriptors
    #[test]
    fn descriptor_that_changed_unseen_is_recognized() {
        let (pipe, _other) = std::io::pipe().unwrap();
        let own = std::process::id();
        let unshare = u64::from(libc::CLOSE_RANGE_UNSHARE);
        for (number, arguments) in [
            (UNSHARE, [libc::CLONE_FILES as u64, 0, 0, 0, 0, 0]),
            (CLOSE_RANGE, [3, 3, unshare, 0, 0, 0]),
            (IO_URING_SETUP, [0; 6]),
            (IO_URING_ENTER, [0; 6]),
        ] {
            let mut descriptors = Descriptors::default();
            let mut slot = rustix::fd::OwnedFd::from(tempfile::tempfile().unwrap());
            descriptors.object(own, own, Abi::X86_64, number, &arguments);
            descriptors.after(own, Abi::X86_64, number, &arguments, Some(0));
            assert_eq!(look(&mut descriptors, READ, slot.as_raw_fd()), Object::File);
            rustix::io::dup2(&pipe, &mut slot).unwrap();
            let object = look(&mut descriptors, READ, slot.as_raw_fd());
            assert_eq!(object, Object::Pipe, "{}", call_name(Abi::X86_64, number));
        }
    }

    /// A call that failed changes nothing: answers are still kept.
    ///
    /// Guarantee: trace/descriptors
    #[test]
    fn refused_call_changes_nothing_unseen() {
        let own = std::process::id();
        let unshare = u64::from(libc::CLOSE_RANGE_UNSHARE);
        for (number, arguments) in [
            (UNSHARE, [libc::CLONE_FILES as u64, 0, 0, 0, 0, 0]),
            (CLOSE_RANGE, [3, 3, unshare, 0, 0, 0]),
            (IO_URING_SETUP, [0; 6]),
        ] {
            for result in [None, Some(-i64::from(libc::EPERM)), Some(-i64::from(libc::ENOSYS))] {
                let mut descriptors = Descriptors::default();
                descriptors.object(own, own, Abi::X86_64, number, &arguments);
                descriptors.after(own, Abi::X86_64, number, &arguments, result);
                assert!(descriptors.unseen.is_empty(), "{}", call_name(Abi::X86_64, number));
            }
        }
    }

    #[test]
    fn an_anonymous_map_is_no_file() {
        let mut descriptors = Descriptors::default();
        let arguments = [0, 4096, 3, libc::MAP_ANONYMOUS as u64 | 2, u64::MAX, 0];
        assert_eq!(descriptors.object(1, 1, Abi::X86_64, 9, &arguments), Object::Anonymous);
    }
}
