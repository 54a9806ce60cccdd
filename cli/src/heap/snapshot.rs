//! `holdfast heap snapshot`, `snapshots` and `restore`.

use holdfast_region::SnapshotSummary;

use crate::heap_args::{RestoreArgs, SnapshotArgs, SnapshotsArgs};
use crate::identity::owner_key;
use holdfast_command::exit::Failure;
use holdfast_command::output::{print, print_json, print_table, with_progress};
use holdfast_command::size::show_size;
use holdfast_command::time::show_time;

pub fn take(args: &SnapshotArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = owner_key(&names, &args.owner, &args.name)?;
    let what = format!("taking a snapshot of {}", args.name);
    let taken = with_progress(&what, || names.snapshot(&args.name, &key, &args.tag))?;
    if args.json {
        print_json(&taken)?;
    } else {
        let size = show_size(taken.allocated_bytes);
        print(&format!("{}: snapshot {} taken ({size} in the store)\n", args.name, taken.tag))?;
    }
    Ok(0)
}

pub fn list(args: &SnapshotsArgs) -> Result<u8, Failure> {
    let found = super::name_space()?.snapshots(&args.name)?;
    if args.json {
        print_json(&found)?;
        return Ok(0);
    }
    let rows: Vec<_> = found.iter().map(row).collect();
    print_table(
        &["TAG", "TAKEN", "SIZE", "IN THE STORE", "CHECKPOINTS", "STATE"],
        &[2, 3, 4],
        &rows,
    )?;
    Ok(0)
}

fn row(snapshot: &SnapshotSummary) -> Vec<String> {
    vec![
        snapshot.tag.to_string(),
        show_time(snapshot.taken_unix_s),
        show_size(snapshot.backed_bytes),
        show_size(snapshot.allocated_bytes),
        snapshot.checkpoint_count.to_string(),
        snapshot.damaged.as_ref().map_or("ready", |_| "damaged").to_owned(),
    ]
}

pub fn restore(args: &RestoreArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let key = owner_key(&names, &args.owner, &args.name)?;
    let what = format!("restoring {}", args.name);
    let restored =
        with_progress(&what, || names.restore(&args.name, &key, &args.tag, args.discard))?;
    if args.json {
        print_json(&restored)?;
        return Ok(0);
    }
    let kept = match &restored.kept {
        Some(tag) => format!("; the state before is the snapshot {tag}"),
        None => String::new(),
    };
    print(&format!("{}: restored from {}{kept}\n", args.name, args.tag))?;
    Ok(0)
}
