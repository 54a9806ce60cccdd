//! The arguments of `holdfast heap` for snapshots, copies, limits and looks inside. Data only.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use holdfast_region::RegionName;

use crate::identity_args::OwnerArgs;
use holdfast_command::size::parse_heap_limit;
use holdfast_command::time::parse_age;

pub const SNAPSHOT_HELP: &str = "\
Examples:
  holdfast heap snapshot words before-upgrade
  holdfast heap snapshots words
  holdfast heap rm --snapshot before-upgrade words

A snapshot is a whole copy of the heap in the store (blocks are shared where the file system can). A heap that a \
program has open is refused (exit code 4). Snapshots stay when their heap is removed.";

pub const RESTORE_HELP: &str = "\
Examples:
  holdfast heap restore words before-upgrade
  holdfast heap restore words before-upgrade --discard   # the present state is not kept

The present state is kept as a snapshot before-restore-TIME. A heap that was removed comes back; one whose \
image is damaged is restored with --discard. If the machine stops in the middle, the heap is the old one or the \
restored one. Its limit is the snapshot's if compartments and other heaps leave room for that, else the present one or what the \
data need. A heap that was removed comes back without its grants.";

pub const DIFF_HELP: &str = "\
Examples:
  holdfast heap diff words monday           # monday against now
  holdfast heap diff words monday tuesday   # two snapshots

Exit code 0: no difference; 1: differences. Comparing with now needs a heap that no program has open (exit code \
4); two snapshots can always be compared.";

pub const CP_HELP: &str = "\
Example:
  holdfast heap cp words words-try

The copy has the data of now, an identity of its own, and belongs to the key that the heap belongs to, or to the applet that \
a heap of the key `default` was handed over to (--key: to another one). It has no grants. It keeps the address, because data \
may hold pointers: both heaps can be used, but not mapped at that address by one process at once (only native \
programs map there).";

pub const EXPORT_HELP: &str = "\
Examples:
  holdfast heap export words words.holdfast
  holdfast heap export words | ssh other holdfast heap import - words

The stream has checksums throughout; pages of zeros are left out. An existing file is not overwritten. A heap \
that a program has open is refused (exit code 4).";

pub const IMPORT_HELP: &str = "\
Examples:
  holdfast heap import words.holdfast words
  zstd -dc words.zst | holdfast heap import - words

All of the stream is verified before the heap appears; a damaged one (exit code 5) leaves nothing behind. An \
existing heap is never replaced.";

pub const LIMIT_HELP: &str = "\
Example:
  holdfast heap limit words 1GiB

A limit cannot go below what the heap has, nor over the address of the next heap. A heap that a program has open is \
refused (exit code 4). That of a compartment (PARENT+WORKER) is set with the key of PARENT, and counts against its limit.";

pub const LS_HELP: &str = "\
Example:
  holdfast heap ls --json

SIZE is what is allocated of LIMIT (in JSON `backed_bytes` of `limit_bytes`), BACKING where the image lies (`medium`), and \
the checkpoint is the file `base`, which the journal continues. STATE: ready (`clean`; not closed in order: `crashed`), held, \
in the store only (`cold`), damaged.";

pub const CHECK_HELP: &str = "\
Examples:
  holdfast heap check words
  holdfast heap check --all --json

Exit code 0: every heap is sound; 5: a file of one is damaged, foreign or of a newer format, so that it cannot be read; \
1: one was read and is damaged; any other code (4: in use): no damage was found, and one could not be read. Of several \
heaps the worst counts, in this order. JSON has a row for each heap: `state` is sound, damaged, bad-file, held, missing or \
unchecked, `sound` is null where it is not known, and `error` says why. A heap that is sound can have lost redundancy: one \
of the two headers of a file, or the checkpoint or journal beside a whole image. That is said, and no damage: nothing is \
lost, and `holdfast heap repair` mends it, but the next fault in the same place would cost more.";

pub const TIDY_HELP: &str = "\
Examples:
  holdfast heap tidy                # only lists
  holdfast heap tidy --yes
  holdfast heap tidy --yes --keep 0s

What is listed: files that a program was building in pool or store when it was killed, and the copies that `heap repair` \
keeps in STORE/damaged. No heap needs any of it. Snapshots are no leftovers: `holdfast heap rm --snapshot`.";

pub const STATS_HELP: &str = "\
Example:
  holdfast heap stats words --json";

pub const LEAKS_HELP: &str = "\
Example:
  holdfast heap leaks words

A leaked object is allocated, but no root leads to it: its program allocated it outside of a transaction and died, \
or forgot it. Words of objects count as pointers when they could be some: of 4 bytes in heaps of WebAssembly applets \
(linear addresses from the heap's base on), of 8 bytes in heaps of native programs. What is listed is leaked for \
certain, unless its program links objects by something else than plain pointers, such as offsets or indices. Exit code \
0: no leaks; 1: some.";

pub const MAP_HELP: &str = "\
Examples:
  holdfast heap map words
  holdfast heap map words --svg words.svg

One cell is a chunk of 64 KiB (in the terminal, of a large heap, several chunks); rows are in the order of \
addresses.";

pub const REPAIR_HELP: &str = "\
Examples:
  holdfast heap repair words
  holdfast heap repair words --accept-loss

Mends what has only one possible meaning: a lost header, a damaged checkpoint or journal beside a whole image, a flipped \
bit in the allocator's tables, an open transaction. Each finding is listed with what was done about it. Before anything is \
changed, the heap's files are copied to STORE/damaged/NAME/TIME; remove the copies when all is well. What would lose \
something is not done, and the heap stays as it is (exit code 5), unless --accept-loss: then roots and objects that \
nothing is known about are given up, and an image that cannot be read makes way for the last commit.";

pub const SALVAGE_HELP: &str = "\
Examples:
  holdfast heap salvage ~/.local/share/holdfast/store/words.base
  holdfast heap salvage /dev/shm/copy-of-words.image --to words-saved

FILE is an image, a checkpoint or a snapshot, under any name; it is only read. A heap is made of it when the \
allocator's tables are free of contradictions; what is missing at the end of a file that was cut off is zero \
in it. Exit code 0: nothing is lost; 1: something is, as listed; 5: there is no heap to save.";

#[derive(Debug, Args)]
pub struct TidyArgs {
    /// Remove what is listed
    #[arg(long)]
    pub yes: bool,
    /// Leave copies that a repair kept less than this time ago
    #[arg(long, value_name = "TIME", default_value = "7days", value_parser = parse_age)]
    pub keep: Duration,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The heap, or a compartment (HEAP+WORKER)
    #[arg(value_parser = RegionName::parse_any)]
    pub name: RegionName,
    /// Also do what loses something; it is listed
    #[arg(long)]
    pub accept_loss: bool,
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SalvageArgs {
    /// The damaged file
    pub file: PathBuf,
    /// Make a heap of this name from it
    #[arg(long, value_name = "NAME", value_parser = RegionName::parse)]
    pub to: Option<RegionName>,
    /// Name of the key that will own the heap; without it `default`, which every applet may use
    #[arg(long, value_name = "KEY", requires = "to")]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SnapshotArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// The snapshot's tag: letters, digits, '.', '_', '-'
    #[arg(value_parser = RegionName::parse)]
    pub tag: RegionName,
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct SnapshotsArgs {
    /// The heap; it may be gone
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// The snapshot's tag
    #[arg(value_parser = RegionName::parse)]
    pub tag: RegionName,
    /// Do not keep the present state as a snapshot
    #[arg(long)]
    pub discard: bool,
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// The older snapshot
    #[arg(value_parser = RegionName::parse)]
    pub tag: RegionName,
    /// The newer snapshot; without it, the heap as it is now
    #[arg(value_parser = RegionName::parse)]
    pub tag2: Option<RegionName>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct CpArgs {
    /// The heap to copy
    #[arg(value_parser = RegionName::parse)]
    pub from: RegionName,
    /// The name of the copy
    #[arg(value_parser = RegionName::parse)]
    pub to: RegionName,
    /// Name of the key that will own the copy; without it, the heap's own
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// The new file; `-` is standard output
    #[arg(default_value = "-")]
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The exported file; `-` is standard input
    pub file: PathBuf,
    /// The name of the new heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// Name of the key that will own the heap; without it `default`, which every applet may use
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LimitArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse_any)]
    pub name: RegionName,
    /// How large the heap may get: 1MiB to 1TiB, rounded up to 64KiB
    #[arg(value_parser = parse_heap_limit)]
    pub size: u64,
    #[command(flatten)]
    pub owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub struct StatsArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct LeaksArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// Print JSON, with every leaked object
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct MapArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// Write a picture to this file instead
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON: every chunk, in the order of addresses
    #[arg(long, conflicts_with = "svg")]
    pub json: bool,
}
