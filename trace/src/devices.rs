//! Tells terminals among character devices, by the kernel's list of device numbers; the same for
//! both backends.

/// Virtual and serial terminals, /dev/tty, pseudo-terminals old and new, USB and ARM serial lines.
const TERMINALS: [std::ops::RangeInclusive<u32>; 5] =
    [2..=5, 128..=143, 166..=166, 188..=188, 204..=204];

/// Whether a major number is that of a terminal.
pub(crate) fn is_terminal(major: u32) -> bool {
    TERMINALS.iter().any(|majors| majors.contains(&major))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: trace/descriptors
    #[test]
    fn terminals_are_told_from_other_devices() {
        // ptyp0, ttyp0, tty1, console, pts/0, ttyACM0, ttyUSB0, ttyAMA0; and null, lp0,
        // input/event0, others.
        for major in [2, 3, 4, 5, 136, 166, 188, 204] {
            assert!(is_terminal(major), "{major}");
        }
        for major in [1, 6, 13, 127, 144, 241, 256, 4 + 256] {
            assert!(!is_terminal(major), "{major}");
        }
    }
}
