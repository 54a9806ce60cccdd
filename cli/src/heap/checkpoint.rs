//! `holdfast heap checkpoint`.

use holdfast_region::{CheckpointReport, RegionName};
use serde::Serialize;

use crate::args::CheckpointArgs;
use crate::identity::owner_key;
use holdfast_command::exit::Failure;
use holdfast_command::output::{print, print_json, say, with_progress};
use holdfast_command::size::show_size;

/// What `--json` prints for each heap.
#[derive(Serialize)]
struct Written {
    name: RegionName,
    #[serde(flatten)]
    report: CheckpointReport,
}

pub fn run(args: &CheckpointArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let (mut written, mut worst) = (Vec::new(), 0);
    for name in &args.names {
        let done = with_progress(&format!("writing {name} to the store"), || {
            let key = owner_key(&names, &args.owner, name)?;
            let mut region = names.open(name, &key)?;
            let report = region.checkpoint()?;
            region.close()?;
            Ok::<_, Failure>(report)
        });
        match done {
            Ok(report) => written.push(Written { name: name.clone(), report }),
            // One heap that cannot be written does not keep the others from it.
            Err(failure) if args.names.len() > 1 => {
                say(format_args!("{}", failure.message));
                worst = worst.max(failure.code);
            }
            Err(failure) => return Err(failure),
        }
    }
    if args.json {
        print_json(&written)?;
    } else {
        print(&written.iter().map(text).collect::<String>())?;
    }
    Ok(worst)
}

fn text(written: &Written) -> String {
    if written.report.skipped {
        return format!("{}: unchanged since its last checkpoint\n", written.name);
    }
    format!("{}: {} written to the store\n", written.name, show_size(written.report.bytes))
}
