//! Section `starts` (table 2): from the request until an applet serves, with the files in memory
//! (warm) and not (cold).
//!
//! The request is the start of a host, a process of its own as the paper's system-call interceptor
//! is: this program, copied to where nobody else has it mapped. It starts the applet and says so.
//! Where it is asked for that, it makes the first call, too, over the bare channel, and says what
//! that took: with the applet in the jail, and with the same program started by `exec` alone.
//!
//! Invariants: before a cold start the host, the applet and what was compiled of it are out of the
//! page cache; a warm one follows a start that is not counted. Files that other processes have
//! mapped, as the C library, cannot be dropped, and are named.

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::io::{self, Error, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use holdfast_applet::Grants;
use holdfast_testkit::applet_file;
use procfs::process::{MMapPath, Process};
use rustix::fs::{Advice, fadvise};

use crate::applet::PEER;
use crate::applet::channel::Caller;
use crate::applet::processors::Placement;
use crate::applet::spawn::{first_byte_ms, forked};
use crate::applet::started::start;
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};
use crate::timing::ms_since;

/// A host that starts an applet.
pub(crate) const ROLE: &str = "start";
/// The same host, which starts the same program without a sandbox.
pub(crate) const ROLE_PLAIN: &str = "start-plain";

const APPLET: &str = "echo";
/// What a host is to start, and where it keeps what it compiled.
const APPLET_VARIABLE: &str = "HOLDFAST_BENCH_APPLET";
const CACHE_VARIABLE: &str = "HOLDFAST_BENCH_CACHE";
/// There if the host is to make a call.
const CALL_VARIABLE: &str = "HOLDFAST_BENCH_FIRST_CALL";
/// What the host says first.
const SERVES: &[u8] = b"s";

const COLD: &str = "native, cold";
const WARM: &str = "native, warm";
const WASM_COLD: &str = "WebAssembly, cold";
const WASM_WARM: &str = "WebAssembly, warm";
const PLAIN_COLD: &str = "fork and exec, cold";
const PLAIN_WARM: &str = "fork and exec, warm";
const FILTERED_COLD: &str = "first call in the jail, cold";
const FILTERED_WARM: &str = "first call in the jail, warm";
const UNFILTERED_COLD: &str = "first call without, cold";
const UNFILTERED_WARM: &str = "first call without, warm";

/// The paper's faster machine.
const PAPER_COLD_MS: f64 = 181.0;
const PAPER_WARM_MS: f64 = 20.0;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let files = Files::lay_out()?;
    let native = files.host(ROLE, &files.native);
    let wasm = files.host(ROLE, &files.wasm);
    let plain = files.host(ROLE_PLAIN, &files.native);
    for host in [&native, &wasm, &plain] {
        host.start_ms()?;
    }
    files.drop_from_memory()?;
    files.say_what_stays(outcome)?;
    let sides = vec![
        Side::new(COLD, || native.cold_ms()),
        Side::new(WARM, || native.warm_ms()),
        Side::new(WASM_COLD, || wasm.cold_ms()),
        Side::new(WASM_WARM, || wasm.warm_ms()),
        Side::new(PLAIN_COLD, || plain.cold_ms()),
        Side::new(PLAIN_WARM, || plain.warm_ms()),
        Side::new(FILTERED_COLD, || native.first_call_cold_us()),
        Side::new(FILTERED_WARM, || native.first_call_warm_us()),
        Side::new(UNFILTERED_COLD, || plain.first_call_cold_us()),
        Side::new(UNFILTERED_WARM, || plain.first_call_warm_us()),
    ];
    let times = race(runs, sides)?;
    let cold = Some(Goal::AtMost(PAPER_COLD_MS));
    let warm = Some(Goal::AtMost(PAPER_WARM_MS));
    for (key, side, goal) in [
        ("start_cold_ms", COLD, cold),
        ("start_warm_ms", WARM, warm),
        ("start_wasm_cold_ms", WASM_COLD, cold),
        ("start_wasm_warm_ms", WASM_WARM, warm),
        ("start_plain_cold_ms", PLAIN_COLD, None),
        ("start_plain_warm_ms", PLAIN_WARM, None),
    ] {
        outcome.add(key, times.of(side).cloned(), "ms", goal);
    }
    outcome.add("start_cold_vs_warm", times.ratio(COLD, WARM), "x", None);
    outcome.add("start_cold_vs_plain", times.ratio(COLD, PLAIN_COLD), "x", None);
    outcome.add("start_warm_vs_plain", times.ratio(WARM, PLAIN_WARM), "x", None);
    for (key, side) in [
        ("first_call_filtered_cold_us", FILTERED_COLD),
        ("first_call_filtered_warm_us", FILTERED_WARM),
        ("first_call_unfiltered_cold_us", UNFILTERED_COLD),
        ("first_call_unfiltered_warm_us", UNFILTERED_WARM),
    ] {
        outcome.add(key, times.of(side).cloned(), "us", None);
    }
    for (key, filtered, unfiltered) in [
        ("first_call_cold_filtered_vs_unfiltered", FILTERED_COLD, UNFILTERED_COLD),
        ("first_call_warm_filtered_vs_unfiltered", FILTERED_WARM, UNFILTERED_WARM),
    ] {
        outcome.add(key, times.ratio(filtered, unfiltered), "x", None);
    }
    Ok(())
}

/// The fresh host: starts the applet, says that it serves, and ends it.
pub(crate) fn host() -> io::Result<()> {
    let applet = named(APPLET_VARIABLE)?;
    if is_to_call() {
        return first_call(Caller::jailed(&applet)?);
    }
    let grants = Grants::none().cache_dir(named(CACHE_VARIABLE)?);
    let applet = start(applet, grants)?;
    say(&mut io::stdout(), None)?;
    drop(applet);
    Ok(())
}

/// The same without a sandbox: the program, which has no channel unless it is to be called, says so
/// and ends.
pub(crate) fn plain_host() -> io::Result<()> {
    let program = named(APPLET_VARIABLE)?;
    if is_to_call() {
        return first_call(Caller::unjailed(&program)?);
    }
    first_byte_ms(&mut forked(&program))?;
    say(&mut io::stdout(), None)
}

fn is_to_call() -> bool {
    std::env::var_os(CALL_VARIABLE).is_some()
}

/// Calls an applet that was just started, which ends then.
fn first_call(mut applet: Caller) -> io::Result<()> {
    let call_us = applet.round_trip_us(Placement::Free, 1)?;
    say(&mut io::stdout(), Some(call_us))
}

fn named(variable: &str) -> io::Result<PathBuf> {
    let value = std::env::var_os(variable);
    value.map(PathBuf::from).ok_or_else(|| Error::other(format!("{variable} is not set")))
}

/// Says that the applet serves, and what a call has taken.
fn say(out: &mut impl Write, call_us: Option<f64>) -> io::Result<()> {
    out.write_all(SERVES)?;
    if let Some(us) = call_us {
        write!(out, "{us}")?;
    }
    out.flush()
}

/// What a call has taken, from what was said after that the applet serves.
fn call_us(said: &str) -> io::Result<f64> {
    said.parse().map_err(|_| Error::other("the host does not say what its call took"))
}

/// The files of a start, in a folder beside this program: on a disk, and not shared with other programs.
struct Files {
    folder: tempfile::TempDir,
    program: PathBuf,
    native: PathBuf,
    wasm: PathBuf,
}

impl Files {
    fn lay_out() -> io::Result<Files> {
        let this = std::env::current_exe()?;
        let beside = this.parent().ok_or(io::ErrorKind::NotFound)?;
        let folder = tempfile::tempdir_in(beside)?;
        // An applet may run as another user.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let copy = |from: &Path, name: &str| {
            let to = folder.path().join(name);
            fs::copy(from, &to)?;
            Ok::<_, Error>(to)
        };
        let program = copy(&this, "host")?;
        let native = copy(&applet_file(APPLET)?, "applet")?;
        let wasm = copy(&applet_file(&format!("{APPLET}.wasm"))?, "applet.wasm")?;
        Ok(Files { program, native, wasm, folder })
    }

    fn host<'a>(&'a self, role: &'static str, applet: &'a Path) -> Host<'a> {
        Host { files: self, role, applet }
    }

    fn cache(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    /// The copies, and what was compiled.
    fn own(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = vec![self.program.clone(), self.native.clone(), self.wasm.clone()];
        below(&self.cache(), &mut files)?;
        Ok(files)
    }

    fn drop_from_memory(&self) -> io::Result<()> {
        for path in self.own()?.iter().chain(&libraries()?) {
            let file = File::open(path)?;
            // What is not on the disk yet stays in memory, as what was just compiled.
            file.sync_all()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }

    /// Names what is in memory after it was dropped.
    fn say_what_stays(&self, outcome: &mut Outcome) -> io::Result<()> {
        let Some(own) = resident_bytes(&self.own()?) else {
            outcome.missing.push(
                "fincore: what stays in memory before a cold start is not known; \
                 `apt-get install util-linux` brings it"
                    .to_owned(),
            );
            return Ok(());
        };
        if own > 0 {
            outcome.missing.push(format!(
                "cold starts: {own} bytes of the host's and the applet's files stay in memory on this \
                 file system, so what is called cold is not"
            ));
        }
        let shared = resident_bytes(&libraries()?).unwrap_or_default();
        outcome.note(format!(
            "before a cold start {own} bytes of the files of host and applet are in memory, and \
             {shared} bytes of the system's libraries, which other processes have mapped"
        ));
        Ok(())
    }
}

/// All files below a folder, if there is one.
fn below(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            below(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// What this program has mapped besides itself: the host has the same libraries, and an applet some
/// of them.
fn libraries() -> io::Result<BTreeSet<PathBuf>> {
    let this = std::env::current_exe()?;
    let maps = Process::myself().and_then(|process| process.maps()).map_err(Error::other)?;
    let path = |path: &MMapPath| match path {
        MMapPath::Path(path) if *path != this && path.is_file() => Some(path.clone()),
        _ => None,
    };
    Ok(maps.iter().filter_map(|map| path(&map.pathname)).collect())
}

/// Bytes of files that are in memory, if `fincore` is here to say so.
fn resident_bytes<'a>(files: impl IntoIterator<Item = &'a PathBuf>) -> Option<u64> {
    let mut command = Command::new("fincore");
    command.args(["--bytes", "--noheadings", "--output", "RES"]).args(files);
    let output = command.stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.split_whitespace().map(|bytes| bytes.parse::<u64>().ok()).sum()
}

/// A host that is started for an applet.
struct Host<'a> {
    files: &'a Files,
    role: &'static str,
    applet: &'a Path,
}

impl Host<'_> {
    fn cold_ms(&self) -> io::Result<f64> {
        self.files.drop_from_memory()?;
        self.start_ms()
    }

    fn warm_ms(&self) -> io::Result<f64> {
        self.start_ms()?;
        self.start_ms()
    }

    fn first_call_cold_us(&self) -> io::Result<f64> {
        self.files.drop_from_memory()?;
        self.first_call_us()
    }

    fn first_call_warm_us(&self) -> io::Result<f64> {
        self.first_call_us()?;
        self.first_call_us()
    }

    /// Until it says that the applet serves. Its end is waited for, but not measured.
    fn start_ms(&self) -> io::Result<f64> {
        self.run(&mut self.command()).map(|(taken_ms, _)| taken_ms)
    }

    /// What its first call takes after the start.
    fn first_call_us(&self) -> io::Result<f64> {
        let (_, said) = self.run(self.command().env(CALL_VARIABLE, "1"))?;
        call_us(&said)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.files.program);
        command
            .args([PEER, self.role])
            .env(APPLET_VARIABLE, self.applet)
            .env(CACHE_VARIABLE, self.files.cache())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    /// Milliseconds until it says that the applet serves, and what it says after that.
    fn run(&self, command: &mut Command) -> io::Result<(f64, String)> {
        let started = Instant::now();
        let mut child = command.spawn()?;
        let mut said = [0];
        let serves = child.stdout.as_mut().map_or(Ok(0), |out| out.read(&mut said))?;
        let taken_ms = ms_since(started);
        let mut rest = String::new();
        if let Some(out) = &mut child.stdout {
            out.read_to_string(&mut rest)?;
        }
        let status = child.wait()?;
        if serves == 1 && status.success() {
            return Ok((taken_ms, rest));
        }
        Err(Error::other(format!("the host of {} ended with {status}", self.applet.display())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files that were dropped are out of memory, on the disk of the build; those of the cache of
    /// compiled code are among them.
    #[test]
    fn dropped_files_are_out_of_memory() {
        let Ok(files) = Files::lay_out() else {
            println!("not run: the applet {APPLET} is not built");
            return;
        };
        fs::create_dir_all(files.cache().join("deep")).unwrap();
        let compiled = files.cache().join("deep/code");
        fs::write(&compiled, vec![1; 1 << 20]).unwrap();
        File::open(&compiled).unwrap().sync_all().unwrap();
        assert_eq!(files.own().unwrap().len(), 4);
        let Some(before) = resident_bytes(&files.own().unwrap()) else {
            println!("not run: there is no fincore");
            return;
        };
        assert!(before >= 1 << 20, "{before}");
        files.drop_from_memory().unwrap();
        assert_eq!(resident_bytes(&files.own().unwrap()), Some(0));
    }

    /// The byte by which a start is timed comes first, and what a call took after it.
    #[test]
    fn host_says_what_its_first_call_took() {
        let mut said = Vec::new();
        say(&mut said, Some(12.5)).unwrap();
        let (serves, rest) = said.split_at(SERVES.len());
        assert_eq!(serves, SERVES);
        assert_eq!(call_us(std::str::from_utf8(rest).unwrap()).unwrap(), 12.5);
        said.clear();
        say(&mut said, None).unwrap();
        assert_eq!(said, SERVES);
        assert!(call_us("").is_err());
    }

    /// This program's libraries are found, itself not being one.
    #[test]
    fn libraries_are_those_of_this_process() {
        let libraries = libraries().unwrap();
        let is_c = |path: &PathBuf| path.to_string_lossy().contains("libc.so");
        assert!(libraries.iter().any(is_c), "{libraries:?}");
        assert!(!libraries.contains(&std::env::current_exe().unwrap()));
    }
}
