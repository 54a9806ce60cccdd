//! `holdfast heap tidy`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_region::{Leftover, LeftoverKind};
use holdfast_sys::counted::counted;
use serde::Serialize;

use crate::heap_args::TidyArgs;
use holdfast_command::exit::Failure;
use holdfast_command::output::{print, print_json, print_table, say, with_progress};
use holdfast_command::size::show_size;
use holdfast_command::time::show_time;

/// What `--json` prints for each leftover.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    leftover: Leftover,
    removed: bool,
}

pub fn run(args: &TidyArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let (found, kept): (Vec<_>, Vec<_>) =
        names.leftovers()?.into_iter().partition(|leftover| !is_young(leftover, args.keep));
    let (mut rows, mut worst) = (Vec::new(), 0);
    for leftover in found {
        let mut removed = false;
        if args.yes {
            match with_progress("removing what no heap needs", || names.remove_leftover(&leftover))
            {
                Ok(()) => removed = true,
                // One that stays does not keep the others.
                Err(error) => {
                    let failure = Failure::from(error);
                    say(format_args!("{} stays: {}", leftover.path.display(), failure.message));
                    worst = failure.code;
                }
            }
        }
        rows.push(Row { leftover, removed });
    }
    if !kept.is_empty() {
        let (count, bytes) =
            (kept.len(), kept.iter().map(|leftover| leftover.allocated_bytes).sum());
        say(format_args!(
            "left alone: {} with {} that repairs kept in the last {}; --keep says how long",
            counted(count, "copy"),
            show_size(bytes),
            humantime::format_duration(args.keep)
        ));
    }
    if args.json {
        print_json(&rows)?;
        return Ok(worst);
    }
    let cells: Vec<_> = rows.iter().map(|row| cells(&row.leftover)).collect();
    print_table(&["WHAT", "HEAP", "SIZE", "WRITTEN", "PATH"], &[2], &cells)?;
    if args.yes {
        let removed = rows.iter().filter(|row| row.removed);
        let (count, bytes) =
            (removed.clone().count(), removed.map(|row| row.leftover.allocated_bytes).sum());
        print(&format!("removed {count} of these, {}\n", show_size(bytes)))?;
    } else if !rows.is_empty() {
        say(format_args!("nothing was removed; --yes removes these"));
    }
    Ok(worst)
}

/// A user that repaired a heap a moment ago may still want the copies. Of a temporary file it is
/// not known anything.
fn is_young(leftover: &Leftover, keep: Duration) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = now.saturating_sub(Duration::from_secs(leftover.modified_unix_s));
    leftover.kind == LeftoverKind::RepairCopy && age < keep
}

fn cells(leftover: &Leftover) -> Vec<String> {
    let what = match leftover.kind {
        LeftoverKind::RepairCopy => "copy of a repair",
        _ => "of a killed program",
    };
    vec![
        what.to_owned(),
        leftover.name.to_string(),
        show_size(leftover.allocated_bytes),
        show_time(leftover.modified_unix_s),
        leftover.path.display().to_string(),
    ]
}
