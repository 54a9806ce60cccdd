//! The limits of a program (X6): each greedy program ends with the limit that it reached, and the
//! host stays responsive.

use std::time::{Duration, Instant};

use holdfast_jail::{End, JailLimits, JailStdio, Layer, Layers, LimitHit, PathAccess, PathGrant};

use crate::victims::{LONG, WORKED, end, finish, is_root, jail, refused};

fn limits(change: impl FnOnce(&mut JailLimits)) -> JailLimits {
    let mut limits = JailLimits::default();
    change(&mut limits);
    limits
}

/// An ordinary program comes to its end meanwhile.
fn responsive() {
    let started = Instant::now();
    assert_eq!(end(jail(&["nothing"])), WORKED);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
}

/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn a_spinning_program_ends_at_its_cpu_time() {
    for limit in [Duration::from_millis(50), Duration::from_millis(1300)] {
        let jailed = jail(&["spins"])
            .limits(limits(|limits| limits.cpu_time = Some(limit)))
            .spawn()
            .unwrap();
        responsive();
        assert_eq!(finish(&jailed), End::Limit(LimitHit::CpuTime { limit }));
        let used = jailed.usage().cpu_time;
        assert!(used >= limit && used < limit + Duration::from_secs(1), "{used:?}");
    }
}

/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn a_waiting_program_ends_at_its_wall_time() {
    let limit = Duration::from_millis(60);
    let jailed =
        jail(&["waits"]).limits(limits(|limits| limits.wall_time = Some(limit))).spawn().unwrap();
    assert_eq!(finish(&jailed), End::Limit(LimitHit::WallTime { limit }));
    assert!(jailed.usage().wall_time >= limit);
}

/// The longest times that there are limit nothing: a program runs under them, and the kernel's own
/// limit of processor time is that of the host.
///
/// Guarantee: sandbox/time-limits
#[test]
fn longest_times_are_no_limits() {
    let longest = limits(|limits| {
        limits.cpu_time = Some(Duration::MAX);
        limits.wall_time = Some(Duration::MAX);
    });
    let jailed = jail(&["waits"]).limits(longest.clone()).spawn().unwrap();
    let hard = |process: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Max cpu time")).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_eq!(hard(&jailed.pid().to_string()), hard("self"));
    drop(jailed);
    assert_eq!(end(jail(&["nothing"]).limits(longest)), WORKED);
}

/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn a_fork_bomb_ends_at_its_first_fork() {
    for layers in [Layers::none(), Layers::default()] {
        for words in [["fork"], ["fork for ever"]] {
            let found = end(jail(&words).layers(layers));
            assert!(matches!(&found, End::Violation(found) if found.name == "clone"), "{found}");
        }
    }
    responsive();
}

/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn threads_are_counted() {
    for layers in [Layers::none(), Layers::default()] {
        let run = |threads: u32, wanted: &str| {
            end(jail(&["threads", wanted])
                .layers(layers)
                .limits(limits(|limits| limits.threads = threads)))
        };
        assert_eq!(run(8, "7"), WORKED);
        assert_eq!(run(8, "8"), End::Limit(LimitHit::Threads { limit: 8 }));
        assert_eq!(run(8, "1000000"), End::Limit(LimitHit::Threads { limit: 8 }));
    }
    responsive();
}

/// A program that used up its address space is distinguished from one that aborts.
///
/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn exhausted_address_space_is_not_an_abort() {
    let limit_bytes = 64 << 20;
    let few = limits(|limits| limits.address_space_bytes = limit_bytes);
    for layers in [Layers::none(), Layers::default()] {
        let found = end(jail(&["memory"]).layers(layers).limits(few.clone()));
        assert_eq!(found, End::Limit(LimitHit::AddressSpace { limit_bytes }));
        let found = end(jail(&["aborts"]).layers(layers).limits(few.clone()));
        assert_eq!(found, End::Signal { signal: libc::SIGABRT, name: "SIGABRT" });
    }
}

/// The memory of a large host does not count as that of a program that crashes: the kernel says of
/// each child that it had at least as much as its parent.
///
/// Guarantee: sandbox/limits-are-named
#[test]
fn crash_under_a_large_host_is_a_crash() {
    // Enough for a static program, and less than any program of tests has.
    let limit_bytes = 4 << 20;
    assert!(holdfast_sys::child::inherited_peak_bytes() > limit_bytes);
    let few = limits(|limits| limits.address_space_bytes = limit_bytes);
    for layers in [Layers::none(), Layers::default()] {
        let found = end(jail(&["crashes"]).layers(layers).limits(few.clone()));
        assert_eq!(found, End::Signal { signal: libc::SIGSEGV, name: "SIGSEGV" });
    }
}

/// The control group of a program counts the memory in use and is removed afterwards.
///
/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn cgroup_counts_memory_and_is_removed() {
    let limit_bytes = 32 << 20;
    let layers = Layers::default().with(Layer::ControlGroup);
    let jailed = jail(&["memory"])
        .layers(layers)
        .limits(limits(|limits| limits.memory_bytes = Some(limit_bytes)))
        .spawn()
        .unwrap();
    if jailed.weaker().iter().any(|weak| weak.layer == Layer::ControlGroup) {
        println!("not run: {}", jailed.weaker()[0]);
        return;
    }
    assert_eq!(finish(&jailed), End::Limit(LimitHit::Memory { limit_bytes }));
    drop(jailed);
    let started = Instant::now();
    let mine = format!("holdfast-{}-", std::process::id());
    let left = || {
        let output = std::process::Command::new("find")
            .args(["/sys/fs/cgroup", "-maxdepth", "4", "-name"])
            .arg(format!("{mine}*"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    while !left().is_empty() {
        assert!(started.elapsed() < LONG, "{}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn files_that_are_open_are_counted() {
    let few = limits(|limits| limits.open_files = 5);
    let words = ["open for ever", "/etc/ld.so.cache"];
    // The loader's files are not there for a static program; without a root of its own they are.
    let found = end(jail(&words).layers(Layers::none()).limits(few));
    assert_eq!(found, refused(libc::EMFILE));
}

/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn a_file_does_not_grow_past_its_limit() {
    let directory = tempfile::tempdir().unwrap();
    let limit_bytes = 1 << 20;
    let fill = |layers: Layers, name: &str| {
        let (host, guest) = (directory.path().to_owned(), directory.path().to_owned());
        let path = directory.path().join(name);
        let jail = jail(&["fill a file", path.to_str().unwrap()])
            .layers(layers)
            .limits(limits(|limits| limits.file_size_bytes = limit_bytes))
            .path(PathGrant { host, guest, access: PathAccess::ReadWrite });
        let found = end(jail);
        assert_eq!(path.metadata().unwrap().len(), limit_bytes);
        found
    };
    // The first process of a name space ignores the signal, and gets the error.
    assert_eq!(fill(Layers::default(), "first"), refused(libc::EFBIG));
    let found = fill(Layers::default().without(Layer::Processes), "second");
    assert_eq!(found, End::Limit(LimitHit::FileSize { limit_bytes }));
}

/// A flood of output ends at its limit and does not disturb other programs.
///
/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn output_flood_ends_at_its_limit() {
    let limit_bytes = 4 << 20;
    let bounded = limits(|limits| limits.output_bytes = limit_bytes);
    for stream in ["1", "2"] {
        let jailed = jail(&["write for ever", stream])
            .stdio(JailStdio::Capture { limit_bytes: 1000 })
            .limits(bounded.clone())
            .spawn()
            .unwrap();
        responsive();
        assert_eq!(finish(&jailed), End::Limit(LimitHit::Output { limit_bytes }));
        assert_eq!(jailed.stdout().len() + jailed.stderr().len(), 1000);
        assert!(jailed.output_truncated());
    }
}

/// Output that the host discards is not counted, also where a pipe takes it, as with a directory.
///
/// Guarantee: sandbox/memory-limits
#[test]
fn output_that_is_discarded_has_no_limit() {
    let directory = tempfile::tempdir().unwrap();
    let (host, guest) = (directory.path().to_owned(), directory.path().to_owned());
    let jailed = jail(&["prints", &"x".repeat(5000)])
        .path(PathGrant { host, guest, access: PathAccess::ReadWrite })
        .stdio(JailStdio::Null)
        .limits(limits(|limits| limits.output_bytes = 1000))
        .spawn()
        .unwrap();
    assert_eq!(finish(&jailed), End::Exited { status: 0 });
    assert_eq!((jailed.stdout(), jailed.output_truncated()), (Vec::new(), false));
}

/// A flood of questions to the supervisor ends at its limit; other programs are answered meanwhile.
///
/// Guarantee: sandbox/limits-are-named
/// Guarantee: sandbox/memory-limits
/// Guarantee: sandbox/time-limits
#[test]
fn question_flood_ends_at_its_limit() {
    let limit = 20_000;
    let flood = || {
        jail(&["ask for ever"]).limits(limits(|limits| limits.questions = limit)).spawn().unwrap()
    };
    let floods = [flood(), flood(), flood()];
    responsive();
    for jailed in &floods {
        assert_eq!(finish(jailed), End::Limit(LimitHit::Questions { limit }));
    }
}

/// Locked memory, core dumps and priorities of a program are limited.
///
/// Guarantee: sandbox/no-terminal
#[test]
fn memlock_core_dump_and_priority_are_limited() {
    // What the host may do to its priority the program may not; whether it may is up to the
    // machine.
    let raised = rustix::process::Rlimit { current: Some(40), maximum: Some(40) };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nice, raised);
    let jailed = jail(&["waits"]).limits(limits(|limits| limits.nice = 7)).spawn().unwrap();
    let text = std::fs::read_to_string(format!("/proc/{}/limits", jailed.pid())).unwrap();
    let zero = |name: &str| {
        text.lines()
            .any(|line| line.strip_prefix(name).is_some_and(|rest| rest.trim().starts_with("0 ")))
    };
    for name in [
        "Max core file size",
        "Max locked memory",
        "Max file size",
        "Max realtime priority",
        "Max nice priority",
    ] {
        assert!(zero(name), "{name}: {text}");
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", jailed.pid())).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    assert_eq!(after_name.split_whitespace().nth(16), Some("7"));
    // Room for what the host itself runs as root: the count of processes is of the jail's own user.
    assert!(
        !is_root()
            || text.lines().any(|line| line.starts_with("Max processes") && line.contains(" 64 "))
    );
}

/// Private memory is limited separately from the whole address space.
///
/// Guarantee: sandbox/memory-limits
#[test]
fn private_memory_has_its_own_limit() {
    const MIB: u64 = 1 << 20;
    for layers in [Layers::none(), Layers::default()] {
        let limits = limits(|limits| {
            limits.address_space_bytes = 4096 * MIB;
            limits.private_bytes = 64 * MIB;
        });
        let jailed = jail(&["memory"]).layers(layers).limits(limits).spawn().unwrap();
        assert_eq!(finish(&jailed), End::Limit(LimitHit::AddressSpace { limit_bytes: 64 * MIB }));
        assert!(jailed.usage().peak_memory_bytes < 80 * MIB, "{:?}", jailed.usage());
    }
}
