//! The host is killed (X7): nothing that it started survives, whatever it was doing.
//!
//! The host is this test program itself, started again as the one test [`the_role_of_the_host`],
//! under a name of its own, by which it and its children are found.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use holdfast_jail::{Jail, Layers};

use crate::victims::{LONG, fixed};

const ROLE: &str = "HOLDFAST_JAIL_HOST";
const VICTIM: &str = "HOLDFAST_JAIL_VICTIM";
const ROUNDS: u64 = 40;

#[test]
fn the_role_of_the_host() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let victim = std::env::var_os(VICTIM).unwrap();
    let layers = if role == "bare" { Layers::none() } else { Layers::default() };
    let start = || Jail::new(&victim).args(["spins"]).layers(layers).spawn().unwrap();
    // Whatever the moment: some are starting, some run, some are on their way out.
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut running = Vec::new();
                loop {
                    running.push(start());
                    if running.len() > 2 {
                        running.clear();
                    }
                }
            });
        }
    });
}

/// Processes that run one of these files, or, on their way to it, share the memory of one.
fn users(files: &[&Path]) -> Vec<(u32, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let Ok(program) = std::fs::read_link(entry.path().join("exe")) else { continue };
        if files.contains(&program.as_path()) {
            found.push((pid, program));
        }
    }
    found
}

/// Guarantee: sandbox/dies-with-host
#[test]
fn no_jailed_program_survives_its_host() {
    let directory = tempfile::tempdir_in(fixed().parent().unwrap()).unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let copied = |from: &Path, name: &str| {
        let to = directory.path().join(name);
        // Not by this process: a file that is open for writing cannot be run, and a child that
        // another test starts meanwhile would have it open for a moment.
        assert!(Command::new("cp").arg(from).arg(&to).status().unwrap().success());
        to
    };
    let host = copied(&std::env::current_exe().unwrap(), "host");
    let victim = copied(fixed(), "victim");
    let mut seen = 0;
    for round in 0.. {
        if round >= ROUNDS && seen > 10 {
            break;
        }
        // A start may take long on a busy machine; the rounds do, too, the later the more.
        assert!(round < 5 * ROUNDS, "hardly any victim ever ran: {seen}");
        let role = if round % 2 == 0 { "bare" } else { "confined" };
        let mut running = Command::new(&host)
            .args(["--exact", "host_death::the_role_of_the_host", "--nocapture"])
            .env(ROLE, role)
            .env(VICTIM, &victim)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // From before the first start to the middle of many.
        std::thread::sleep(Duration::from_millis(3 + 5 * round));
        seen += users(&[&victim]).len();
        running.kill().unwrap();
        running.wait().unwrap();
        let killed = Instant::now();
        loop {
            let left = users(&[&host, &victim]);
            if left.is_empty() {
                break;
            }
            assert!(killed.elapsed() < LONG, "round {round}: {left:?} survived");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
