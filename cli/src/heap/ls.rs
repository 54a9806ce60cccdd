//! `holdfast heap ls`.

use holdfast_region::{RegionState, RegionSummary};

use crate::args::LsArgs;
use holdfast_command::exit::Failure;
use holdfast_command::output::{print_json, print_table};
use holdfast_command::size::show_size;

pub fn run(args: &LsArgs) -> Result<u8, Failure> {
    let heaps = super::name_space()?.list()?;
    if args.json {
        print_json(&heaps)?;
        return Ok(0);
    }
    let rows: Vec<_> = heaps.iter().map(row).collect();
    print_table(&["NAME", "SIZE", "LIMIT", "BACKING", "CHECKPOINTS", "STATE"], &[1, 2, 4], &rows)?;
    Ok(0)
}

fn row(heap: &RegionSummary) -> Vec<String> {
    // Without a header only the name is known.
    let known = |text: String| if heap.uuid.is_empty() { "-".to_owned() } else { text };
    vec![
        heap.name.to_string(),
        known(show_size(heap.backed_bytes)),
        known(show_size(heap.limit_bytes)),
        known(heap.medium.to_string()),
        known(heap.checkpoint_count.to_string()),
        state(heap),
    ]
}

/// A heap's state in words.
pub fn state(heap: &RegionSummary) -> String {
    match (heap.state, heap.holder) {
        (RegionState::Held, Some(pid)) => format!("held by process {pid}"),
        (RegionState::Held, None) => "held".to_owned(),
        (RegionState::Clean, _) => "ready".to_owned(),
        (RegionState::Crashed, _) => {
            "ready (not closed in order: killed, or its checkpoint failed)".to_owned()
        }
        (RegionState::Cold, _) => "in the store only".to_owned(),
        (RegionState::Damaged, _) => "damaged: see `holdfast heap show`".to_owned(),
        _ => "unknown".to_owned(),
    }
}
