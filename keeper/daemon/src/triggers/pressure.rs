//! Memory pressure, as the kernel tells of it (PSI). Where it can be had the kernel wakes us;
//! elsewhere its averages are read from time to time.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Tasks that waited for memory for 150 ms of 2 s. Windows of whole multiples of 2 s need no
/// privilege.
const TRIGGER: &str = "some 150000 2000000";
/// The same part of ten seconds, in percent.
const AVERAGE_PERCENT: f64 = 7.5;

/// A source of events of memory pressure: the kernel wakes us, or we poll.
#[derive(Debug)]
pub(crate) enum Pressure {
    /// Becomes ready with `POLLPRI`.
    Trigger(File),
    /// Is to be read.
    Average(PathBuf),
    /// The kernel does not tell.
    None,
}

impl Pressure {
    pub(crate) fn open(path: &Path) -> Pressure {
        let trigger = OpenOptions::new().read(true).write(true).open(path).and_then(|mut file| {
            // Only the kernel takes this for more than text.
            let is_kernels = path.starts_with("/proc") || path.starts_with("/sys");
            if !is_kernels {
                return Err(std::io::ErrorKind::Unsupported.into());
            }
            file.write_all(TRIGGER.as_bytes())?;
            Ok(file)
        });
        match trigger {
            Ok(file) => Pressure::Trigger(file),
            Err(_) if path.exists() => Pressure::Average(path.to_owned()),
            Err(_) => Pressure::None,
        }
    }

    /// Whether the averages say that memory is short.
    pub(crate) fn is_high(&self) -> bool {
        let Pressure::Average(path) = self else { return false };
        let text = fs::read_to_string(path).unwrap_or_default();
        average(&text).is_some_and(|percent| percent >= AVERAGE_PERCENT)
    }
}

fn average(text: &str) -> Option<f64> {
    let some = text.lines().find_map(|line| line.strip_prefix("some "))?;
    some.split_ascii_whitespace().find_map(|field| field.strip_prefix("avg10="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The average of ten seconds decides where the kernel does not wake us.
    #[test]
    fn ten_second_average_decides_without_kernel_events() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory");
        let write = |percent: &str| {
            let text = format!(
                "some avg10={percent} avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0 total=0\n"
            );
            fs::write(&path, text).unwrap();
        };
        write("0.50");
        let pressure = Pressure::open(&path);
        assert!(matches!(pressure, Pressure::Average(_)) && !pressure.is_high());
        write("7.50");
        assert!(pressure.is_high());
        fs::write(&path, "nonsense").unwrap();
        assert!(!pressure.is_high());
        assert!(matches!(Pressure::open(Path::new("/nowhere")), Pressure::None));
    }
}
