//! The kinds of the descriptors of traced processes.
//!
//! Asking the kernel costs more than the rest of a stop, so answers are kept until the descriptor
//! is closed. Invariant: a number is looked up anew after every call that may have closed it, at
//! the call's entry and at its exit.

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

impl Shape {
    fn of(abi: Abi, number: u32) -> Shape {
        let name = call_name(abi, number);
        let closes = match &*name {
            "close" => Closes::One(0),
            "dup2" | "dup3" => Closes::One(1),
            "close_range" | "unshare" | "execve" | "execveat" => Closes::Many,
            _ => Closes::Nothing,
        };
        Shape {
            argument: descriptor_argument(abi, number),
            maps: matches!(&*name, "mmap" | "mmap2"),
            closes,
        }
    }
}

/// The kinds of the open descriptors of each traced process.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    shapes: HashMap<(Abi, u32), Shape>,
    known: HashMap<u32, HashMap<u32, Object>>,
    /// Processes that share their descriptors with another process, which may close them unseen.
    sharing: HashSet<u32>,
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
        self.forget(process, shape.closes, arguments);
        object
    }

    /// A call is over that may have closed descriptors.
    pub(super) fn after(&mut self, process: u32, abi: Abi, number: u32, arguments: &[u64; 6]) {
        if let Some(shape) = self.shapes.get(&(abi, number)) {
            let closes = shape.closes;
            self.forget(process, closes, arguments);
        }
    }

    /// Two processes share their descriptors.
    pub(super) fn shared_by(&mut self, processes: [u32; 2]) {
        self.sharing.extend(processes);
    }

    /// A process is gone, or has descriptors of its own after an exec.
    pub(super) fn forget_process(&mut self, process: u32) {
        self.known.remove(&process);
        self.sharing.remove(&process);
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
        if self.sharing.contains(&process) {
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

    #[test]
    fn an_anonymous_map_is_no_file() {
        let mut descriptors = Descriptors::default();
        let arguments = [0, 4096, 3, libc::MAP_ANONYMOUS as u64 | 2, u64::MAX, 0];
        assert_eq!(descriptors.object(1, 1, Abi::X86_64, 9, &arguments), Object::Anonymous);
    }
}
