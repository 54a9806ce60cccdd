//! `holdfast completions`.

use clap::CommandFactory;

use crate::args::{Cli, CompletionsArgs};
use crate::exit::Failure;
use crate::output::print_as_is;

pub fn run(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    // Into memory first: the generator ends the process with a panic when it cannot write.
    clap_complete::generate(args.shell, &mut Cli::command(), "holdfast", &mut script);
    print_as_is(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
