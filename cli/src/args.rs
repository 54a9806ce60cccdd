//! The arguments of the command. Data only: no defaults are looked up and nothing is opened here.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use holdfast_command::time::parse_time;
use holdfast_region::{Medium, RegionName};

use crate::applet_args::{AppletArgs, parse_medium};
use crate::grant_args::{
    GRANT_HELP, GrantArgs, GrantsArgs, KEYS_HELP, KeysArgs, REVOKE_HELP, RevokeArgs,
};
use crate::heap_args::*;
use crate::identity_args::{
    ADOPT_HELP, AdoptArgs, IDENTITY_HELP, IdentityArgs, OwnerArgs, PublisherCommand, SIGN_HELP,
    SignArgs,
};
use crate::products::PRODUCTS;

/// Exit codes, as every help text shows them; `holdfast_command::exit` has them as numbers.
const EXIT_CODES: &str = "\
Exit codes of `run` and `call`: the applet's own status; 2 wrong arguments; 124 time limit; 125 Holdfast or the heap \
failed (no such key, not its key, held, damaged, no room); 126 the applet cannot be loaded, not in this sandbox, or not by this command; 127 \
there is no such applet; 134 the applet trapped or crashed, or used up what it was given; 159 it made a system call that \
it may not make. An applet may end with any of these by itself: `run` then says so on standard error, and \
`run --report FILE` tells them apart for programs.

Exit codes of the other commands: 0 done; 1 `check` or `salvage` found damage, `diff` differences, `doctor` a blocking \
lack; 2 wrong arguments; 3 no such heap, snapshot, key or file; 4 the heap is held; 5 a damaged or foreign file; 6 no room; \
7 any other failure; 8 the key may not do it.

Environment: HOLDFAST_HOME (where checkpoints and keys live), HOLDFAST_POOL (where images live; a tmpfs).";

/// Memory that outlives the program, for applications that nobody trusts.
#[derive(Debug, Parser)]
#[command(name = "holdfast", version, after_help = after_help(), max_term_width = 110)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

/// The products, which are programs of their own, then the exit codes.
fn after_help() -> String {
    let mut text = String::from(
        "Products, each a program of its own (holdfast-NAME, beside this one or in PATH):\n",
    );
    for product in &PRODUCTS {
        text.push_str(&format!("  {:<12} {}\n", product.name, product.about));
    }
    text.push('\n');
    text.push_str(EXIT_CODES);
    text
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run an untrusted program with a heap that is there again next time
    Run(RunArgs),
    /// Call a function of an applet that serves, and print its result
    Call(CallArgs),
    /// Sign an applet's file as a version of a publisher's application
    #[command(after_help = SIGN_HELP)]
    Sign(SignArgs),
    /// Say who an applet is, and which key its heaps belong to
    #[command(after_help = IDENTITY_HELP)]
    Identity(IdentityArgs),
    /// Make a publisher's key; list, add and remove the publishers that are known here
    #[command(subcommand)]
    Publisher(PublisherCommand),
    /// List, inspect, check, copy, restore and remove heaps
    #[command(subcommand)]
    Heap(HeapCommand),
    /// Say what this machine offers, and what each missing feature costs
    Doctor(DoctorArgs),
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  holdfast completions bash > ~/.local/share/bash-completion/completions/holdfast"
    )]
    Completions(CompletionsArgs),
}

const RUN_EXAMPLES: &str = "\
Examples:
  holdfast run guestbook.wasm --heap guests -- add \"Ada was here\"
  holdfast run spellcheck.wasm --heap words --dir /usr/share/dict:ro -- --dict /usr/share/dict
  holdfast run server.wasm --timeout 2s --memory 32MiB --env LANG --report end.json
  holdfast run ./draft.wasm --heap notes --app notes               # unsigned, and its heap outlives its next version
  holdfast run guestbook.wasm --heap guests --key reader -- list   # after: holdfast heap grant guests --to reader
  holdfast run worker.wasm --heap jobs --compartment worker-3
  holdfast run pool --heap jobs --compartments 4
  holdfast run speller.wasm --heap dict=english:ro --heap notes    # the first one is the heap of code that names none
  holdfast run https://example.org/guestbook.wasm#sha256=HEX --heap guests -- list   # fetched once, kept by its hash
  holdfast run ./native-tool --strict --cpu-time 5s -- --fast   # ELF: its own process, no network, no files

The applet gets its arguments, standard input, output and error, clocks and random numbers; files and \
environment variables only as granted. Without --heap it has no persistent memory.

A heap belongs to the applet that made it: to the publisher's application if the file is signed (`holdfast sign`), else \
to the name after --app, else to the program with these very bytes. Another applet is refused.

The heap is checkpointed to the store when the applet ends, if it changed. A program that is killed loses \
nothing that it had stored; a transaction that it left open is rolled back at the next run.";

#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub struct RunArgs {
    #[command(flatten)]
    pub applet: AppletArgs,

    /// Arguments of the applet
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<String>,

    /// Stop the applet after this time (500ms, 10s, 2min); compiling it, in the first run, counts
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub timeout: Option<Duration>,

    /// Write to this file, as JSON, what ended the run: the applet itself, a limit, a crash, a
    /// forbidden call, or the host; not in a directory that --dir lets the applet write to
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

const CALL_EXAMPLES: &str = "\
Examples:
  holdfast call md5                                      # lists its functions
  holdfast call md5 digest --input /etc/services | xxd -p
  echo -n hello | holdfast call echo reverse --input -
  holdfast call tally.wasm add 3 --heap numbers --timeout 1s

The result goes to standard output as it is, streamed parts as they come.

Exit codes: 0 done; 1 the function failed by itself; all others as of `run`.";

/// Call a function
#[derive(Debug, Args)]
#[command(after_help = CALL_EXAMPLES)]
pub struct CallArgs {
    #[command(flatten)]
    pub applet: AppletArgs,

    /// Name of the function; without it, the functions are listed
    pub function: Option<String>,

    /// The input, as text
    #[arg(conflicts_with = "from")]
    pub text: Option<String>,

    /// The input, from a file; - is standard input
    #[arg(long = "input", value_name = "FILE", requires = "function")]
    pub from: Option<PathBuf>,

    /// Stop the applet when the call, or compiling it before, takes longer than this (500ms, 10s,
    /// 2min); more than 30s also lets it take so long to start
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Subcommand)]
pub enum HeapCommand {
    /// List all heaps
    #[command(after_help = LS_HELP)]
    Ls(LsArgs),
    /// Describe one heap: sizes, files, roots
    #[command(after_help = "Example:\n  holdfast heap show words")]
    Show(ShowArgs),
    /// Verify heaps: allocator, log, roots; changes nothing
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
    /// Remove heaps, image and checkpoint
    #[command(
        after_help = "Examples:\n  holdfast heap rm words\n  holdfast heap rm --image words   # back to the last checkpoint\n  holdfast heap rm --snapshot monday words\n  holdfast heap rm --damaged words   # when no file of it can be read"
    )]
    Rm(RmArgs),
    /// Let another key use a heap
    #[command(after_help = GRANT_HELP)]
    Grant(GrantArgs),
    /// Take back what a key was granted
    #[command(after_help = REVOKE_HELP)]
    Revoke(RevokeArgs),
    /// List what was granted on a heap
    #[command(after_help = "Example:\n  holdfast heap grants words --json")]
    Grants(GrantsArgs),
    /// List all keys, with the heaps that belong to each
    #[command(after_help = KEYS_HELP)]
    Keys(KeysArgs),
    /// Move a heap to the pool (memory) or to the disk of the home (file)
    #[command(after_help = "Example:\n  holdfast heap backing words file")]
    Backing(BackingArgs),
    /// Write heaps to the store now
    #[command(after_help = "Example:\n  holdfast heap checkpoint words")]
    Checkpoint(CheckpointArgs),
    /// Keep the heap's state of now under a tag
    #[command(after_help = SNAPSHOT_HELP)]
    Snapshot(SnapshotArgs),
    /// List a heap's snapshots, oldest first
    #[command(after_help = "Example:\n  holdfast heap snapshots words --json")]
    Snapshots(SnapshotsArgs),
    /// Put a heap back to a snapshot
    #[command(after_help = RESTORE_HELP)]
    Restore(RestoreArgs),
    /// Compare a snapshot with now, or with another
    #[command(after_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Copy a heap to a new name
    #[command(after_help = CP_HELP)]
    Cp(CpArgs),
    /// Write a heap as a portable stream
    #[command(after_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Make a heap from an exported stream
    #[command(after_help = IMPORT_HELP)]
    Import(ImportArgs),
    /// Change how large a heap may get
    #[command(after_help = LIMIT_HELP)]
    Limit(LimitArgs),
    /// Say where a heap's bytes went: objects by size, idle and free memory, roots
    #[command(after_help = STATS_HELP)]
    Stats(StatsArgs),
    /// List objects that no root of a heap leads to, by size
    #[command(after_help = LEAKS_HELP)]
    Leaks(LeaksArgs),
    /// Draw which parts of a heap are used for what
    #[command(after_help = MAP_HELP)]
    Map(MapArgs),
    /// Mend a damaged heap in place, if nothing is lost by it
    #[command(after_help = REPAIR_HELP)]
    Repair(RepairArgs),
    /// List what no heap needs (files of killed programs, copies that repairs kept), and remove it
    #[command(after_help = TIDY_HELP)]
    Tidy(TidyArgs),
    /// Hand a heap over to an applet; without a name, make the pool of a home that is gone this
    /// home's, with all that is in it
    #[command(after_help = ADOPT_HELP)]
    Adopt(AdoptArgs),
    /// Say what of a damaged file is intact, and make a heap of it
    #[command(after_help = SALVAGE_HELP)]
    Salvage(SalvageArgs),
}

#[derive(Debug, Args)]
pub struct LsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ShowArgs {
    /// The heap, or a compartment (HEAP+WORKER)
    #[arg(value_parser = RegionName::parse_any)]
    pub name: RegionName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The heaps, or compartments (HEAP+WORKER)
    #[arg(value_parser = RegionName::parse_any, required_unless_present = "all")]
    pub names: Vec<RegionName>,
    /// Check every heap
    #[arg(long, conflicts_with = "names")]
    pub all: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    /// The heaps, or compartments (HEAP+WORKER)
    #[arg(value_parser = RegionName::parse_any, required = true)]
    pub names: Vec<RegionName>,
    /// Drop only the image in the pool; the next run starts from the last checkpoint
    #[arg(long)]
    pub image: bool,
    /// Remove heaps of which no file can be read any more, neither image nor checkpoint; needs no
    /// key
    #[arg(long, conflicts_with_all = ["image", "compartments", "snapshot", "key"])]
    pub damaged: bool,
    /// Remove a heap's compartments with it; without this a heap that has some is left alone
    #[arg(long, conflicts_with = "image")]
    pub compartments: bool,
    /// Remove only this snapshot; the heap stays
    #[arg(long, value_name = "TAG", value_parser = RegionName::parse, conflicts_with_all = ["image", "compartments"])]
    pub snapshot: Option<RegionName>,
    #[command(flatten)]
    pub owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub struct BackingArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// Where to
    #[arg(value_name = "memory|file", value_parser = parse_medium)]
    pub medium: Medium,
    #[command(flatten)]
    pub owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub struct CheckpointArgs {
    /// The heaps, or compartments (HEAP+WORKER)
    #[arg(value_parser = RegionName::parse_any, required = true)]
    pub names: Vec<RegionName>,
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  holdfast doctor --json")]
pub struct DoctorArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_after_two_dashes_belong_to_the_applet() {
        let cli =
            Cli::try_parse_from(["holdfast", "run", "a.wasm", "--heap", "h", "--", "--heap", "x"])
                .unwrap();
        let Command::Run(run) = cli.command else { panic!("not a run") };
        assert_eq!(run.args, ["--heap", "x"]);
        assert_eq!(run.applet.heaps[0].heap.as_str(), "h");
        assert_eq!(run.applet.heap_size, 64 << 20);
    }

    #[test]
    fn bad_values_are_refused_with_the_right_form() {
        for (arguments, hint) in [
            (["holdfast", "run", "a.wasm", "--timeout", "soon"], "10s"),
            (["holdfast", "run", "a.wasm", "--timeout", "0"], "no limit"),
            (["holdfast", "run", "a.wasm", "--cpu-time", "0s"], "no limit"),
            (["holdfast", "run", "a.wasm", "--memory", "0"], "64MiB"),
            (["holdfast", "run", "a.wasm", "--threads", "0"], "1..=4096"),
            (["holdfast", "run", "a.wasm", "--threads", "100000"], "1..=4096"),
            (["holdfast", "run", "a.wasm", "--heap-size", "big"], "64MiB"),
            (["holdfast", "run", "a.wasm", "--heap-size", "10"], "1MiB to 1TiB"),
            (["holdfast", "run", "a.wasm", "--quota", "1023KiB"], "1MiB to 1TiB"),
            (["holdfast", "heap", "limit", "words", "64KiB"], "1MiB to 1TiB"),
            (["holdfast", "run", "a.wasm", "--heap", "../x"], "name"),
            (["holdfast", "run", "a.wasm", "--heap", "jobs+w"], "--heap jobs --compartment w"),
            (["holdfast", "run", "a.wasm", "--quota", "8MiB"], "--compartment"),
            (["holdfast", "run", "a.wasm", "--key", "me"], "--heap"),
            (["holdfast", "run", "a.wasm", "--app", "notes"], "--heap"),
            (["holdfast", "run", "a.wasm", "--env", "=x"], "NAME=VALUE"),
            (["holdfast", "run", "a.wasm", "--dir", "::"], "HOST"),
            (["holdfast", "run", "a.wasm", "--backing", "tape"], "file"),
        ] {
            let error = Cli::try_parse_from(arguments).unwrap_err().to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    /// The error names what is missing, or what cannot be together.
    #[test]
    fn arguments_that_would_be_ignored_are_refused() {
        let parse = |arguments: &[&str]| {
            let words = ["holdfast", "heap"].iter().chain(arguments).copied();
            Cli::try_parse_from(words)
        };
        let refused: [(&[&str], &str); 5] = [
            (&["rm", "--compartments", "--snapshot", "monday", "jobs"], "--compartments"),
            (&["rm", "--image", "--snapshot", "monday", "jobs"], "--image"),
            (&["rm", "--damaged", "--key", "mine", "words"], "--damaged"),
            (&["adopt", "--key", "mine"], "NAME"),
            (&["salvage", "words.base", "--key", "mine"], "--to"),
        ];
        for (arguments, hint) in refused {
            let error = parse(arguments).unwrap_err().to_string();
            assert!(error.contains(hint), "{arguments:?}: {error}");
        }
        // What is given for no function would go nowhere.
        let call = |more: &[&str]| {
            let words = ["holdfast", "call", "md5", "--input", "-"].iter().chain(more).copied();
            Cli::try_parse_from(words)
        };
        let error = call(&[]).unwrap_err().to_string();
        assert!(error.contains("FUNCTION"), "{error}");
        assert!(call(&["digest"]).is_ok());
        let taken: [&[&str]; 5] = [
            &["rm", "--snapshot", "monday", "--key", "mine", "words"],
            &["rm", "--damaged", "words"],
            &["adopt"],
            &["adopt", "words", "--by", "a.wasm", "--key", "mine"],
            &["salvage", "words.base", "--to", "saved", "--key", "mine"],
        ];
        for arguments in taken {
            assert!(parse(arguments).is_ok(), "{arguments:?}");
        }
    }
}
