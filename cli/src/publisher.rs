//! `holdfast publisher`: a publisher's own key, and the publishers that are known here.

use holdfast_identity::{Publisher, PublisherKey, PublisherName, Publishers};
use serde::Serialize;

use crate::identity::{key_file_failure, trust_failure};
use crate::identity_args::{
    PublisherAddArgs, PublisherCommand, PublisherLsArgs, PublisherNewArgs, PublisherRmArgs,
};
use holdfast_command::exit::{Failure, NOT_FOUND, usage};
use holdfast_command::keys::name_space;
use holdfast_command::output::{print, print_json, print_table};

pub fn run(command: &PublisherCommand) -> Result<u8, Failure> {
    match command {
        PublisherCommand::New(args) => new(args),
        PublisherCommand::Ls(args) => list(args),
        PublisherCommand::Add(args) => add(args),
        PublisherCommand::Rm(args) => remove(args),
    }
}

fn known() -> Result<Publishers, Failure> {
    Ok(Publishers::of(name_space()?.places()))
}

/// Prints the public half alone, so that it can be sent on.
fn new(args: &PublisherNewArgs) -> Result<u8, Failure> {
    let key = PublisherKey::generate(&args.file, args.name.clone()).map_err(key_file_failure)?;
    print(&format!("{}\n", key.publisher()))?;
    Ok(0)
}

/// What `ls --json` prints for each publisher.
#[derive(Serialize)]
struct Row {
    name: String,
    /// The ed25519 public key, 64 hexadecimal digits.
    key: String,
}

fn list(args: &PublisherLsArgs) -> Result<u8, Failure> {
    let found = known()?.list().map_err(trust_failure)?;
    let rows: Vec<_> = found
        .iter()
        .map(|publisher| Row {
            name: publisher.name().to_string(),
            key: publisher.key().to_string(),
        })
        .collect();
    if args.json {
        print_json(&rows)?;
        return Ok(0);
    }
    let cells: Vec<_> = rows.iter().map(|row| vec![row.name.clone(), row.key.clone()]).collect();
    print_table(&["PUBLISHER", "KEY"], &[], &cells)?;
    Ok(0)
}

fn add(args: &PublisherAddArgs) -> Result<u8, Failure> {
    let publisher: Publisher = args.publisher.join(" ").parse().map_err(usage)?;
    let is_new = known()?.add(&publisher).map_err(trust_failure)?;
    let done = if is_new { "added" } else { "known already" };
    print(&format!("{}: {done}\n", publisher.name()))?;
    Ok(0)
}

fn remove(args: &PublisherRmArgs) -> Result<u8, Failure> {
    let name = PublisherName::parse(&args.name.join(" ")).map_err(usage)?;
    if !known()?.remove(&name).map_err(trust_failure)? {
        let message =
            format!("no publisher `{name}` is known here; `holdfast publisher ls` lists them");
        return Err(Failure::new(NOT_FOUND, message));
    }
    print(&format!("{name}: forgotten; the next key under this name counts as its first\n"))?;
    Ok(0)
}
