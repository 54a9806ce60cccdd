//! `holdfast heap diff`: which pages, bytes and roots differ between two states of a heap.
//!
//! A state that is shorter than the other counts as followed by zeros, as growing would make it.

use std::collections::BTreeMap;

use holdfast_region::RegionName;
use holdfast_sys::counted::counted;
use serde::Serialize;

use super::{Look, RootName, look_at, name_space};
use crate::heap_args::DiffArgs;
use holdfast_command::exit::{BAD_FILE, FOUND, Failure};
use holdfast_command::output::{print, print_json, with_progress};
use holdfast_command::size::show_size;

const PAGE_BYTES: usize = 4096;

/// What `--json` prints. Sizes in bytes.
#[derive(Serialize)]
struct Difference {
    name: RegionName,
    older: String,
    newer: String,
    older_bytes: u64,
    newer_bytes: u64,
    /// Pages of 4 KiB in which at least one byte differs.
    differing_pages: u64,
    differing_bytes: u64,
    /// Roots that differ; absent when one of the two is no heap that can be read, or has too many
    /// to compare them.
    roots: Option<Vec<RootChange>>,
}

#[derive(Serialize)]
struct RootChange {
    name: RootName,
    /// Size before; null when the root is new.
    older_bytes: Option<u64>,
    /// Size now; null when the root is gone.
    newer_bytes: Option<u64>,
}

pub fn run(args: &DiffArgs) -> Result<u8, Failure> {
    let names = name_space()?;
    let what = format!("comparing {}", args.name);
    let difference = with_progress(&what, || {
        let older = names.open_snapshot(&args.name, &args.tag)?;
        let compared = match &args.tag2 {
            Some(tag) => {
                compare(args, older.bytes(), names.open_snapshot(&args.name, tag)?.bytes())?
            }
            None => {
                let now = names.open_read(&args.name)?;
                let compared = compare(args, older.bytes(), now.bytes())?;
                if now.lost_backing() {
                    let message = format!(
                        "the image of {} was cut off while it was read; `holdfast heap show {0}` tells what is left",
                        args.name
                    );
                    return Err(Failure::new(BAD_FILE, message));
                }
                compared
            }
        };
        Ok(compared)
    })?;
    let same = difference.differing_pages == 0 && difference.older_bytes == difference.newer_bytes;
    if args.json {
        print_json(&difference)?;
    } else {
        print(&text(&difference, same))?;
    }
    Ok(if same { 0 } else { FOUND })
}

fn compare(args: &DiffArgs, older: &[u8], newer: &[u8]) -> Result<Difference, Failure> {
    // First, as it says when a file claims more than there is: comparing reads all of it.
    let roots = roots(older, newer)?;
    let (mut differing_pages, mut differing_bytes) = (0, 0);
    let mut add = |a: &[u8], b: &[u8]| {
        // Comparing whole pages first is as fast as memory; most are alike.
        if a != b {
            differing_pages += 1;
            differing_bytes += a.iter().zip(b).filter(|(a, b)| a != b).count() as u64;
        }
    };
    let common = older.len().min(newer.len());
    older[..common]
        .chunks(PAGE_BYTES)
        .zip(newer[..common].chunks(PAGE_BYTES))
        .for_each(|(a, b)| add(a, b));
    let tail = if older.len() > common { &older[common..] } else { &newer[common..] };
    tail.chunks(PAGE_BYTES).for_each(|page| add(page, &[0; PAGE_BYTES][..page.len()]));
    Ok(Difference {
        name: args.name.clone(),
        older: args.tag.to_string(),
        newer: args.tag2.as_ref().map_or("now".to_owned(), RegionName::to_string),
        older_bytes: older.len() as u64,
        newer_bytes: newer.len() as u64,
        differing_pages,
        differing_bytes,
        roots,
    })
}

fn roots(older: &[u8], newer: &[u8]) -> Result<Option<Vec<RootChange>>, Failure> {
    let (older, newer) = (look_at(older)?, look_at(newer)?);
    let all = |look: &Look| look.inspection.is_ok() && look.root_count == look.roots.len() as u64;
    if !all(&older) || !all(&newer) {
        return Ok(None);
    }
    let mut sizes: BTreeMap<RootName, (Option<u64>, Option<u64>)> = BTreeMap::new();
    for root in older.roots {
        sizes.entry(root.name).or_default().0 = Some(root.bytes);
    }
    for root in newer.roots {
        sizes.entry(root.name).or_default().1 = Some(root.bytes);
    }
    let changed = sizes.into_iter().filter(|(_, (older, newer))| older != newer);
    let change = |(name, (older_bytes, newer_bytes))| RootChange { name, older_bytes, newer_bytes };
    Ok(Some(changed.map(change).collect()))
}

fn text(difference: &Difference, same: bool) -> String {
    let Difference { name, older, newer, .. } = difference;
    if same {
        return format!("{name}: {older} and {newer} are alike\n");
    }
    let mut text = format!(
        "{name}: {older} and {newer} differ in {}, in {} ({})\n",
        counted(difference.differing_bytes, "byte"),
        counted(difference.differing_pages, "page"),
        show_size(difference.differing_pages * PAGE_BYTES as u64),
    );
    if difference.older_bytes != difference.newer_bytes {
        let (older, newer) = (show_size(difference.older_bytes), show_size(difference.newer_bytes));
        text.push_str(&format!("  size: {older} -> {newer}\n"));
    }
    for root in difference.roots.iter().flatten() {
        let name = &root.name;
        let line = match (root.older_bytes, root.newer_bytes) {
            (None, Some(bytes)) => format!("  + root {name} ({})\n", show_size(bytes)),
            (Some(bytes), None) => format!("  - root {name} ({})\n", show_size(bytes)),
            (older, newer) => format!(
                "  ~ root {name} ({} -> {})\n",
                show_size(older.unwrap_or(0)),
                show_size(newer.unwrap_or(0))
            ),
        };
        text.push_str(&line);
    }
    if difference.roots.is_none() {
        text.push_str(
            "  roots are not compared: at least one of the two is no heap that can be read, or has \
             too many\n",
        );
    }
    text
}
