//! The directories of a home, their owners, and the keys that open them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

use common::{Home, MIB, key, named, read, store};
use holdfast_region::{
    Durability, KeyError, NameSpace, Opened, OwnerKey, PlaceError, Places, PoolKind, Survives,
};
use holdfast_sys::file::effective_user;
use holdfast_sys::private_group::is_private_group;

struct Scratch {
    folder: tempfile::TempDir,
    tmpfs: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch {
            folder: tempfile::tempdir().unwrap(),
            tmpfs: tempfile::tempdir_in("/dev/shm").unwrap(),
        }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    fn places(&self, variables: &[(&str, &Path)]) -> Result<Places, PlaceError> {
        let variables: HashMap<&str, OsString> =
            variables.iter().map(|(name, value)| (*name, value.as_os_str().to_owned())).collect();
        Places::from_variables(|name| variables.get(name).cloned(), self.tmpfs.path())
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

/// Without configuration everything is below the home directory and on tmpfs.
#[test]
fn default_places_are_home_directory_and_tmpfs() {
    let scratch = Scratch::new();
    let places = scratch.places(&[("HOME", &scratch.path("me"))]).unwrap();
    let me = scratch.path("me").canonicalize().unwrap();
    assert_eq!(places.home(), me.join(".local/share/holdfast"));
    assert_eq!(places.store(), places.home().join("store"));
    assert_eq!(places.keys(), places.home().join("keys"));
    assert_eq!(places.cache(), scratch.path("me/.cache/holdfast"));
    let of_user = scratch.tmpfs.path().join(format!("holdfast-{}", effective_user()));
    assert_eq!(places.pool().parent().unwrap(), of_user);
    assert_eq!(places.pool().file_name().unwrap().len(), 16);
    assert!(places.pool_is_volatile_memory());
    for directory in [places.home(), places.store(), places.keys(), places.pool(), &of_user] {
        assert_eq!(mode(directory), 0o700, "{}", directory.display());
    }
    let note = std::fs::read_to_string(places.pool().join("home")).unwrap();
    assert_eq!(Path::new(note.trim_end()), places.home());
    assert_eq!(scratch.places(&[("HOME", &scratch.path("me"))]).unwrap(), places);
}

#[test]
fn two_homes_of_one_user_have_two_pools() {
    let scratch = Scratch::new();
    let first = scratch.places(&[("HOLDFAST_HOME", &scratch.path("one"))]).unwrap();
    let second = scratch.places(&[("HOLDFAST_HOME", &scratch.path("two"))]).unwrap();
    assert_ne!(first.pool(), second.pool());
    // A home reached through a link is the same home.
    symlink(scratch.path("one"), scratch.path("link")).unwrap();
    assert_eq!(
        scratch.places(&[("HOLDFAST_HOME", &scratch.path("link"))]).unwrap().pool(),
        first.pool()
    );
}

#[test]
fn the_variables_are_obeyed_in_their_order() {
    let scratch = Scratch::new();
    let (home, data, cache) = (scratch.path("home"), scratch.path("data"), scratch.path("cache"));
    let xdg: &[(&str, &Path)] =
        &[("HOME", &home), ("XDG_DATA_HOME", &data), ("XDG_CACHE_HOME", &cache)];
    let places = scratch.places(xdg).unwrap();
    assert_eq!(places.home(), data.canonicalize().unwrap().join("holdfast"));
    assert_eq!(places.cache(), cache.join("holdfast"));
    let (own, pool) = (scratch.path("own"), scratch.path("pool"));
    let explicit: &[(&str, &Path)] = &[("HOLDFAST_HOME", &own), ("HOLDFAST_POOL", &pool)];
    let places = scratch.places(&[xdg, explicit].concat()).unwrap();
    assert_eq!(places.home(), own.canonicalize().unwrap());
    assert_eq!(places.cache(), own.join("cache"));
    // On a disk, what is in it is of this boot.
    assert!(places.pool() == pool || places.pool().parent() == Some(&*pool));
    assert_eq!(mode(&pool), 0o700);
}

/// Relative values are ignored for xdg and refused for ours.
#[test]
fn relative_paths_are_ignored_or_refused() {
    let scratch = Scratch::new();
    let (home, relative) = (scratch.path("home"), Path::new("some/where"));
    let places = scratch.places(&[("HOME", &home), ("XDG_DATA_HOME", relative)]).unwrap();
    assert!(places.home().ends_with(".local/share/holdfast"));
    for variable in ["HOLDFAST_HOME", "HOLDFAST_POOL"] {
        let error = scratch.places(&[("HOME", &home), (variable, relative)]).unwrap_err();
        assert!(
            matches!(error, PlaceError::NotAbsolute { variable: found, .. } if found == variable)
        );
    }
    assert!(matches!(scratch.places(&[]), Err(PlaceError::NoHome)));
}

#[test]
fn the_default_pool_is_never_on_a_disk() {
    let scratch = Scratch::new();
    let home = scratch.path("home");
    std::fs::create_dir(&home).unwrap();
    let on_disk = scratch.path("no-tmpfs");
    std::fs::create_dir(&on_disk).unwrap();
    let lookup = |with_runtime: bool| {
        let runtime = with_runtime.then(|| scratch.tmpfs.path().as_os_str().to_owned());
        let home = home.as_os_str().to_owned();
        Places::from_variables(
            move |name| match name {
                "HOME" => Some(home.clone()),
                "XDG_RUNTIME_DIR" => runtime.clone(),
                _ => None,
            },
            &on_disk,
        )
    };
    if holdfast_sys::file::is_volatile_memory(&on_disk).unwrap() {
        println!("not run: the temporary directory is a tmpfs itself");
        return;
    }
    assert!(matches!(lookup(false), Err(PlaceError::NoTmpfs { tried }) if tried == on_disk));
    assert!(lookup(true).unwrap().pool().starts_with(scratch.tmpfs.path()));
    // Said explicitly it is allowed, and reported.
    let places = Places::at(&home, on_disk.join("pool")).unwrap();
    assert!(!places.pool_is_volatile_memory());
}

/// A pool that others may enter is refused, and the error does not advise to close one of the
/// system.
#[test]
fn pool_open_to_others_is_refused_with_right_advice() {
    let scratch = Scratch::new();
    let pool = scratch.path("pool");
    std::fs::create_dir(&pool).unwrap();
    for (open, may_be_closed) in
        [(0o755, true), (0o770, true), (0o701, true), (0o777, false), (0o1777, false)]
    {
        std::fs::set_permissions(&pool, PermissionsExt::from_mode(open)).unwrap();
        let error = Places::at(scratch.path("home"), &pool).unwrap_err();
        assert!(matches!(error, PlaceError::NotPrivate { mode, .. } if mode == open));
        let text = error.to_string();
        assert!(
            text.contains("choose a directory of your own") && text.contains("pool/NAME"),
            "{text}"
        );
        assert_eq!(text.contains("chmod 0700"), may_be_closed, "{text}");
    }
    let error = Places::at(Path::new("/etc/passwd"), &pool).unwrap_err().to_string();
    assert!(
        error.contains("choose a directory of your own") && !error.contains("move it away"),
        "{error}"
    );
    std::fs::set_permissions(&pool, PermissionsExt::from_mode(0o700)).unwrap();
    Places::at(scratch.path("home"), &pool).unwrap();
}

/// A home that others may write to is refused, and one that they may read is not. A group that is
/// the user's alone is no others.
///
/// Guarantee: sandbox/home-is-private
#[test]
fn home_that_others_may_write_to_is_refused() {
    let scratch = Scratch::new();
    let (home, pool) = (scratch.path("home"), scratch.path("pool"));
    Places::at(&home, &pool).unwrap();
    let set = |mode| std::fs::set_permissions(&home, PermissionsExt::from_mode(mode)).unwrap();
    for open in [0o755, 0o711, 0o750] {
        set(open);
        Places::at(&home, &pool).unwrap();
    }
    for (open, is_closed) in [(0o777, true), (0o702, true), (0o1777, false)] {
        set(open);
        let error = Places::at(&home, &pool).unwrap_err();
        assert!(
            matches!(&error, PlaceError::WritableByOthers { mode, .. } if *mode == open),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("HOLDFAST_HOME"), "{text}");
        // No message may tell a user to close /tmp.
        assert_eq!(text.contains("chmod go-w"), is_closed, "{text}");
    }
    set(0o775);
    let group = home.metadata().unwrap().gid();
    assert_eq!(Places::at(&home, &pool).is_ok(), is_private_group(group), "group {group}");
    // As root, also of a group that is not this user's.
    let other = 65_533;
    if effective_user() == 0 && chown(&home, None, Some(other)).is_ok() && !is_private_group(other)
    {
        set(0o775);
        let error = Places::at(&home, &pool).unwrap_err();
        assert!(matches!(error, PlaceError::WritableByOthers { mode: 0o775, .. }), "{error}");
    }
    set(0o755);
    Places::at(&home, &pool).unwrap();
}

/// A pool that is a symbolic link or a file is refused.
#[test]
fn linked_or_plain_file_pool_is_refused() {
    let scratch = Scratch::new();
    let (real, link) = (scratch.path("real"), scratch.path("link"));
    Places::at(scratch.path("home"), &real).unwrap();
    symlink(&real, &link).unwrap();
    for path in [link.clone(), PathBuf::from(format!("{}/", link.display()))] {
        let error = Places::at(scratch.path("home"), &path).unwrap_err();
        assert!(matches!(error, PlaceError::SymbolicLink { .. }), "{error}");
        assert!(error.to_string().contains("HOLDFAST_POOL"), "{error}");
    }
    let file = scratch.path("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(Places::at(scratch.path("home"), &file), Err(PlaceError::WrongKind { .. })));
    // The same for the default pool: a process was in /dev/shm before us.
    let of_user = scratch.tmpfs.path().join(format!("holdfast-{}", effective_user()));
    symlink(&real, &of_user).unwrap();
    let error = scratch.places(&[("HOME", &scratch.path("me"))]).unwrap_err();
    assert!(matches!(error, PlaceError::SymbolicLink { path } if path == of_user));
}

#[test]
fn a_pool_that_belongs_to_somebody_else_is_refused() {
    let scratch = Scratch::new();
    let foreign = if effective_user() == 0 {
        let made = scratch.path("foreign");
        std::fs::create_dir(&made).unwrap();
        std::fs::set_permissions(&made, PermissionsExt::from_mode(0o700)).unwrap();
        chown(&made, Some(65_534), None).unwrap();
        made
    } else {
        // Root's own directory, on every Linux.
        PathBuf::from("/usr")
    };
    let error = Places::at(scratch.path("home"), &foreign).unwrap_err();
    assert!(matches!(&error, PlaceError::NotOurs { owner, us, .. } if owner != us), "{error}");
    assert!(error.to_string().contains("HOLDFAST_POOL"), "{error}");
}

#[test]
fn a_key_is_made_once_private_and_random() {
    let home = Home::new();
    let places = home.places();
    let first = OwnerKey::load_or_create(&places, "default").unwrap();
    assert_eq!(
        OwnerKey::load_or_create(&places, "default").unwrap().fingerprint(),
        first.fingerprint()
    );
    assert_ne!(
        OwnerKey::load_or_create(&places, "other").unwrap().fingerprint(),
        first.fingerprint()
    );
    let path = places.keys().join("default.key");
    assert_eq!((mode(&path), path.metadata().unwrap().len()), (0o600, 32));
    assert_eq!(std::fs::read_dir(places.keys()).unwrap().count(), 2, "temporary files are left");
    assert!(matches!(OwnerKey::load_or_create(&places, "../x"), Err(KeyError::Name(_))));
}

#[test]
fn keys_made_at_the_same_time_are_one_key() {
    let home = Home::new();
    let places = home.places();
    let fingerprints: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| OwnerKey::load_or_create(&places, "k").unwrap().fingerprint()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(fingerprints.windows(2).all(|pair| pair[0] == pair[1]));
}

/// A key file that is damaged open to others or a link is refused.
#[test]
fn bad_key_files_are_refused() {
    let home = Home::new();
    let places = home.places();
    OwnerKey::load_or_create(&places, "k").unwrap();
    let path = places.keys().join("k.key");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
    let error = OwnerKey::load_or_create(&places, "k").unwrap_err();
    assert!(matches!(error, KeyError::Place(PlaceError::NotPrivate { .. })), "{error}");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    common::truncate(&path, 31);
    let error = OwnerKey::load_or_create(&places, "k").unwrap_err();
    assert!(matches!(error, KeyError::Damaged { found_bytes: 31, .. }), "{error}");
    symlink(&path, places.keys().join("l.key")).unwrap();
    let error = OwnerKey::load_or_create(&places, "l").unwrap_err();
    assert!(matches!(error, KeyError::Place(PlaceError::SymbolicLink { .. })), "{error}");
}

/// In a pool on a disk an image of another boot does not hide commits.
///
/// Guarantee: heap/pools-on-disk
#[test]
fn disk_image_of_another_boot_hides_no_commits() {
    let scratch = tempfile::tempdir().unwrap();
    let (home, pool) = (scratch.path().join("home"), scratch.path().join("pool"));
    let places = Places::at(&home, &pool).unwrap();
    if places.pool_is_volatile_memory() {
        println!("not run: the directory for temporary files is a tmpfs");
        return;
    }
    let names = NameSpace::new(places.clone());
    let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"first");
    region.close().unwrap();
    let of_boot = places.pool().to_owned();
    assert_eq!(of_boot.parent(), Some(pool.as_path()));
    // As the power cut leaves it: closed in order, and older than what was committed.
    let old = std::fs::read(of_boot.join("words.image")).unwrap();
    let mut region = names.open(&named("words"), &key()).unwrap();
    assert_eq!(region.opened(), Opened::Warm, "within a boot the image counts");
    store(&mut region, 0, b"later");
    region.commit(Durability::Power).unwrap();
    drop(region);
    std::fs::write(of_boot.join("words.image"), old).unwrap();
    let of_another = pool.join("00000000-1111-2222-3333-444444444444");
    std::fs::rename(&of_boot, &of_another).unwrap();
    let names = NameSpace::new(Places::at(&home, &pool).unwrap());
    assert_eq!(names.list().unwrap().len(), 1);
    let region = names.open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"later".to_vec()));
    region.close().unwrap();
    assert!(!of_another.exists(), "the image of the other boot takes room for ever");
}

/// Guarantee: heap/one-home
#[test]
fn a_home_has_one_pool_at_a_time() {
    let scratch = Scratch::new();
    let (home, first) = (scratch.path("home"), scratch.tmpfs.path().join("first"));
    let (second, third) = (scratch.tmpfs.path().join("second"), scratch.path("third, on a disk"));
    let names = NameSpace::new(Places::at(&home, &first).unwrap());
    // Nothing is in the first one yet.
    Places::at(&home, &second).unwrap();
    let places = Places::at(&home, &first).unwrap();
    let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"first");
    region.close().unwrap();
    for other in [&second, &third] {
        let error = Places::at(&home, other).unwrap_err();
        let PlaceError::OtherPool { in_use, ours, .. } = &error else { panic!("{error}") };
        assert_eq!((in_use, ours), (&first, other));
        assert!(error.to_string().contains("HOLDFAST_POOL="));
    }
    // A home that cannot be written to can be used.
    let record = home.join("pool-in-use");
    std::fs::set_permissions(&record, std::fs::Permissions::from_mode(0o400)).unwrap();
    assert_eq!(Places::at(&home, &first).unwrap(), places);
    names.remove_image(&named("words"), &key()).unwrap();
    std::fs::set_permissions(&record, std::fs::Permissions::from_mode(0o600)).unwrap();
    for pool in [&third, &second] {
        let names = NameSpace::new(Places::at(&home, pool).unwrap());
        let mut region = names.open(&named("words"), &key()).unwrap();
        assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"first".to_vec()));
        region.close().unwrap();
        assert!(Places::at(&home, &first).is_err());
        names.remove_image(&named("words"), &key()).unwrap();
        region = names.open(&named("words"), &key()).unwrap();
        region.close().unwrap();
        std::fs::remove_dir_all(pool).unwrap();
    }
    // As another boot leaves it.
    std::fs::write(&record, "00000000-1111-2222-3333-444444444444\n/dev\n").unwrap();
    Places::at(&home, &first).unwrap();
    assert!(std::fs::read_to_string(&record).unwrap().ends_with("/first\n"));
}

/// While persistent memory with the newest images is not mounted no other pool is taken.
///
/// Guarantee: heap/one-home
#[test]
fn unmounted_newest_pool_is_never_replaced() {
    let scratch = Scratch::new();
    let (home, other) = (scratch.path("home"), scratch.tmpfs.path().join("other"));
    let mount = scratch.path("a mount point");
    std::fs::create_dir(&mount).unwrap();
    std::fs::set_permissions(&mount, std::fs::Permissions::from_mode(0o700)).unwrap();
    Places::at(&home, &other).unwrap();
    let record = home.join("pool-in-use");
    std::fs::write(&record, format!("persistent\n{}\n", mount.display())).unwrap();
    for pool in [&other, &mount] {
        let error = Places::at(&home, pool).unwrap_err();
        let PlaceError::PoolNotMounted { in_use, .. } = &error else { panic!("{error}") };
        assert_eq!(in_use, &mount);
        assert!(error.to_string().contains(record.to_str().unwrap()), "{error}");
    }
    // What the message says to do when the memory is gone for good.
    std::fs::remove_file(&record).unwrap();
    Places::at(&home, &other).unwrap();
}

/// Persistent memory is emulated only when asked for and only in memory.
///
/// Guarantee: heap/level-never-weaker
#[test]
fn persistent_memory_is_emulated_only_on_request() {
    let scratch = Scratch::new();
    let pool = scratch.tmpfs.path().join("pool");
    let home = scratch.path("home");
    let ask = |value: &str| {
        scratch.places(&[
            ("HOLDFAST_HOME", &home),
            ("HOLDFAST_POOL", &pool),
            ("HOLDFAST_EMULATE_DAX", Path::new(value)),
        ])
    };
    let plain = ask("0").unwrap();
    assert_eq!((plain.pool_kind(), plain.is_emulated()), (PoolKind::Tmpfs, false));
    let emulated = ask("1").unwrap();
    assert_eq!(emulated.pool_kind(), PoolKind::Dax { survives: Survives::Reset });
    assert!(emulated.is_emulated() && emulated.pool_is_volatile_memory());
    assert_eq!(emulated.boot(), plain.boot());
    let on_disk = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let error = Places::at_emulated_dax(&home, on_disk.path().join("pool"), [1; 16]).unwrap_err();
    assert!(matches!(error, PlaceError::NotEmulable { .. }), "{error}");
    // An image of the emulation is one of this boot, and nothing else, without it.
    let mut region = NameSpace::new(emulated).create(&named("words"), &key(), 8 * MIB).unwrap();
    region.promise_order().unwrap();
    store(&mut region, 0, b"hello");
    drop(region);
    let region = NameSpace::new(ask("0").unwrap()).open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::WarmAfterCrash, b"hello".to_vec()));
    assert!(!region.is_ordered() && !region.needs_order());
}

/// A home with a heap of 4 MiB in a pool that is named explicitly; the writer died, so only the
/// image has `text`.
fn stored_only_in_pool(home: &Path, pool: &Path, text: &[u8]) -> NameSpace {
    let names = NameSpace::new(Places::at(home, pool).unwrap());
    let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"old..");
    region.commit(Durability::Power).unwrap();
    store(&mut region, 0, text);
    drop(region);
    names
}

fn found(names: &NameSpace) -> Vec<u8> {
    read(&names.open(&named("words"), &key()).unwrap(), 0, 5)
}

/// Guarantee: heap/one-home
#[test]
fn a_pool_serves_one_home() {
    let scratch = Scratch::new();
    let pool = scratch.tmpfs.path().join("pool");
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    let names = stored_only_in_pool(&first, &pool, b"newer");
    let before = std::fs::read_dir(&pool).unwrap().count();
    let error = Places::at(&second, &pool).unwrap_err();
    let PlaceError::PoolOfOther { owner, home, .. } = &error else { panic!("{error}") };
    assert_eq!((owner.as_path(), home.as_path()), (&*first, &*second));
    assert_eq!(error.kind(), holdfast_region::ErrorKind::Denied);
    let text = error.to_string();
    assert!(text.contains("unset HOLDFAST_POOL") && text.contains("HOLDFAST_HOME="), "{text}");
    assert!(!second.join("pool-in-use").exists());
    assert_eq!(
        std::fs::read_dir(&pool).unwrap().count(),
        before,
        "something was written or deleted"
    );
    assert!(matches!(Places::adopt_at(&second, &pool), Err(PlaceError::PoolOfOther { .. })));
    assert_eq!(found(&names), b"newer");
}

/// Guarantee: heap/one-home
#[test]
fn of_two_homes_that_race_for_a_pool_one_gets_it() {
    let scratch = Scratch::new();
    for round in 0..50 {
        let pool = scratch.tmpfs.path().join(format!("pool-{round}"));
        let homes: Vec<PathBuf> =
            (0..4).map(|home| scratch.path(&format!("{round}-{home}"))).collect();
        let pool = &pool;
        let taken: Vec<bool> = std::thread::scope(|scope| {
            let threads: Vec<_> = homes
                .iter()
                .map(|home| scope.spawn(move || Places::at(home, pool).is_ok()))
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
        for (home, taken) in homes.iter().zip(taken) {
            assert_eq!(Places::at(home, pool).is_ok(), taken);
        }
    }
}

/// A keeper, say, whose pool was emptied by hand and taken by another home since.
///
/// Guarantee: heap/one-home
#[test]
fn places_that_lost_their_pool_touch_nothing_in_it() {
    let scratch = Scratch::new();
    let pool = scratch.tmpfs.path().join("pool");
    let old = NameSpace::new(Places::at(scratch.path("first"), &pool).unwrap());
    let mut region = old.create(&named("words"), &key(), 8 * MIB).unwrap();
    store(&mut region, 0, b"first");
    region.close().unwrap();
    std::fs::remove_dir_all(&pool).unwrap();
    let names = stored_only_in_pool(&scratch.path("second"), &pool, b"other");
    for result in [
        old.evict(&named("words")).map(drop),
        old.checkpoint_unheld(&named("words")).map(drop),
        old.remove_image(&named("words"), &key()),
        old.remove(&named("words"), &key()),
        old.open(&named("words"), &key()).map(drop),
        old.open_read_only(&named("words"), &key()).map(drop),
        old.create(&named("more"), &key(), 8 * MIB).map(drop),
    ] {
        let error = result.unwrap_err();
        let is_refusal =
            matches!(error, holdfast_region::RegionError::Place(PlaceError::PoolOfOther { .. }));
        assert!(is_refusal, "{error}");
    }
    assert!(old.places().check_pool().is_err());
    assert_eq!(found(&names), b"other");
}

/// A home that is moved keeps its pool and a copy gets none.
///
/// Guarantee: heap/one-home
#[test]
fn moved_home_keeps_its_pool_and_a_copy_gets_none() {
    let scratch = Scratch::new();
    let pool = scratch.tmpfs.path().join("pool");
    let (first, second, copy) =
        (scratch.path("first"), scratch.path("second"), scratch.path("copy"));
    drop(stored_only_in_pool(&first, &pool, b"newer"));
    std::fs::rename(&first, &second).unwrap();
    let names = NameSpace::new(Places::at(&second, &pool).unwrap());
    assert_eq!(found(&names), b"newer");
    assert!(
        std::process::Command::new("cp")
            .arg("-a")
            .args([&second, &copy])
            .status()
            .unwrap()
            .success()
    );
    let error = Places::at(&copy, &pool).unwrap_err();
    assert!(matches!(&error, PlaceError::PoolOfCopy { owner, .. } if *owner == second), "{error}");
    // The same home, seen through another path.
    symlink(&second, scratch.path("link")).unwrap();
    Places::at(scratch.path("link"), &pool).unwrap();
    // As the message says.
    std::fs::remove_file(copy.join("identity")).unwrap();
    std::fs::remove_file(copy.join("pool-in-use")).unwrap();
    assert!(matches!(Places::at(&copy, &pool), Err(PlaceError::PoolOfOther { .. })));
    let other = NameSpace::new(Places::at(&copy, scratch.tmpfs.path().join("other")).unwrap());
    assert_eq!(found(&other), b"old..", "what the copy's store has");
    assert_eq!(found(&names), b"newer");
}

/// A pool of a home that is gone is taken when it is empty and adopted when it is not.
///
/// Guarantee: heap/one-home
#[test]
fn orphaned_pool_is_taken_empty_or_adopted() {
    let scratch = Scratch::new();
    let pool = scratch.tmpfs.path().join("pool");
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    Places::at(&first, &pool).unwrap();
    assert!(Places::at(&second, &pool).is_err(), "its owner is there");
    std::fs::remove_dir_all(&first).unwrap();
    drop(stored_only_in_pool(&second, &pool, b"newer"));
    let third = scratch.path("third");
    std::fs::remove_dir_all(&second).unwrap();
    // Also for a new home at the same path.
    for home in [&third, &second] {
        let error = Places::at(home, &pool).unwrap_err();
        let PlaceError::PoolOfLost { owner: Some(owner), names, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((owner, names.as_str()), (&second, "words"));
        let text = error.to_string();
        assert!(
            text.contains("adopt the pool") && text.contains(&format!("rm -r {}", pool.display())),
            "{text}"
        );
    }
    // A heap of the same name is not made one with it.
    let mut region = {
        let names = NameSpace::new(Places::at(&third, scratch.tmpfs.path().join("own")).unwrap());
        names.create(&named("words"), &key(), 8 * MIB).unwrap()
    };
    store(&mut region, 0, b"third");
    region.close().unwrap();
    std::fs::remove_dir_all(scratch.tmpfs.path().join("own")).unwrap();
    let clash = Places::adopt_at(&third, &pool).unwrap_err();
    assert!(matches!(&clash, PlaceError::PoolClash { name, .. } if name == "words"), "{clash}");
    assert_eq!(found(&NameSpace::new(Places::adopt_at(&second, &pool).unwrap())), b"newer");
    Places::at(&second, &pool).unwrap();
}

/// As an earlier version left it: no record.
///
/// Guarantee: heap/one-home
#[test]
fn unrecorded_pool_goes_to_the_home_that_knows_it() {
    let scratch = Scratch::new();
    let pool = scratch.tmpfs.path().join("pool");
    let (first, second) = (scratch.path("first"), scratch.path("second"));
    let names = stored_only_in_pool(&first, &pool, b"newer");
    for keeps_note in [true, false] {
        std::fs::remove_file(pool.join(".owner")).unwrap();
        if !keeps_note {
            std::fs::remove_file(pool.join("home")).unwrap();
        }
        let error = Places::at(&second, &pool).unwrap_err();
        assert!(matches!(&error, PlaceError::PoolOfLost { owner: None, .. }), "{error}");
        assert!(!pool.join(".owner").exists());
        Places::at(&first, &pool).unwrap();
        assert!(matches!(Places::at(&second, &pool), Err(PlaceError::PoolOfOther { .. })));
    }
    assert_eq!(found(&names), b"newer");
    // A heap that never had a checkpoint is known by its key, where the home has that.
    let places = Places::at(&first, &pool).unwrap();
    let owner = OwnerKey::load_or_create(&places, "mine").unwrap();
    drop(names.create(&named("new"), &owner, 8 * MIB).unwrap());
    let forget = || [".owner", "home"].map(|name| std::fs::remove_file(pool.join(name)).unwrap());
    forget();
    assert!(Places::at(&second, &pool).is_err());
    Places::at(&first, &pool).unwrap();
    // And without any sign by no home but one that adopts it.
    drop(names.create(&named("newer"), &key(), 8 * MIB).unwrap());
    forget();
    for home in [&first, &second] {
        assert!(Places::at(home, &pool).is_err());
    }
    Places::adopt_at(&first, &pool).unwrap();
    assert!(names.open(&named("newer"), &key()).is_ok());
}

/// Guarantee: heap/one-home
#[test]
fn a_record_of_a_pool_that_cannot_be_read_is_refused() {
    let scratch = Scratch::new();
    let pool = scratch.tmpfs.path().join("pool");
    let home = scratch.path("home");
    Places::at(&home, &pool).unwrap();
    let record = pool.join(".owner");
    let target = std::fs::read_link(&record).unwrap();
    assert!(target.to_str().unwrap().starts_with("holdfast-pool-1:"), "{}", target.display());
    assert!(target.to_str().unwrap().ends_with(home.to_str().unwrap()), "{}", target.display());
    for bad in ["holdfast-pool-2:x:/home", "holdfast-pool-1:x:/home", "nonsense", "holdfast-pool-"]
    {
        std::fs::remove_file(&record).unwrap();
        symlink(bad, &record).unwrap();
        let error = Places::at(&home, &pool).unwrap_err();
        assert!(matches!(error, PlaceError::PoolRecord { .. }), "{bad}: {error}");
    }
    std::fs::remove_file(&record).unwrap();
    std::fs::write(&record, "x").unwrap();
    assert!(matches!(Places::at(&home, &pool), Err(PlaceError::PoolRecord { .. })));
    // A home that can store no identity is known by its path.
    std::fs::remove_file(&record).unwrap();
    std::fs::remove_file(home.join("identity")).unwrap();
    std::fs::create_dir_all(home.join("identity.new/x")).unwrap();
    Places::at(&home, &pool).unwrap();
    Places::at(&home, &pool).unwrap();
    assert!(matches!(
        Places::at(scratch.path("other"), &pool),
        Err(PlaceError::PoolOfOther { .. })
    ));
    std::fs::remove_dir_all(home.join("identity.new")).unwrap();
    Places::at(&home, &pool).unwrap();
}
