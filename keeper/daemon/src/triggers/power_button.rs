//! The power button. A device forces the power off when its button is held for some seconds (five
//! in the paper); the keeper acts when it is held for one, while it is still held.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// `struct input_event` of `linux/input.h`: a time of two machine words, type, code, value.
const TIME_BYTES: usize = 2 * size_of::<usize>();
const EVENT_BYTES: usize = TIME_BYTES + 8;
const EV_KEY: u16 = 1;
const KEY_POWER: u16 = 116;
/// Events that are read at once.
const EVENTS: usize = 64;

/// A device that has one.
#[derive(Debug)]
pub(crate) struct Button {
    pub(crate) device: File,
    /// Since when it is held, if it is.
    pressed: Option<Instant>,
    /// It was acted on; not again before it is let go.
    acted: bool,
}

impl Button {
    pub(crate) fn open(path: &Path) -> io::Result<Button> {
        let flags = (rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY).bits();
        let open = |write| {
            OpenOptions::new().read(true).write(write).custom_flags(flags as i32).open(path)
        };
        Ok(Button { device: open(false)?, pressed: None, acted: false })
    }

    /// Reads what happened. `false` when the device is gone.
    pub(crate) fn read(&mut self, now: Instant) -> bool {
        let mut events = [0; EVENTS * EVENT_BYTES];
        loop {
            match self.device.read(&mut events) {
                Ok(0) => return false,
                Ok(count) => events[..count]
                    .chunks_exact(EVENT_BYTES)
                    .for_each(|event| self.take(event, now)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    fn take(&mut self, event: &[u8], now: Instant) {
        let half = |at: usize| u16::from_le_bytes([event[at], event[at + 1]]);
        let value = &event[TIME_BYTES + 4..TIME_BYTES + 8];
        if half(TIME_BYTES) != EV_KEY || half(TIME_BYTES + 2) != KEY_POWER {
            return;
        }
        match i32::from_le_bytes([value[0], value[1], value[2], value[3]]) {
            0 => (self.pressed, self.acted) = (None, false),
            // A press, or its repetition, of which the first may have been missed.
            _ => drop(self.pressed.get_or_insert(now)),
        }
    }

    /// When it is to be acted on.
    pub(crate) fn due(&self, hold: Duration) -> Option<Instant> {
        self.pressed.filter(|_| !self.acted)?.checked_add(hold)
    }

    /// It was acted on.
    pub(crate) fn act(&mut self) {
        self.acted = true;
    }
}

/// The devices of this machine that have the key.
pub(crate) fn find() -> Vec<PathBuf> {
    let entries = fs::read_dir("/sys/class/input").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| {
            let keys = fs::read_to_string(entry.path().join("device/capabilities/key"));
            keys.is_ok_and(|keys| has_key(&keys, KEY_POWER))
        })
        .map(|entry| Path::new("/dev/input").join(entry.file_name()))
        .filter(|path| path.exists())
        .collect();
    found.sort();
    found
}

/// Whether a bit is set in the kernel's text of a bit set: machine words in hexadecimal, the
/// highest first.
fn has_key(keys: &str, key: u16) -> bool {
    let (word, bit) =
        (usize::from(key) / usize::BITS as usize, usize::from(key) % usize::BITS as usize);
    let word = keys.split_ascii_whitespace().rev().nth(word);
    word.and_then(|word| usize::from_str_radix(word, 16).ok())
        .is_some_and(|word| word >> bit & 1 == 1)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn event(code: u16, value: i32) -> Vec<u8> {
        let mut bytes = vec![0; TIME_BYTES];
        bytes.extend_from_slice(&EV_KEY.to_le_bytes());
        bytes.extend_from_slice(&code.to_le_bytes());
        bytes.extend_from_slice(&value.to_le_bytes());
        bytes
    }

    #[test]
    fn a_button_is_due_when_it_was_held_and_once_only() {
        let hold = Duration::from_secs(1);
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut button = Button::open(file.path()).unwrap();
        let start = Instant::now();
        for other in [event(30, 1), event(KEY_POWER, 0)] {
            button.take(&other, start);
            assert_eq!(button.due(hold), None);
        }
        button.take(&event(KEY_POWER, 1), start);
        button.take(&event(KEY_POWER, 2), start + hold / 2);
        assert_eq!(button.due(hold), Some(start + hold));
        button.act();
        button.take(&event(KEY_POWER, 2), start + 2 * hold);
        assert_eq!(button.due(hold), None);
        button.take(&event(KEY_POWER, 0), start);
        button.take(&event(KEY_POWER, 1), start + 3 * hold);
        assert_eq!(button.due(hold), Some(start + 4 * hold));
        assert_eq!(button.due(Duration::MAX), None, "nobody holds it that long");
        button.take(&event(KEY_POWER, 0), start);
        assert_eq!(button.due(hold), None, "a short press is no emergency");
    }

    #[test]
    fn a_device_that_is_gone_or_torn_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), [event(KEY_POWER, 1), vec![1, 2, 3]].concat()).unwrap();
        let mut button = Button::open(file.path()).unwrap();
        assert!(!button.read(Instant::now()));
        assert!(button.due(Duration::ZERO).is_some());
    }

    #[test]
    fn the_kernels_bit_sets_are_read_from_their_end() {
        assert!(has_key("10000000000000 0", KEY_POWER));
        assert!(!has_key("10000000000000 0 0", KEY_POWER));
        assert!(!has_key("0", KEY_POWER) && !has_key("", KEY_POWER) && !has_key("x y", KEY_POWER));
    }
}
