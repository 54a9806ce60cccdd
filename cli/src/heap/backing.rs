//! `holdfast heap backing`.

use crate::args::BackingArgs;
use crate::identity::owner_key;
use holdfast_command::exit::Failure;
use holdfast_command::output::{print, with_progress};

pub fn run(args: &BackingArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = owner_key(&names, &args.owner, &args.name)?;
    with_progress(&format!("moving {}", args.name), || {
        names.set_medium(&args.name, &key, args.medium)
    })?;
    print(&format!("{}: lies on {} now\n", args.name, args.medium))?;
    Ok(0)
}
