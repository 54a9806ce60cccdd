//! `holdfast completions`.

use clap::CommandFactory;
use holdfast_command::exit::Failure;
use holdfast_command::output::print_as_is;

use crate::args::{Cli, CompletionsArgs};
use crate::products::PRODUCTS;

pub fn run(args: &CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    // Into memory first: the generator ends the process with a panic when it cannot write.
    let products =
        PRODUCTS.iter().map(|product| clap::Command::new(product.name).about(product.about));
    let mut command = Cli::command().subcommands(products);
    clap_complete::generate(args.shell, &mut command, "holdfast", &mut script);
    print_as_is(&String::from_utf8_lossy(&script))?;
    Ok(0)
}
