//! `holdfast heap leaks`: objects that no root of a heap leads to, by size.

use std::collections::BTreeMap;

use holdfast_heap::OpenError;
use holdfast_heap::survey::Survey;
use holdfast_region::RegionName;
use holdfast_sys::counted::{counted, noun_for};
use serde::Serialize;

use super::{cut_off, look_at, name_space};
use crate::heap_args::LeaksArgs;
use holdfast_command::exit::{BAD_FILE, FOUND, Failure};
use holdfast_command::output::{print, print_json, print_table, with_progress};
use holdfast_command::size::show_size;

/// Objects that JSON lists; all are counted.
const OBJECTS_LISTED_MAX: usize = 10_000;
/// Sizes that the text shows.
const SIZES_SHOWN_MAX: usize = 20;
/// Places that the text shows for each size.
const PLACES_SHOWN_MAX: usize = 3;

/// What `--json` prints. Sizes in bytes.
#[derive(Serialize)]
struct Found {
    name: RegionName,
    /// Bytes of a pointer in this heap: 4 in WebAssembly, 8 in native programs, 0 in a portable
    /// heap.
    pointer_bytes: u32,
    reached_objects: u64,
    reached_bytes: u64,
    leaked_objects: u64,
    leaked_bytes: u64,
    /// The most room first.
    sizes: Vec<Size>,
    /// The first of them, ascending.
    objects: Vec<Object>,
}

#[derive(Serialize)]
struct Size {
    /// Room of each of these objects.
    object_bytes: u64,
    objects: u64,
    /// Room of all of them.
    bytes: u64,
    /// Where the first ones are, from the start of the heap.
    offsets: Vec<u64>,
}

#[derive(Serialize)]
struct Object {
    offset: u64,
    bytes: u64,
}

pub fn run(args: &LeaksArgs) -> Result<u8, Failure> {
    let names = name_space()?;
    let (found, lost) = with_progress(&format!("reading {}", args.name), || {
        let reader = names.open_read(&args.name)?;
        Ok::<_, Failure>((search(&args.name, reader.bytes())?, reader.lost_backing()))
    })?;
    if lost {
        return Err(cut_off(&args.name));
    }
    if args.json {
        print_json(&found)?;
    } else {
        show(&found)?;
    }
    Ok(if found.leaked_objects > 0 { FOUND } else { 0 })
}

fn search(name: &RegionName, bytes: &[u8]) -> Result<Found, Failure> {
    let look = look_at(bytes)?;
    let pointer_bytes = match &look.inspection {
        Ok(inspection) if inspection.report.is_sound() => inspection.pointers.bytes,
        // In contradictory tables everything could be a leak, or nothing.
        Ok(_) => {
            let message = format!(
                "{name} is damaged, so what is leaked cannot be told; `holdfast heap check {name}`"
            );
            return Err(Failure::new(BAD_FILE, message));
        }
        Err(OpenError::Empty) => 0,
        Err(error) => return Err(Failure::new(BAD_FILE, format!("{name}: {error}"))),
    };
    let mut sizes: BTreeMap<u64, Size> = BTreeMap::new();
    let mut objects = Vec::new();
    let leaks = Survey::new(look.bytes()).map(|survey| {
        survey.leaks(&mut |object| {
            let new =
                Size { object_bytes: object.bytes, objects: 0, bytes: 0, offsets: Vec::new() };
            let size = sizes.entry(object.bytes).or_insert(new);
            size.objects += 1;
            size.bytes += object.bytes;
            if size.offsets.len() < PLACES_SHOWN_MAX {
                size.offsets.push(object.offset);
            }
            if objects.len() < OBJECTS_LISTED_MAX {
                objects.push(Object { offset: object.offset, bytes: object.bytes });
            }
        })
    });
    let leaks = leaks.unwrap_or_default();
    let mut sizes: Vec<_> = sizes.into_values().collect();
    sizes.sort_by_key(|size| std::cmp::Reverse((size.bytes, size.object_bytes)));
    Ok(Found {
        name: name.clone(),
        pointer_bytes,
        reached_objects: leaks.reached_objects,
        reached_bytes: leaks.reached_bytes,
        leaked_objects: leaks.leaked_objects,
        leaked_bytes: leaks.leaked_bytes,
        sizes,
        objects,
    })
}

fn show(found: &Found) -> Result<(), Failure> {
    let Found { name, leaked_objects, reached_objects, .. } = found;
    let reached = show_size(found.reached_bytes);
    if *leaked_objects == 0 {
        let all = if *reached_objects == 1 { "its" } else { "all" };
        return print(&format!(
            "{name}: no leaks: roots lead to {all} {} in {reached}\n",
            counted(*reached_objects, "object")
        ));
    }
    let leaked = show_size(found.leaked_bytes);
    print(&format!(
        "{name}: leaked: {} in {leaked}; roots lead to {reached_objects} in {reached}\n",
        counted(*leaked_objects, "object")
    ))?;
    let rows: Vec<_> = found.sizes.iter().take(SIZES_SHOWN_MAX).map(row).collect();
    print_table(&["OBJECT BYTES", "OBJECTS", "BYTES", "AT"], &[0, 1, 2], &rows)?;
    let rest = found.sizes.len().saturating_sub(SIZES_SHOWN_MAX);
    if rest > 0 {
        print(&format!("and {rest} more {} (--json lists all)\n", noun_for(rest, "size")))?;
    }
    Ok(())
}

fn row(size: &Size) -> Vec<String> {
    let places: Vec<_> = size.offsets.iter().map(|offset| format!("{offset:#x}")).collect();
    let more = if size.objects as usize > places.len() { ", ..." } else { "" };
    vec![
        size.object_bytes.to_string(),
        size.objects.to_string(),
        show_size(size.bytes),
        places.join(", ") + more,
    ]
}
