//! The qNVRAM paper's figures 1 and 2 from programs of this machine: a browser, a mail client and a
//! chat client, driven by scripts, with their homes on a device of their own whose writes are
//! traced. Then those whose SQLite is a library of the system, with the VFS as their default by
//! `holdfast-sqlite-preload`.
//!
//! Invariants:
//! - The trace accounts for each block that the kernel counts for the device, or it is an error.
//! - After each run a plain SQLite finds every database whole, with the rows that the script made.
//! - A program runs in name spaces of its own: it reaches 127.0.0.1 only, and nothing of it stays.

mod block_trace;
mod names;
mod shares;
mod touched;

use std::fs::{self, File};
use std::io::{self, Error, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use holdfast_command::output::aligned;
use tempfile::TempDir;

use crate::device::Device;
use crate::heap::ground::Ground;
use crate::report::Outcome;
use crate::stats::Series;

use block_trace::{BLOCK, BlockTrace, Files, journal_blocks};
use names::{Names, now};
use shares::{Kind, Shares};
use touched::Touched;

/// Names the library that makes ours the default VFS; `cargo xtask bench sqlite` builds it.
const PRELOAD: &str = "HOLDFAST_PRELOAD";
/// A phase of a script takes no longer.
const SECONDS_MAX: &str = "240";
const COMMON: &str = include_str!("programs/common.sh");
/// What scripts call.
const HELPERS: [(&str, &str); 2] = [
    ("pages.py", include_str!("programs/pages.py")),
    ("mail.py", include_str!("programs/mail.py")),
];
/// What all scripts need, and the package that has it.
const NEEDED: [(&str, &str); 6] = [
    ("debugfs", "e2fsprogs"),
    ("unshare", "util-linux"),
    ("ip", "iproute2"),
    ("bash", "bash"),
    ("strace", "strace"),
    ("sqlite3", "sqlite3"),
];
/// What those with windows need besides.
const SCREEN: [(&str, &str); 4] = [
    ("Xvfb", "xvfb"),
    ("xdotool", "xdotool"),
    ("dbus-run-session", "dbus"),
    ("/usr/bin/python3", "python3"),
];

/// A program and how it is used.
struct Program {
    key: &'static str,
    title: &'static str,
    script: &'static str,
    needed: &'static [(&'static str, &'static str)],
    has_windows: bool,
    /// Whether its SQLite is the library of the system.
    takes_vfs: bool,
    rows: Option<Rows>,
}

/// Rows that the script made.
struct Rows {
    /// In the program's home.
    database: &'static str,
    count: &'static str,
    expected: i64,
}

const PROGRAMS: [Program; 3] = [
    Program {
        key: "chromium",
        title: "Chromium: 30 pages",
        script: include_str!("programs/chromium.sh"),
        needed: &[("chromium", "chromium")],
        has_windows: true,
        takes_vfs: false,
        rows: None,
    },
    Program {
        key: "geary",
        title: "Geary: 9 new mails read, 3 searches",
        script: include_str!("programs/geary.sh"),
        needed: &[
            ("geary", "geary"),
            ("dovecot", "dovecot-imapd"),
            ("gnome-keyring-daemon", "gnome-keyring"),
            ("secret-tool", "libsecret-tools"),
        ],
        has_windows: true,
        takes_vfs: true,
        rows: Some(Rows {
            database: ".local/share/geary/account_01/geary.db",
            count: "SELECT count(*) FROM MessageTable WHERE body IS NOT NULL",
            expected: 69,
        }),
    },
    Program {
        key: "profanity",
        title: "Profanity: 40 messages each way",
        script: include_str!("programs/profanity.sh"),
        needed: &[("profanity", "profanity"), ("prosody", "prosody"), ("tmux", "tmux")],
        has_windows: false,
        takes_vfs: true,
        rows: Some(Rows {
            database: ".local/share/profanity/database/first_at_localhost/chatlog.db",
            count: "SELECT count(*) FROM ChatLogs",
            expected: 80,
        }),
    },
];

/// What a program's run came to.
struct Found {
    shares: Shares,
    syncs: usize,
    flushes: usize,
    databases: Vec<DatabaseFile>,
}

/// A database that a program left.
#[derive(Debug, Clone)]
struct DatabaseFile {
    path: PathBuf,
    bytes: u64,
    page_bytes: u64,
}

/// Runs of one program, as it comes or with the VFS.
#[derive(Default)]
struct Taken {
    shares: Vec<Shares>,
    syncs: Series,
    flushes: Series,
    databases: Vec<DatabaseFile>,
}

impl Taken {
    fn take(&mut self, found: Found) {
        self.shares.push(found.shares);
        self.syncs.push(found.syncs as f64);
        self.flushes.push(found.flushes as f64);
        self.databases = found.databases;
    }

    fn megabytes(&self) -> Series {
        self.shares.iter().map(|shares| shares.blocks() as f64 * BLOCK as f64 / 1e6).collect()
    }

    fn percent(&self, kinds: &[Kind]) -> Series {
        self.shares.iter().map(|shares| shares.percent(kinds)).collect()
    }
}

pub(super) fn run(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut chosen = Vec::new();
    for program in PROGRAMS {
        match missing(&program) {
            None => chosen.push(program),
            Some(complaint) => outcome.missing.push(complaint),
        }
    }
    if chosen.is_empty() {
        return Ok(());
    }
    let device = match Device::new(&ground.on_disk("device")?)? {
        Ok(device) => device,
        Err(reason) => {
            outcome.missing.push(format!("block traces of programs: {reason}"));
            return Ok(());
        }
    };
    // Said once rather than for each program.
    if let Err(reason) = BlockTrace::start(device.number(), device.image())? {
        outcome.missing.push(format!("block traces of programs: {reason}"));
        return Ok(());
    }
    let preload = std::env::var_os(PRELOAD).map(PathBuf::from).ok_or_else(|| {
        Error::other(format!("{PRELOAD} names no library; run `cargo xtask bench sqlite`"))
    })?;
    let (mut figure_1, mut figure_2a, mut figure_2b, mut with_vfs) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for program in &chosen {
        let (mut plain, mut ours) = (Taken::default(), Taken::default());
        for round in 0..runs.div_ceil(5) {
            // Each is first every other time.
            let mut sides = [false, true];
            sides.rotate_left(round % 2);
            for is_ours in sides {
                if is_ours && !program.takes_vfs {
                    continue;
                }
                let wrap = is_ours.then(|| format!("env LD_PRELOAD={}", preload.display()));
                let found = once(&device, program, wrap.as_deref().unwrap_or(""), is_ours)?;
                if is_ours { &mut ours } else { &mut plain }.take(found);
            }
        }
        let touched = pages_touched(&device, program)?;
        add_shares(program, &plain, outcome);
        figure_1.push(shares_row(program.title, &plain));
        figure_2a.push(add_sizes(program, &plain.databases, outcome));
        figure_2b.push(add_touched(program, &touched, outcome));
        if program.takes_vfs {
            with_vfs.extend(add_vfs(program, &plain, &ours, outcome));
        }
    }
    note_figures(figure_1, figure_2a, figure_2b, with_vfs, outcome);
    Ok(())
}

/// What is not installed, with the command that installs it.
fn missing(program: &Program) -> Option<String> {
    let screen: &[_] = if program.has_windows { &SCREEN } else { &[] };
    let needed = NEEDED.iter().chain(screen).chain(program.needed);
    let packages: Vec<&str> =
        needed.filter(|(name, _)| !is_installed(name)).map(|(_, package)| *package).collect();
    let list = packages.join(" ");
    (!packages.is_empty())
        .then(|| format!("{}: apt-get install --no-install-recommends {list}", program.title))
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers are where an ordinary user's PATH does not lead.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders.into_iter().any(|folder| folder.join(program).is_file())
}

/// A folder with a program's script, and what its servers keep.
struct Script(TempDir);

impl Script {
    fn new(program: &Program) -> io::Result<Script> {
        // Sockets lie in it, whose names must be short.
        let folder = tempfile::Builder::new().prefix("hf").tempdir_in("/tmp")?;
        fs::write(folder.path().join("driver.sh"), format!("{COMMON}\n{}", program.script))?;
        for (name, text) in HELPERS {
            fs::write(folder.path().join(name), text)?;
        }
        Ok(Script(folder))
    }

    /// Plays a phase; the program is started behind the words of `wrap`.
    fn play(&self, phase: &str, home: &Path, wrap: &str) -> io::Result<()> {
        let apart = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"];
        let log = self.0.path().join("driver.log");
        let file = File::create(&log)?;
        let path = std::env::var("PATH").unwrap_or_default();
        let status = Command::new("timeout")
            .args(["--kill-after=5", SECONDS_MAX, "unshare"])
            .args(apart)
            .arg(self.0.path().join("driver.sh"))
            .arg(phase)
            .args([home, self.0.path()])
            .env("HOLDFAST_WRAP", wrap)
            .env("PATH", format!("{path}:/usr/sbin:/sbin"))
            .current_dir(self.0.path())
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .status()?;
        if status.success() {
            return Ok(());
        }
        let tail = |name: &str| {
            let text = fs::read(self.0.path().join(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text).into_owned();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(15)..].join("\n")
        };
        Err(Error::other(format!(
            "the phase {phase} ended with {status}\n{}\n{}",
            tail("driver.log"),
            tail("program.log")
        )))
    }
}

/// A program's first start, which is not counted, and its use, which is.
fn once(device: &Device, program: &Program, wrap: &str, is_ours: bool) -> io::Result<Found> {
    let failed = |error: Error| Error::other(format!("{}: {error}", program.title));
    let home = device.directory("home")?;
    let script = Script::new(program)?;
    device.settle()?;
    let trace = BlockTrace::start(device.number(), device.image())?.map_err(Error::other)?;
    let names = Names::start(&home)?;
    script.play("setup", &home, wrap).map_err(failed)?;
    device.settle()?;
    let (begun, before) = (now(), device.written_bytes()?);
    script.play("use", &home, wrap).map_err(failed)?;
    device.settle()?;
    let counted = device.written_bytes()? - before;
    let names = names.finish()?;
    let events = trace.finish()?;
    let files = Files::follow(&events, &journal_blocks(device.image())?);
    let shares = Shares::new(&files, &names, begun);
    let traced = shares.blocks() * BLOCK as u64;
    if traced != counted {
        return Err(failed(Error::other(format!(
            "the trace has {traced} bytes, and the kernel counted {counted} for the device"
        ))));
    }
    if names.iter().any(|named| named.name.ends_with("-holdfast")) != is_ours {
        let state = if is_ours { "did not open" } else { "opened" };
        return Err(failed(Error::other(format!("the program {state} databases in the VFS"))));
    }
    let databases = databases(&home)?;
    verify(program, &home, &databases).map_err(failed)?;
    let since = |times: &[u64]| times.iter().filter(|&&at| at >= begun).count();
    Ok(Found { shares, syncs: since(&files.syncs), flushes: since(&files.flushes), databases })
}

/// One more run, under strace: pages of databases that the program read or wrote.
fn pages_touched(device: &Device, program: &Program) -> io::Result<Touched> {
    let failed = |error: Error| Error::other(format!("{} under strace: {error}", program.title));
    let home = device.directory("home")?;
    let script = Script::new(program)?;
    script.play("setup", &home, "").map_err(failed)?;
    let log = script.0.path().join("calls");
    let wrap = format!(
        "strace -f --seccomp-bpf -qq -y -s 0 -ttt -e trace=pread64,pwrite64 -e signal=none -o {}",
        log.display()
    );
    script.play("use", &home, &wrap).map_err(failed)?;
    let databases = databases(&home)?;
    let pages = |path: &Path| {
        databases.iter().find(|database| database.path == path).map(|found| found.page_bytes)
    };
    Ok(Touched::new(&String::from_utf8_lossy(&fs::read(log)?), pages))
}

/// All databases of SQLite in a folder.
fn databases(folder: &Path) -> io::Result<Vec<DatabaseFile>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() {
            found.extend(databases(&path)?);
        } else if kind.is_file() {
            let mut head = [0; 18];
            if File::open(&path)?.read_exact(&mut head).is_ok()
                && head.starts_with(b"SQLite format 3\0")
            {
                let page_bytes = match u16::from_be_bytes([head[16], head[17]]) {
                    // As its format has it.
                    1 => 65_536,
                    bytes => u64::from(bytes),
                };
                found.push(DatabaseFile { path, bytes: entry.metadata()?.len(), page_bytes });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// A plain SQLite finds all databases whole, and in the one that is known its rows.
fn verify(program: &Program, home: &Path, databases: &[DatabaseFile]) -> io::Result<()> {
    for database in databases {
        let complain = |what: String| {
            Error::other(format!("{}, read without the VFS: {what}", database.path.display()))
        };
        // That of the system, as the newest one also asks full-text tables, whose words only the
        // program can tell apart.
        let ask = |statement: &str| -> io::Result<String> {
            let plain = Command::new("sqlite3")
                .args(["-batch", "-init", "/dev/null"])
                .arg(&database.path)
                .arg(statement)
                .stdin(Stdio::null())
                .output()?;
            match plain.status.success() {
                true => Ok(String::from_utf8_lossy(&plain.stdout).trim().to_owned()),
                false => Err(complain(String::from_utf8_lossy(&plain.stderr).trim().to_owned())),
            }
        };
        let state = ask("PRAGMA integrity_check")?;
        if state != "ok" {
            return Err(complain(format!("integrity_check says {state}")));
        }
        if let Some(rows) = &program.rows
            && home.join(rows.database) == database.path
        {
            let count = ask(rows.count)?;
            if count != rows.expected.to_string() {
                return Err(complain(format!("{count} rows in place of {}", rows.expected)));
            }
        }
    }
    match &program.rows {
        Some(rows) if !databases.iter().any(|found| found.path == home.join(rows.database)) => {
            Err(Error::other(format!("the program left no database {}", rows.database)))
        }
        _ => Ok(()),
    }
}

fn add_shares(program: &Program, plain: &Taken, outcome: &mut Outcome) {
    let mut add = |what: &str, series, unit| {
        outcome.add(format!("figure1_{}_{what}", program.key), Some(series), unit, None);
    };
    add("mb", plain.megabytes(), "MB");
    add("atomicity", plain.percent(&Kind::ATOMICITY), "%");
    for kind in Kind::ALL {
        add(kind.key(), plain.percent(&[kind]), "%");
    }
}

fn shares_row(title: &str, taken: &Taken) -> Vec<String> {
    let percents = Kind::ALL.map(|kind| format!("{:.0}", taken.percent(&[kind]).median()));
    let (all, bytes) = (taken.percent(&Kind::ATOMICITY), taken.megabytes());
    let head = [title.to_owned(), format!("{:.2}", bytes.median()), format!("{:.0}", all.median())];
    head.into_iter().chain(percents).collect()
}

fn add_sizes(program: &Program, files: &[DatabaseFile], outcome: &mut Outcome) -> Vec<String> {
    let kilobytes: Series = files.iter().map(|file| file.bytes as f64 / 1024.0).collect();
    let small = files.iter().filter(|file| file.bytes < 200 * 1024).count();
    let small = 100.0 * small as f64 / files.len().max(1) as f64;
    let mut pages: Vec<u64> = files.iter().map(|file| file.page_bytes).collect();
    pages.sort_unstable();
    pages.dedup();
    let mut add = |what: &str, series, unit| {
        outcome.add(format!("figure2_{}_{what}", program.key), Some(series), unit, None);
    };
    add("databases", Series::from_iter([files.len() as f64]), "1");
    add("below_200_kb", Series::from_iter([small]), "%");
    add("database_kb", kilobytes.clone(), "KB");
    let pages: Vec<String> = pages.iter().map(u64::to_string).collect();
    vec![
        program.title.to_owned(),
        files.len().to_string(),
        format!("{:.0}", kilobytes.median()),
        format!("{:.0}", kilobytes.max()),
        format!("{small:.0}"),
        pages.join(", "),
    ]
}

fn add_touched(program: &Program, touched: &Touched, outcome: &mut Outcome) -> Vec<String> {
    let quarters = touched.quarters_kb();
    outcome.add(
        format!("figure2_{}_page_cache_kb", program.key),
        Some(Series::from_iter([quarters[3]])),
        "KB",
        None,
    );
    outcome.add(
        format!("figure2_{}_largest_page_cache_kb", program.key),
        Some(Series::from_iter([touched.largest_kb()])),
        "KB",
        None,
    );
    let quarters = quarters.iter().map(|value| format!("{value:.0}"));
    let head = [program.title.to_owned(), touched.databases().to_string()];
    let largest = [format!("{:.0}", touched.largest_kb())];
    head.into_iter().chain(quarters).chain(largest).collect()
}

fn add_vfs(
    program: &Program,
    plain: &Taken,
    ours: &Taken,
    outcome: &mut Outcome,
) -> [Vec<String>; 2] {
    for (what, ours, plain) in [
        ("bytes", ours.megabytes(), plain.megabytes()),
        ("syncs", ours.syncs.clone(), plain.syncs.clone()),
        ("cache_flushes", ours.flushes.clone(), plain.flushes.clone()),
    ] {
        let key = format!("program_{what}_vs_plain_{}", program.key);
        outcome.add(key, Some(ours.over(&plain)), "x", None);
    }
    let key = format!("program_mb_{}", program.key);
    outcome.add(key, Some(ours.megabytes()), "MB", None);
    [("as it comes", plain), ("with the VFS", ours)].map(|(how, taken)| {
        let counts = [&taken.syncs, &taken.flushes].map(|series| format!("{:.0}", series.median()));
        shares_row(&format!("{}, {how}", program.title), taken).into_iter().chain(counts).collect()
    })
}

fn note_figures(
    mut figure_1: Vec<Vec<String>>,
    mut figure_2a: Vec<Vec<String>>,
    mut figure_2b: Vec<Vec<String>>,
    with_vfs: Vec<Vec<String>>,
    outcome: &mut Outcome,
) {
    let row = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
    figure_1.extend([
        row(&["  the paper, its seven programs", "", "37 to 78", "", "", "", "", "", ""]),
        row(&["  the paper, Twitter", "", "", "> 75 with the next but one", "", "", "", "", ""]),
        row(&["  the paper, Chrome", "", "", "", "18", "", "", "", ""]),
    ]);
    let kinds = Kind::ALL.map(Kind::title);
    let heads: Vec<&str> = ["", "MB", "atomicity %"].into_iter().chain(kinds).collect();
    let text = aligned(&heads, &[1, 2, 3, 4, 5, 6, 7, 8], &figure_1);
    outcome.note(format!("Figure 1: bytes to the device, and what share is for atomicity\n{text}"));
    figure_2a.push(row(&["  the paper", "453", "22", "", "> 90", ""]));
    let heads = ["", "databases", "median KB", "largest KB", "below 200 KB, %", "bytes of a page"];
    let text = aligned(&heads, &[1, 2, 3, 4, 5], &figure_2a);
    outcome.note(format!("Figure 2a: sizes of the databases that a program left\n{text}"));
    figure_2b.push(row(&["  the paper: 20 MB are enough", "", "", "", "", "", ""]));
    let heads = ["", "databases", "1/4 KB", "1/2", "3/4", "end", "largest one"];
    let text = aligned(&heads, &[1, 2, 3, 4, 5, 6], &figure_2b);
    outcome.note(format!(
        "Figure 2b: pages of databases that were read or written until then, which is the most that page caches have\n{text}"
    ));
    if with_vfs.is_empty() {
        return;
    }
    let heads: Vec<&str> = ["", "MB", "atomicity %"]
        .into_iter()
        .chain(Kind::ALL.map(Kind::title))
        .chain(["fsyncs", "cache flushes"])
        .collect();
    let text = aligned(&heads, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10], &with_vfs);
    outcome.note(format!("The same programs with the VFS as their default\n{text}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that is not there is named with the package that has it.
    #[test]
    fn missing_program_is_named_with_its_package() {
        let [program, ..] = PROGRAMS;
        let program =
            Program { needed: &[("no-such-program", "its-package"), ("sh", "dash")], ..program };
        let complaint = missing(&program).unwrap();
        assert!(complaint.contains("apt-get install"), "{complaint}");
        assert!(complaint.ends_with("its-package"), "{complaint}");
    }
}
