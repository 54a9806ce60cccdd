//! Programs that a machine has, and that do nothing dangerous: they run, and what they may not have
//! they are told.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use holdfast_jail::{End, Jail, JailStdio, Jailed, Layers, PathAccess, PathGrant};

use crate::victims::{self, LONG, end, finish, jail};

/// What a program says, and the status with which it ends.
struct Says(&'static str, i32);

/// Program, arguments, what it says on both streams together.
const PROGRAMS: &[(&str, &[&str], Says)] = &[
    ("/bin/sh", &["-c", "echo $((6 * 7))"], Says("42\n", 0)),
    ("/bin/sh", &["-c", "cd /nowhere; echo on >&2"], Says("on\n", 0)),
    ("/bin/sh", &["-c", "cd /; echo off >/nowhere; echo on"], Says("on\n", 0)),
    (
        "/bin/bash",
        &["-c", "printf '%s\\n' on; read -r line </dev/null || kill -l TERM"],
        Says("on\n", 0),
    ),
    ("/bin/cat", &[], Says("", 0)),
    ("/bin/cat", &["/etc/shadow"], Says("No such file", 1)),
    ("/bin/ls", &["-d", "/lib"], Says("/lib\n", 0)),
    ("/bin/sort", &[], Says("", 0)),
    ("/bin/touch", &["/new"], Says("Permission denied", 1)),
    ("/bin/mkdir", &["/new"], Says("Permission denied", 1)),
    ("/bin/date", &["-u", "-d", "@0", "+%Y"], Says("1970\n", 0)),
    (
        "/usr/bin/perl",
        &["-e", "print 6 * 7, qq(\\n); mkdir '/new' or print qq(no\\n)"],
        Says("42\nno\n", 0),
    ),
    ("/usr/bin/python3", &["-I", "-c", "import socket, selectors; print(6 * 7)"], Says("42\n", 0)),
    (
        "/usr/bin/python3",
        &["-I", "-c", "import asyncio; asyncio.run(asyncio.to_thread(print, 42))"],
        Says("42\n", 0),
    ),
    ("/usr/bin/python3", &["-I", "-c", "open('/new', 'w')"], Says("PermissionError", 1)),
    ("/usr/bin/sqlite3", &[":memory:", "select 6 * 7;"], Says("42\n", 0)),
    ("/usr/bin/lua", &["-e", "print(6 * 7)"], Says("42\n", 0)),
    ("/usr/bin/ruby", &["-e", "puts 6 * 7"], Says("42\n", 0)),
    ("/usr/bin/node", &["--jitless", "-e", "console.log(6 * 7)"], Says("42\n", 0)),
    ("/usr/bin/openssl", &["version"], Says("OpenSSL", 0)),
];

/// Programs that work with files in a directory that is granted to them, `{}`; it has a file
/// `lines`.
const PROGRAMS_WITH_FILES: &[(&str, &[&str], Says)] = &[
    (
        "/usr/bin/sqlite3",
        &["{}/a.db", "create table t (x); insert into t values (42); select x from t"],
        Says("42\n", 0),
    ),
    (
        "/usr/bin/sqlite3",
        &[
            "{}/b.db",
            "pragma journal_mode = wal; create table t (x); insert into t values (42); select x from t",
        ],
        Says("wal\n42\n", 0),
    ),
    (
        "/usr/bin/sqlite3",
        &["{}/b.db", "pragma locking_mode; select x from t; vacuum"],
        Says("42\n", 0),
    ),
    ("/bin/sort", &["-r", "-o", "{}/sorted", "{}/lines"], Says("", 0)),
    ("/bin/dd", &["if={}/sorted", "of={}/copy", "conv=fsync", "status=none"], Says("", 0)),
    ("/bin/cat", &["{}/copy"], Says("two\none\n", 0)),
    ("/bin/cp", &["-p", "{}/lines", "{}/kept"], Says("", 0)),
    ("/bin/touch", &["-d", "@0", "{}/kept"], Says("", 0)),
    ("/bin/chmod", &["600", "{}/kept"], Says("", 0)),
    ("/usr/bin/stat", &["-c", "%a %Y", "{}/kept"], Says("600 0\n", 0)),
    ("/usr/bin/install", &["-m", "640", "{}/lines", "{}/installed"], Says("", 0)),
    ("/bin/sed", &["-i", "s/one/1/", "{}/installed"], Says("", 0)),
    ("/bin/gzip", &["-k", "{}/installed"], Says("", 0)),
    ("/bin/tar", &["-C", "{}", "-cf", "{}/all.tar", "lines", "installed"], Says("", 0)),
    ("/bin/mkdir", &["-m", "755", "{}/out"], Says("", 0)),
    ("/bin/tar", &["-C", "{}/out", "--no-same-owner", "-xpf", "{}/all.tar"], Says("", 0)),
    ("/bin/cat", &["{}/out/installed"], Says("1\ntwo\n", 0)),
    ("/usr/bin/truncate", &["-s", "1M", "{}/long"], Says("", 0)),
    ("/usr/bin/fallocate", &["-l", "2M", "{}/long"], Says("", 0)),
    ("/usr/bin/git", &["init", "-q", "{}/repository"], Says("", 0)),
    (
        "/usr/bin/git",
        &["-C", "{}/repository", "hash-object", "-w", "{}/lines"],
        Says("814f4a422927b82f5f8a43f8fab6d3839e3983f2\n", 0),
    ),
    ("/usr/bin/python3", &["-I", "-c", PYTHON, "{}/mapped"], Says("locked\nmapped\n", 0)),
];

const PYTHON: &str = "
import fcntl, mmap, os, sys
with open(sys.argv[1], 'wb+') as file:
    os.posix_fallocate(file.fileno(), 0, 8192)
    fcntl.flock(file, fcntl.LOCK_EX)
    fcntl.lockf(file, fcntl.LOCK_EX)
    print('locked')
    with mmap.mmap(file.fileno(), 8192) as mapped:
        mapped[4096:4102] = b'mapped'
        mapped.flush()
    file.seek(4096)
    print(file.read(6).decode())
mmap.mmap(-1, 4096)[0] = 1
os.pwritev(os.open(sys.argv[1], os.O_RDWR), [b'x'], 0, os.RWF_DSYNC)
";

fn run(program: &Path, args: &[&str]) -> (End, String) {
    said_by(Jail::new(program), args)
}

fn said_by(jail: Jail, args: &[&str]) -> (End, String) {
    let jailed = jail
        .args(args.iter().copied())
        .stdio(JailStdio::Capture { limit_bytes: 1 << 16 })
        .spawn()
        .unwrap();
    let end = finish(&jailed);
    let said = [Jailed::stdout, Jailed::stderr].map(|of| of(&jailed)).concat();
    (end, String::from_utf8_lossy(&said).into_owned())
}

/// Ordinary programs run, and a message says what they may not use.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn ordinary_programs_run_and_learn_their_limits() {
    for (program, args, Says(text, status)) in PROGRAMS {
        if !Path::new(program).exists() {
            println!("not run: there is no {program}");
            continue;
        }
        let (end, said) = run(Path::new(program), args);
        assert_eq!(end, End::Exited { status: *status }, "{program} {args:?}: {said}");
        assert!(said.contains(text), "{program} {args:?}: {said}");
    }
}

/// Ordinary programs work with files in a granted directory as they do elsewhere: they lock and map
/// them, allocate room, redirect their output, and set modes and times.
///
/// Guarantee: sandbox/granted-files
#[test]
fn ordinary_programs_work_with_granted_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    std::fs::write(directory.path().join("lines"), "one\ntwo\n").unwrap();
    for (program, args, Says(text, status)) in PROGRAMS_WITH_FILES {
        if !Path::new(program).exists() {
            println!("not run: there is no {program}");
            continue;
        }
        let args: Vec<String> = args.iter().map(|arg| arg.replace("{}", path)).collect();
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (host, guest) = (directory.path().to_owned(), directory.path().to_owned());
        let grant = PathGrant { host, guest, access: PathAccess::ReadWrite };
        let (end, said) = said_by(Jail::new(program).path(grant), &args);
        assert_eq!(end, End::Exited { status: *status }, "{program} {args:?}: {said}");
        assert!(said.contains(text), "{program} {args:?}: {said}");
    }
}

/// Guarantee: sandbox/ordinary-programs
#[test]
fn a_thread_that_nobody_is_told_of_is_a_thread() {
    assert_eq!(end(jail(&["a thread of Go's"]).layers(Layers::none())), End::Exited { status: 7 });
}

/// Loops that only a signal can stop for the collector.
const LOOPS: &str = "package main
import \"runtime\"
func main() {
	sums := make(chan int)
	for each := 0; each < 4; each++ {
		go func(each int) {
			sum := 0
			for i := 0; i < 100000000; i++ { sum += i & each }
			sums <- sum
		}(each)
	}
	runtime.GC()
	for each := 0; each < 4; each++ { <-sums }
	println(\"done\")
}
";

/// A Go program runs with its threads and its garbage collector.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn go_program_runs_with_threads_and_collector() {
    let Some(go) = ["/usr/bin/go", "/usr/local/go/bin/go"]
        .map(PathBuf::from)
        .into_iter()
        .find(|go| go.exists())
    else {
        println!("not run: there is no Go");
        return;
    };
    // Made once, as the victims are: its library is compiled with it.
    let directory = victims::fixed().parent().unwrap();
    let (source, program) = (directory.join("loops.go"), directory.join("loops"));
    if !program.exists() {
        let fresh = directory.join(format!("loops-{}", std::process::id()));
        std::fs::write(&source, LOOPS).unwrap();
        let mut build = std::process::Command::new(go);
        build
            .args(["build", "-o"])
            .arg(&fresh)
            .arg(&source)
            .env("CGO_ENABLED", "0")
            .env("GO111MODULE", "off");
        let built = build.env("GOCACHE", directory.join("go-cache")).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        std::fs::rename(&fresh, &program).unwrap();
    }
    let (end, said) = run(&program, &[]);
    assert_eq!((end, said.as_str()), (End::Exited { status: 0 }, "done\n"));
}

/// A program that starts others or generates code gets an error that says so.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn exec_or_code_generation_is_explained() {
    for (words, told) in
        [(["-c", "/bin/true; true"], "no process is started"), (["-c", "exec /bin/true"], "")]
    {
        let (end, said) = run(Path::new("/bin/sh"), &words);
        match end {
            End::Violation(violation) => assert!(violation.reason.contains(told), "{violation}"),
            // There is no such program in its root: the shell found none to start.
            End::Exited { status } => assert_ne!(status, 0, "{said}"),
            end => panic!("{end}"),
        }
    }
    let (writes, executes) = (libc::PROT_WRITE as u64, libc::PROT_EXEC as u64);
    let numbers = [libc::SYS_mmap as u64, 0, 4096, writes | executes, 0x22, u64::MAX, 0]
        .map(|n| n.to_string());
    let words: Vec<&str> =
        std::iter::once("call").chain(numbers.iter().map(String::as_str)).collect();
    let End::Violation(violation) = end(jail(&words)) else { panic!("written and executed") };
    assert!(violation.reason.contains("compiler"), "{violation}");
}

/// Run by the next test in a jail that is sealed meanwhile.
#[test]
fn a_panic() {
    if std::env::var_os("HOLDFAST_PANICS").is_some() {
        eprintln!("loaded");
        std::thread::sleep(Duration::from_secs(3));
        panic!("out of cheese");
    }
}

/// The panic message of a sealed program reaches the host.
///
/// Guarantee: sandbox/ordinary-programs
#[test]
fn sealed_program_panic_message_is_kept() {
    let jailed = Jail::new(std::env::current_exe().unwrap())
        .args(["--exact", "programs::a_panic", "--nocapture"])
        .env([("HOLDFAST_PANICS", "1"), ("RUST_BACKTRACE", "1")])
        .stdio(JailStdio::Capture { limit_bytes: 1 << 16 })
        .spawn()
        .unwrap();
    let started = Instant::now();
    while !jailed.stderr().starts_with(b"loaded") {
        assert!(started.elapsed() < LONG, "{:?}", jailed.end());
        std::thread::sleep(Duration::from_millis(1));
    }
    jailed.seal().unwrap();
    let end = finish(&jailed);
    let said = String::from_utf8_lossy(&jailed.stderr()).into_owned();
    assert!(said.contains("out of cheese"), "{end}: {said}");
    assert_eq!(end, End::Exited { status: 101 }, "{said}");
}
