//! `holdfast heap check`.
//!
//! Invariant: every heap that was asked for has a row and counts for the exit code, also one that
//! cannot be read.

use holdfast_heap::{OpenError, Opened};
use holdfast_region::{ErrorKind, FileFinding, NameSpace, RegionError, RegionName};
use holdfast_sys::counted::counted;
use serde::Serialize;

use super::repair::Outlook;
use super::{look, name_space};
use crate::args::CheckArgs;
use holdfast_command::exit::{BAD_FILE, FOUND, Failure, HELD, NOT_FOUND};
use holdfast_command::output::{print, print_json, say, shown, with_progress};
use holdfast_command::size::show_size;

/// Contradictions printed per heap; the rest is counted.
const FINDINGS_SHOWN_MAX: usize = 20;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Sound,
    /// It was read, and contradicts itself or cannot be opened.
    Damaged,
    /// One of its files is damaged, foreign or of a newer format, so it cannot be read.
    BadFile,
    /// Another process has it.
    Held,
    /// There is no such heap.
    Missing,
    /// It could not be read for another reason, as `error` says.
    Unchecked,
}

impl State {
    /// Of a heap that could not be read.
    fn of_failure(code: u8) -> State {
        match code {
            BAD_FILE => State::BadFile,
            HELD => State::Held,
            NOT_FOUND => State::Missing,
            _ => State::Unchecked,
        }
    }

    /// Whether the heap was looked into.
    fn was_read(self) -> bool {
        matches!(self, State::Sound | State::Damaged)
    }
}

/// What `--json` prints for each heap. Sizes in bytes.
#[derive(Serialize)]
struct Checked {
    name: RegionName,
    state: State,
    /// Null where it is not known.
    sound: Option<bool>,
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
    /// Why the heap cannot be opened, or read at all.
    error: Option<String>,
    /// What `repair` would come to, of a heap that is not sound: it was planned, and nothing was
    /// done.
    repair: Option<Outlook>,
    /// What the heap alone would give as the exit code.
    #[serde(skip)]
    code: u8,
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
    for name in &heaps {
        let row = with_progress(&format!("checking {name}"), || Checked::of(&names, name));
        if let Some(error) = row.error.as_ref().filter(|_| !row.state.was_read()) {
            say(error);
        }
        checked.push(row);
    }
    if args.json {
        print_json(&checked)?;
    } else {
        print(&checked.iter().filter(|row| row.state.was_read()).map(text).collect::<String>())?;
    }
    Ok(worst(checked.iter().map(|row| row.code)))
}

/// The exit code of several heaps. Damage comes before what says nothing of damage, and a heap in
/// use last: it may be checked later.
fn worst(codes: impl Iterator<Item = u8>) -> u8 {
    let severity = |code: &u8| match *code {
        0 => (0, 0),
        HELD => (1, HELD),
        FOUND => (3, FOUND),
        BAD_FILE => (4, BAD_FILE),
        other => (2, other),
    };
    codes.max_by_key(severity).unwrap_or(0)
}

impl Checked {
    fn of(names: &NameSpace, name: &RegionName) -> Checked {
        let mut checked = Checked {
            name: name.clone(),
            state: State::Unchecked,
            sound: None,
            open_transaction: false,
            objects: 0,
            object_bytes: 0,
            roots: 0,
            finding_count: 0,
            findings: Vec::new(),
            lost_redundancy: Vec::new(),
            error: None,
            repair: None,
            code: 0,
        };
        if let Err(failure) = checked.examine(names) {
            checked.state = State::of_failure(failure.code);
            checked.error = Some(failure.message);
            checked.code = failure.code;
        }
        checked
    }

    /// # Errors
    /// When the heap cannot be read.
    fn examine(&mut self, names: &NameSpace) -> Result<(), Failure> {
        let reader = match names.open_read(&self.name) {
            Ok(reader) => reader,
            Err(error) => return Err(self.unreadable(names, error)),
        };
        let look = look(&reader)?;
        let rows = look.findings.iter().map(|f| FindingRow { offset: f.offset, what: f.what });
        self.findings = rows.collect();
        let is_sound = match &look.inspection {
            Ok(inspection) => {
                self.finding_count = inspection.report.findings;
                self.open_transaction = inspection.opened == Opened::Recovered;
                self.objects = inspection.report.objects;
                self.object_bytes = inspection.report.object_bytes;
                self.roots = inspection.report.roots;
                inspection.report.is_sound()
            }
            Err(OpenError::Empty) => true,
            Err(error) => {
                self.error = Some(error.to_string());
                false
            }
        };
        // Its mapping has the region's lock for as long as it lives, and a plan needs that.
        drop((look, reader));
        self.lost_redundancy = match names.lost_redundancy(&self.name) {
            // Damage that was found is not taken back because the files cannot be read again.
            Err(_) if !is_sound => Vec::new(),
            found => found?,
        };
        self.sound = Some(is_sound);
        (self.state, self.code) =
            if is_sound { (State::Sound, 0) } else { (State::Damaged, FOUND) };
        self.repair = (!is_sound).then(|| Outlook::of(names, &self.name));
        Ok(())
    }

    /// The failure of a heap that cannot be read, with what a repair would come to.
    fn unreadable(&mut self, names: &NameSpace, error: RegionError) -> Failure {
        // A newer format may be whole: only a newer program can tell.
        let is_newer = matches!(error, RegionError::NewerFormat { .. });
        let is_bad = error.kind() == ErrorKind::BadFile && !is_newer;
        self.sound = is_bad.then_some(false);
        self.repair = is_bad.then(|| Outlook::of(names, &self.name));
        match self.repair {
            Some(outlook @ Outlook::Mends) => {
                let name = &self.name;
                Failure::new(BAD_FILE, format!("{name}: {}; {}", outlook.remedy(name), error))
            }
            _ => error.into(),
        }
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
    if checked.state == State::Sound {
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
