//! The kernel's counters of a thread: time on a CPU, time ready to run, and how often it got a CPU.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The three numbers of `/proc/PID/task/TID/schedstat`; they only grow.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// On a CPU, nanoseconds.
    pub(super) cpu_ns: u64,
    /// Ready to run while others had the CPUs, nanoseconds.
    pub(super) queue_ns: u64,
    /// How often it was given a CPU.
    pub(super) turns: u64,
}

impl Reading {
    /// What was added since an earlier one.
    pub(super) fn since(self, earlier: Reading) -> Reading {
        Reading {
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
            queue_ns: self.queue_ns.saturating_sub(earlier.queue_ns),
            turns: self.turns.saturating_sub(earlier.turns),
        }
    }
}

/// Where a thread's readings come from.
#[derive(Debug)]
pub(super) struct Times {
    path: String,
    /// Kept open: a reading is one system call then. None if that is too many for this process.
    file: Option<File>,
}

impl Times {
    pub(super) fn of(process: u32, thread: u32, keeps_open: bool) -> Times {
        let path = format!("/proc/{process}/task/{thread}/schedstat");
        let file = if keeps_open { File::open(&path).ok() } else { None };
        Times { path, file }
    }

    pub(super) fn keeps_open(&self) -> bool {
        self.file.is_some()
    }

    /// None if the thread is gone, or the kernel does not count.
    pub(super) fn read(&self) -> Option<Reading> {
        let mut text = [0_u8; 64];
        let length = match &self.file {
            Some(file) => file.read_at(&mut text, 0).ok()?,
            None => File::open(&self.path).ok()?.read_at(&mut text, 0).ok()?,
        };
        parse(&text[..length])
    }
}

/// Three decimal numbers. Read at every stop, so not by way of text.
fn parse(text: &[u8]) -> Option<Reading> {
    let mut numbers = [0_u64; 3];
    let mut words = text.split(|byte| byte.is_ascii_whitespace());
    for number in &mut numbers {
        let word = words.next().filter(|word| !word.is_empty())?;
        for byte in word {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            *number = number.wrapping_mul(10).wrapping_add(u64::from(digit));
        }
    }
    let [cpu_ns, queue_ns, turns] = numbers;
    Some(Reading { cpu_ns, queue_ns, turns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_is_three_numbers_and_nothing_else() {
        let reading = parse(b"1307114 4801978 2\n").unwrap();
        assert_eq!(reading, Reading { cpu_ns: 1_307_114, queue_ns: 4_801_978, turns: 2 });
        for text in [&b""[..], b"1 2", b"1 2 x", b"1 -2 3", b"cpu 1 2"] {
            assert_eq!(parse(text), None);
        }
    }

    #[test]
    fn a_thread_that_runs_has_time() {
        let process = std::process::id();
        let times = Times::of(process, process, true);
        let before = times.read().unwrap();
        assert!(before.turns > 0);
        assert!(Times::of(process, process, false).read().unwrap().cpu_ns >= before.cpu_ns);
        assert_eq!(Times::of(process, u32::MAX >> 1, true).read(), None);
    }
}
