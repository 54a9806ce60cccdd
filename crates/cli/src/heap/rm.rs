//! `holdfast heap rm`.

use crate::args::RmArgs;
use crate::exit::Failure;

pub fn run(args: &RmArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = super::key(&names, &args.key, args.names.first())?;
    for name in &args.names {
        if let Some(tag) = &args.snapshot {
            names.remove_snapshot(name, &key, tag)?;
        } else if args.image {
            names.remove_image(name, &key)?;
        } else if args.compartments {
            names.remove_with_compartments(name, &key)?;
        } else {
            names.remove(name, &key)?;
            let left = names.snapshots(name).map_or(0, |snapshots| snapshots.len());
            if left > 0 {
                eprintln!(
                    "holdfast: {left} snapshots of {name} stay; `holdfast heap snapshots {name}` lists them"
                );
            }
        }
    }
    Ok(0)
}
