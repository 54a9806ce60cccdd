//! Refines the class of a call by its arguments and by what its descriptor is, and tells what it
//! can wait for.
//!
//! Invariant: a call about which nothing more is known (no arguments, an unknown descriptor) stays
//! where its name puts it.

use super::{Entry, Scheme, Subclass, Treatment, Waits};
use crate::Object;

/// Flags and commands, as Linux has them on x86.
mod flags {
    pub(super) const MAP_ANONYMOUS: u64 = 0x20;
    pub(super) const CLONE_VFORK: u64 = 0x4000;
    pub(super) const F_SETLKW: u64 = 7;
    pub(super) const F_OFD_SETLKW: u64 = 38;
    pub(super) const F_SETLKW64_OF_32_BIT: u64 = 14;
    /// What is left of a futex operation without its options.
    pub(super) const FUTEX_OPERATION: u64 = 0x7f;
    /// FUTEX_WAIT, _LOCK_PI, _WAIT_BITSET, _WAIT_REQUEUE_PI, _LOCK_PI2.
    pub(super) const FUTEX_WAITS: [u64; 5] = [0, 6, 9, 11, 13];
    /// MADV_WILLNEED, MADV_POPULATE_READ, MADV_POPULATE_WRITE.
    pub(super) const MADVISE_READS: [u64; 3] = [3, 22, 23];
    pub(super) const POSIX_FADV_WILLNEED: u64 = 3;
    /// FALLOC_FL_PUNCH_HOLE, FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_ZERO_RANGE,
    /// FALLOC_FL_INSERT_RANGE.
    pub(super) const FALLOCATE_CHANGES_DATA: u64 = 0x02 | 0x08 | 0x10 | 0x20;
    pub(super) const MSG_DONTWAIT: u64 = 0x40;
    pub(super) const WNOHANG: u64 = 1;
}

/// Where a call belongs in a scheme. `entry` is the call of x86-64 that does the same, if there is
/// one.
#[must_use]
pub(crate) fn place(
    scheme: Scheme,
    entry: Option<&Entry>,
    arguments: &[u64; 6],
    object: Object,
) -> Treatment {
    let Some(entry) = entry else { return Treatment::UNKNOWN };
    match scheme {
        Scheme::Paper => entry.place,
        Scheme::Refined => refine(entry, arguments, object),
    }
}

fn refine(entry: &Entry, arguments: &[u64; 6], object: Object) -> Treatment {
    let mut place = entry.place;
    match entry.name {
        "read" | "write" | "readv" | "writev" | "pread64" | "pwrite64" | "preadv" | "pwritev"
        | "preadv2" | "pwritev2" | "close" => {
            place.subclass = of_descriptor(object).unwrap_or(place.subclass);
            if entry.name != "close" {
                place.waits = waits_of_descriptor(object, place.waits);
            }
        }
        "ioctl" => place.subclass = of_descriptor(object).unwrap_or(place.subclass),
        "readlink" | "readlinkat" => place.subclass = Subclass::Metadata,
        "msync" => place.subclass = Subclass::UserData,
        "tee" | "vmsplice" => place.subclass = Subclass::Socket,
        "mmap" if arguments[3] & flags::MAP_ANONYMOUS != 0 => place.subclass = Subclass::Memory,
        "fallocate" if arguments[1] & flags::FALLOCATE_CHANGES_DATA != 0 => {
            place.subclass = Subclass::UserData
        }
        "fcntl" => {
            let waiting = [flags::F_SETLKW, flags::F_OFD_SETLKW, flags::F_SETLKW64_OF_32_BIT];
            if waiting.contains(&arguments[1]) {
                place = Treatment {
                    subclass: Subclass::Sync,
                    waits: Waits { event: true, ..Waits::NEVER },
                };
            } else {
                place.waits = Waits::NEVER;
            }
        }
        _ => place.waits = waits(entry, arguments),
    }
    place
}

/// What a call can wait for, where its arguments tell.
fn waits(entry: &Entry, arguments: &[u64; 6]) -> Waits {
    // An argument of 32 bits: the upper half of its register means nothing.
    let int = |index: usize| arguments[index] & 0xffff_ffff;
    let never = match entry.name {
        "futex" => !flags::FUTEX_WAITS.contains(&(int(1) & flags::FUTEX_OPERATION)),
        "clone" => arguments[0] & flags::CLONE_VFORK == 0,
        "madvise" => !flags::MADVISE_READS.contains(&int(2)),
        "fadvise64" => int(3) != flags::POSIX_FADV_WILLNEED,
        "poll" => int(2) == 0,
        "epoll_wait" | "epoll_pwait" => int(3) == 0,
        "recvfrom" | "sendto" => int(3) & flags::MSG_DONTWAIT != 0,
        "recvmsg" | "sendmsg" => int(2) & flags::MSG_DONTWAIT != 0,
        "wait4" => int(2) & flags::WNOHANG != 0,
        "waitid" => int(3) & flags::WNOHANG != 0,
        _ => false,
    };
    if never { Waits::NEVER } else { entry.place.waits }
}

/// The part of the operating system that a descriptor belongs to, if it is no file's.
fn of_descriptor(object: Object) -> Option<Subclass> {
    match object {
        Object::Socket | Object::Pipe => Some(Subclass::Socket),
        Object::EventFd | Object::TimerFd | Object::Epoll | Object::Notify => Some(Subclass::Sync),
        Object::SignalFd => Some(Subclass::Signal),
        Object::PidFd => Some(Subclass::Process),
        Object::Terminal => Some(Subclass::FileObject),
        Object::CharacterDevice | Object::Other => Some(Subclass::System),
        Object::IoUring => Some(Subclass::AsyncIo),
        Object::None
        | Object::Unknown
        | Object::File
        | Object::Directory
        | Object::BlockDevice
        | Object::Anonymous => None,
    }
}

/// What reading and writing waits for: files for devices, all else for another process.
fn waits_of_descriptor(object: Object, unknown: Waits) -> Waits {
    match object {
        Object::None | Object::Unknown | Object::Anonymous => unknown,
        Object::File | Object::Directory | Object::BlockDevice => {
            Waits { io: true, ..Waits::NEVER }
        }
        _ => Waits { event: true, ..Waits::NEVER },
    }
}
