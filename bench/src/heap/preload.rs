//! Unmodified programs with their `malloc` heap in a region (`libholdfast-malloc.so`), against the
//! same programs over volatile allocators.
//!
//! `larson` and `cfrac` are those of github.com/daanx/mimalloc-bench, whose folder `bench` is named
//! by `MIMALLOC_BENCH_SOURCE` and compiled then; they get what that suite gives them.
//! `redis-server` is the system's. A program that allocates by itself (Debian's redis brings
//! jemalloc) gets glibc's allocator by glibc before all other libraries.
//!
//! Invariants: each program runs alone, and its output must be what the program says when all is
//! well; a scratch heap leaves nothing.

use std::ffi::OsString;
use std::fs;
use std::io::{self, BufRead, BufReader, Error, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use procfs::process::Process;

use super::ground::Ground;
use super::{GLIBC, HOLDFAST, MIMALLOC};
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

const SOURCE: &str = "MIMALLOC_BENCH_SOURCE";
const SOURCE_REMEDY: &str = "larson and cfrac: MIMALLOC_BENCH_SOURCE=DIRECTORY names their sources \
                             (`bench` of github.com/daanx/mimalloc-bench)";
/// Debian's package libmimalloc2.0.
const MIMALLOC_LIBRARY: &str = "libmimalloc.so.2";
const GLIBC_LIBRARY: &str = "libc.so.6";
/// Threads of larson, and the key.
const LARSON: [(usize, &str); 3] = [
    (2, "preload_larson_vs_mimalloc"),
    (1, "preload_larson_1_thread_vs_mimalloc"),
    (4, "preload_larson_4_threads_vs_mimalloc"),
];
/// Seconds that larson runs.
const LARSON_SECONDS: &str = "2";
/// What cfrac factors.
const NUMBER: &str = "17545186520507317056371138836327483792789528";
/// Redis's data: so many keys with values of so many bytes.
const KEYS: usize = 200_000;
const VALUE_BYTES: usize = 1000;
/// So many of them get a new value while the child writes.
const CHANGED_KEYS: usize = KEYS / 10;
/// Makes the child take some two seconds.
const KEY_DELAY_US: usize = 10;
const SERVER: &str = "redis-server";
const PATIENCE: Duration = Duration::from_secs(60);

/// What is in front of the libraries of a program.
struct Preloads {
    ours: PathBuf,
    home: PathBuf,
    pool: PathBuf,
}

impl Preloads {
    fn command(&self, program: &Path, allocator: &str) -> Command {
        let mut command = Command::new(program);
        command.env_remove("LD_PRELOAD").stdin(Stdio::null()).stderr(Stdio::null());
        match allocator {
            HOLDFAST => command
                .env("HOLDFAST_HOME", &self.home)
                .env("HOLDFAST_POOL", &self.pool)
                .env("LD_PRELOAD", &self.ours),
            MIMALLOC => command.env("LD_PRELOAD", MIMALLOC_LIBRARY),
            _ => command.env("LD_PRELOAD", GLIBC_LIBRARY),
        };
        command
    }
}

/// Measures all programs that there are.
pub(crate) fn run(
    ground: &Ground,
    runs: usize,
    ours: &Path,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let preloads = Preloads {
        ours: ours.to_owned(),
        home: ground.in_memory("malloc-home")?,
        pool: ground.in_memory("malloc-pool")?,
    };
    match std::env::var_os(SOURCE).map(PathBuf::from) {
        Some(source) => {
            let programs = ground.on_disk("malloc-programs")?;
            larson(&preloads, &larson_program(&source, &programs)?, runs, outcome)?;
            cfrac(&preloads, &cfrac_program(&source, &programs)?, runs, outcome)?;
        }
        None => outcome.missing.push(SOURCE_REMEDY.to_owned()),
    }
    match Command::new(SERVER).arg("--version").output() {
        Ok(_) => redis(ground, &preloads, runs, outcome)?,
        Err(_) => outcome.missing.push(format!("{SERVER}: `apt-get install {SERVER}` brings it")),
    }
    Ok(())
}

fn larson_program(source: &Path, programs: &Path) -> io::Result<PathBuf> {
    let program = programs.join("larson");
    let mut compiler = Command::new("c++");
    compiler.args(["-O2", "-w", "-DCPP=1"]).arg(source.join("larson/larson.cpp"));
    compiled(compiler.arg("-o").arg(&program).arg("-lpthread"))?;
    Ok(program)
}

fn cfrac_program(source: &Path, programs: &Path) -> io::Result<PathBuf> {
    let program = programs.join("cfrac");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-w", "-std=gnu89", "-DNOMEMOPT=1"]);
    for file in fs::read_dir(source.join("cfrac"))? {
        let file = file?.path();
        // This one is a program of its own, and that one is for other systems.
        let skipped = ["pfactor.c", "getopt.c"];
        let is_source = file.extension().is_some_and(|extension| extension == "c");
        if is_source && !skipped.iter().any(|skipped| file.ends_with(skipped)) {
            compiler.arg(file);
        }
    }
    compiled(compiler.arg("-o").arg(&program).arg("-lm"))?;
    Ok(program)
}

fn compiled(compiler: &mut Command) -> io::Result<()> {
    let output = compiler.output()?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().find(|line| line.contains("error")).unwrap_or("no message");
    Err(Error::other(format!("a program does not compile; is {SOURCE} right? {first}")))
}

/// Nanoseconds for an operation.
fn larson(
    preloads: &Preloads,
    program: &Path,
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let has_mimalloc = has_library(MIMALLOC_LIBRARY);
    if !has_mimalloc {
        outcome
            .missing
            .push(format!("{MIMALLOC}, preloaded: `apt-get install libmimalloc2.0` brings it"));
    }
    for (threads, key) in LARSON {
        let side = |allocator: &'static str| {
            Side::new(allocator, move || {
                let mut command = preloads.command(program, allocator);
                let threads = threads.to_string();
                let arguments = [LARSON_SECONDS, "8", "1000", "5000", "100", "4141", &threads];
                let said = said_by(command.args(arguments))?;
                let per_second = said
                    .split_once("Throughput = ")
                    .and_then(|(_, rest)| rest.split_ascii_whitespace().next()?.parse::<f64>().ok())
                    .ok_or_else(|| Error::other("larson told no throughput"))?;
                Ok(1e9 / per_second)
            })
        };
        let mut sides = vec![side(HOLDFAST), side(GLIBC)];
        sides.extend(has_mimalloc.then(|| side(MIMALLOC)));
        let times = race(runs, sides)?;
        let goal = (threads == LARSON[0].0).then_some(Goal::AtMost(1.2));
        outcome.add(key, times.ratio(HOLDFAST, MIMALLOC), "x", goal);
        if threads == LARSON[0].0 {
            outcome.add("preload_larson_vs_glibc", times.ratio(HOLDFAST, GLIBC), "x", None);
        }
    }
    Ok(())
}

/// Processor time.
fn cfrac(
    preloads: &Preloads,
    program: &Path,
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let side = |allocator: &'static str| {
        Side::new(allocator, move || {
            let before = ticks_of_children()?;
            let said = said_by(preloads.command(program, allocator).arg(NUMBER))?;
            if !said.contains(" = ") {
                return Err(Error::other("cfrac told no factors"));
            }
            Ok((ticks_of_children()? - before) as f64)
        })
    };
    let mut sides = vec![side(HOLDFAST), side(GLIBC)];
    sides.extend(has_library(MIMALLOC_LIBRARY).then(|| side(MIMALLOC)));
    let times = race(runs, sides)?;
    let vs_glibc = times.ratio(HOLDFAST, GLIBC);
    outcome.add("preload_cfrac_vs_glibc", vs_glibc, "x", Some(Goal::AtMost(1.1)));
    outcome.add("preload_cfrac_vs_mimalloc", times.ratio(HOLDFAST, MIMALLOC), "x", None);
    Ok(())
}

/// What children that have ended used of processors, in ticks of a hundredth of a second.
fn ticks_of_children() -> io::Result<i64> {
    let stat = Process::myself().and_then(|own| own.stat()).map_err(Error::other)?;
    Ok(stat.cutime + stat.cstime)
}

/// What a program that succeeded wrote.
fn said_by(command: &mut Command) -> io::Result<String> {
    let output = command.output()?;
    if !output.status.success() {
        return Err(Error::other(format!("a program ended with {}", output.status)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether the loader finds a library: it complains about one that it does not find.
fn has_library(name: &str) -> bool {
    let output = Command::new("true").env("LD_PRELOAD", name).output();
    output.is_ok_and(|output| output.stderr.is_empty())
}

/// The most memory, in MiB, that a server and the child that writes its data take at one time.
fn redis(
    ground: &Ground,
    preloads: &Preloads,
    runs: usize,
    outcome: &mut Outcome,
) -> io::Result<()> {
    let side = |allocator: &'static str| {
        Side::new(allocator, move || {
            let directory = ground.on_disk("redis")?;
            let mut server = Server::start(preloads, allocator, &directory)?;
            let peak_bytes = server.save_in_background();
            server.stop()?;
            Ok(peak_bytes? as f64 / f64::from(1 << 20))
        })
    };
    let times = race(runs, vec![side(HOLDFAST), side(GLIBC)])?;
    let vs_glibc = times.ratio(HOLDFAST, GLIBC);
    outcome.add("preload_redis_bgsave_peak_vs_glibc", vs_glibc, "x", Some(Goal::AtMost(1.2)));
    outcome.add("preload_redis_bgsave_peak_mib", times.of(HOLDFAST).cloned(), "MiB", None);
    Ok(())
}

/// A redis server with data. Killed when it is dropped.
struct Server {
    child: Child,
    stream: BufReader<UnixStream>,
}

impl Server {
    fn start(preloads: &Preloads, allocator: &str, directory: &Path) -> io::Result<Server> {
        let socket = directory.join("socket");
        let mut command = preloads.command(Path::new(SERVER), allocator);
        command.args(["--port", "0", "--save", "", "--enable-debug-command", "yes"]);
        command.args(["--unixsocket".into(), OsString::from(&socket)]);
        command.args(["--dir".into(), OsString::from(directory)]);
        command.arg("--rdb-key-save-delay").arg(KEY_DELAY_US.to_string());
        let mut child = command.stdout(Stdio::null()).spawn()?;
        let begin = Instant::now();
        let stream = loop {
            match UnixStream::connect(&socket) {
                Ok(stream) => break stream,
                Err(error) if begin.elapsed() > PATIENCE => {
                    child.kill()?;
                    return Err(error);
                }
                Err(_) => sleep(Duration::from_millis(5)),
            }
        };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut server = Server { child, stream: BufReader::new(stream) };
        server.ask(&format!("DEBUG POPULATE {KEYS} key {VALUE_BYTES}"))?;
        Ok(server)
    }

    /// The first line of the answer to a command, or the length of a longer one.
    fn ask(&mut self, command: &str) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{command}\r\n").as_bytes())?;
        self.answer()
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if line.starts_with('-') || line.is_empty() {
            return Err(Error::other(format!("redis: {}", line.trim())));
        }
        Ok(line)
    }

    /// Whether a child is writing.
    fn is_saving(&mut self) -> io::Result<bool> {
        let length = self.ask("INFO persistence")?;
        let length = length.trim().trim_start_matches('$').parse().map_err(Error::other)?;
        let mut text = vec![0; length];
        io::Read::read_exact(&mut self.stream, &mut text)?;
        self.stream.read_line(&mut String::new())?;
        Ok(String::from_utf8_lossy(&text).contains("rdb_bgsave_in_progress:1"))
    }

    /// Saves while values are set; the most memory on the way.
    fn save_in_background(&mut self) -> io::Result<u64> {
        let value = "v".repeat(VALUE_BYTES);
        let mut peak_bytes = self.bytes()?;
        self.ask("BGSAVE")?;
        let begin = Instant::now();
        let mut number = 0;
        while self.is_saving()? {
            for _ in 0..CHANGED_KEYS / 100 {
                // Everywhere, and each once.
                let key = number * 7919 % KEYS;
                number += 1;
                if number <= CHANGED_KEYS {
                    self.ask(&format!("SET key:{key} {value}"))?;
                }
            }
            peak_bytes = peak_bytes.max(self.bytes()?);
            if begin.elapsed() > PATIENCE {
                return Err(Error::other("redis does not end saving"));
            }
        }
        if number < CHANGED_KEYS {
            return Err(Error::other("redis saved before all values were set"));
        }
        Ok(peak_bytes)
    }

    /// What the server and its children take: private pages, their part of shared ones, and all
    /// that the file of the heap takes, be it mapped or not.
    fn bytes(&self) -> io::Result<u64> {
        let server = Process::new(self.child.id() as i32).map_err(Error::other)?;
        let mut bytes = image_bytes(server.pid)?;
        let tasks = server.tasks().map_err(Error::other)?.flatten();
        let children: Vec<i32> = tasks
            .filter_map(|task| task.children().ok())
            .flatten()
            .map(|child| child as i32)
            .collect();
        for pid in children.into_iter().chain([server.pid]) {
            // A child may end meanwhile.
            bytes += fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
                .map_or(0, |rollup| private_bytes(&rollup));
        }
        Ok(bytes)
    }

    fn stop(mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Of memory that is in no file on tmpfs.
fn private_bytes(rollup: &str) -> u64 {
    let of = |field: &str| {
        let line = rollup.lines().find_map(|line| line.strip_prefix(field));
        let kib = line.and_then(|line| line.split_ascii_whitespace().next());
        kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
    };
    of("Pss_Anon:") + of("Pss_File:")
}

/// What the image takes that a process has open, which has no name any more.
fn image_bytes(pid: i32) -> io::Result<u64> {
    let mut images: Vec<(u64, u64)> = Vec::new();
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let path = descriptor?.path();
        let target = fs::read_link(&path).unwrap_or_default();
        if target.to_string_lossy().ends_with(".image (deleted)") {
            let found = fs::metadata(&path)?;
            images.push((found.ino(), found.blocks() * 512));
        }
    }
    images.sort_unstable();
    images.dedup_by_key(|(inode, _)| *inode);
    Ok(images.iter().map(|(_, bytes)| bytes).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a process's memory, what lies in shared memory is not counted twice.
    #[test]
    fn private_memory_is_anonymous_and_of_files() {
        let rollup = "00400000-7ffd [rollup]\nRss:  100 kB\nPss:   60 kB\nPss_Dirty: 9 kB\n\
                      Pss_Anon:   30 kB\nPss_File:   10 kB\nPss_Shmem:   20 kB\n";
        assert_eq!(private_bytes(rollup), 40 << 10);
        assert_eq!(private_bytes(""), 0);
    }

    #[test]
    fn library_that_is_not_there_is_noticed() {
        assert!(has_library(GLIBC_LIBRARY));
        assert!(!has_library("libholdfast-of-nobody.so"));
    }
}
