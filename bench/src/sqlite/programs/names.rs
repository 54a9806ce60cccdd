//! Names that files of a file system got, as they got them, by fanotify: a block trace knows numbers
//! of inodes only, and a journal is gone before its name could be asked for.

#![allow(unsafe_code, reason = "fanotify has no safe wrapper")]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Error, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const PAUSE: Duration = Duration::from_millis(1);
/// `struct fanotify_event_metadata`, and the headers of what follows it: of an information, of a
/// file's handle in it, and of the handle itself.
const METADATA_BYTES: usize = 24;
const INFO_HEADER_BYTES: usize = 4;
const FILE_SYSTEM_BYTES: usize = 8;
const HANDLE_HEADER_BYTES: usize = 8;
/// What the kernel calls these informations.
const INFO_FILE: u8 = 1;
const INFO_DIRECTORY_NAME: u8 = 2;
const INFO_NEW_DIRECTORY_NAME: u8 = 12;

/// A file has this name from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    /// On the monotonic clock, in nanoseconds; shortly after it got the name.
    pub(super) at: u64,
    pub(super) inode: u64,
    /// That of the directory.
    pub(super) directory: u64,
    pub(super) name: String,
    /// Whether it had another name before.
    pub(super) is_renamed: bool,
}

/// A running record.
pub(super) struct Names {
    stop: Arc<AtomicBool>,
    reader: Option<JoinHandle<io::Result<Vec<Named>>>>,
}

impl Names {
    /// Begins one, of the file system that is mounted there.
    pub(super) fn start(mount: &Path) -> io::Result<Names> {
        let flags = libc::FAN_CLASS_NOTIF
            | libc::FAN_NONBLOCK
            | libc::FAN_CLOEXEC
            | libc::FAN_UNLIMITED_QUEUE
            | libc::FAN_REPORT_DFID_NAME_TARGET;
        let cannot = |error: Error| {
            Error::other(format!("the kernel does not tell names of files: {error}"))
        };
        // SAFETY: no memory is passed.
        let descriptor = unsafe { libc::fanotify_init(flags, 0) };
        if descriptor < 0 {
            return Err(cannot(Error::last_os_error()));
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else closes it.
        let queue = unsafe { File::from_raw_fd(descriptor) };
        let path = CString::new(mount.as_os_str().as_bytes())?;
        let mark = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
        let wanted = libc::FAN_CREATE | libc::FAN_RENAME;
        // SAFETY: the path ends with a zero.
        let code = unsafe {
            libc::fanotify_mark(queue.as_raw_fd(), mark, wanted, libc::AT_FDCWD, path.as_ptr())
        };
        if code < 0 {
            return Err(cannot(Error::last_os_error()));
        }
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let reader = Some(std::thread::spawn(move || read(queue, &told)));
        Ok(Names { stop, reader })
    }

    /// Ends it; all names, in their order.
    pub(super) fn finish(mut self) -> io::Result<Vec<Named>> {
        self.stop.store(true, Ordering::Relaxed);
        let reader = self.reader.take().ok_or_else(|| Error::other("no names were recorded"))?;
        reader.join().map_err(|_| Error::other("the reader of names panicked"))?
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn read(mut queue: File, stop: &AtomicBool) -> io::Result<Vec<Named>> {
    let (mut names, mut chunk) = (Vec::new(), vec![0; 1 << 16]);
    loop {
        let is_last = stop.load(Ordering::Relaxed);
        match queue.read(&mut chunk) {
            Ok(count) if count > 0 => {
                parse(&chunk[..count], now(), &mut names)
                    .ok_or_else(|| Error::other("an event of fanotify cannot be read"))?;
                continue;
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if is_last {
            return Ok(names);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The monotonic clock, in nanoseconds, as in the trace.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
        + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// The events of one read; `None` if they are not what the kernel's header describes.
fn parse(mut events: &[u8], at: u64, names: &mut Vec<Named>) -> Option<()> {
    while !events.is_empty() {
        let bytes = number(events, 0, 4)? as usize;
        let mask = number(events, 8, 8)?;
        let (event, rest) = events.split_at_checked(bytes)?;
        let mut infos = event.get(METADATA_BYTES..)?;
        let (mut place, mut inode) = (None, None);
        while !infos.is_empty() {
            let kind = infos[0];
            let (info, further) = infos.split_at_checked(number(infos, 2, 2)? as usize)?;
            let handle = info.get(INFO_HEADER_BYTES + FILE_SYSTEM_BYTES..)?;
            let handle_end = HANDLE_HEADER_BYTES + number(handle, 0, 4)? as usize;
            // The handle of a file of ext4 begins with the number of its inode.
            let number = number(handle, HANDLE_HEADER_BYTES, 4)?;
            match kind {
                INFO_FILE => inode = Some(number),
                INFO_DIRECTORY_NAME | INFO_NEW_DIRECTORY_NAME => {
                    let name = handle.get(handle_end..)?.split(|&byte| byte == 0).next()?;
                    place = Some((number, String::from_utf8_lossy(name).into_owned()));
                }
                _ => {}
            }
            infos = further;
        }
        if let (Some((directory, name)), Some(inode)) = (place, inode) {
            let is_renamed = mask & libc::FAN_RENAME != 0;
            names.push(Named { at, inode, directory, name, is_renamed });
        }
        events = rest;
    }
    Some(())
}

fn number(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut value = [0; 8];
    value[..width].copy_from_slice(bytes.get(at..at + width)?);
    Some(u64::from_le_bytes(value))
}
