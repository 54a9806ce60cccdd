//! `holdfast heap rm`.

use holdfast_identity::note_closed;
use holdfast_region::{NameSpace, RegionName};
use holdfast_sys::counted::counted;

use crate::args::RmArgs;
use crate::identity::owner_key;
use holdfast_command::exit::{BAD_FILE, Failure};
use holdfast_command::output::{print, say, shown};
use holdfast_command::size::show_size;

pub fn run(args: &RmArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    if args.damaged {
        return remove_damaged(&names, &args.names);
    }
    for name in &args.names {
        let key = owner_key(&names, &args.owner, name)?;
        // What cannot be asked is removed all the same.
        let _ = note_closed(&names, name);
        if let Some(tag) = &args.snapshot {
            names.remove_snapshot(name, &key, tag)?;
            print(&format!("{name}: snapshot {tag} removed\n"))?;
        } else if args.image {
            names.remove_image(name, &key)?;
            print(&format!(
                "{name}: image removed; the next run starts from its last checkpoint\n"
            ))?;
        } else if args.compartments {
            names.remove_with_compartments(name, &key)?;
            print(&format!("{name}: removed with its compartments\n"))?;
        } else {
            names.remove(name, &key).map_err(|error| with_remedy(name, error.into()))?;
            print(&format!("{name}: removed\n"))?;
            let left = names.snapshots(name).map_or(0, |snapshots| snapshots.len());
            if left > 0 {
                say(format_args!(
                    "{} of {name} left; `holdfast heap snapshots {name}` lists what there is",
                    counted(left, "snapshot")
                ));
            }
        }
    }
    Ok(0)
}

fn with_remedy(name: &RegionName, failure: Failure) -> Failure {
    if failure.code != BAD_FILE {
        return failure;
    }
    let message = format!(
        "{}; `holdfast heap salvage FILE` tells what is left in it, and `holdfast heap rm --damaged {name}` removes the heap \
         with all of its files",
        failure.message
    );
    Failure { message, ..failure }
}

/// No user can be asked for a key when no file tells whose the heap is.
fn remove_damaged(names: &NameSpace, heaps: &[RegionName]) -> Result<u8, Failure> {
    for name in heaps {
        for file in names.remove_damaged(name)? {
            print(&format!(
                "{name}: {} removed ({})\n",
                shown(&file.path),
                show_size(file.allocated_bytes)
            ))?;
        }
    }
    Ok(0)
}
