//! Modes of what a program leaves in a granted directory: each call of the table of modes
//! (`policy::modes`), with each of the 4,096 modes where it can make or change a file, and what is
//! found from outside afterwards. The canary is the same program under an open policy, where
//! set-user-ID files are left behind.

use std::collections::BTreeMap;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use holdfast_jail::policy::Group;
use holdfast_jail::policy::modes::{CREATING_FLAGS, MODE_CALLS, Mode, SPECIAL_BITS};
use holdfast_jail::{End, Jail, JailStdio, Layer, Layers, PathAccess, PathGrant, Policy};
use tempfile::TempDir;

use crate::calls::check_under;
use crate::victims::{WORKED, end, finish, jail, refused};

const MODES: usize = 0o10000;
const SPECIAL: u32 = SPECIAL_BITS as u32;
/// Modes without one of the three bits.
const ORDINARY: usize = 0o1000;

/// A jail for these words, with a directory granted for writing under its own path.
fn granted(directory: &Path, words: &[&str]) -> Jail {
    let (host, guest) = (directory.to_owned(), directory.to_owned());
    jail(words).path(PathGrant { host, guest, access: PathAccess::ReadWrite })
}

/// In memory where there is such a file system: thousands of files are made.
fn directory() -> TempDir {
    let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let plain = directory.path().join("plain");
    std::fs::write(&plain, "plain").unwrap();
    std::fs::set_permissions(&plain, PermissionsExt::from_mode(0o644)).unwrap();
    directory
}

/// What came of each mode: the error number, and the mode that there was then.
fn outcomes(how: &str, directory: &Path, policy: Policy) -> Vec<(i32, u32)> {
    outcomes_under(Layers::default(), how, directory, policy)
}

fn outcomes_under(layers: Layers, how: &str, directory: &Path, policy: Policy) -> Vec<(i32, u32)> {
    let jail = granted(directory, &["modes", how, directory.to_str().unwrap()]).layers(layers);
    let jailed =
        jail.policy(policy).stdio(JailStdio::Capture { limit_bytes: 1 << 20 }).spawn().unwrap();
    assert_eq!(finish(&jailed), WORKED, "{how}");
    let text = String::from_utf8(jailed.stdout()).unwrap();
    let outcomes: Vec<(i32, u32)> = text
        .lines()
        .map(|line| {
            let (error, mode) = line.split_once(' ').unwrap();
            (error.parse().unwrap(), u32::from_str_radix(mode, 8).unwrap())
        })
        .collect();
    assert_eq!(outcomes.len(), MODES, "{how}");
    outcomes
}

/// The modes of all that is in a directory, as its owner finds them.
fn modes(directory: &Path) -> BTreeMap<String, u32> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let mode = entry.path().symlink_metadata().unwrap().permissions().mode() & 0o7777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect()
}

/// Guarantee: sandbox/special-files
#[test]
fn files_are_made_with_ordinary_modes_only() {
    for how in ["open", "openat", "creat", "mkdir", "mkdirat", "temporary"] {
        let directory = directory();
        for (mode, outcome) in outcomes(how, directory.path(), Policy::default()).iter().enumerate()
        {
            let mode = mode as u32;
            let expected = if mode & SPECIAL == 0 { (0, mode) } else { (libc::EPERM, 0) };
            assert_eq!(*outcome, expected, "{how} with {mode:04o}");
        }
        let found = modes(directory.path());
        let made = if how == "temporary" { 0 } else { ORDINARY };
        assert_eq!(found.len(), made + 1, "{how}");
        assert!(found.values().all(|mode| mode & SPECIAL == 0), "{how}: {found:?}");

        // The canary.
        let directory = crate::modes::directory();
        let open = outcomes(how, directory.path(), Policy::open());
        let sticky = |&&(error, mode): &&(i32, u32)| error == 0 && mode & 0o1000 != 0;
        let set_user = |&&(error, mode): &&(i32, u32)| error == 0 && mode & 0o4000 != 0;
        assert_eq!(open.iter().filter(sticky).count(), MODES / 2, "{how}");
        // The kernel itself keeps directories from being made so.
        let files = if how.starts_with("mkdir") { 0 } else { MODES / 2 };
        assert_eq!(open.iter().filter(set_user).count(), files, "{how}");
    }
}

/// Guarantee: sandbox/special-files
#[test]
fn a_mode_that_makes_nothing_is_not_looked_at() {
    // Some programs pass whatever is in the register.
    let directory = directory();
    let found = outcomes("open what is there", directory.path(), Policy::default());
    assert!(found.iter().all(|outcome| *outcome == (0, 0o644)), "{found:?}");
}

/// Guarantee: sandbox/special-files
#[test]
fn modes_are_changed_within_0777_in_a_root_of_its_own() {
    for how in ["chmod", "fchmod", "fchmodat", "fchmodat2"] {
        // Without one it could be any file of the user's.
        let directory = directory();
        let landlock = Layers::none().with(Layer::Landlock);
        let found = outcomes_under(landlock, how, directory.path(), Policy::default());
        assert!(found.iter().all(|(error, _)| *error == libc::EPERM), "{how}: {found:?}");
        assert_eq!(modes(directory.path())["plain"], 0o644, "{how}");
        // The canary; Linux has the last one from 6.6 on.
        let open = outcomes(how, directory.path(), Policy::open());
        let is_known = how != "fchmodat2" || open[0].0 != libc::ENOSYS;
        assert_eq!(open.iter().any(|(_, mode)| mode & 0o4000 != 0), is_known, "{how}");

        let directory = crate::modes::directory();
        let found = outcomes(how, directory.path(), Policy::default());
        for (mode, outcome) in found.iter().enumerate() {
            let mode = mode as u32;
            let expected = match mode & SPECIAL {
                0 if is_known => (0, mode),
                0 => (libc::ENOSYS, 0),
                _ => (libc::EPERM, 0),
            };
            assert_eq!(*outcome, expected, "{how} to {mode:04o}");
        }
    }
}

/// A change of its mode would take the bit away that keeps the users of a directory apart.
///
/// Guarantee: sandbox/granted-files
#[test]
fn modes_stay_where_a_directory_has_a_special_bit() {
    for bits in [0o1777, 0o2775] {
        let directory = directory();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(bits)).unwrap();
        let found = outcomes("chmod", directory.path(), Policy::default());
        assert!(found.iter().all(|(error, _)| *error == libc::EPERM), "{bits:o}");
        // Times may be set there.
        let words = ["set times", directory.path().to_str().unwrap()];
        assert_eq!(end(granted(directory.path(), &words)), End::Exited { status: 1 }, "{bits:o}");
        let mode = directory.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, bits);
    }
}

/// What a program may change of its files is not to be had of the host's: not of `/dev/null`, by
/// its path or by a descriptor, nor of what was granted for reading.
///
/// Guarantee: sandbox/granted-files
/// Guarantee: sandbox/special-files
#[test]
fn times_of_others_files_cannot_be_set() {
    let (own, others) = (directory(), directory());
    let [plain, other] = [&own, &others].map(|place| place.path().join("plain"));
    let times = |path: &Path| path.metadata().unwrap().modified().unwrap();
    let (null, before) = (Path::new("/dev/null"), times(&other));
    for stdio in [JailStdio::Null, JailStdio::Capture { limit_bytes: 64 }] {
        let (host, guest) = (others.path().to_owned(), others.path().to_owned());
        let words = ["set times", plain.to_str().unwrap(), other.to_str().unwrap(), "/dev/null"];
        let jail = granted(own.path(), &words);
        let reading = PathGrant { host, guest, access: PathAccess::ReadOnly };
        // One of three.
        let found = end(jail.path(reading).stdio(stdio));
        assert_eq!(found, End::Exited { status: 1 }, "{stdio:?}");
        assert_eq!(times(&plain), SystemTime::UNIX_EPOCH + Duration::from_secs(12345));
        assert_eq!(times(&other), before);
        assert_ne!(times(null), times(&plain), "{stdio:?}");
    }
    // A process file system leads to the host's mounts, so with one nothing is set at all.
    let (host, guest) = (PathBuf::from("/proc"), PathBuf::from("/proc"));
    let jail = granted(own.path(), &["set times", plain.to_str().unwrap()]);
    let processes = PathGrant { host, guest, access: PathAccess::ReadOnly };
    assert_eq!(end(jail.path(processes)), End::Exited { status: 0 });
}

/// Guarantee: sandbox/special-files
#[test]
fn a_rename_leaves_no_device_node() {
    let rename = |flags: u32, policy: Policy| {
        let directory = directory();
        std::fs::write(directory.path().join("other"), "").unwrap();
        let (from, to) = (directory.path().join("plain"), directory.path().join("other"));
        let words = ["rename", from.to_str().unwrap(), to.to_str().unwrap(), &flags.to_string()];
        let found = end(granted(directory.path(), &words).policy(policy));
        let is_node = from.symlink_metadata().is_ok_and(|found| found.file_type().is_char_device());
        (found, is_node)
    };
    let default = Policy::default();
    assert_eq!(rename(0, default), (WORKED, false));
    assert_eq!(rename(libc::RENAME_NOREPLACE, default), (refused(libc::EEXIST), false));
    assert_eq!(rename(libc::RENAME_EXCHANGE, default), (WORKED, false));
    for others in [0, libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE] {
        assert_eq!(rename(libc::RENAME_WHITEOUT | others, default), (refused(libc::EINVAL), false));
    }
    // The canary. Some file systems have no whiteouts.
    let (found, is_node) = rename(libc::RENAME_WHITEOUT, Policy::open());
    assert_eq!(found == WORKED, is_node);
    if !is_node {
        println!("not run: the file system of the tests has no whiteouts ({found})");
    }
}

/// Guarantee: sandbox/special-files
#[test]
fn the_table_of_modes_holds_for_a_real_program() {
    let directory = directory();
    let policy = Policy::default().with(Group::Directories).with(Group::SharedMemory);
    let layers = Layers::none().with(Layer::Landlock);
    for row in MODE_CALLS {
        let mut args = [0_u64; 6];
        match row.mode {
            Mode::Argument(mode) => args[usize::from(mode)] = 0o6777,
            Mode::WhenCreating { flags, mode } => {
                args[usize::from(flags)] = CREATING_FLAGS;
                args[usize::from(mode)] = 0o4755;
            }
            Mode::WithBits { argument, bits } => args[usize::from(argument)] = bits,
            Mode::WithValue { argument, value } => {
                args[0] = 9;
                args[usize::from(argument)] = value;
            }
            // A mask of no bits is what hides the fewest.
            Mode::Mask | Mode::Unseen => {}
        }
        check_under(policy, row.syscall, args, |words| {
            end(granted(directory.path(), words).layers(layers))
        });
    }
    // The same calls of i386: open, creat, link, mknod, chmod, chown, mkdir, umask, fchmod, fchown,
    // setxattr and its like, openat and its like, fchmodat, openat2.
    let i386 = [
        5, 8, 9, 14, 15, 39, 60, 94, 95, 182, 226, 227, 228, 295, 296, 297, 298, 303, 306, 353,
        437, 452,
    ];
    for number in i386 {
        let found =
            end(granted(directory.path(), &["int 0x80", &number.to_string()]).layers(layers));
        let is_violation = matches!(&found, End::Violation(violation) if violation.arch == "i386");
        assert!(is_violation, "{number}: {found}");
    }
}

/// Directories made in a set-group-ID directory have that bit, too, as the user who set it wants;
/// files never do.
///
/// Guarantee: sandbox/special-files
#[test]
fn setgid_directory_passes_its_bit_to_directories() {
    let directory = directory();
    std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o2775)).unwrap();
    let inner = directory.path().join("inner");
    assert_eq!(
        end(granted(directory.path(), &["make a directory", inner.to_str().unwrap()])),
        WORKED
    );
    assert_eq!(modes(directory.path())["inner"] & SPECIAL, 0o2000);
    let file = inner.join("file");
    assert_eq!(end(granted(directory.path(), &["create", file.to_str().unwrap()])), WORKED);
    assert_eq!(modes(&inner)["file"] & SPECIAL, 0);
    // Nor with every mode there is.
    for how in ["openat", "creat", "temporary"] {
        let found = outcomes(how, &inner, Policy::default());
        assert!(found.iter().all(|(_, mode)| mode & SPECIAL == 0), "{how}");
    }
    assert!(modes(&inner).values().all(|mode| mode & SPECIAL == 0));
}

/// What the program stores in a set-user-ID file that was there is not run with its owner's rights.
///
/// Guarantee: sandbox/special-files
#[test]
fn a_set_user_file_that_is_written_to_loses_the_bit() {
    for (action, is_changed) in [("write into", true), ("cut off", true), ("read", false)] {
        let directory = directory();
        let file = directory.path().join("plain");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o6755)).unwrap();
        assert_eq!(
            end(granted(directory.path(), &[action, file.to_str().unwrap()])),
            WORKED,
            "{action}"
        );
        let expected = if is_changed { 0o755 } else { 0o6755 };
        assert_eq!(modes(directory.path())["plain"], expected, "{action}");
    }
}
