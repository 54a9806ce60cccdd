//! `holdfast heap stats`: where a heap's bytes went, and how much of them is of use.

use holdfast_heap::OpenError;
use holdfast_heap::survey::{ChunkKind, Survey};
use holdfast_region::RegionName;
use holdfast_sys::counted::counted;
use serde::Serialize;

use super::{RootRow, cut_off, look_at, name_space};
use crate::heap_args::StatsArgs;
use holdfast_command::exit::{BAD_FILE, Failure};
use holdfast_command::output::{print, print_json, print_table, with_progress};
use holdfast_command::size::show_size;

/// Roots that the text lists; JSON has more.
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
    /// Objects that a root leads to, directly or through pointers, and the room that they take.
    reached_objects: u64,
    reached_bytes: u64,
    /// Objects that no root leads to: `heap leaks` lists them.
    leaked_objects: u64,
    leaked_bytes: u64,
    classes: Vec<Class>,
    /// How many roots there are; of very many not all are listed.
    root_count: u64,
    roots: Vec<RootRow>,
}

#[derive(Serialize)]
struct Class {
    slot_bytes: u32,
    slabs: u64,
    objects: u64,
    slots: u64,
}

pub fn run(args: &StatsArgs) -> Result<u8, Failure> {
    let names = name_space()?;
    let (stats, lost) = with_progress(&format!("reading {}", args.name), || {
        let reader = names.open_read(&args.name)?;
        let stats = gather(&args.name, reader.bytes())?;
        Ok::<_, Failure>((stats, reader.lost_backing()))
    })?;
    if lost {
        return Err(cut_off(&args.name));
    }
    if args.json {
        print_json(&stats)?;
        return Ok(0);
    }
    show(&stats)?;
    Ok(0)
}

fn gather(name: &RegionName, bytes: &[u8]) -> Result<Stats, Failure> {
    let mut look = look_at(bytes)?;
    // A region in which nothing was stored yet is in order: all of it is untouched.
    if let Err(error) = &look.inspection
        && *error != OpenError::Empty
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
        reached_objects: 0,
        reached_bytes: 0,
        leaked_objects: 0,
        leaked_bytes: 0,
        classes: Vec::new(),
        root_count: look.root_count,
        roots: std::mem::take(&mut look.roots),
    };
    stats.roots.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    let Some(survey) = Survey::new(look.bytes()) else { return Ok(stats) };
    // Damaged tables may contradict each other: no difference below zero.
    for class in survey.classes().into_iter().filter(|class| class.slabs > 0) {
        let bytes = class.used * u64::from(class.class_bytes);
        stats.small_objects += class.used;
        stats.small_object_bytes += bytes;
        stats.idle_slab_bytes += (class.slabs * CHUNK_BYTES).saturating_sub(bytes);
        stats.classes.push(Class {
            slot_bytes: class.class_bytes,
            slabs: class.slabs,
            objects: class.used,
            slots: class.slots,
        });
    }
    let mut free_run = 0;
    for chunk in survey.chunks() {
        stats.untouched_bytes = stats.untouched_bytes.saturating_sub(CHUNK_BYTES);
        free_run = if chunk.kind == ChunkKind::Free { free_run + CHUNK_BYTES } else { 0 };
        stats.longest_free_bytes = stats.longest_free_bytes.max(free_run);
        match chunk.kind {
            ChunkKind::Slab => {}
            ChunkKind::Large => {
                stats.large_object_bytes += u64::from(chunk.used_bytes);
                stats.large_rounding_bytes +=
                    CHUNK_BYTES.saturating_sub(u64::from(chunk.used_bytes));
            }
            ChunkKind::Free => stats.free_bytes += CHUNK_BYTES,
            _ => stats.overhead_bytes += CHUNK_BYTES,
        }
    }
    let leaks = survey.leaks(&mut |_| {});
    stats.large_objects =
        (leaks.reached_objects + leaks.leaked_objects).saturating_sub(stats.small_objects);
    stats.reached_objects = leaks.reached_objects;
    stats.reached_bytes = leaks.reached_bytes;
    stats.leaked_objects = leaks.leaked_objects;
    stats.leaked_bytes = leaks.leaked_bytes;
    Ok(stats)
}

fn show(stats: &Stats) -> Result<(), Failure> {
    let share =
        |bytes: u64| format!("{:.1} %", bytes as f64 * 100.0 / stats.backed_bytes.max(1) as f64);
    let line = |what: &str, bytes: u64, note: String| {
        vec![what.to_owned(), show_size(bytes), share(bytes), note]
    };
    let longest = show_size(stats.longest_free_bytes);
    let rows = [
        line("small objects", stats.small_object_bytes, counted(stats.small_objects, "object")),
        line("idle in slabs", stats.idle_slab_bytes, "for more objects of these sizes".to_owned()),
        line("large objects", stats.large_object_bytes, counted(stats.large_objects, "object")),
        line("rounding", stats.large_rounding_bytes, "of large objects".to_owned()),
        line("free chunks", stats.free_bytes, format!("longest run {longest}")),
        line("tables and log", stats.overhead_bytes, String::new()),
        line("untouched", stats.untouched_bytes, String::new()),
        line("all", stats.backed_bytes, String::new()),
    ];
    print_table(&[stats.name.as_str(), "BYTES", "SHARE", ""], &[1, 2], &rows)?;
    let reached = format!(
        "{} in {}",
        counted(stats.reached_objects, "object"),
        show_size(stats.reached_bytes)
    );
    print(&format!("\nreached from roots  {reached}\n"))?;
    if stats.leaked_objects > 0 {
        let leaked = format!(
            "{} in {}",
            counted(stats.leaked_objects, "object"),
            show_size(stats.leaked_bytes)
        );
        print(&format!("leaked              {leaked}: holdfast heap leaks {}\n", stats.name))?;
    }
    if !stats.classes.is_empty() {
        print("\n")?;
        let rows: Vec<_> = stats.classes.iter().map(class_row).collect();
        print_table(&["SLOT BYTES", "SLABS", "OBJECTS", "SLOTS", "FULL"], &[0, 1, 2, 3, 4], &rows)?;
    }
    if !stats.roots.is_empty() {
        print("\n")?;
        let shown = stats.roots.iter().take(ROOTS_SHOWN_MAX);
        let rows: Vec<_> =
            shown.map(|root| vec![root.name.to_string(), show_size(root.bytes)]).collect();
        print_table(&["ROOT", "BYTES"], &[1], &rows)?;
        let rest = stats.root_count.saturating_sub(ROOTS_SHOWN_MAX as u64);
        if rest > 0 {
            let listed = stats.roots.len();
            let lists =
                if stats.root_count == listed as u64 { "all".into() } else { listed.to_string() };
            print(&format!("and {rest} more (--json lists {lists})\n"))?;
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
