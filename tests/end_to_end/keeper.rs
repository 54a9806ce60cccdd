//! `holdfast keeper`: what a person types, with a keeper and without one.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_keeper_client::Borrower;
use holdfast_region::{OwnerKey, RegionName};
use holdfast_testkit::Scratch;
use serde_json::Value;

use crate::{scratch, succeed, tell};

/// A heap whose writer died before its first checkpoint.
fn with_unsaved_heap() -> Scratch {
    let scratch = scratch();
    let names = scratch.names().unwrap();
    let key = OwnerKey::load_or_create(names.places(), "default").unwrap();
    drop(names.create(&RegionName::parse("diary").unwrap(), &key, 1 << 20).unwrap());
    scratch
}

fn lose_the_pool(scratch: &Scratch) {
    std::fs::remove_dir_all(scratch.pool()).unwrap();
}

/// A keeper, killed when it is dropped.
struct Running(Child);

impl Running {
    fn start(scratch: &Scratch, arguments: &[&str]) -> Running {
        Running::start_telling(scratch, arguments, Stdio::null())
    }

    /// What it tells people goes there.
    fn start_telling(scratch: &Scratch, arguments: &[&str], there: Stdio) -> Running {
        let mut command = scratch.holdfast();
        command.args(["keeper", "run"]).args(arguments).stderr(there);
        let running = Running(command.spawn().unwrap());
        let started = Instant::now();
        while status(scratch)["keeper"].is_null() {
            assert!(started.elapsed() < Duration::from_secs(20), "it does not answer");
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn status(scratch: &Scratch) -> Value {
    serde_json::from_str(&succeed(scratch.holdfast().args(["keeper", "status", "--json"]))).unwrap()
}

/// A flush without a keeper saves the heaps that are only in memory.
#[test]
fn flush_without_a_keeper_saves_unsaved_heaps() {
    let scratch = with_unsaved_heap();
    let told = succeed(scratch.holdfast().args(["keeper", "status"]));
    assert!(
        told.contains("keeper: none") && told.contains("diary") && told.contains("crashed"),
        "{told}"
    );
    let told = succeed(scratch.holdfast().args(["keeper", "flush"]));
    assert!(told.contains("diary") && told.contains("1 heap saved"), "{told}");
    lose_the_pool(&scratch);
    assert!(succeed(scratch.holdfast().args(["heap", "ls"])).contains("diary"));
    assert!(succeed(scratch.holdfast().args(["keeper", "metrics"])).contains("heap=\"diary\""));
    succeed(scratch.holdfast().args(["heap", "checkpoint", "diary"]));
    let told = tell(scratch.holdfast().args(["keeper", "flush", "--socket", "/nowhere"]));
    assert_eq!(told.status, 7);
    assert!(told.err.contains("holdfast keeper run"), "{}", told.err);
}

/// A keeper checkpoints the heap that a program left dirty and ends on request.
#[test]
fn keeper_checkpoints_dirty_heap_and_ends_on_order() {
    let scratch = with_unsaved_heap();
    let mut keeper = Running::start(&scratch, &["--profile", "desktop", "--loss-window", "200ms"]);
    let started = Instant::now();
    while status(&scratch)["heaps"][0]["state"] != "clean" {
        assert!(started.elapsed() < Duration::from_secs(20), "it was not checkpointed");
        std::thread::sleep(Duration::from_millis(20));
    }
    let second = tell(scratch.holdfast().args(["keeper", "run"]));
    assert_eq!(second.status, 7);
    assert!(second.err.contains("keeper already"), "{}", second.err);
    let flushed = succeed(scratch.holdfast().args(["keeper", "flush", "--json"]));
    assert_eq!(serde_json::from_str::<Value>(&flushed).unwrap()["left"], Value::Array(Vec::new()));
    assert!(
        succeed(scratch.holdfast().args(["keeper", "metrics"]))
            .contains("holdfast_flushes_total 1\n")
    );
    let killed = Command::new("kill").args(["-TERM", &keeper.0.id().to_string()]).status().unwrap();
    assert!(killed.success() && keeper.0.wait().unwrap().success());
}

/// A keeper whose output cannot be written saves heaps and continues to serve.
///
/// Guarantee: keeper/clients
#[test]
fn keeper_continues_when_its_notices_are_not_read() {
    let scratch = with_unsaved_heap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let nobody = std::io::pipe().unwrap().1;
    for there in [Stdio::from(full), Stdio::from(nobody)] {
        let mut keeper = Running::start_telling(&scratch, &[], there);
        let pid = keeper.0.id().to_string();
        let signal = |name: &str| {
            assert!(
                Command::new("kill").args([name, pid.as_str()]).status().unwrap().success(),
                "{name}"
            )
        };
        signal("-PWR");
        let started = Instant::now();
        while !succeed(scratch.holdfast().args(["keeper", "metrics"]))
            .contains("holdfast_flushes_total 1\n")
        {
            assert!(started.elapsed() < Duration::from_secs(20), "nothing was saved");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(status(&scratch)["keeper"].as_u64(), Some(keeper.0.id().into()));
        signal("-TERM");
        assert!(keeper.0.wait().unwrap().success());
    }
}

/// A serving keeper lists who holds each heap and explains invalid options.
#[test]
fn serving_keeper_lists_holders_and_checks_options() {
    let scratch = scratch();
    let public = tempfile::tempdir().unwrap();
    let socket = public.path().join("served.sock");
    let serve = format!("--serve={}", socket.display());
    let running =
        Running::start(&scratch, &[&serve, "--serve-to", "61001,61002", "--user-bytes", "2MiB"]);
    let borrower = Borrower::new(&socket);
    let mut borrowed = borrower.open("words", 1 << 20, None).unwrap();
    let refused = borrower.open("more", 2 << 20, None).unwrap_err().to_string();
    assert!(refused.contains("2097152"), "{refused}");
    let told = succeed(scratch.holdfast().args(["keeper", "status"]));
    assert!(told.contains(&format!("serves at {}", socket.display())), "{told}");
    assert!(told.contains("QUOTA REFUSALS"), "{told}");
    let user = &status(&scratch)["served"]["users"][0];
    assert_eq!((user["lent"].as_u64(), user["quota_refusals"].as_u64()), (Some(1), Some(1)));
    borrowed.close().unwrap();
    assert!(
        succeed(scratch.holdfast().args(["keeper", "metrics"]))
            .contains("holdfast_served_user_lent")
    );
    drop(running);
    for (arguments, reason) in [
        (&["--serve-to", "61001"][..], "--serve"),
        (&["--serve=/x/s", "--serve-to", "alice"], "id -u"),
        (&["--serve=/nowhere/at/all/s"], "/nowhere/at/all"),
        (&["--serve=s"], "whole path"),
    ] {
        let told = tell(scratch.holdfast().args(["keeper", "run"]).args(arguments));
        assert!(told.status != 0 && told.err.contains(reason), "{arguments:?}: {}", told.err);
    }
}

/// The report that led to pools with an owner: home C stores, and dies; the keeper of home D has
/// the same pool.
///
/// Guarantee: heap/one-home
#[test]
fn a_pool_of_another_home_is_refused_by_every_command() {
    let scratch = with_unsaved_heap();
    let image = std::fs::read(scratch.image("diary")).unwrap();
    let other = scratch.files().join("other home");
    let database = scratch.write("db", b"").unwrap();
    let foreign = |arguments: &[&str]| {
        let mut command = scratch.holdfast();
        tell(command.env("HOLDFAST_HOME", &other).args(arguments))
    };
    let commands: [&[&str]; 8] = [
        &["keeper", "run", "--pool-limit", "1MiB"],
        &["keeper", "flush"],
        &["keeper", "status"],
        &["heap", "ls"],
        &["heap", "check", "--all"],
        &["heap", "rm", "diary"],
        &["heap", "checkpoint", "diary"],
        &["heap", "adopt"],
    ];
    for arguments in commands {
        let told = foreign(arguments);
        assert_eq!(told.status, 8, "{arguments:?}: {}", told.err);
        for part in
            ["belongs to the home", &*scratch.home().to_string_lossy(), "unset HOLDFAST_POOL"]
        {
            assert!(told.err.contains(part), "{arguments:?}: {}", told.err);
        }
    }
    let told = foreign(&["sqlite", "status", &database.to_string_lossy()]);
    assert!(told.status != 0 && told.err.contains("belongs to the home"), "{}", told.err);
    let told = foreign(&["doctor"]);
    assert!(told.status == 1 && told.out.contains("belongs to the home"), "{}", told.out);
    assert_eq!(std::fs::read(scratch.image("diary")).unwrap(), image);
    // The home is gone: what is there is adopted.
    let keys = scratch.home().join("keys");
    let saved = scratch.files().join("keys");
    std::fs::rename(&keys, &saved).unwrap();
    std::fs::remove_dir_all(scratch.home()).unwrap();
    let told = foreign(&["heap", "ls"]);
    assert!(told.status == 8 && told.err.contains("holdfast heap adopt"), "{}", told.err);
    let told = foreign(&["heap", "adopt"]);
    assert!(told.status == 0 && told.out.contains("heaps with an image: 1"), "{}", told.err);
    std::fs::copy(saved.join("default.key"), other.join("keys/default.key")).unwrap();
    assert_eq!(foreign(&["heap", "checkpoint", "diary"]).status, 0);
}

/// The limit of the pool follows the memory of the machine and is reported.
///
/// Guarantee: keeper/pool-limit
#[test]
fn pool_limit_follows_the_machine() {
    let scratch = scratch();
    let keeper = Running::start(&scratch, &[]);
    let limit_bytes = status(&scratch)["pool_limit_bytes"].as_u64().unwrap();
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).unwrap();
    let total_bytes = total.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
    assert!(limit_bytes <= total_bytes / 4, "{limit_bytes}");
    assert!(limit_bytes >= 64 << 20, "a page's heap is evicted: {limit_bytes}");
    let told = succeed(scratch.holdfast().args(["keeper", "status"]));
    assert!(told.contains("(25% of "), "{told}");
    drop(keeper);
    let told = tell(scratch.holdfast().arg("doctor")).out;
    assert!(told.contains("limit of the pool with a keeper") && told.contains("25% of "), "{told}");
    let _phone = Running::start(&scratch, &["--profile", "phone"]);
    assert_eq!(status(&scratch)["pool_limit_bytes"].as_u64(), Some(20_000_000));
}
