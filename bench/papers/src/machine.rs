//! The machine of a run, and how much of it others used meanwhile.

use std::time::{Duration, Instant};

use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use serde::{Deserialize, Serialize};

/// What the numbers of a run are of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processors' name.
    pub processor: String,
    /// How many the process may use.
    pub processors: usize,
    /// Memory, in GiB, rounded.
    pub memory_gib: u64,
    /// Version of the kernel.
    pub kernel: String,
}

impl Machine {
    /// This machine, as far as it tells.
    #[must_use]
    pub fn here() -> Machine {
        use procfs::{Current, FromBufRead};
        let processor = std::fs::read("/proc/cpuinfo")
            .ok()
            .and_then(|text| procfs::CpuInfo::from_buf_read(&text[..]).ok())
            .and_then(|info| info.model_name(0).map(str::to_owned))
            .unwrap_or_else(|| "unknown".to_owned());
        // Behind the version follows a name that its builder gave it.
        let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
        let kernel = kernel.split('-').next().unwrap_or_default().to_owned();
        let memory = procfs::Meminfo::current().map_or(0, |memory| memory.mem_total);
        Machine {
            processor,
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: (memory + (1 << 29)) >> 30,
            kernel,
        }
    }

    /// One line for a person.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{}, {} processors, {} GiB, Linux {}",
            self.processor, self.processors, self.memory_gib, self.kernel
        )
    }
}

/// Processor time of the machine and of this process's ended children, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// All that ran or was taken away by the machine below.
    used: u64,
    /// All there was.
    whole: u64,
    /// Of `used`, what children took.
    children: u64,
}

impl Account {
    /// As it stands.
    #[must_use]
    pub fn now() -> Option<Account> {
        use procfs::CurrentSI;
        let total = procfs::KernelStats::current().ok()?.total;
        let idle = total.idle + total.iowait.unwrap_or(0);
        // A guest's time is in `user` already.
        let used = total.user
            + total.nice
            + total.system
            + total.irq.unwrap_or(0)
            + total.softirq.unwrap_or(0)
            + total.steal.unwrap_or(0);
        let own = procfs::process::Process::myself().ok()?.stat().ok()?;
        let children = u64::try_from(own.cutime + own.cstime).unwrap_or(0);
        Some(Account { used, whole: used + idle, children })
    }

    /// What children that have ended used since, in ticks.
    #[must_use]
    pub fn children_ticks_since(self, before: Account) -> u64 {
        self.children.saturating_sub(before.children)
    }

    /// Which part of the machine others used since, from 0 to 1.
    #[must_use]
    pub fn others_since(self, before: Account) -> f64 {
        let whole = self.whole.saturating_sub(before.whole);
        let used = self.used.saturating_sub(before.used);
        let children = self.children_ticks_since(before);
        match whole {
            0 => 0.0,
            whole => used.saturating_sub(children) as f64 / whole as f64,
        }
    }
}

/// Makes this process the parent of what its children leave behind, whose time counts then: a
/// browser that is killed does not wait for its own processes. Where the kernel refuses this, they
/// are taken for other programs.
pub fn adopt_orphans() {
    let _ = set_child_subreaper(Some(getpid()));
}

const PAUSE: Duration = Duration::from_millis(10);

/// Waits until everything adopted has ended, but no longer than `patience`. No other thread may
/// have a child, because its status would be lost here. What goes on is counted when it ends.
pub fn collect_orphans(patience: Duration) {
    let end = Instant::now() + patience;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < end => std::thread::sleep(PAUSE),
            Ok(None) | Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_what_is_neither_idle_nor_a_child() {
        let before = Account { used: 100, whole: 1000, children: 50 };
        let after = Account { used: 300, whole: 2000, children: 150 };
        assert!((after.others_since(before) - 0.1).abs() < 1e-9);
        assert_eq!(before.others_since(before), 0.0);
        // Children whose time is counted before the machine's.
        let ahead = Account { children: 500, ..after };
        assert_eq!(ahead.others_since(before), 0.0);
    }

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = Machine::here();
        assert!(machine.processors > 0 && !machine.kernel.is_empty());
        let now = Account::now().unwrap();
        assert!(now.whole > 0);
    }
}
