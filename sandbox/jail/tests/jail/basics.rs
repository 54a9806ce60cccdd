//! The promises to an ordinary program.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use holdfast_jail::{
    End, Jail, JailError, JailStdio, KillReason, Layers, PathAccess, PathGrant, Step,
};

use crate::victims::{self, LONG, WORKED, end, finish, jail, refused};

/// Static and dynamic programs run, and their output is captured.
#[test]
fn static_and_dynamic_programs_run_captured() {
    for program in [victims::fixed(), victims::dynamic()] {
        let jailed = Jail::new(program)
            .args(["prints"])
            .stdio(JailStdio::Capture { limit_bytes: 100 })
            .spawn()
            .unwrap();
        assert_eq!(finish(&jailed), WORKED, "{}", String::from_utf8_lossy(&jailed.stderr()));
        assert_eq!(jailed.stdout(), b"hello\n");
        assert_eq!(jailed.stderr(), b"world\n");
        assert!(!jailed.output_truncated());
    }
}

#[test]
fn a_program_of_an_ordinary_toolchain_runs() {
    // Rust's runtime: guard pages, alternative stacks, threads.
    let jailed = Jail::new(std::env::current_exe().unwrap())
        .args(["--exact", "basics::nothing_is_easily_done"])
        .stdio(JailStdio::Capture { limit_bytes: 1 << 16 })
        .spawn()
        .unwrap();
    let end = finish(&jailed);
    assert_eq!(end, WORKED, "{end} {}", String::from_utf8_lossy(&jailed.stderr()));
    assert!(String::from_utf8_lossy(&jailed.stdout()).contains("1 passed"));
}

#[test]
fn nothing_is_easily_done() {}

/// In a process of its own, where no other process starts programs. The supervisor once woke up
/// without end while the handle of a program that had ended was kept.
///
/// Guarantee: sandbox/supervisor
#[test]
fn supervisor_sleeps_while_ended_handles_are_kept() {
    const ALONE: &str = "HOLDFAST_JAIL_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let name = "basics::supervisor_sleeps_while_ended_handles_are_kept";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let said = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        return;
    }
    let kept: Vec<_> = (0..3).map(|_| jail(&["exits", "7"]).spawn().unwrap()).collect();
    for jailed in &kept {
        assert_eq!(finish(jailed), End::Exited { status: 7 });
    }
    let supervisor =
        std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    let is_it = |path: &std::path::PathBuf| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "holdfast-jail")
    };
    let supervisor = supervisor.into_iter().find(is_it).unwrap();
    let run_ns = || {
        let text = std::fs::read_to_string(supervisor.join("schedstat")).unwrap();
        text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    std::thread::sleep(Duration::from_millis(50));
    let before_ns = run_ns();
    std::thread::sleep(Duration::from_millis(500));
    let taken_ns = run_ns() - before_ns;
    assert!(taken_ns < 10_000_000, "{taken_ns} ns of processor time in half a second without work");
}

/// The end of a program distinguishes an exit status, a crash and an abort.
///
/// Guarantee: sandbox/exits
/// Guarantee: sandbox/own-status
#[test]
fn exit_crash_and_abort_are_distinct_ends() {
    assert_eq!(end(jail(&["exits", "7"])), End::Exited { status: 7 });
    let signal = |signal, name| End::Signal { signal, name };
    assert_eq!(end(jail(&["crashes"])), signal(libc::SIGSEGV, "SIGSEGV"));
    assert_eq!(end(jail(&["aborts"])), signal(libc::SIGABRT, "SIGABRT"));
}

#[test]
fn the_environment_is_what_was_given() {
    let say = |jail: Jail| {
        let jailed = jail.spawn().unwrap();
        assert_eq!(finish(&jailed), WORKED);
        String::from_utf8(jailed.stdout()).unwrap()
    };
    assert_eq!(say(jail(&["environment"])), "none\n");
    assert_eq!(say(jail(&["environment"]).env([("WORD", "given")])), "given\n");
}

#[test]
fn output_past_what_is_kept_is_gone_and_that_is_told() {
    let jailed = jail(&["prints"]).stdio(JailStdio::Capture { limit_bytes: 3 }).spawn().unwrap();
    assert_eq!(finish(&jailed), WORKED);
    assert_eq!(jailed.stdout(), b"hel");
    assert!(jailed.output_truncated());
}

/// Guarantee: sandbox/forbidden-calls
#[test]
fn a_sealed_program_opens_nothing_any_more() {
    let program = victims::dynamic().to_str().unwrap();
    let run = |words: &[&str], seals: bool| {
        let jailed = jail(words).layers(Layers::none()).spawn().unwrap();
        if seals {
            jailed.seal().unwrap();
        }
        let end = finish(&jailed);
        assert!(matches!(jailed.seal(), Err(JailError::Ended)));
        end
    };
    assert_eq!(run(&["sealed, reads", program], false), WORKED, "the canary");
    // The library's traces of a panic open files: it goes on without, to tell what the panic was.
    assert_eq!(run(&["sealed, reads", program], true), refused(libc::EACCES));
    let End::Violation(violation) = run(&["run from memory"], true) else {
        panic!("code in memory")
    };
    assert_eq!((violation.name.as_str(), violation.step), ("mprotect", Step::Final));
    assert_eq!(violation.reason, "it is allowed while the program is loading only");
    assert!(violation.instruction_pointer != 0);
}

/// Guarantee: sandbox/exits
/// Guarantee: sandbox/own-status
#[test]
fn the_first_reason_of_a_kill_counts_and_comes_back() {
    let jailed = jail(&["waits"]).spawn().unwrap();
    assert_eq!(jailed.end(), None);
    assert_eq!(jailed.wait(Some(Duration::from_millis(5))), None);
    jailed.kill(KillReason::Cancelled);
    jailed.kill(KillReason::Finished);
    assert_eq!(finish(&jailed), End::Killed(KillReason::Cancelled));
}

/// Guarantee: sandbox/dies-with-host
#[test]
fn a_dropped_handle_leaves_no_process() {
    let jailed = jail(&["waits"]).spawn().unwrap();
    let process = format!("/proc/{}", jailed.pid());
    assert!(std::path::Path::new(&process).exists());
    drop(jailed);
    assert!(!std::path::Path::new(&process).exists());
}

#[test]
fn the_end_is_called_once_and_known_by_then() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    let jailed = jail(&["nothing"])
        .on_end(Arc::new(move || {
            counted.fetch_add(1, Ordering::SeqCst);
            panic!("a callback's panic harms no other jail");
        }))
        .spawn()
        .unwrap();
    assert_eq!(finish(&jailed), WORKED);
    assert_eq!(end(jail(&["nothing"])), WORKED);
    drop(jailed);
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[test]
fn usage_is_told_while_it_runs_and_after() {
    let jailed = jail(&["spins"]).spawn().unwrap();
    let started = std::time::Instant::now();
    while jailed.cpu_time() < Duration::from_millis(20) {
        assert!(started.elapsed() < LONG);
        std::thread::sleep(Duration::from_millis(1));
    }
    let live = jailed.usage();
    assert!(live.peak_memory_bytes > 0 && live.wall_time >= Duration::from_millis(10), "{live:?}");
    jailed.kill(KillReason::Finished);
    finish(&jailed);
    let last = jailed.usage();
    assert!(last.cpu_time >= Duration::from_millis(20) && last.peak_memory_bytes > 0, "{last:?}");
    assert_eq!(jailed.usage(), last);
}

fn memory_file(bytes: u64) -> OwnedFd {
    let file = rustix::fs::memfd_create("holdfast-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, bytes).unwrap();
    file
}

/// Pages that a program changed privately are found and read.
///
/// Guarantee: sandbox/changed-pages
#[test]
fn private_changed_pages_are_found_and_read() {
    for layers in [Layers::default(), Layers::none()] {
        let jailed = jail(&["map the region"])
            .layers(layers)
            .descriptor(4, memory_file(32 << 12))
            .regions(1, 8192)
            .spawn()
            .unwrap();
        let started = std::time::Instant::now();
        while !jailed.stdout().ends_with(b"\n") {
            assert!(started.elapsed() < LONG, "{:?}", jailed.end());
            std::thread::sleep(Duration::from_millis(1));
        }
        let text = String::from_utf8(jailed.stdout()).unwrap();
        let base = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).unwrap();
        let pages = jailed.changed_pages(base..base + (16 << 12)).unwrap();
        assert_eq!(pages, [base + 4096..base + 8192, base + 3 * 4096..base + 4 * 4096]);
        let mut byte = [0];
        jailed.read_memory(base + 3 * 4096, &mut byte).unwrap();
        assert_eq!(&byte, b"b");
        assert!(jailed.read_memory(8, &mut byte).is_err());
        jailed.kill(KillReason::Finished);
        finish(&jailed);
        assert!(jailed.read_memory(base, &mut byte).is_err());
    }
}

/// Paths that begin in a directory of the host's would lead out of the program's root.
///
/// Guarantee: sandbox/granted-directories
#[test]
fn no_descriptor_that_is_lent_is_a_directory() {
    let directory = std::fs::File::open("/usr").unwrap();
    let refused = jail(&["prints", ""]).stdin(directory.into()).spawn();
    assert!(matches!(refused, Err(JailError::Input)), "{refused:?}");
    let directory = std::fs::File::open("/usr").unwrap();
    let refused = jail(&["prints", ""]).descriptor(3, directory.into()).spawn();
    assert!(matches!(refused, Err(JailError::Directory { number: 3 })), "{refused:?}");
}

/// The descriptors of a program have the requested numbers, and it has no others.
///
/// Guarantee: sandbox/descriptors
#[test]
fn program_has_only_the_requested_descriptors() {
    let refused_at = |number| jail(&[]).descriptor(number, memory_file(0)).spawn();
    for number in [-1, 0, 2, 64] {
        assert!(matches!(refused_at(number), Err(JailError::Descriptor { .. })));
    }
    assert_eq!(end(jail(&["find descriptors"])), refused(libc::EBADF));
    let granted = jail(&["find descriptors"]).descriptor(5, memory_file(0));
    assert_eq!(end(granted), WORKED);
}

/// A granted directory is usable with its access rights; paths outside it are not.
///
/// Guarantee: sandbox/granted-directories
#[test]
fn granted_directory_gives_nothing_beside_it() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("there"), "text").unwrap();
    let run = |words: &[&str], access| {
        let (host, guest) = (directory.path().to_owned(), "/data".into());
        end(jail(words).path(PathGrant { host, guest, access }))
    };
    assert_eq!(run(&["read", "/data/there"], PathAccess::ReadOnly), WORKED);
    assert_eq!(run(&["write", "/data/there"], PathAccess::ReadOnly), refused(libc::EROFS));
    assert_eq!(run(&["create", "/data/new"], PathAccess::ReadOnly), refused(libc::EROFS));
    assert_eq!(run(&["create", "/data/new"], PathAccess::ReadWrite), WORKED);
    assert!(directory.path().join("new").exists());
    assert_eq!(run(&["read", "/etc/passwd"], PathAccess::ReadWrite), refused(libc::ENOENT));
    assert_eq!(run(&["create", "/outside"], PathAccess::ReadWrite), refused(libc::EROFS));
}

/// Of nested grants, the innermost decides, in whatever order they are given.
///
/// Guarantee: sandbox/granted-directories
#[test]
fn innermost_grant_wins_in_any_order() {
    use PathAccess::{ReadOnly, ReadWrite};
    let directory = tempfile::tempdir().unwrap();
    let (outer, inner) = (directory.path().to_owned(), directory.path().join("inner"));
    std::fs::create_dir(&inner).unwrap();
    let run = |words: &[&str], grants: [(&std::path::Path, &str, PathAccess); 2]| {
        let named = |order: [usize; 2]| {
            let grants = order.map(|at| grants[at]);
            let granted = grants.into_iter().fold(jail(words), |jail, (host, guest, access)| {
                jail.path(PathGrant { host: host.to_owned(), guest: guest.into(), access })
            });
            end(granted)
        };
        let ends = [named([0, 1]), named([1, 0])];
        assert_eq!(ends[0], ends[1], "{words:?} {grants:?}");
        ends[0].clone()
    };
    let reading = [(&*outer, "/data", ReadWrite), (&*inner, "/data/inner", ReadOnly)];
    assert_eq!(run(&["create", "/data/inner/new"], reading), refused(libc::EROFS));
    assert_eq!(run(&["create", "/data/new"], reading), WORKED);
    let writing = [(&*outer, "/data", ReadOnly), (&*inner, "/data/inner", ReadWrite)];
    assert_eq!(run(&["create", "/data/inner/new"], writing), WORKED);
    assert_eq!(run(&["create", "/data/newer"], writing), refused(libc::EROFS));
    // Under another path, and by both.
    let elsewhere = [(&*outer, "/data", ReadWrite), (&*inner, "/other", ReadOnly)];
    for path in ["/data/inner/newer", "/other/newer"] {
        assert_eq!(run(&["create", path], elsewhere), refused(libc::EROFS));
    }
    // Where it is mounted in another one there must be something.
    let missing = [(&*outer, "/data", ReadWrite), (&*inner, "/data/nowhere", ReadOnly)];
    for order in [[0, 1], [1, 0]] {
        let granted = order.into_iter().fold(jail(&["nothing"]), |jail, at| {
            let (host, guest, access) = missing[at];
            jail.path(PathGrant { host: host.to_owned(), guest: guest.into(), access })
        });
        assert!(matches!(granted.spawn(), Err(JailError::Text { .. })));
    }
    let grant = |host: &std::path::Path, access| PathGrant {
        host: host.to_owned(),
        guest: "/data".into(),
        access,
    };
    let twice =
        jail(&["nothing"]).path(grant(&outer, ReadWrite)).path(grant(&inner, ReadOnly)).spawn();
    assert!(matches!(twice, Err(JailError::Text { .. })), "two grants under one path");
}

/// A granted file below a granted directory does not create its mount point in the host's
/// directory.
///
/// Guarantee: sandbox/granted-directories
#[test]
fn granted_file_creates_nothing_in_a_granted_dir() {
    let directory = tempfile::tempdir().unwrap();
    let (outer, file) = (directory.path().join("outer"), directory.path().join("file"));
    std::fs::create_dir(&outer).unwrap();
    std::fs::write(&file, "text").unwrap();
    let start = || {
        let grant = |host: &std::path::Path, guest: &str| {
            let (host, guest) = (host.to_owned(), guest.into());
            PathGrant { host, guest, access: PathAccess::ReadOnly }
        };
        jail(&["read", "/data/file"])
            .path(grant(&outer, "/data"))
            .path(grant(&file, "/data/file"))
            .spawn()
    };
    // Its place was once made where the directory comes from, although that was granted for
    // reading.
    let error = start().unwrap_err();
    assert!(!outer.join("file").exists());
    assert!(error.to_string().contains("/data/file"), "{error}");
    std::fs::write(outer.join("file"), "").unwrap();
    assert_eq!(finish(&start().unwrap()), WORKED);
    assert_eq!(std::fs::read(outer.join("file")).unwrap(), b"");
}

/// In a process of its own, whose supervisor is started by a thread that is nice.
///
/// Guarantee: sandbox/supervisor
#[test]
fn program_is_at_least_as_nice_as_its_starter() {
    const ALONE: &str = "HOLDFAST_JAIL_NICE";
    if std::env::var_os(ALONE).is_none() {
        let name = "basics::program_is_at_least_as_nice_as_its_starter";
        let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
        let said = alone.args(["--exact", name]).env(ALONE, "1").output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
        return;
    }
    let own = rustix::process::getpriority_process(None).unwrap();
    let nicer = std::thread::spawn(move || {
        rustix::process::setpriority_process(None, (own + 5).min(19)).unwrap();
        end(jail(&["nothing"]))
    });
    assert_eq!(nicer.join().unwrap(), WORKED);
    // Only the nicer thread's: a program once asked for this thread's own place, which it was
    // refused.
    assert_eq!(rustix::process::getpriority_process(None).unwrap(), own);
    assert_eq!(end(jail(&["nothing"])), WORKED);
}

#[test]
fn many_jails_are_started_at_once_from_many_threads() {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for round in 0..5 {
                    let status = thread * 10 + round;
                    assert_eq!(end(jail(&["exits", &status.to_string()])), End::Exited { status });
                }
            });
        }
    });
}

/// Run by the next test, so that its output can be looked at.
#[test]
fn a_host_that_relays() {
    if std::env::var_os("HOLDFAST_RELAY").is_some() {
        let jailed = jail(&["prints"]).stdio(JailStdio::Relay).spawn().unwrap();
        assert_eq!(finish(&jailed), WORKED);
    }
}

#[test]
fn relayed_output_is_the_hosts_own() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "basics::a_host_that_relays", "--nocapture"])
        .env("HOLDFAST_RELAY", "1")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("hello\n"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("world\n"), "{output:?}");
}

/// Run by the next test, which reads its output when it has said something.
#[test]
fn a_host_whose_output_is_unread() {
    if std::env::var_os("HOLDFAST_UNREAD").is_none() {
        return;
    }
    let writes = |last: &str| {
        Jail::new("/usr/bin/seq").args([last]).stdio(JailStdio::Relay).spawn().unwrap()
    };
    // 109 kB: more than a pipe holds, and less than two.
    let jailed = writes("20000");
    assert_eq!(jailed.wait_for_end(Some(LONG)), Some(WORKED));
    assert_eq!(jailed.wait(Some(Duration::from_millis(300))), None, "it was not passed on");
    let other = writes("5000");
    assert_eq!(other.wait_for_end(Some(LONG)), Some(WORKED));
    let started = std::time::Instant::now();
    drop(other);
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    eprintln!("unread");
    assert_eq!(finish(&jailed), WORKED);
}

/// A program ends, and its handle goes, without a reader of its output. Only a wait for both says
/// whether the output was passed on.
///
/// Guarantee: sandbox/time-limits
#[test]
fn end_of_a_program_waits_for_no_reader() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;
    let mut host = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "basics::a_host_whose_output_is_unread", "--nocapture"])
        .env("HOLDFAST_UNREAD", "1")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = BufReader::new(host.stderr.take().unwrap());
    let (mut said, mut output) = (String::new(), String::new());
    errors.read_line(&mut said).unwrap();
    host.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    errors.read_to_string(&mut said).unwrap();
    assert!(host.wait().unwrap().success(), "{said}");
    assert!(output.contains("\n19999\n20000\n"), "{} bytes", output.len());
}

/// Run by the next test, alone in its process.
#[test]
fn a_host_without_room_for_threads() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    if std::env::var_os("HOLDFAST_NO_THREADS").is_none() {
        return;
    }
    // The supervisor has its thread already.
    assert_eq!(end(jail(&["nothing"])), WORKED);
    let before = getrlimit(Resource::As);
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let used_bytes = line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10;
    let tight = rustix::process::Rlimit { current: Some(used_bytes + (1 << 20)), ..before };
    setrlimit(Resource::As, tight).unwrap();
    let refused = jail(&["waits"]).stdio(JailStdio::Relay).spawn();
    setrlimit(Resource::As, before).unwrap();
    let Err(JailError::Host { what: "start a thread for its output", .. }) = refused else {
        panic!("{refused:?}");
    };
    let children = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let lists = tasks
            .map(|task| std::fs::read_to_string(task.unwrap().path().join("children")).unwrap());
        lists.collect::<String>()
    };
    let started = std::time::Instant::now();
    while !children().trim().is_empty() {
        assert!(started.elapsed() < Duration::from_secs(10), "left behind: {}", children());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A program whose start fails after its first instruction is killed.
///
/// Guarantee: sandbox/failed-start
#[test]
fn program_with_a_late_start_failure_is_ended() {
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "basics::a_host_without_room_for_threads"])
        .env("HOLDFAST_NO_THREADS", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

/// Run by the next test, with `SIGCHLD` ignored.
#[test]
fn a_host_that_ignores_its_children() {
    if std::env::var_os("HOLDFAST_IGNORES").is_some() {
        assert_eq!(end(jail(&["exits", "7"])), End::Unknown);
        let jailed = jail(&["waits"]).spawn().unwrap();
        jailed.kill(KillReason::Cancelled);
        assert_eq!(finish(&jailed), End::Killed(KillReason::Cancelled));
        let found = end(jail(&["fork"]));
        assert!(matches!(found, End::Violation(_)), "{found}");
    }
}

/// If the host ignores SIGCHLD, the end of a program is reported as unknown, with the cause.
///
/// Guarantee: sandbox/exits
#[test]
fn end_reaped_by_the_kernel_is_unknown() {
    let output = std::process::Command::new("env")
        .arg("--ignore-signal=CHLD")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "basics::a_host_that_ignores_its_children"])
        .env("HOLDFAST_IGNORES", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}
