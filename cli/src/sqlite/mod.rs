//! `holdfast sqlite`: databases of the VFS `holdfast`, from outside.

mod bench;
mod files;

use crate::exit::Failure;
use crate::sqlite_args::SqliteCommand;

pub fn run(command: &SqliteCommand) -> Result<u8, Failure> {
    match command {
        SqliteCommand::Status(options) => files::status(options),
        SqliteCommand::Checkpoint(options) => files::checkpoint(options),
        SqliteCommand::Release(options) => files::release(options),
        SqliteCommand::Recover(options) => files::recover(options),
        SqliteCommand::Bench(options) => bench::run(options),
    }
}
