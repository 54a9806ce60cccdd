//! `holdfast heap show`.

use holdfast_identity::{Owner, owner_of};
use holdfast_region::{FileSummary, Medium, RegionError, RegionState, RegionSummary};
use serde::Serialize;

use super::{Look, RootRow, look, ls, name_space};
use crate::args::ShowArgs;
use holdfast_command::exit::{BAD_FILE, Failure};
use holdfast_command::output::{print, print_json, shown, with_progress};
use holdfast_command::size::show_size;
use holdfast_command::time::show_time;

/// What `--json` prints. Sizes in bytes.
#[derive(Serialize)]
struct HeapDetails {
    #[serde(flatten)]
    summary: RegionSummary,
    /// Whose it is, in words.
    belongs_to: Option<String>,
    /// The private regions of its applet's workers.
    compartments: Vec<RegionSummary>,
    /// Allocated objects; absent when the content cannot be looked at now.
    objects: Option<u64>,
    object_bytes: Option<u64>,
    pointer_bytes: Option<u32>,
    /// How many roots there are; of very many not all are listed.
    root_count: Option<u64>,
    roots: Option<Vec<RootRow>>,
    /// Why there is no more to tell.
    note: Option<String>,
}

pub fn run(args: &ShowArgs) -> Result<u8, Failure> {
    let names = name_space()?;
    let summary = names.summary(&args.name)?;
    let compartments = names.compartments(&args.name)?;
    let owner = owner_of(&names, &args.name).ok().filter(|owner| *owner != Owner::Unreadable);
    let mut shown = HeapDetails {
        summary,
        belongs_to: owner.map(|owner| owner.to_string()),
        compartments,
        objects: None,
        object_bytes: None,
        pointer_bytes: None,
        root_count: None,
        roots: None,
        note: None,
    };
    let mut code = if shown.summary.damaged.is_some() { BAD_FILE } else { 0 };
    let looked = with_progress(&format!("reading {}", args.name), || {
        names.open_read(&args.name).map(|r| look(&r))
    });
    match looked {
        Ok(Ok(Look { inspection: Ok(inspection), roots, root_count, .. })) => {
            shown.objects = Some(inspection.report.objects);
            shown.object_bytes = Some(inspection.report.object_bytes);
            shown.pointer_bytes = Some(inspection.pointers.bytes);
            shown.root_count = Some(root_count);
            shown.roots = Some(roots);
        }
        Ok(Ok(Look { inspection: Err(error), .. })) => shown.note = Some(error.to_string()),
        Ok(Err(failure)) => {
            // A copy that there is no memory for says nothing about the heap.
            code = if failure.code == BAD_FILE { BAD_FILE } else { code };
            shown.note = Some(failure.message);
        }
        Err(error @ RegionError::Held { .. }) => {
            shown.note = Some(format!("its content is not shown: {error}"))
        }
        Err(error) => shown.note = Some(error.to_string()),
    }
    if args.json {
        print_json(&shown)?;
    } else {
        print(&text(&shown))?;
    }
    Ok(code)
}

fn text(shown: &HeapDetails) -> String {
    let summary = &shown.summary;
    let state = match summary.state {
        RegionState::Damaged => "damaged".to_owned(),
        _ => ls::state(summary),
    };
    let mut lines = vec![("name", summary.name.to_string()), ("state", state)];
    // Without a header nothing of this is known.
    if !summary.uuid.is_empty() {
        let (size, limit) = (show_size(summary.backed_bytes), show_size(summary.limit_bytes));
        lines.extend([
            ("size", format!("{size} of at most {limit}")),
            ("uuid", summary.uuid.clone()),
            ("created", show_time(summary.created_unix_s)),
            ("backing", backing(summary.medium).to_owned()),
        ]);
    }
    lines.extend(shown.belongs_to.clone().map(|owner| ("owner", owner)));
    lines.extend([
        ("image", file(summary.image.as_ref())),
        ("checkpoint", file(summary.base.as_ref())),
    ]);
    if let (Some(objects), Some(bytes)) = (shown.objects, shown.object_bytes) {
        lines.push(("objects", format!("{objects} in {}", show_size(bytes))));
    }
    if let Some(bytes) = shown.pointer_bytes {
        let pointers = match bytes {
            0 => "none (portable: references, for programs of every kind)".to_owned(),
            4 => "4 bytes (WebAssembly)".to_owned(),
            bytes => format!("{bytes} bytes (native)"),
        };
        lines.push(("pointers", pointers));
    }
    let mut text: String =
        lines.iter().map(|(label, value)| format!("{label:<11} {value}\n")).collect();
    for (index, root) in shown.roots.iter().flatten().enumerate() {
        let label = if index == 0 { "roots" } else { "" };
        text.push_str(&format!("{label:<11} {} ({})\n", root.name, show_size(root.bytes)));
    }
    let listed = shown.roots.as_ref().map_or(0, |roots| roots.len() as u64);
    if let Some(rest @ 1..) = shown.root_count.map(|count| count.saturating_sub(listed)) {
        text.push_str(&format!("{:<11} and {rest} more\n", ""));
    }
    for (index, compartment) in shown.compartments.iter().enumerate() {
        let label = if index == 0 { "workers" } else { "" };
        let (size, limit) =
            (show_size(compartment.backed_bytes), show_size(compartment.limit_bytes));
        text.push_str(&format!("{label:<11} {} ({size} of at most {limit})\n", compartment.name));
    }
    let more = shown.note.iter().filter(|note| summary.damaged.as_ref() != Some(note));
    for note in summary.damaged.iter().chain(more) {
        text.push_str(&format!("{:<11} {note}\n", "note"));
    }
    text
}

fn backing(medium: Medium) -> &'static str {
    match medium {
        Medium::File => "file (on the disk; after a power cut it is as of its last checkpoint)",
        _ => "memory (in the pool)",
    }
}

fn file(file: Option<&FileSummary>) -> String {
    match file {
        Some(file) => {
            format!(
                "{} ({}, written {})",
                shown(&file.path),
                show_size(file.allocated_bytes),
                show_time(file.modified_unix_s)
            )
        }
        None => "none".to_owned(),
    }
}
