//! `holdfast heap stats`: where a heap's bytes went, and how much of them is of use.

use std::collections::BTreeMap;

use holdfast_heap::{ChunkUse, survey};
use holdfast_region::RegionName;
use serde::Serialize;

use super::{RootRow, look_at, name_space};
use crate::exit::{BAD_FILE, Failure};
use crate::heap_args::StatsArgs;
use crate::output::{print, print_json, print_table, with_progress};
use crate::size::show_size;

/// Roots that the text lists; JSON has all.
const ROOTS_SHOWN_MAX: usize = 10;
const CHUNK_BYTES: u64 = holdfast_heap::layout::CHUNK_BYTES;

/// What `--json` prints. Sizes in bytes.
#[derive(Serialize)]
struct Stats {
    name: RegionName,
    backed_bytes: u64,
    /// The allocator's tables and log.
    overhead_bytes: u64,
    small_objects: u64,
    /// Slots that hold an object.
    small_object_bytes: u64,
    /// Slots that hold none, and what is left over at the end of slabs.
    idle_slab_bytes: u64,
    large_objects: u64,
    /// As asked for.
    large_object_bytes: u64,
    /// Rounding of large objects up to whole chunks.
    large_rounding_bytes: u64,
    /// Free chunks of 64 KiB.
    free_bytes: u64,
    /// The longest run of free chunks: the largest object that fits without growing.
    longest_free_bytes: u64,
    /// Not yet formatted.
    untouched_bytes: u64,
    classes: Vec<Class>,
    roots: Vec<RootRow>,
}

#[derive(Default, Serialize)]
struct Class {
    slot_bytes: u32,
    slabs: u64,
    objects: u64,
    slots: u64,
}

pub fn run(args: &StatsArgs) -> Result<u8, Failure> {
    let names = name_space()?;
    let (stats, cut_off) = with_progress(&format!("reading {}", args.name), || {
        let reader = names.open_read(&args.name)?;
        let stats = gather(&args.name, reader.bytes())?;
        Ok::<_, Failure>((stats, reader.lost_backing()))
    })?;
    if cut_off {
        let name = &args.name;
        let message =
            format!("the image of {name} is cut off; `holdfast heap show {name}` tells what is left");
        return Err(Failure::new(BAD_FILE, message));
    }
    if args.json {
        print_json(&stats)?;
        return Ok(0);
    }
    show(&stats)?;
    Ok(0)
}

fn gather(name: &RegionName, bytes: &[u8]) -> Result<Stats, Failure> {
    let look = look_at(bytes);
    // A region in which nothing was stored yet is in order: all of it is untouched.
    if let Err(error) = look.inspection
        && error != holdfast_heap::OpenError::Empty
    {
        return Err(Failure::new(BAD_FILE, format!("{name}: {error}")));
    }
    let mut stats = Stats {
        name: name.clone(),
        backed_bytes: bytes.len() as u64,
        overhead_bytes: 0,
        small_objects: 0,
        small_object_bytes: 0,
        idle_slab_bytes: 0,
        large_objects: 0,
        large_object_bytes: 0,
        large_rounding_bytes: 0,
        free_bytes: 0,
        longest_free_bytes: 0,
        untouched_bytes: bytes.len() as u64,
        classes: Vec::new(),
        roots: look.roots,
    };
    stats.roots.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let mut classes: BTreeMap<u32, Class> = BTreeMap::new();
    let mut free_run = 0;
    survey(bytes, &mut |span| {
        stats.untouched_bytes = stats.untouched_bytes.saturating_sub(span.bytes());
        free_run = if span.used_for == ChunkUse::Free { free_run + span.bytes() } else { 0 };
        stats.longest_free_bytes = stats.longest_free_bytes.max(free_run);
        match span.used_for {
            ChunkUse::Slab { slot_bytes, slots, used_slots } => {
                let class = classes.entry(slot_bytes).or_insert(Class { slot_bytes, ..Class::default() });
                class.slabs += 1;
                class.objects += u64::from(used_slots);
                class.slots += u64::from(slots);
                let object_bytes = u64::from(used_slots) * u64::from(slot_bytes);
                stats.small_objects += u64::from(used_slots);
                stats.small_object_bytes += object_bytes;
                stats.idle_slab_bytes += CHUNK_BYTES - object_bytes.min(CHUNK_BYTES);
            }
            ChunkUse::Run { object_bytes } => {
                let object_bytes = object_bytes.min(span.bytes());
                stats.large_objects += 1;
                stats.large_object_bytes += object_bytes;
                stats.large_rounding_bytes += span.bytes() - object_bytes;
            }
            ChunkUse::Free => stats.free_bytes += span.bytes(),
            _ => stats.overhead_bytes += span.bytes(),
        }
    });
    stats.classes = classes.into_values().collect();
    Ok(stats)
}

fn show(stats: &Stats) -> Result<(), Failure> {
    let share = |bytes: u64| format!("{:.1} %", bytes as f64 * 100.0 / stats.backed_bytes.max(1) as f64);
    let line =
        |what: &str, bytes: u64, note: String| vec![what.to_owned(), show_size(bytes), share(bytes), note];
    let longest = show_size(stats.longest_free_bytes);
    let rows = [
        line("small objects", stats.small_object_bytes, format!("{} objects", stats.small_objects)),
        line("idle in slabs", stats.idle_slab_bytes, "for more objects of these sizes".to_owned()),
        line("large objects", stats.large_object_bytes, format!("{} objects", stats.large_objects)),
        line("rounding", stats.large_rounding_bytes, "of large objects".to_owned()),
        line("free chunks", stats.free_bytes, format!("longest run {longest}")),
        line("tables and log", stats.overhead_bytes, String::new()),
        line("untouched", stats.untouched_bytes, String::new()),
        line("all", stats.backed_bytes, String::new()),
    ];
    print_table(&[stats.name.as_str(), "BYTES", "SHARE", ""], &[1, 2], &rows)?;
    if !stats.classes.is_empty() {
        print("\n")?;
        let rows: Vec<_> = stats.classes.iter().map(class_row).collect();
        print_table(&["SLOT BYTES", "SLABS", "OBJECTS", "SLOTS", "FULL"], &[0, 1, 2, 3, 4], &rows)?;
    }
    if !stats.roots.is_empty() {
        print("\n")?;
        let shown = stats.roots.iter().take(ROOTS_SHOWN_MAX);
        let rows: Vec<_> = shown.map(|root| vec![root.name.clone(), show_size(root.bytes)]).collect();
        print_table(&["ROOT", "BYTES"], &[1], &rows)?;
        let rest = stats.roots.len().saturating_sub(ROOTS_SHOWN_MAX);
        if rest > 0 {
            print(&format!("and {rest} more (--json lists all)\n"))?;
        }
    }
    Ok(())
}

fn class_row(class: &Class) -> Vec<String> {
    vec![
        class.slot_bytes.to_string(),
        class.slabs.to_string(),
        class.objects.to_string(),
        class.slots.to_string(),
        format!("{:.0} %", class.objects as f64 * 100.0 / class.slots.max(1) as f64),
    ]
}
