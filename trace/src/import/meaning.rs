//! Interprets the arguments of a line: as much as classes and sleep need to know of them.
//!
//! Invariant: what is not recognised stays zero or unknown, which classes take for the ordinary
//! case.

use crate::Object;

/// The registers, as far as something depends on them.
pub(super) fn arguments(name: &str, text: &str) -> [u64; 6] {
    let mut registers = [0_u64; 6];
    let has =
        |word: &str| text.split([',', '|', ' ', '=', '(', ')', '{', '}']).any(|part| part == word);
    let any = |words: &[&str]| words.iter().any(|word| has(word));
    match name {
        "mmap" | "mmap2" if has("MAP_ANONYMOUS") => registers[3] = 0x20,
        "clone" if has("CLONE_VFORK") => registers[0] = 0x4000,
        "fcntl" | "fcntl64" if any(&["F_SETLKW", "F_SETLKW64"]) => registers[1] = 7,
        "fcntl" | "fcntl64" if has("F_OFD_SETLKW") => registers[1] = 38,
        "futex" | "futex_time64" => {
            let operation = text.split(',').nth(1).unwrap_or_default().trim();
            let operation = operation.split(['|', ' ']).next().unwrap_or_default();
            registers[1] = match operation.strip_suffix("_PRIVATE").unwrap_or(operation) {
                "FUTEX_WAIT" => 0,
                "FUTEX_LOCK_PI" => 6,
                "FUTEX_WAIT_BITSET" => 9,
                "FUTEX_WAIT_REQUEUE_PI" => 11,
                "FUTEX_LOCK_PI2" => 13,
                // Any that does not wait.
                _ => 1,
            };
        }
        "madvise" if any(&["MADV_WILLNEED", "MADV_POPULATE_READ", "MADV_POPULATE_WRITE"]) => {
            registers[2] = 3
        }
        "fallocate"
            if any(&[
                "FALLOC_FL_PUNCH_HOLE",
                "FALLOC_FL_ZERO_RANGE",
                "FALLOC_FL_COLLAPSE_RANGE",
            ]) =>
        {
            registers[1] = 2;
        }
        // A time of zero is in the last argument; all others wait.
        "poll" => registers[2] = u64::from(last(text) != "0"),
        "epoll_wait" => registers[3] = u64::from(last(text) != "0"),
        "wait4" | "waitpid" => registers[2] = u64::from(has("WNOHANG")),
        _ => {}
    }
    registers
}

fn last(text: &str) -> &str {
    text.rsplit(',').next().unwrap_or_default().trim()
}

/// What the first argument is, if the log was made with -y: `3<socket:[123]>`, `0</dev/pts/1>`.
pub(super) fn object(text: &str) -> Object {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if digits == 0 {
        return Object::Unknown;
    }
    let Some(named) = text[digits..].strip_prefix('<') else { return Object::Unknown };
    let begins = |with: &str| named.starts_with(with);
    match named {
        _ if begins("pipe:") => Object::Pipe,
        _ if ["socket:", "TCP", "UDP", "UNIX", "NETLINK", "RAW"].into_iter().any(begins) => {
            Object::Socket
        }
        _ if begins("anon_inode:[eventfd]") => Object::EventFd,
        _ if begins("anon_inode:[timerfd]") => Object::TimerFd,
        _ if begins("anon_inode:[signalfd]") => Object::SignalFd,
        _ if begins("anon_inode:[eventpoll]") => Object::Epoll,
        _ if begins("anon_inode:inotify") => Object::Notify,
        _ if begins("anon_inode:[pidfd]") => Object::PidFd,
        _ if begins("anon_inode:[io_uring]") => Object::IoUring,
        _ if begins("anon_inode:") => Object::Other,
        _ if begins("/dev/pts/") || begins("/dev/tty") => Object::Terminal,
        // File systems that are mounted there.
        _ if ["/dev/shm/", "/dev/hugepages/"].into_iter().any(begins) => Object::File,
        _ if begins("/dev/") => Object::CharacterDevice,
        _ if begins("/") => Object::File,
        _ => Object::Unknown,
    }
}

/// The name of the program that an `execve` starts: what is behind the last slash.
pub(super) fn program(arguments: &str) -> &str {
    let path = arguments.split('"').nth(1).unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or(path);
    // As the kernel does: 15 bytes.
    let end = (0..=15.min(name.len())).rev().find(|end| name.is_char_boundary(*end)).unwrap_or(0);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_what_its_name_in_the_log_says() {
        for (text, is) in [
            ("3</etc/passwd>", Object::File),
            ("3</dev/shm/region>", Object::File),
            ("3</dev/hugepages/pages>", Object::File),
            ("3</dev/null<char 1:3>>", Object::CharacterDevice),
            ("3</dev/pts/1<char 136:1>>", Object::Terminal),
            ("3<pipe:[7]>", Object::Pipe),
            ("3<anon_inode:[eventfd]>", Object::EventFd),
            ("3", Object::Unknown),
            ("AT_FDCWD</home>", Object::Unknown),
        ] {
            assert_eq!(object(text), is, "{text}");
        }
    }
}
