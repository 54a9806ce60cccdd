//! The machine of a run.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = Machine::here();
        assert!(machine.processors > 0 && !machine.kernel.is_empty());
    }
}
