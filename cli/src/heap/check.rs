//! `holdfast heap check`.

use holdfast_heap::{OpenError, Opened};
use holdfast_region::{ErrorKind, FileFinding, NameSpace, RegionError, RegionName};
use holdfast_sys::counted::counted;
use serde::Serialize;

use super::repair::Outlook;
use super::{look, name_space};
use crate::args::CheckArgs;
use holdfast_command::exit::{BAD_FILE, FOUND, Failure};
use holdfast_command::output::{print, print_json, say, shown, with_progress};
use holdfast_command::size::show_size;

/// Contradictions printed per heap; the rest is counted.
const FINDINGS_SHOWN_MAX: usize = 20;

/// What `--json` prints for each heap. Sizes in bytes.
#[derive(Serialize)]
struct Checked {
    name: RegionName,
    sound: bool,
    /// A killed program left a transaction open; the next run rolls it back.
    open_transaction: bool,
    objects: u64,
    object_bytes: u64,
    roots: u64,
    /// How many contradictions there are.
    finding_count: u64,
    /// The first of them.
    findings: Vec<FindingRow>,
    /// Files that lack a second copy of something. The data is whole; `repair` mends it. No damage,
    /// as long as nothing else gets lost.
    lost_redundancy: Vec<FileFinding>,
    /// Why the heap cannot be opened at all.
    error: Option<String>,
    /// What `repair` would come to, of a heap that is not sound: it was planned, and nothing was
    /// done.
    repair: Option<Outlook>,
}

#[derive(Serialize)]
struct FindingRow {
    offset: u64,
    what: &'static str,
}

pub fn run(args: &CheckArgs) -> Result<u8, Failure> {
    let names = name_space()?;
    let heaps = match args.all {
        true => names.list()?.into_iter().map(|summary| summary.name).collect(),
        false => args.names.clone(),
    };
    let mut checked = Vec::new();
    let mut worst = 0;
    for name in &heaps {
        match with_progress(&format!("checking {name}"), || check(&names, name)) {
            Ok(result) => {
                worst = worst.max(if result.sound { 0 } else { FOUND });
                checked.push(result);
            }
            // One heap that cannot be read does not keep the others from being checked.
            Err(failure) if heaps.len() > 1 => {
                say(format_args!("{}", failure.message));
                worst = worst.max(failure.code);
            }
            Err(failure) => return Err(failure),
        }
    }
    if args.json {
        print_json(&checked)?;
    } else {
        print(&checked.iter().map(text).collect::<String>())?;
    }
    Ok(worst)
}

fn check(names: &NameSpace, name: &RegionName) -> Result<Checked, Failure> {
    let reader = names.open_read(name).map_err(|error| unreadable(names, name, error))?;
    let look = look(&reader)?;
    let mut checked = Checked {
        name: name.clone(),
        sound: false,
        open_transaction: false,
        objects: 0,
        object_bytes: 0,
        roots: 0,
        finding_count: 0,
        findings: look
            .findings
            .iter()
            .map(|f| FindingRow { offset: f.offset, what: f.what })
            .collect(),
        lost_redundancy: Vec::new(),
        error: None,
        repair: None,
    };
    match &look.inspection {
        Ok(inspection) => {
            checked.sound = inspection.report.is_sound();
            checked.finding_count = inspection.report.findings;
            checked.open_transaction = inspection.opened == Opened::Recovered;
            checked.objects = inspection.report.objects;
            checked.object_bytes = inspection.report.object_bytes;
            checked.roots = inspection.report.roots;
        }
        Err(OpenError::Empty) => checked.sound = true,
        Err(error) => checked.error = Some(error.to_string()),
    }
    // Its mapping has the region's lock for as long as it lives, and a plan needs that.
    drop((look, reader));
    checked.lost_redundancy = names.lost_redundancy(name)?;
    checked.repair = (!checked.sound).then(|| Outlook::of(names, name));
    Ok(checked)
}

/// A heap that cannot be read, with what a repair would come to.
fn unreadable(names: &NameSpace, name: &RegionName, error: RegionError) -> Failure {
    let outlook = (error.kind() == ErrorKind::BadFile).then(|| Outlook::of(names, name));
    match outlook {
        Some(outlook @ Outlook::Mends) => {
            Failure::new(BAD_FILE, format!("{name}: {}; {}", outlook.remedy(name), error))
        }
        _ => error.into(),
    }
}

fn text(checked: &Checked) -> String {
    let name = &checked.name;
    let remedy =
        checked.repair.map(|outlook| format!("  {}\n", outlook.remedy(name))).unwrap_or_default();
    if let Some(error) = &checked.error {
        return format!("{name}: {error}\n{remedy}");
    }
    let counts = format!(
        "{} in {}, {}{}",
        counted(checked.objects, "object"),
        show_size(checked.object_bytes),
        counted(checked.roots, "root"),
        if checked.open_transaction { "; the next run rolls back an open transaction" } else { "" }
    );
    let mut redundancy = String::new();
    for lost in &checked.lost_redundancy {
        let path = shown(&lost.path);
        redundancy.push_str(&format!(
            "  lost redundancy: {path}: {}; `holdfast heap repair {name}` mends it\n",
            lost.what
        ));
    }
    if checked.sound {
        return format!("{name}: sound: {counts}\n{redundancy}");
    }
    let mut text =
        format!("{name}: damaged: {}; {counts}\n", counted(checked.finding_count, "contradiction"));
    for finding in checked.findings.iter().take(FINDINGS_SHOWN_MAX) {
        text.push_str(&format!("  at {:#x}: {}\n", finding.offset, finding.what));
    }
    if checked.findings.len() > FINDINGS_SHOWN_MAX {
        text.push_str(&format!(
            "  and {} more (--json lists all)\n",
            checked.findings.len() - FINDINGS_SHOWN_MAX
        ));
    }
    text.push_str(&redundancy);
    text.push_str(&remedy);
    text
}
