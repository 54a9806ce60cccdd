//! `holdfast heap salvage`: what of a damaged file is intact, root by root, and a new heap made of
//! it.

use holdfast_heap::OpenError;
use holdfast_heap::survey::{ObjectView, RootView, Survey};
use holdfast_region::{
    ContinuationReport, DamageReport, DamagedFile, FileRemedy, HeaderState, RegionError,
};
use holdfast_sys::counted::counted;
use serde::Serialize;

use super::transfer::tell_if_open_to_all;
use super::{ROOTS_KEPT_MAX, RootName, look_at, name_space};
use crate::heap_args::SalvageArgs;
use holdfast_command::exit::{BAD_FILE, FOUND, Failure, NOT_FOUND};
use holdfast_command::keys::DEFAULT_KEY;
use holdfast_command::output::{print, print_json, shown, with_progress};
use holdfast_command::size::show_size;

/// What `--json` prints. Sizes in bytes.
#[derive(Serialize)]
struct Salvaged {
    #[serde(flatten)]
    file: DamageReport,
    objects: u64,
    object_bytes: u64,
    /// Objects in memory of which a part is missing. Roots may point to them.
    objects_cut_off: u64,
    /// Contradictions in the allocator's tables.
    findings: u64,
    /// Why it cannot be opened as a heap.
    error: Option<String>,
    /// How many roots there are, and how many of them are not intact; of very many not all are
    /// listed.
    root_count: u64,
    roots_lost: u64,
    roots: Vec<Root>,
    /// Entries in the table of roots that cannot be read.
    unreadable_roots: u64,
    /// The heap that was made.
    made: Option<String>,
    /// Neither headers nor data are a heap's.
    #[serde(skip)]
    is_foreign: bool,
}

#[derive(Serialize)]
struct Root {
    name: RootName,
    offset: u64,
    bytes: u64,
    /// All of its bytes are in the file, in memory that is in use. Their content has no checksum of
    /// its own.
    intact: bool,
}

pub fn run(args: &SalvageArgs) -> Result<u8, Failure> {
    if !args.file.exists() {
        let message = format!("there is no file {}; check the path", args.file.display());
        return Err(Failure::new(NOT_FOUND, message));
    }
    let what = format!("reading {}", args.file.display());
    let (damaged, mut salvaged) = with_progress(&what, || {
        let damaged = DamagedFile::read(&args.file)?;
        let salvaged = examine(&damaged)?;
        Ok::<_, Failure>((damaged, salvaged))
    })?;
    if salvaged.is_foreign {
        let (path, remedy) = (args.file.clone(), FileRemedy::NameAnother);
        return Err(RegionError::Foreign { path, remedy }.into());
    }
    let usable = salvaged.error.is_none() && salvaged.findings == 0;
    if let Some(name) = args.to.as_ref().filter(|_| usable) {
        let names = name_space()?;
        let key_name = args.key.as_deref().unwrap_or(DEFAULT_KEY);
        let check = || super::refuse_existing(&names, name);
        let key = super::key_of_new_heap(&names, key_name, &check)?;
        with_progress(&format!("making {name}"), || names.salvage(&damaged, name, &key))?;
        if args.key.is_none() {
            tell_if_open_to_all(&names, name);
        }
        salvaged.made = Some(name.to_string());
    }
    if args.json {
        print_json(&salvaged)?;
    } else {
        print(&text(&salvaged))?;
    }
    if args.to.is_some() && !usable {
        let message = "no heap was made: the allocator's tables contradict themselves, so programs would destroy \
                       what is left; restore a snapshot or another copy";
        return Err(Failure::new(BAD_FILE, message));
    }
    let lost =
        salvaged.objects_cut_off > 0 || salvaged.unreadable_roots > 0 || salvaged.roots_lost > 0;
    Ok(match () {
        () if salvaged.error.is_some() => BAD_FILE,
        () if lost || !usable || !salvaged.file.is_whole() => FOUND,
        () => 0,
    })
}

fn examine(damaged: &DamagedFile) -> Result<Salvaged, Failure> {
    let (bytes, file) = (damaged.bytes(), damaged.report().clone());
    let look = look_at(bytes)?;
    let survey = Survey::new(bytes);
    let (mut roots, mut unreadable_roots, mut objects_cut_off) = (Vec::new(), 0, 0);
    let (mut root_count, mut roots_lost) = (0, 0);
    if let Some(survey) = &survey {
        for root in survey.roots() {
            let intact = is_intact(survey, &root, &file);
            root_count += 1;
            roots_lost += u64::from(!intact);
            if roots.len() < ROOTS_KEPT_MAX {
                let RootView { name, offset, bytes, .. } = root;
                roots.push(Root { name: name.into(), offset, bytes, intact });
            }
        }
        unreadable_roots = survey.unreadable_roots();
        let cut_off = |object: &ObjectView| file.lacks(object.offset..object.offset + object.bytes);
        objects_cut_off = survey.objects().filter(cut_off).count() as u64;
    }
    roots.sort_by(|a, b| a.name.cmp(&b.name));
    let mut salvaged = Salvaged {
        file,
        objects: 0,
        object_bytes: 0,
        objects_cut_off,
        findings: look.findings.len() as u64,
        error: None,
        root_count,
        roots_lost,
        roots,
        unreadable_roots,
        made: None,
        is_foreign: false,
    };
    salvaged.is_foreign = salvaged.file.header == HeaderState::Lost
        && matches!(look.inspection, Err(OpenError::NotAHeap));
    match look.inspection {
        Ok(inspection) => {
            salvaged.objects = inspection.report.objects;
            salvaged.object_bytes = inspection.report.object_bytes;
            salvaged.findings = inspection.report.findings;
        }
        Err(OpenError::Empty) => salvaged.error = Some("nothing was ever stored in it".to_owned()),
        Err(error) => salvaged.error = Some(error.to_string()),
    }
    Ok(salvaged)
}

/// Whether the root's object is allocated with its size, and nothing of it is missing.
fn is_intact(survey: &Survey<'_>, root: &RootView<'_>, file: &DamageReport) -> bool {
    survey.object_at(root.offset).is_some_and(|object| {
        object.offset == root.offset
            && root.bytes <= object.bytes
            && !file.lacks(root.offset..root.offset + root.bytes)
    })
}

fn text(salvaged: &Salvaged) -> String {
    let file = &salvaged.file;
    let header = match file.header {
        HeaderState::Whole => "whole",
        HeaderState::OneLost => "one of two is lost",
        _ => "lost: name, address and limit are unknown",
    };
    let data = match file.missing_bytes {
        0 => show_size(file.data_bytes),
        missing => format!(
            "{}, of which {} are missing from offset {:#x} on",
            show_size(file.data_bytes),
            show_size(missing),
            file.missing_offset
        ),
    };
    let checksum = match file.checksum_matches {
        Some(true) => "matches",
        Some(false) => "does not match: at least one byte is not as it was",
        None => "none (images have none)",
    };
    let tables = match (&salvaged.error, salvaged.findings) {
        (Some(error), _) => error.clone(),
        (None, 0) => "sound".to_owned(),
        (None, count) => counted(count, "contradiction"),
    };
    let mut lines = vec![
        ("file", shown(&file.path)),
        ("name", file.name.as_ref().map_or("unknown".to_owned(), ToString::to_string)),
        ("header", header.to_owned()),
        ("data", data),
        ("checksum", checksum.to_owned()),
        ("tables", tables),
    ];
    if let Some(continuation) = &file.continuation {
        let ContinuationReport { path, commits, damaged, .. } = continuation;
        lines.push((
            "commits",
            format!("{} taken from {}", counted(*commits, "commit"), shown(path)),
        ));
        lines.extend(
            damaged.iter().map(|damaged| ("", format!("LOST what follows them: {damaged}"))),
        );
    }
    if salvaged.error.is_none() {
        lines.push((
            "objects",
            format!("{} in {}", salvaged.objects, show_size(salvaged.object_bytes)),
        ));
    }
    if salvaged.objects_cut_off > 0 {
        let count = salvaged.objects_cut_off;
        lines.push((
            "",
            format!("{count} of them LOST, wholly or in part; roots may point to them"),
        ));
    }
    for (index, root) in salvaged.roots.iter().enumerate() {
        let state = if root.intact { "intact" } else { "LOST, wholly or in part" };
        let label = if index == 0 { "roots" } else { "" };
        lines.push((label, format!("{} ({}) {state}", root.name, show_size(root.bytes))));
    }
    let rest = salvaged.root_count.saturating_sub(salvaged.roots.len() as u64);
    if rest > 0 {
        let lost = salvaged.roots_lost;
        lines.push((
            "",
            format!("and {rest} more; of all of them {lost} are LOST, wholly or in part"),
        ));
    }
    if salvaged.unreadable_roots > 0 {
        lines.push(("", format!("{} more cannot be read", salvaged.unreadable_roots)));
    }
    if let Some(name) = &salvaged.made {
        lines.push(("made", format!("{name}: all data at its old offsets")));
    }
    lines.iter().map(|(label, value)| format!("{label:<9} {value}\n")).collect()
}
