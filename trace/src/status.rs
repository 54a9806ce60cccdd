//! Numbers from `proc_pid_status(5)` of processes and threads.
//!
//! Invariant: a name of any bytes hides no field. Programs choose their names, and the kernel cuts
//! them off after 15 bytes, also within a character.

/// The status of one thread at one instant.
#[derive(Debug)]
pub(crate) struct ThreadStatus(Vec<u8>);

impl ThreadStatus {
    /// None if there is no such thread.
    pub(crate) fn of(thread: u32) -> Option<ThreadStatus> {
        std::fs::read(format!("/proc/{thread}/status")).ok().map(ThreadStatus)
    }

    /// The first number of a field, whose name has its colon: `Tgid:`.
    pub(crate) fn number(&self, field: &str) -> Option<u32> {
        self.first_word(field)?.parse().ok()
    }

    /// A field of bits, in hexadecimal digits: `SigIgn:`.
    pub(crate) fn bits(&self, field: &str) -> Option<u64> {
        u64::from_str_radix(self.first_word(field)?, 16).ok()
    }

    fn first_word(&self, field: &str) -> Option<&str> {
        let mut lines = self.0.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(field.as_bytes()))?.trim_ascii();
        let word = value.split(u8::is_ascii_whitespace).next()?;
        std::str::from_utf8(word).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_no_text_hides_no_field() {
        let text = b"Name:\tcaf\xe9\nTgid:\t4711\nPPid:\t1\nUid:\t1000\t0\t0\t0\nSigIgn:\t8000000000001001\n";
        let status = ThreadStatus(text.to_vec());
        let numbers = ["Tgid:", "PPid:", "Uid:"].map(|field| status.number(field));
        assert_eq!(numbers, [Some(4711), Some(1), Some(1000)]);
        assert_eq!((status.number("Name:"), status.number("Ngid:")), (None, None));
        assert_eq!(
            (status.bits("SigIgn:"), status.bits("Name:")),
            (Some(0x8000_0000_0000_1001), None)
        );
        let own = std::process::id();
        assert_eq!(ThreadStatus::of(own).unwrap().number("Tgid:"), Some(own));
        assert!(ThreadStatus::of(u32::MAX).is_none());
    }
}
