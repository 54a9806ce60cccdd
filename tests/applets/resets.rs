//! Applets in a pool that outlives a reset of the machine: whose image is believed afterwards, and
//! what it takes.
//!
//! The pool is emulated; a reset is a copy of what pool and store hold, opened in another boot.
//! What of a heap's lines is in memory by then is tried where stores can be recorded: in the tests
//! of `core/heap` and `core/region`.

use std::path::{Path, PathBuf};

use holdfast_applet::{Applet, Grants, Limits, SandboxKind};
use holdfast_jail::notes;
use holdfast_region::{NameSpace, Opened, OwnerKey, Places, Region, RegionName};
use holdfast_testkit::Programs;
use tempfile::TempDir;

use crate::{MIB, ask, death, forms};

/// The level `system`, as applets have it.
const SYSTEM: u64 = 1;

/// A machine whose pool outlives its resets.
struct Machine {
    directory: TempDir,
    boot: u8,
}

impl Machine {
    fn new() -> Machine {
        Machine { directory: scratch(), boot: 2 }
    }

    fn home(&self) -> PathBuf {
        self.directory.path().join("home")
    }

    fn pool(&self) -> PathBuf {
        self.directory.path().join("pool")
    }

    fn region(&self) -> Region {
        let places = Places::at_emulated_dax(self.home(), self.pool(), [self.boot; 16]).unwrap();
        let (name, key) = (RegionName::parse("numbers").unwrap(), OwnerKey::from_bytes([5; 32]));
        NameSpace::new(places).open_or_create(&name, &key, 32 * MIB).unwrap()
    }

    fn spawn(&self, path: &Path) -> Applet {
        Applet::spawn(path, Limits::default(), Grants::none().heap(self.region())).unwrap()
    }

    fn has_base(&self) -> bool {
        self.home().join("store").join("numbers.base").exists()
    }

    /// The same machine after a reset, while its applet still runs.
    fn after_a_reset(&self) -> Machine {
        let after = Machine { directory: scratch(), boot: self.boot + 1 };
        drop(Places::at_emulated_dax(after.home(), after.pool(), [after.boot; 16]).unwrap());
        for (from, to) in
            [(self.pool(), after.pool()), (self.home().join("store"), after.home().join("store"))]
        {
            for entry in from.read_dir().unwrap().map(Result::unwrap) {
                let name = entry.file_name();
                if entry.path().is_file() && !name.to_string_lossy().ends_with("lock") {
                    std::fs::copy(entry.path(), to.join(name)).unwrap();
                }
            }
        }
        after
    }

    /// How the heap is found after a reset that happens now, and its number.
    fn found_after_a_reset(&self, path: &Path) -> (Opened, u64) {
        let after = self.after_a_reset();
        let region = after.region();
        let opened = region.opened();
        let applet = Applet::spawn(path, Limits::default(), Grants::none().heap(region)).unwrap();
        (opened, ask(&applet, "look", 0).unwrap())
    }
}

fn scratch() -> TempDir {
    tempfile::Builder::new().prefix("holdfast-resets-").tempdir_in("/dev/shm").unwrap()
}

/// A program that can be replaced by one that is the same, but for what it promises.
struct Replaceable {
    directory: TempDir,
    original: Vec<u8>,
}

impl Replaceable {
    fn new(path: &Path) -> Replaceable {
        let program = Replaceable { directory: scratch(), original: std::fs::read(path).unwrap() };
        program.write(&program.original);
        program
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("program")
    }

    fn write(&self, bytes: &[u8]) {
        use std::os::unix::fs::PermissionsExt;
        let new = self.directory.path().join("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }

    fn with_promise(&self) {
        self.write(&self.original);
    }

    fn without_promise(&self) {
        let mut bytes = self.original.clone();
        let note: &[u8] = b"Holdfast\0\0\0\0\x01\0\0\0";
        let at = bytes.windows(note.len()).position(|window| window == note).unwrap();
        bytes[at + note.len() - 4] = 0;
        self.write(&bytes);
    }
}

/// Native applets in every language carry the note that promises ordered stores.
///
/// Guarantee: applets/languages
/// Guarantee: heap/order-promises
#[test]
fn native_applets_promise_store_order() {
    let programs = Programs::find().unwrap();
    let mut applets = vec![programs.static_applet("trial").unwrap()];
    for name in ["trial", "wordcount", "notes"] {
        applets.push(programs.native_applet(name).unwrap());
    }
    for path in applets {
        let promises =
            notes(&path, None).unwrap().into_iter().filter(|note| note.owner == b"Holdfast");
        let promises: Vec<_> = promises.map(|note| (note.kind, note.content)).collect();
        // The order of stores, and the version of the channel.
        let expected = [1, holdfast_channel::boot::VERSION].map(u32::to_le_bytes).concat();
        assert_eq!(promises, [(1, expected)], "{}", path.display());
    }
    // What is no applet promises nothing.
    assert!(notes(programs.holdfast(), None).unwrap().iter().all(|note| note.owner != b"Holdfast"));
}

/// A native applet's commit at level system writes nothing to disk where its pool survives a reset.
///
/// Guarantee: heap/reset-ordered
#[test]
fn native_system_commit_needs_no_disk() {
    for (kind, path) in forms() {
        let machine = Machine::new();
        let applet = machine.spawn(&path);
        assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
        applet.call("commit", &SYSTEM.to_le_bytes()).unwrap();
        let expected = match kind {
            SandboxKind::Native => (Opened::WarmAfterReset, 1),
            // No process orders the stores of compiled code: its commits go to the store.
            _ => (Opened::Cold, 1),
        };
        assert_eq!(machine.has_base(), kind != SandboxKind::Native, "{kind}");
        assert_eq!(machine.found_after_a_reset(&path), expected, "{kind}");
        assert_eq!(ask(&applet, "count", 0).unwrap(), 2);
        applet.close().unwrap();
        assert_eq!(machine.found_after_a_reset(&path), (Opened::Warm, 2), "{kind}");
    }
}

/// After the death of an applet, its image is valid, and its successor continues without the disk.
///
/// Guarantee: heap/order-promises
#[test]
fn successor_of_a_dead_applet_needs_no_disk() {
    let [(_, path), ..] = forms();
    let machine = Machine::new();
    let applet = machine.spawn(&path);
    for number in 1..=3 {
        assert_eq!(ask(&applet, "count", 0).unwrap(), number);
        death(applet.call("count_and_crash", b""));
        assert_eq!(machine.found_after_a_reset(&path), (Opened::WarmAfterReset, number));
        applet.respawn().unwrap();
        assert_eq!(machine.found_after_a_reset(&path), (Opened::WarmAfterReset, number));
    }
    assert!(!machine.has_base());
}

/// The image of an applet that promises no store order is not trusted after a reset.
///
/// Guarantee: heap/order-promises
#[test]
fn applet_without_a_promise_is_cold_after_a_reset() {
    let [(_, path), ..] = forms();
    let program = Replaceable::new(&path);
    program.without_promise();
    let machine = Machine::new();
    let applet = machine.spawn(&program.path());
    assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
    applet.call("commit", &SYSTEM.to_le_bytes()).unwrap();
    assert_eq!(ask(&applet, "count", 0).unwrap(), 2);
    assert_eq!(machine.found_after_a_reset(&path), (Opened::Cold, 1));
    // Nor after its death, until its host has brought to memory what it left.
    drop(applet);
    assert_eq!(machine.found_after_a_reset(&path), (Opened::Warm, 2));
}

/// Guarantee: heap/order-promises
#[test]
fn a_promise_of_order_does_not_outlive_its_applet() {
    let [(_, path), ..] = forms();
    let program = Replaceable::new(&path);
    let machine = Machine::new();
    let applet = machine.spawn(&program.path());
    assert_eq!(ask(&applet, "count", 0).unwrap(), 1);
    death(applet.call("count_and_crash", b""));
    // The host recovers the heap in order; the process that has it next promises nothing.
    program.without_promise();
    applet.respawn().unwrap();
    assert_eq!(
        machine.found_after_a_reset(&path),
        (Opened::Cold, 1),
        "what was committed before is lost"
    );
    assert_eq!(ask(&applet, "count", 0).unwrap(), 2);
    assert_eq!(
        machine.found_after_a_reset(&path),
        (Opened::Cold, 1),
        "an image that may be torn was believed"
    );
    program.with_promise();
    death(applet.call("count_and_crash", b""));
    applet.respawn().unwrap();
    assert_eq!(ask(&applet, "count", 0).unwrap(), 3);
    assert_eq!(machine.found_after_a_reset(&path), (Opened::WarmAfterReset, 3));
}

/// An applet that orders its stores itself persists them one by one.
///
/// Guarantee: heap/persist
#[test]
fn self_ordering_applet_persists_each_store() {
    for (kind, path) in forms() {
        let machine = Machine::new();
        let applet = machine.spawn(&path);
        assert_eq!(ask(&applet, "store_in_order", 7).unwrap(), 7, "{kind}");
    }
}
