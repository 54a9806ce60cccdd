//! Probes that read what the system says of itself: sizes, limits, devices, settings.

#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::Resource;

use crate::file::{Space, effective_user, space};

/// Users up to this number are system users, whose IPC objects logind leaves alone (systemd's
/// default).
const SYSTEM_USER_MAX: u32 = 999;

/// The kernel's release, such as `6.18.44`.
#[must_use]
pub fn kernel_release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Bytes of a page.
#[must_use]
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// When memory files and tmpfs get huge pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HugePages {
    /// The administrator's choice, in the kernel's words: `always`, `within_size`, `advise`,
    /// `never`, …
    Setting(String),
    /// The kernel has no such setting.
    Unknown,
}

/// The setting of transparent huge pages for shared memory.
#[must_use]
pub fn shared_memory_huge_pages() -> HugePages {
    let text = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    text.ok().and_then(|text| chosen(&text)).map_or(HugePages::Unknown, HugePages::Setting)
}

/// The word in brackets: how the kernel marks the setting in force.
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Room in /dev/shm.
///
/// # Errors
/// What `statvfs` reports; `NotFound` when there is no /dev/shm.
pub fn shared_memory_space() -> io::Result<Space> {
    space(Path::new("/dev/shm"))
}

/// The limit of this process's address space; `None` when there is none. Reservations count against
/// it.
#[must_use]
pub fn address_space_limit_bytes() -> Option<u64> {
    rustix::process::getrlimit(Resource::As).current
}

/// The limit of memory that this process may lock; `None` when there is none.
#[must_use]
pub fn locked_memory_limit_bytes() -> Option<u64> {
    rustix::process::getrlimit(Resource::Memlock).current
}

/// Block and character devices of persistent memory: /dev/pmem*, /dev/dax*.
///
/// # Errors
/// When /dev cannot be listed.
pub fn persistent_memory_devices() -> io::Result<Vec<PathBuf>> {
    let mut devices = Vec::new();
    for entry in std::fs::read_dir("/dev")? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_str().is_some_and(is_persistent_memory) {
            devices.push(entry.path());
        }
    }
    devices.sort();
    Ok(devices)
}

fn is_persistent_memory(name: &str) -> bool {
    let numbered = |prefix| {
        name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    numbered("pmem") || numbered("dax")
}

/// Whether systemd's logind removes this user's files in /dev/shm when the last session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemoveIpc {
    /// No logind runs here, or this is a system user: nothing is removed.
    NotApplicable,
    /// `RemoveIPC=no` is configured.
    Off,
    /// Files are removed at the last logout, but this user lingers (`loginctl enable-linger`), so
    /// never.
    OnButLingering,
    /// Files are removed at the last logout: images are lost then, checkpoints are not.
    On,
}

/// Looks at logind's state and configuration, as `logind.conf(5)` describes them.
#[must_use]
pub fn remove_ipc() -> RemoveIpc {
    let user = effective_user();
    if user <= SYSTEM_USER_MAX || !Path::new("/run/systemd/seats").is_dir() {
        return RemoveIpc::NotApplicable;
    }
    if !configured_remove_ipc(Path::new("/")) {
        return RemoveIpc::Off;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let lingers = user_name(&passwd, user)
        .is_some_and(|name| Path::new("/var/lib/systemd/linger").join(name).exists());
    if lingers { RemoveIpc::OnButLingering } else { RemoveIpc::On }
}

fn user_name(passwd: &str, user: u32) -> Option<&str> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then_some(name)
    })
}

/// The value of `RemoveIPC` in force: the last assignment wins, drop-ins come after the main file
/// and in the order of their names whatever their directory, and the built-in default is yes.
fn configured_remove_ipc(root: &Path) -> bool {
    let main = ["etc/systemd", "run/systemd", "usr/local/lib/systemd", "usr/lib/systemd"];
    let mut files: Vec<PathBuf> = main
        .iter()
        .map(|directory| root.join(directory).join("logind.conf"))
        .find(|path| path.exists())
        .into_iter()
        .collect();
    let mut drop_ins: Vec<PathBuf> = Vec::new();
    for directory in main {
        let entries = std::fs::read_dir(root.join(directory).join("logind.conf.d"))
            .into_iter()
            .flatten()
            .flatten();
        for path in entries.map(|entry| entry.path()) {
            let hidden = drop_ins.iter().any(|known| known.file_name() == path.file_name());
            if !hidden && path.extension().is_some_and(|extension| extension == "conf") {
                drop_ins.push(path);
            }
        }
    }
    drop_ins.sort_by(|left, right| left.file_name().cmp(&right.file_name()));
    files.extend(drop_ins);
    files
        .iter()
        .filter_map(|path| last_remove_ipc(&std::fs::read_to_string(path).ok()?))
        .next_back()
        .unwrap_or(true)
}

fn last_remove_ipc(text: &str) -> Option<bool> {
    let mut assignments = text.lines().filter_map(|line| line.trim().split_once('='));
    let value = assignments.rfind(|(name, _)| name.trim_end() == "RemoveIPC")?.1;
    match value.trim().to_ascii_lowercase().as_str() {
        "yes" | "y" | "true" | "t" | "on" | "1" => Some(true),
        "no" | "n" | "false" | "f" | "off" | "0" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_in_brackets_is_the_one_in_force() {
        assert_eq!(
            chosen("always within_size advise [never] deny force\n").as_deref(),
            Some("never")
        );
        assert_eq!(chosen("nothing"), None);
    }

    /// Persistent memory devices are distinguished from their neighbours.
    #[test]
    fn persistent_memory_devices_are_recognised() {
        assert!(["pmem0", "pmem1s", "dax0.0"].into_iter().all(is_persistent_memory));
        assert!(!["pmem", "daxctl", "mem", "pmemory"].into_iter().any(is_persistent_memory));
    }

    #[test]
    fn a_user_is_found_by_number() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\nbroken\nme:x:1000:1000::/home/me:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000), Some("me"));
        assert_eq!(user_name(passwd, 7), None);
    }

    /// Logind configuration is read in the order of its manual.
    #[test]
    fn logind_configuration_is_read_in_manual_order() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert!(configured_remove_ipc(root.path()), "the default is yes");
        write("etc/systemd/logind.conf", "[Login]\n#RemoveIPC=yes\nRemoveIPC=no\n");
        assert!(!configured_remove_ipc(root.path()));
        write("usr/lib/systemd/logind.conf.d/20-x.conf", "[Login]\nRemoveIPC = on\n");
        assert!(configured_remove_ipc(root.path()));
        write("etc/systemd/logind.conf.d/20-x.conf", "[Login]\nRemoveIPC=off\n");
        assert!(!configured_remove_ipc(root.path()), "/etc hides the same name in /usr");
        write("run/systemd/logind.conf.d/10-y.conf", "RemoveIPC=yes");
        assert!(!configured_remove_ipc(root.path()));
    }

    #[test]
    fn the_machine_answers() {
        assert!(kernel_release().contains('.'));
        assert!(page_bytes().is_power_of_two());
        assert!(persistent_memory_devices().is_ok());
        let _ = remove_ipc();
    }
}
