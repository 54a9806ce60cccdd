//! Events that announce the end of the machine, or a shortage of memory: signals, the power button,
//! batteries, memory pressure as the kernel reports it. Each is a descriptor or a file; the loop of
//! [`crate::keeper`] waits for all of them at once. A shutdown is announced by SIGTERM, for which
//! the units give the keeper 30 s.

pub(crate) mod power_button;
pub(crate) mod power_supply;
pub(crate) mod pressure;

use std::path::PathBuf;
use std::time::Duration;

use crate::served::ServePolicy;

/// Where a keeper that runs looks and listens.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Sources {
    /// The socket; made where no process gave one.
    pub socket: Option<PathBuf>,
    /// Devices with a power button; found where none are named. An empty list is none.
    pub buttons: Option<Vec<PathBuf>>,
    /// How long the button must be held.
    pub button_hold: Duration,
    /// The directory of batteries and UPSs.
    pub power_supply: PathBuf,
    /// A battery with so many percent or less is nearly empty.
    pub battery_percent: u8,
    /// Where the kernel tells of memory pressure.
    pub pressure: PathBuf,
    /// Where metrics are written for a collector of text files, if anywhere.
    pub metrics_file: Option<PathBuf>,
    /// Whom it serves regions, and where; no process where this is not set.
    pub serve: Option<ServePolicy>,
}

impl Default for Sources {
    fn default() -> Sources {
        Sources {
            socket: None,
            buttons: None,
            button_hold: Duration::from_secs(1),
            power_supply: PathBuf::from("/sys/class/power_supply"),
            battery_percent: 5,
            pressure: PathBuf::from("/proc/pressure/memory"),
            metrics_file: None,
            serve: None,
        }
    }
}
