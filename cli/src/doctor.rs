//! `holdfast doctor`: what this machine offers, tried out, and what each lack costs.
//!
//! Each product examines what it needs itself ([`products::findings`]). Blocking lacks (exit code
//! 1) are those without which `holdfast run --heap` cannot work.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use holdfast_applet::{Jail, Layers};
use holdfast_pkeys::Key;
use holdfast_region::{AddressWindow, NameSpace, PlaceError, Places, PoolKind, Survives};
use holdfast_sys::counted::counted;
use holdfast_sys::dirty::{self, DirtyMethod};
use holdfast_sys::file::space;
use holdfast_sys::probe::{self, HugePages, RemoveIpc, Support};
use holdfast_sys::terminal::Shown;

use crate::args::DoctorArgs;
use crate::products;
use holdfast_command::exit::{FOUND, Failure};
use holdfast_command::finding::{Finding, Grade};
use holdfast_command::output::{print, print_json};
use holdfast_command::size::show_size;

/// A pool with less room than this cannot take a default heap.
const POOL_ROOM_MIN_BYTES: u64 = 64 << 20;
/// What wasmtime reserves for one linear memory, guards included, with a margin.
const ADDRESS_SPACE_MIN_BYTES: u64 = 6 << 30;

/// A feature of the kernel; its lack costs something, and blocks nothing.
fn feature(what: &str, support: Support, cost: &str) -> Finding {
    match support.refusal() {
        None => Finding::new(what, Grade::Ok, "usable", ""),
        Some(error) => Finding::new(what, Grade::Weaker, format!("refused: {error}"), cost),
    }
}

pub fn run(args: &DoctorArgs) -> Result<u8, Failure> {
    let mut findings = vec![kernel()];
    let found = Places::from_env();
    let kind = found.as_ref().ok().map(Places::pool_kind);
    findings.extend(places(found));
    findings.extend(limits());
    findings.push(persistent_memory(kind));
    findings.extend(features());
    findings.extend(products::findings());
    let blocked = findings.iter().any(|finding| finding.grade == Grade::Missing);
    if args.json {
        print_json(&findings)?;
    } else {
        print(&text(&findings))?;
    }
    Ok(if blocked { FOUND } else { 0 })
}

fn kernel() -> Finding {
    let found = format!(
        "Linux {}, pages of {}",
        probe::kernel_release(),
        show_size(probe::page_bytes() as u64)
    );
    Finding::new("kernel", Grade::Ok, found, "")
}

fn places(places: Result<Places, PlaceError>) -> Vec<Finding> {
    let places = match places {
        Ok(places) => places,
        Err(error) => {
            let cost = "no heap can be opened; do what the message says";
            return vec![Finding::new("pool and store", Grade::Missing, error.to_string(), cost)];
        }
    };
    let left = leftovers(&places);
    let mut findings = vec![pool(&places)];
    findings.extend(survivals(&places));
    findings.extend([
        Finding::new("home", Grade::Ok, places.home().display().to_string(), ""),
        writable("store", places.store()),
        room("room in the pool", places.pool()),
        room("room in the store", places.store()),
        Finding::new("compiled applets", Grade::Ok, places.cache().display().to_string(), ""),
        left,
        logout(),
    ]);
    findings
}

fn pool(places: &Places) -> Finding {
    let (what, shown) = ("pool", places.pool().display());
    match places.pool_kind() {
        _ if places.is_emulated() => Finding::new(
            what,
            Grade::Weaker,
            format!(
                "{shown} (a tmpfs that is treated as persistent memory: HOLDFAST_EMULATE_DAX=1)"
            ),
            "for tests and measurements only: commits at level system are gone after a reset; unset HOLDFAST_EMULATE_DAX",
        ),
        PoolKind::Tmpfs => Finding::new(what, Grade::Ok, format!("{shown} (tmpfs)"), ""),
        kind @ PoolKind::Dax { .. } => {
            Finding::new(what, Grade::Ok, format!("{shown} (persistent memory; {kind})"), "")
        }
        _ if probe::is_on_persistent_memory(places.pool()) => Finding::new(
            what,
            Grade::Weaker,
            format!("{shown} (on persistent memory, but not mapped directly)"),
            "its file system goes through the page cache like a disk's; mount it with `-o dax=always` (ext4 wants blocks of \
             4096 bytes: docs/guides/reserved-ram.md)",
        ),
        _ => Finding::new(
            what,
            Grade::Weaker,
            format!("{shown} (not a tmpfs)"),
            "the kernel writes every changed page to the disk, and after a reboot only commits at level power are there; \
             point HOLDFAST_POOL at a tmpfs",
        ),
    }
}

/// Which level a heap needs to survive each failure, and what that level is done by.
fn survivals(places: &Places) -> [Finding; 3] {
    let process = "level process: at once, without a commit";
    let written_back = "level system: written back to memory where programs order their stores, else as level power";
    let store = "level power: written to the store";
    let as_power = "level system is done as level power: written to the store";
    let (reset, cut) = match places.pool_kind() {
        // It ends with the boot, whatever is done to it.
        _ if places.is_emulated() => ("level power only, as the pool is emulated", store),
        PoolKind::Dax { survives: Survives::PowerCut } => {
            (written_back, "level power: as level system; to the store at the close")
        }
        PoolKind::Dax { .. } => (written_back, store),
        _ => (as_power, store),
    };
    [
        ("after a crash or kill", process),
        ("after a panic or reset", reset),
        ("after a power cut", cut),
    ]
    .map(|(what, found)| Finding::new(what, Grade::Ok, found, ""))
}

/// Tries it out: a store that is mounted read-only looks like any other until something is written.
fn writable(what: &'static str, directory: &Path) -> Finding {
    let shown = directory.display();
    let trial = directory.join(format!(".doctor.tmp-{}", std::process::id()));
    let tried = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&trial);
    match tried.and_then(|_| std::fs::remove_file(&trial)) {
        Ok(()) => Finding::new(what, Grade::Ok, shown.to_string(), ""),
        Err(error) => Finding::new(
            what,
            Grade::Missing,
            format!("{shown}: nothing can be written there: {error}"),
            "heaps open, but no checkpoint and no key can be made, so what a run stores is gone at the next reset; make it \
             writable, or choose another place with HOLDFAST_HOME",
        ),
    }
}

fn leftovers(places: &Places) -> Finding {
    let what = "leftovers";
    match NameSpace::new(places.clone()).leftovers() {
        Ok(found) if found.is_empty() => Finding::new(what, Grade::Ok, "none", ""),
        Ok(found) => {
            let bytes = found.iter().map(|leftover| leftover.allocated_bytes).sum();
            let cost = "files of killed programs, and copies that repairs kept; `holdfast heap tidy` lists and removes them";
            Finding::new(
                what,
                Grade::Note,
                format!("{} in {}", show_size(bytes), counted(found.len(), "place")),
                cost,
            )
        }
        Err(error) => Finding::new(what, Grade::Note, "cannot be listed", &error.to_string()),
    }
}

fn room(what: &'static str, path: &Path) -> Finding {
    // The directory may not be there before the first heap is.
    let existing = path.ancestors().find(|ancestor| ancestor.exists()).unwrap_or(path);
    match space(existing) {
        Ok(space) => {
            let found = format!(
                "{} of {} free",
                show_size(space.available_bytes),
                show_size(space.total_bytes)
            );
            let grade =
                if space.available_bytes < POOL_ROOM_MIN_BYTES { Grade::Weaker } else { Grade::Ok };
            let cost = "heaps soon stop growing with a \"no room\" error (nothing is lost); remove heaps, choose \
                        another place with HOLDFAST_POOL or HOLDFAST_HOME, or move heaps that outgrow the pool to the \
                        disk: `holdfast heap backing NAME file`";
            Finding::new(what, grade, found, cost)
        }
        Err(error) => {
            let cost = "its size cannot be told; check that the directory's file system works";
            Finding::new(what, Grade::Weaker, format!("{}: {error}", path.display()), cost)
        }
    }
}

fn logout() -> Finding {
    let what = "images at logout";
    match probe::remove_ipc() {
        RemoveIpc::NotApplicable => Finding::new(what, Grade::Ok, "kept (no logind cleans up)", ""),
        RemoveIpc::Off => Finding::new(what, Grade::Ok, "kept (RemoveIPC=no)", ""),
        RemoveIpc::OnButLingering => Finding::new(what, Grade::Ok, "kept (this user lingers)", ""),
        RemoveIpc::On => Finding::new(
            what,
            Grade::Weaker,
            "removed by logind (RemoveIPC=yes)",
            "after the last logout heaps open cold, from their last checkpoint; `loginctl enable-linger` or \
             RemoveIPC=no in logind.conf keeps them",
        ),
    }
}

fn limits() -> Vec<Finding> {
    let address_space = match probe::address_space_limit_bytes() {
        None => Finding::new("address space", Grade::Ok, "unlimited", ""),
        Some(bytes) if bytes >= ADDRESS_SPACE_MIN_BYTES => {
            Finding::new("address space", Grade::Ok, format!("limited to {}", show_size(bytes)), "")
        }
        Some(bytes) => Finding::new(
            "address space",
            Grade::Missing,
            format!("limited to {}", show_size(bytes)),
            "an applet's memory cannot be reserved; raise RLIMIT_AS (`ulimit -v unlimited`) and limit memory with \
             --memory or a cgroup",
        ),
    };
    let huge_pages = match probe::shared_memory_huge_pages() {
        HugePages::Setting(setting) => {
            let grade =
                if setting == "never" || setting == "deny" { Grade::Note } else { Grade::Ok };
            let cost = "look-ups in large heaps miss the TLB more often; an administrator may write `advise` to \
                        /sys/kernel/mm/transparent_hugepage/shmem_enabled";
            Finding::new("huge pages in the pool", grade, setting, cost)
        }
        HugePages::Unknown => {
            Finding::new("huge pages in the pool", Grade::Note, "not offered by the kernel", "")
        }
    };
    vec![address_space, native_addresses(), huge_pages]
}

/// Tries it out: the reservation costs no memory, and goes with this process.
fn native_addresses() -> Finding {
    let what = "addresses of heaps";
    let window = "64 TiB from 0x100000000000 on";
    match holdfast_region::reserve_addresses() {
        AddressWindow::Whole => {
            Finding::new(what, Grade::Ok, format!("{window}, reserved in one call"), "")
        }
        AddressWindow::Partial { reserved_bytes } => Finding::new(
            what,
            Grade::Weaker,
            format!("{} of {window}, the rest is in use", show_size(reserved_bytes)),
            "heaps of native programs whose range is in use cannot be opened, or must be relocated",
        ),
        _ => Finding::new(
            what,
            Grade::Weaker,
            "reserved heap by heap: RLIMIT_AS leaves no room for all",
            "what a native program allocates can take the address of a heap that it opens later; \
             `ulimit -v unlimited`",
        ),
    }
}

fn persistent_memory(pool: Option<PoolKind>) -> Finding {
    let what = "persistent memory";
    match probe::persistent_memory_devices() {
        Ok(devices) if devices.is_empty() => Finding::new(
            what,
            Grade::Note,
            "none",
            "heaps survive a reset of the machine as of their last commit to the store; a machine can set RAM aside that a \
             reset leaves alone: docs/guides/reserved-ram.md",
        ),
        Ok(devices) => {
            let names: Vec<_> =
                devices.iter().map(|path: &PathBuf| path.display().to_string()).collect();
            let cost = "not used as the pool: docs/guides/reserved-ram.md says how to make a file system for direct access on \
                        it and to point HOLDFAST_POOL there";
            let grade =
                if pool.is_some_and(PoolKind::outlives_boot) { Grade::Ok } else { Grade::Note };
            Finding::new(what, grade, names.join(", "), cost)
        }
        Err(error) => Finding::new(what, Grade::Note, format!("cannot be listed: {error}"), ""),
    }
}

fn features() -> Vec<Finding> {
    let slower = "changed pages are found in a slower way: see the line `changed pages`";
    let layer = "native programs run with a layer of their sandbox less, and with --strict not at all; WebAssembly does \
                 without it";
    let native = "native programs cannot be run; WebAssembly can";
    let seccomp = probe::seccomp();
    let mut features = vec![
        changed_pages(),
        feature("userfaultfd, asynchronous", probe::userfaultfd_async_write_protect(), slower),
        feature("PAGEMAP_SCAN", probe::pagemap_scan(), slower),
        match probe::landlock_abi() {
            Ok(abi) => Finding::new("Landlock", Grade::Ok, format!("ABI {abi}"), ""),
            Err(error) => {
                Finding::new("Landlock", Grade::Weaker, format!("refused: {error}"), layer)
            }
        },
        feature("seccomp, killing", seccomp.kill_process, native),
        feature("seccomp, notifying", seccomp.user_notification, native),
        feature("user name spaces", probe::user_namespaces(), layer),
        feature("sealed memory files", probe::memfd_sealing(), native),
    ];
    features.extend(layers());
    features.push(protection_keys());
    features.push(compiler());
    features
}

/// Tries it out: the kernel may be without them where the processor has them.
fn protection_keys() -> Finding {
    let what = "protection keys";
    match Key::allocate() {
        Ok(_) => Finding::new(
            what,
            Grade::Ok,
            "usable: the compartment of a thread is closed to the other threads of its program",
            "",
        ),
        Err(error) => Finding::new(
            what,
            Grade::Note,
            format!("none: {error}"),
            "a thread's compartment has its own objects, quota and transactions, but nothing keeps a stray pointer of another \
             thread out; what must be apart for certain runs as several applets",
        ),
    }
}

/// The layers of the sandbox for native applets, as a program of the system would get them.
fn layers() -> Vec<Finding> {
    let what = "native sandbox";
    match Jail::new("/bin/true").layers(Layers::all()).missing() {
        Ok(missing) if missing.is_empty() => vec![Finding::new(what, Grade::Ok, "all layers", "")],
        Ok(missing) => missing
            .into_iter()
            .map(|weakness| {
                let cost = format!("`--strict` refuses native applets; {}", weakness.remedy);
                Finding::new(
                    what,
                    Grade::Weaker,
                    format!("without {}: {}", weakness.layer, weakness.why),
                    &cost,
                )
            })
            .collect(),
        Err(error) => vec![Finding::new(what, Grade::Note, "cannot be tried", &error.to_string())],
    }
}

/// Whether WebAssembly can be compiled in a confined process; tried with the smallest module.
fn compiler() -> Finding {
    let what = "compiler of WebAssembly";
    match holdfast_applet::try_compiler() {
        Ok(()) => Finding::new(what, Grade::Ok, "in a process of its own, confined", ""),
        Err(error) => Finding::new(
            what,
            Grade::Weaker,
            error.to_string(),
            "WebAssembly applets run only where they are in the cache already; allow this user processes, seccomp filters and \
             /proc",
        ),
    }
}

/// Which way to find changed pages works best here, and why no better one does.
fn changed_pages() -> Finding {
    let what = "changed pages";
    let reason = |kind| {
        dirty::available(kind)
            .refusal()
            .map_or(String::new(), |error| format!("; {kind} refused: {error}"))
    };
    match dirty::best() {
        DirtyMethod::Userfault => Finding::new(what, Grade::Ok, "found by userfaultfd (uffd)", ""),
        DirtyMethod::Protect => Finding::new(
            what,
            Grade::Weaker,
            format!("found by page protection (mprotect){}", reason(DirtyMethod::Userfault)),
            "the first store to each page costs several microseconds more; Linux 6.7 or newer, with userfaultfd allowed and \
             /proc mounted, has the cheaper way",
        ),
        DirtyMethod::Reported | DirtyMethod::Everything => Finding::new(
            what,
            Grade::Weaker,
            format!("not found{}{}", reason(DirtyMethod::Userfault), reason(DirtyMethod::Protect)),
            "all of a heap counts as changed, however little was; Linux 6.7 or newer, with userfaultfd allowed and /proc \
             mounted, finds the pages",
        ),
    }
}

fn text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let sign = match finding.grade {
            Grade::Ok => "ok     ",
            Grade::Weaker => "weaker ",
            Grade::Missing => "MISSING",
            Grade::Note => "note   ",
        };
        text.push_str(&format!("{sign}  {:<width$}  {}\n", finding.what, Shown(&finding.found)));
        if let Some(cost) = &finding.cost {
            text.push_str(&format!("         {:<width$}  -> {cost}\n", ""));
        }
    }
    text
}
