//! `holdfast heap backing`.

use crate::args::BackingArgs;
use crate::exit::Failure;
use crate::output::with_progress;

pub fn run(args: &BackingArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = super::key(&names, &args.key, Some(&args.name))?;
    with_progress(&format!("moving {}", args.name), || names.set_medium(&args.name, &key, args.medium))?;
    Ok(0)
}
