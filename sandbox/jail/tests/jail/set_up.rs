//! Set-up that fails (X5): whichever step it is, the error names it, and the program has not run.

use std::fs::{File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_jail::{Jail, JailError, Layer, Layers, Policy};
use rustix::fs::SealFlags;

use crate::victims::{finish, fixed, jail};

/// More steps than there are.
const STEPS_MAX: usize = 1000;

fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("holdfast-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

/// If any step of the setup fails, the program never runs.
///
/// Guarantee: sandbox/failed-start
#[test]
fn failed_setup_step_never_runs_the_program() {
    // The victim leaves a mark in descriptor 3, which no limit or filter keeps it from.
    let directory = tempfile::tempdir().unwrap();
    let mut names = Vec::new();
    for step in 0..STEPS_MAX {
        let mark = memory_file();
        let (host, guest) = (directory.path().to_owned(), directory.path().to_owned());
        let access = holdfast_jail::PathAccess::ReadWrite;
        let spawned = jail(&["marks"])
            .path(holdfast_jail::PathGrant { host, guest, access })
            .policy(Policy::open())
            .descriptor(3, mark.try_clone().unwrap())
            .fail_step(step)
            .spawn();
        let marked = || rustix::fs::fstat(&mark).unwrap().st_size > 0;
        match spawned {
            Err(JailError::Step { step: name, source }) => {
                assert_eq!(source.raw_os_error(), Some(libc::EIO), "{name}");
                names.push(name);
                assert!(!marked(), "it ran although {name:?} failed");
            }
            Err(other) => panic!("step {step}: {other}"),
            Ok(jailed) => {
                // The canary: when no step fails, it runs, and leaves its mark.
                finish(&jailed);
                assert!(marked());
                for name in [
                    "die with the host",
                    "mount the root",
                    "drop the capabilities",
                    "no_new_privs",
                    "landlock_restrict_self",
                    "close the other descriptors",
                    "limit the address space",
                    "install the filter",
                    "exec",
                ] {
                    assert!(names.contains(&name), "{name:?} is not among {names:?}");
                }
                return;
            }
        }
    }
    panic!("more than {STEPS_MAX} steps");
}

/// A program that the kernel cannot start gives an error of the last setup step.
///
/// Guarantee: sandbox/failed-start
#[test]
fn unstartable_program_fails_at_the_last_step() {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("no-program");
    let mut bytes = std::fs::read(fixed()).unwrap();
    // It has no program headers, at which the kernel alone looks.
    bytes[56..58].fill(0);
    let template = directory.path().join("template");
    std::fs::write(&template, bytes).unwrap();
    // Not written by this process: a child that another test starts meanwhile would have it open
    // for a moment.
    assert!(
        std::process::Command::new("cp").arg(&template).arg(&program).status().unwrap().success()
    );
    let permit = |mode| {
        std::fs::set_permissions(&program, PermissionsExt::from_mode(mode)).unwrap();
    };
    for layers in [Layers::none(), Layers::default().without(Layer::Unprivileged)] {
        let start = || Jail::new(&program).layers(layers).spawn().unwrap_err();
        permit(0o755);
        let error = start();
        assert!(
            matches!(&error, JailError::Step { step: "exec", source } if source.raw_os_error() == Some(libc::ENOEXEC)),
            "{error}"
        );
        // That is known before.
        permit(0o644);
        let error = start();
        assert!(matches!(error, JailError::Program { .. }), "{error}");
        assert!(error.to_string().contains("not executable"), "{error}");
    }
}

#[test]
fn text_with_a_nul_byte_is_refused() {
    let error = jail(&["a\0b"]).spawn().unwrap_err();
    assert!(matches!(error, JailError::Text { .. }));
    let error = jail(&[]).env([("A", "b\0")]).spawn().unwrap_err();
    assert!(matches!(error, JailError::Text { .. }));
}

/// A copy of the victim with these permissions, in a directory of its own.
fn copy_of_the_victim(mode: u32) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("victim");
    std::fs::copy(fixed(), &path).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    (directory, path)
}

/// Runs it so that it leaves its mark in descriptor 3, if it runs.
fn marking(program: &Path, mark: &OwnedFd) -> Jail {
    let directory = program.parent().unwrap().to_owned();
    let access = holdfast_jail::PathAccess::ReadWrite;
    Jail::new(program)
        .args(["marks"])
        .path(holdfast_jail::PathGrant { host: directory.clone(), guest: directory, access })
        .policy(Policy::open())
        .descriptor(3, mark.try_clone().unwrap())
}

/// The program is compared again when all is set up, and does not run if it changed meanwhile.
///
/// Guarantee: applets/identities
#[test]
fn file_that_changes_during_the_set_up_does_not_run() {
    let (_directory, path) = copy_of_the_victim(0o755);
    let mark = memory_file();
    let spawn = |answers: usize| {
        let asked = AtomicUsize::new(0);
        let is_that = move |_: &File| Ok(asked.fetch_add(1, Ordering::Relaxed) < answers);
        marking(&path, &mark).examined(Arc::new(is_that)).spawn()
    };
    let marked = || rustix::fs::fstat(&mark).unwrap().st_size > 0;
    for answers in [0, 1] {
        let refused = spawn(answers);
        assert!(matches!(refused, Err(JailError::Replaced { .. })), "{answers}: {refused:?}");
        assert!(!marked(), "it ran although it was another file by then");
    }
    finish(&spawn(2).unwrap());
    assert!(marked());
}

/// Of a file that others may write to a sealed copy is compared, and runs: what they write after
/// the comparison is not executed.
///
/// Guarantee: applets/identities
#[test]
fn file_that_others_may_write_runs_as_a_sealed_copy() {
    let (_directory, path) = copy_of_the_victim(0o777);
    for masked in [None, Some(Layer::Landlock), Some(Layer::Mounts)] {
        let mark = memory_file();
        let program = path.clone();
        let is_that = move |file: &File| {
            let seals = rustix::fs::fcntl_get_seals(file)?;
            // As one of the others would, when it has been read. The test owns the file.
            std::fs::remove_file(&program)?;
            std::fs::write(&program, b"something else")?;
            Ok(seals.contains(SealFlags::WRITE | SealFlags::SEAL))
        };
        let jail = marking(&path, &mark).examined(Arc::new(is_that));
        let jail = masked.into_iter().fold(jail, Jail::mask);
        finish(&jail.spawn().unwrap());
        assert!(rustix::fs::fstat(&mark).unwrap().st_size > 0, "{masked:?}: it did not run");
        std::fs::remove_file(&path).unwrap();
        std::fs::copy(fixed(), &path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    }
}
