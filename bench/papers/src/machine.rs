//! The machine of a run.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3;

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
    /// What tells it from others of its kind: a sum of the ids of the system and of its start, from
    /// which neither can be found. None in results of before it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
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
            id: id_of(&word("/etc/machine-id"), &word("/proc/sys/kernel/random/boot_id")),
        }
    }

    /// Whether numbers of both can be compared: they are of one kind, if not the same one.
    #[must_use]
    pub fn is_like(&self, other: &Machine) -> bool {
        self.kind() == other.kind()
    }

    /// One line for a person.
    #[must_use]
    pub fn line(&self) -> String {
        match &self.id {
            Some(id) => format!("{}, id {id}", self.kind()),
            None => self.kind(),
        }
    }

    fn kind(&self) -> String {
        format!(
            "{}, {} processors, {} GiB, Linux {}",
            self.processor, self.processors, self.memory_gib, self.kernel
        )
    }
}

/// The text of a small file, without the end of its line; nothing if it cannot be read.
fn word(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

/// A sum of the system's id and of that of its start, which changes with each start: images of one
/// system have the first in common. Eight digits of 256 bits say nothing about either.
fn id_of(system: &str, start: &str) -> Option<String> {
    if system.is_empty() && start.is_empty() {
        return None;
    }
    let mut sum = Xxh3::new();
    sum.update(format!("holdfast-bench\n{system}\n{start}\n").as_bytes());
    Some(format!("{:08x}", sum.digest() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_what_it_is() {
        let machine = Machine::here();
        assert!(machine.processors > 0 && !machine.kernel.is_empty());
        assert_eq!(machine, Machine::here(), "its id stays");
    }

    /// Neither id is in the sum, each makes another one, and without both there is none.
    #[test]
    fn id_says_which_machine_and_not_its_ids() {
        let id = |system, start| id_of(system, start).unwrap();
        let ids = [id("a1", "b2"), id("a1", "c3"), id("a2", "b2"), id("a1b2", ""), id("", "a1b2")];
        for (number, one) in ids.iter().enumerate() {
            assert!(one.len() == 8 && !ids[..number].contains(one), "{ids:?}");
        }
        assert_eq!(id_of("", ""), None);
    }

    /// Results of before machines had ids are read, and are of a machine of that kind.
    #[test]
    fn machine_without_an_id_is_read() {
        let old = r#"{"processor":"P","processors":2,"memory_gib":24,"kernel":"6.18"}"#;
        let machine: Machine = serde_json::from_str(old).unwrap();
        assert_eq!(machine.line(), "P, 2 processors, 24 GiB, Linux 6.18");
        assert_eq!(serde_json::to_string(&machine).unwrap(), old);
        assert!(machine.is_like(&Machine { id: Some("1a".to_owned()), ..machine.clone() }));
    }
}
