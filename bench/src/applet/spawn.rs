//! Section `spawn`: from the request until an applet serves, beside the same program without a
//! sandbox and in others'.
//!
//! The program is `applets/echo`. Where no host has given it a channel, it says so on standard
//! error and ends; the first byte of that is where the others' time stops.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_applet::{Command as AppletCommand, Grants, Pool};
use holdfast_testkit::applet_file;

use super::started::start;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};
use crate::timing::ms_since;

const APPLET: &str = "echo";
const SPAWN: &str = "applet";
const STATIC: &str = "static applet";
const POOL: &str = "pool";
const WASM: &str = "WebAssembly applet";
const FORK_EXEC: &str = "fork and exec";
const FORK_EXEC_STATIC: &str = "fork and exec, static";
const POSIX_SPAWN: &str = "posix_spawn";
const BWRAP: &str = "bwrap";
/// A start takes some milliseconds.
const STARTS_PER_RUN: u32 = 10;
/// The pool starts one applet in that time.
const FILL_TIME: Duration = Duration::from_secs(10);
/// What a dynamically linked program is started with by `bwrap`: everything unshared, the loader's
/// directories, no capability.
const BWRAP_OPTIONS: [&str; 18] = [
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--ro-bind-try",
    "/lib",
    "/lib",
    "--ro-bind-try",
    "/lib64",
    "/lib64",
    "--ro-bind-try",
    "/etc/ld.so.cache",
    "/etc/ld.so.cache",
];

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let form = |ending| applet_file(&format!("{APPLET}{ending}"));
    let (native, fixed, wasm) = (form("")?, form("-static")?, form(".wasm")?);
    let warm = native.clone();
    let pool = Pool::new(1, false, move || Ok(AppletCommand::new(&warm, Grants::none())))
        .map_err(io::Error::other)?;
    let cache = tempfile::tempdir()?;
    let wasm_ms = || spawn_ms(&wasm, || Grants::none().cache_dir(cache.path()));
    let mut sides = vec![
        Side::new(SPAWN, || spawn_ms(&native, Grants::none)),
        Side::new(STATIC, || spawn_ms(&fixed, Grants::none)),
        Side::new(FORK_EXEC, || mean(|| first_byte_ms(&mut forked(&native)))),
        Side::new(FORK_EXEC_STATIC, || mean(|| first_byte_ms(&mut forked(&fixed)))),
        Side::new(POSIX_SPAWN, || mean(|| first_byte_ms(&mut Command::new(&native)))),
        Side::new(POOL, || mean(|| take_ms(&pool))),
        Side::new(WASM, wasm_ms),
    ];
    match first_byte_ms(&mut bwrap_command(&native)) {
        Ok(_) => sides.push(Side::new(BWRAP, || mean(|| first_byte_ms(&mut bwrap_command(&native))))),
        Err(error) => outcome.missing.push(format!(
            "bwrap: it cannot start a program here ({error}); `apt-get install bubblewrap` brings it"
        )),
    }
    outcome.missing.push("nsjail: not compared, since Debian 12 has no package of it".to_owned());
    let times = race(runs, sides)?;
    outcome.add("spawn_ms", times.of(SPAWN).cloned(), "ms", None);
    outcome.add("spawn_vs_fork_exec", times.ratio(SPAWN, FORK_EXEC), "x", Some(Goal::AtMost(3.0)));
    outcome.add("spawn_vs_posix_spawn", times.ratio(SPAWN, POSIX_SPAWN), "x", None);
    outcome.add("spawn_static_ms", times.of(STATIC).cloned(), "ms", None);
    outcome.add("spawn_static_vs_fork_exec", times.ratio(STATIC, FORK_EXEC_STATIC), "x", None);
    outcome.add("spawn_from_pool_ms", times.of(POOL).cloned(), "ms", None);
    outcome.add("spawn_from_pool_vs_spawn", times.ratio(POOL, SPAWN), "x", Some(Goal::AtMost(0.2)));
    outcome.add("spawn_vs_bwrap", times.ratio(BWRAP, SPAWN), "x", None);
    outcome.add("wasm_spawn_ms", times.of(WASM).cloned(), "ms", None);
    outcome.add("fork_exec_ms", times.of(FORK_EXEC).cloned(), "ms", None);
    Ok(())
}

fn mean(mut once: impl FnMut() -> io::Result<f64>) -> io::Result<f64> {
    let mut sum_ms = 0.0;
    for _ in 0..STARTS_PER_RUN {
        sum_ms += once()?;
    }
    Ok(sum_ms / f64::from(STARTS_PER_RUN))
}

/// Until it serves. Its end is waited for, but not measured.
fn spawn_ms(path: &Path, grants: impl Fn() -> Grants) -> io::Result<f64> {
    mean(|| {
        let started = Instant::now();
        let applet = start(path.to_owned(), grants())?;
        let taken_ms = ms_since(started);
        drop(applet);
        Ok(taken_ms)
    })
}

/// A warm applet, when there is one.
fn take_ms(pool: &Pool) -> io::Result<f64> {
    let waiting = Instant::now();
    while pool.ready() == 0 {
        if waiting.elapsed() > FILL_TIME {
            return Err(io::Error::other("the pool starts no applet"));
        }
        thread::sleep(Duration::from_micros(200));
    }
    let started = Instant::now();
    let applet = pool.take().map_err(io::Error::other)?;
    let taken_ms = ms_since(started);
    drop(applet);
    Ok(taken_ms)
}

/// A program that is started by `fork` and `exec`, as by every host that has something to do in
/// between.
pub(crate) fn forked(program: &Path) -> Command {
    let mut command = Command::new(program);
    // SAFETY: the closure does nothing; that there is one keeps the library from `posix_spawn`,
    // which shares memory until the exec.
    unsafe { command.pre_exec(|| Ok(())) };
    command
}

/// Until a program writes to standard error.
pub(crate) fn first_byte_ms(command: &mut Command) -> io::Result<f64> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = command.spawn()?;
    let mut text = vec![0];
    let first = child.stderr.as_mut().map_or(Ok(0), |stderr| stderr.read(&mut text));
    let taken_ms = ms_since(started);
    if let Some(stderr) = &mut child.stderr {
        stderr.read_to_end(&mut text)?;
    }
    child.wait()?;
    let said = String::from_utf8_lossy(&text);
    // Whatever stands in between has its own complaints.
    if first? == 1 && said.starts_with(APPLET) {
        return Ok(taken_ms);
    }
    Err(io::Error::other(format!("{}: {}", command.get_program().display(), said.trim())))
}

fn bwrap_command(program: &Path) -> Command {
    let mut command = Command::new(BWRAP);
    command.args(BWRAP_OPTIONS).arg("--ro-bind").arg(program).arg("/applet").arg("/applet");
    command
}
