//! The arguments that say who an applet is, and whose a heap is: of `sign`, `identity`, `publisher`
//! and `heap adopt`. Data only, as in `args`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use holdfast_identity::{ApplicationName, GivenName, PublisherName};
use holdfast_region::RegionName;

pub const SIGN_HELP: &str = "\
Examples:
  holdfast publisher new \"Acme Ltd\" --file ~/acme.key     # once
  holdfast sign notes.wasm --with ~/acme.key --app notes

The signature is put at the end of the file; one that it has is replaced. Sign last: `strip` and `wasm-opt` drop it or make \
it invalid. All versions of an application that one publisher signed use the same heaps.";

pub const IDENTITY_HELP: &str = "\
Examples:
  holdfast identity notes.wasm
  holdfast identity draft.wasm --app notes --json

An applet is, in this order: the application that its publisher signed; what its host calls it (--app); the program with \
this SHA-256. Nothing is recorded.";

pub const ADOPT_HELP: &str = "\
Examples:
  holdfast heap adopt notes --by ./notes.wasm
  HOLDFAST_POOL=/dev/shm/words holdfast heap adopt

With a name: hands the heap over to the applet, which may use it from its next start on as if it had made it. Whose it was \
may use it as before; `holdfast heap revoke` takes it back. A heap of the key `default` no longer opens for other applets, \
also when it was taken back (`holdfast heap grant NAME --every-applet` opens it to all).

Without a name: a pool belongs to one home, and no other home may use it. If that home was removed while images were in \
its pool, this makes them the present home's. It is refused while the other home is there, and when both have a heap of \
one name. Heaps keep their owner's key: put its file back, or copy them (`holdfast heap cp`, which needs none to read).";

const NEW_HELP: &str = "\
Example:
  holdfast publisher new \"Acme Ltd\" --file ~/acme.key

Whoever can read the file can sign as this publisher. Keep a copy: without it no upgrade of your applications opens their \
heaps. What is printed is the public half; make it known where your users look.";

const ADD_HELP: &str = "\
Example:
  holdfast publisher add ed25519 2f8c... Acme Ltd

A publisher is known from the first run of an applet that it signed. This is for one whose key you have from elsewhere, \
and for one with a name that looks like another's.";

/// Whose key a command uses that only an owner may give.
#[derive(Debug, Args)]
pub struct OwnerArgs {
    /// Name of the owner key; without it, an applet's own or `default`, whichever owns the heap
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
}

#[derive(Debug, Args)]
pub struct SignArgs {
    /// The applet: a WebAssembly module (.wasm) or an ELF program
    pub applet: PathBuf,
    /// The file of the publisher's key
    #[arg(long = "with", value_name = "FILE")]
    pub key_file: PathBuf,
    /// The application that this is a version of: up to 64 letters, digits, '.', '_', '-' and
    /// single spaces
    #[arg(long = "app", value_name = "NAME", value_parser = ApplicationName::parse)]
    pub application: ApplicationName,
}

#[derive(Debug, Args)]
pub struct IdentityArgs {
    /// The applet
    pub applet: PathBuf,
    /// What its host calls it, if it is not signed
    #[arg(long, value_name = "NAME", value_parser = GivenName::parse)]
    pub app: Option<GivenName>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum PublisherCommand {
    /// Make a publisher's key
    #[command(after_help = NEW_HELP)]
    New(PublisherNewArgs),
    /// List the publishers that are known here
    #[command(after_help = "Example:\n  holdfast publisher ls --json")]
    Ls(PublisherLsArgs),
    /// Add a publisher to those that are known here
    #[command(after_help = ADD_HELP)]
    Add(PublisherAddArgs),
    /// Forget a publisher: the next key under its name counts as its first
    #[command(after_help = "Example:\n  holdfast publisher rm Acme Ltd")]
    Rm(PublisherRmArgs),
}

#[derive(Debug, Args)]
pub struct PublisherNewArgs {
    /// The publisher's name: up to 64 letters, digits, '.', '_', '-' and single spaces
    #[arg(value_parser = PublisherName::parse)]
    pub name: PublisherName,
    /// Where the key is to be; the file must not exist
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
}

#[derive(Debug, Args)]
pub struct PublisherLsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Args)]
pub struct PublisherAddArgs {
    /// The line that the publisher made known
    #[arg(required = true, value_names = ["ed25519", "KEY", "NAME"], num_args = 1..)]
    pub publisher: Vec<String>,
}

#[derive(Debug, Args)]
pub struct PublisherRmArgs {
    /// The publisher's name
    #[arg(required = true, value_name = "NAME", num_args = 1..)]
    pub name: Vec<String>,
}

#[derive(Debug, Args)]
pub struct AdoptArgs {
    /// The heap that is handed over
    #[arg(value_parser = RegionName::parse, requires = "by")]
    pub name: Option<RegionName>,
    /// The applet that gets it
    #[arg(long, value_name = "APPLET", requires = "name")]
    pub by: Option<PathBuf>,
    /// What the host calls that applet, if it is not signed
    #[arg(long, value_name = "NAME", requires = "name", value_parser = GivenName::parse)]
    pub app: Option<GivenName>,
    // Not `OwnerArgs`: without a name a pool is adopted, which belongs to no key.
    /// Name of the owner key; without it, an applet's own or `default`, whichever owns the heap
    #[arg(long, value_name = "KEY", requires = "name")]
    pub key: Option<String>,
}
