//! The arguments of `heap grant`, `revoke` and `grants`. Data only, as in `args`.

use clap::Args;
use holdfast_region::RegionName;

use crate::identity_args::OwnerArgs;

use holdfast_command::size::parse_size;

pub const GRANT_HELP: &str = "\
Examples:
  holdfast heap grant words --to reader                 # may read: holdfast run APPLET --heap words --key reader
  holdfast heap grant words --to editor --rw --quota 16MiB

  holdfast heap grant words --every-applet              # a heap of the key `default` that was closed to applets

A grant to the same key replaces the one before. It counts from the next opening of the heap on. A heap of the key \
`default` is open to every applet until one of them gets a grant; only --every-applet opens it again. Keys belong to the \
user who runs applets: they keep applets apart, and protect no file from that user.";

pub const REVOKE_HELP: &str = "\
Examples:
  holdfast heap revoke words --from editor
  holdfast heap revoke words --all                      # also when the access table is damaged
  holdfast heap revoke words --every-applet             # a heap of the key `default`: only to those with a grant

A program that has the heap open keeps it until it ends; its next start is refused. An applet that loses its grant does not \
get a heap of the key `default` back as one of all applets: this closes the heap to all that have no grant.";

pub const KEYS_HELP: &str = "\
Example:
  holdfast heap keys --json

Keys are files in HOME/keys. Each applet has one of its own, named after who it is; `default` is the one of those that \
name none. A key is made by the first `run` with it on a new heap, by `cp`, `import` and `salvage --to`, \
and by `grant --to`; all other commands refuse a name that they do not know. Without the file of its owner's key a heap \
can only be looked at, exported and copied (`holdfast heap cp` makes a heap that belongs to your key): keep copies of it.";

#[derive(Debug, Args)]
pub struct KeysArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct GrantArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// The key that may use the heap: its name (made if there is none), or its fingerprint (64
    /// hexadecimal digits)
    #[arg(long, value_name = "KEY", required_unless_present = "every_applet")]
    pub to: Option<String>,
    /// Open a heap of the key `default` to every applet
    #[arg(long, conflicts_with_all = ["to", "ro", "rw", "quota"])]
    pub every_applet: bool,
    /// Let it read (this is the default)
    #[arg(long)]
    pub ro: bool,
    /// Let it write as well
    #[arg(long, conflicts_with = "ro")]
    pub rw: bool,
    /// How large this key may let the heap grow; without it, up to the heap's limit
    #[arg(long, value_name = "SIZE", requires = "rw", value_parser = parse_quota)]
    pub quota: Option<u64>,
    #[command(flatten)]
    pub owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub struct RevokeArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    /// The key, by its name or its fingerprint
    #[arg(long, value_name = "KEY", required_unless_present_any = ["all", "every_applet"])]
    pub from: Option<String>,
    /// Revoke every grant
    #[arg(long, conflicts_with = "from")]
    pub all: bool,
    /// Close a heap of the key `default` to applets without a grant
    #[arg(long, conflicts_with_all = ["from", "all"])]
    pub every_applet: bool,
    #[command(flatten)]
    pub owner: OwnerArgs,
}

#[derive(Debug, Args)]
pub struct GrantsArgs {
    /// The heap
    #[arg(value_parser = RegionName::parse)]
    pub name: RegionName,
    #[command(flatten)]
    pub owner: OwnerArgs,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// A size at which something fits.
fn parse_quota(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        0 => Err("a heap of no bytes holds nothing; give it a size, or grant reading only (--ro)"
            .to_owned()),
        bytes => Ok(bytes),
    }
}
