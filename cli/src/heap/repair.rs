//! `holdfast heap repair`: mends a damaged heap in place, after a copy of it was made, or says why
//! not.

use std::path::PathBuf;

use holdfast_heap::mend::MendReport;
use holdfast_heap::{Finding, OpenError, bytes_of, mend};
use holdfast_region::{ErrorKind, Examination, NameSpace, OwnerKey, RegionError, RegionName};
use serde::Serialize;

use super::{name_space, words_of};
use crate::heap_args::RepairArgs;
use crate::identity::owner_key;
use holdfast_command::exit::{BAD_FILE, DENIED, Failure};
use holdfast_command::output::{print, print_json, shown, with_progress};

const PAGE_BYTES: usize = 4096;
/// Findings that the text shows.
const SHOWN_MAX: usize = 30;

/// What `--json` prints.
#[derive(Serialize)]
struct Repaired {
    name: RegionName,
    /// The heap is whole now.
    sound: bool,
    /// Something was changed.
    changed: bool,
    findings: Vec<Row>,
    /// Where the files are copied to as they were.
    copies: Option<PathBuf>,
}

#[derive(Serialize)]
struct Row {
    /// A file, or a place in the heap's data.
    at: String,
    what: String,
    /// What mends it; null when nothing does.
    how: Option<String>,
    /// What is lost by that; null when nothing is.
    lost: Option<String>,
}

pub fn run(args: &RepairArgs) -> Result<u8, Failure> {
    let names = name_space()?;
    let key = owner_key(&names, &args.owner, &args.name)?;
    let name = &args.name;
    let repaired = with_progress(&format!("repairing {name}"), || {
        let Plan { examination, mended, mut repaired } =
            plan(&names, name, &key, args.accept_loss)?;
        if repaired.sound && !repaired.findings.is_empty() {
            let pages =
                examination.bytes().chunks(PAGE_BYTES).zip(bytes_of(&mended).chunks(PAGE_BYTES));
            let changed = pages.enumerate().filter(|(_, (old, new))| old != new);
            let pieces: Vec<_> =
                changed.map(|(index, (_, new))| ((index * PAGE_BYTES) as u64, new)).collect();
            repaired.copies = Some(examination.mend(&pieces)?);
            repaired.changed = true;
        }
        Ok::<_, Failure>(repaired)
    })?;
    if args.json {
        print_json(&repaired)?;
    } else {
        print(&text(&repaired))?;
    }
    if repaired.sound { Ok(0) } else { Err(refusal(&repaired)) }
}

/// What a repair would do; nothing is changed yet.
struct Plan {
    examination: Examination,
    /// The heap's data as they would be.
    mended: Vec<u64>,
    repaired: Repaired,
}

fn plan(
    names: &NameSpace,
    name: &RegionName,
    key: &OwnerKey,
    accept_loss: bool,
) -> Result<Plan, Failure> {
    let examination = names.examine(name, key).map_err(|error| unreadable(name, error))?;
    let mut copy = words_of(examination.bytes())?;
    let mended = match mend(&mut copy, accept_loss) {
        // Nothing was stored yet; there is nothing to mend.
        Err(OpenError::Empty) => MendReport::default(),
        other => other.map_err(|error| {
            let remedy =
                or_a_snapshot(name, "look what `holdfast heap salvage` still finds in its files");
            Failure::new(BAD_FILE, format!("{name} cannot be repaired: {error}; {remedy}"))
        })?,
    };
    let mut repaired = Repaired {
        name: name.clone(),
        sound: mended.left.is_empty(),
        changed: false,
        findings: Vec::new(),
        copies: None,
    };
    for finding in examination.findings() {
        repaired.findings.push(Row {
            at: finding.path.display().to_string(),
            what: finding.what.clone(),
            how: Some(finding.how.to_owned()),
            lost: finding.lost.clone(),
        });
    }
    repaired.findings.extend(mended.mended.into_iter().map(|mended| {
        let Finding { offset, what } = mended.finding;
        Row { how: Some(mended.how.to_owned()), lost: mended.lost, ..Row::of(offset, what) }
    }));
    repaired.findings.extend(mended.left.iter().map(|left| Row::of(left.offset, left.what)));
    let loses = repaired.findings.iter().any(|row| row.lost.is_some());
    repaired.sound &= accept_loss || !loses;
    Ok(Plan { examination, mended: copy, repaired })
}

/// What a repair of a damaged heap would come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outlook {
    /// It mends everything, and nothing is lost.
    Mends,
    /// It would lose something, or is not certain.
    Loses,
    /// Nothing that it knows helps.
    Fails,
    /// The owner's key is not in this home, so it was not tried.
    NotOwner,
}

impl Outlook {
    /// Plans a repair with whichever key of this home owns the heap, and does nothing of it.
    pub fn of(names: &NameSpace, name: &RegionName) -> Outlook {
        let keys = OwnerKey::names(names.places()).unwrap_or_default();
        for key in keys {
            let Ok(Some(key)) = OwnerKey::load(names.places(), key.as_str()) else { continue };
            match plan(names, name, &key, false) {
                Ok(plan) if plan.repaired.sound => return Outlook::Mends,
                Ok(_) => return Outlook::Loses,
                Err(failure) if failure.code == DENIED => {}
                Err(_) => return Outlook::Fails,
            }
        }
        Outlook::NotOwner
    }

    /// What to do, the best first.
    pub fn remedy(self, name: &RegionName) -> String {
        let back = format!(
            "`holdfast heap rm --image {name}` goes back to the last checkpoint, without what was stored since"
        );
        match self {
            Outlook::Mends => {
                format!("`holdfast heap repair {name}` mends it, and nothing is lost")
            }
            Outlook::Loses => {
                format!("`holdfast heap repair {name}` lists what a repair would lose; {back}")
            }
            Outlook::Fails => {
                let snapshots = match has_snapshots(name) {
                    true => format!(
                        "`holdfast heap snapshots {name}` lists what it can be restored to, "
                    ),
                    false => String::new(),
                };
                format!("{snapshots}`holdfast heap salvage FILE` reads what is intact; {back}")
            }
            Outlook::NotOwner => format!(
                "`holdfast heap repair {name} --key KEY`, with its owner's key, mends it if nothing is lost; {back}"
            ),
        }
    }
}

impl Row {
    fn of(offset: u64, what: &str) -> Row {
        Row { at: format!("{offset:#x}"), what: what.to_owned(), how: None, lost: None }
    }
}

/// Whether the commands for snapshots take the name: those of a compartment do not exist.
fn has_snapshots(name: &RegionName) -> bool {
    name.parent_and_worker().is_none()
}

/// A remedy, after that of restoring a snapshot where there can be one.
fn or_a_snapshot(name: &RegionName, remedy: &str) -> String {
    if has_snapshots(name) { format!("restore a snapshot, or {remedy}") } else { remedy.to_owned() }
}

fn unreadable(name: &RegionName, error: RegionError) -> Failure {
    if error.kind() == ErrorKind::BadFile && !matches!(error, RegionError::NotOwner { .. }) {
        let remedy = or_a_snapshot(name, "look what `holdfast heap salvage FILE` still finds");
        return Failure::new(BAD_FILE, format!("{name} cannot be repaired: {error}; or: {remedy}"));
    }
    error.into()
}

fn refusal(repaired: &Repaired) -> Failure {
    let name = &repaired.name;
    let left = repaired.findings.iter().any(|row| row.how.is_none());
    let remedy = match (left, has_snapshots(name)) {
        (true, true) => {
            "go back with `holdfast heap restore` or `holdfast heap rm --image`, get out what is intact with `holdfast \
             heap salvage FILE`, or try `--accept-loss`"
        }
        (true, false) => {
            "go back with `holdfast heap rm --image`, get out what is intact with `holdfast heap salvage FILE`, or try \
             `--accept-loss`"
        }
        (false, _) => {
            "get out what is intact with `holdfast heap salvage FILE`, or repeat this with `--accept-loss`"
        }
    };
    Failure::new(
        BAD_FILE,
        format!("{name} was not changed: that would lose something, or is not certain; {remedy}"),
    )
}

fn text(repaired: &Repaired) -> String {
    let name = &repaired.name;
    if repaired.findings.is_empty() {
        return format!("{name}: nothing to repair\n");
    }
    let mut text = String::new();
    for row in repaired.findings.iter().take(SHOWN_MAX) {
        let done = match (&row.how, repaired.changed) {
            (Some(how), true) => format!("mended: {how}"),
            (Some(how), false) => format!("could be mended: {how}"),
            (None, _) => "NOT mended".to_owned(),
        };
        text.push_str(&format!("{}: {}\n  {done}\n", row.at, row.what));
        if let Some(lost) = &row.lost {
            text.push_str(&format!("  LOST: {lost}\n"));
        }
    }
    if repaired.findings.len() > SHOWN_MAX {
        text.push_str(&format!(
            "and {} more (--json lists all)\n",
            repaired.findings.len() - SHOWN_MAX
        ));
    }
    if let Some(copies) = &repaired.copies {
        text.push_str(&format!(
            "{name}: repaired; its files as they were are in {}\n",
            shown(copies)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No remedy for a compartment is a command that takes none.
    ///
    /// Guarantee: heap/check
    #[test]
    fn compartments_are_not_sent_to_snapshots() {
        for (text, has_snapshots) in [("jobs", true), ("jobs+w1", false)] {
            let name = RegionName::parse_any(text).unwrap();
            let remedies = [
                (Outlook::Fails.remedy(&name), "heap snapshots"),
                (or_a_snapshot(&name, "look what is left"), "restore a snapshot"),
            ];
            for (remedy, words) in remedies {
                assert_eq!(remedy.contains(words), has_snapshots, "{text}: {remedy}");
            }
        }
    }
}
