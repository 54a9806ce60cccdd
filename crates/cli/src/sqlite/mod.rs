//! `holdfast sqlite`: databases of the VFS `holdfast`, from outside.

mod bench;

use crate::exit::Failure;
use crate::sqlite_args::SqliteCommand;

pub fn run(command: &SqliteCommand) -> Result<u8, Failure> {
    match command {
        SqliteCommand::Bench(options) => bench::run(options),
    }
}
