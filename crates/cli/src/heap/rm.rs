//! `holdfast heap rm`.

use crate::args::RmArgs;
use crate::exit::Failure;

pub fn run(args: &RmArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = super::key(&names, &args.key)?;
    for name in &args.names {
        if args.image {
            names.remove_image(name, &key)?;
        } else if args.compartments {
            names.remove_with_compartments(name, &key)?;
        } else {
            names.remove(name, &key)?;
        }
    }
    Ok(0)
}
