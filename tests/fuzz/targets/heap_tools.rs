//! Any files of a home, with right checksums: all that `holdfast heap` and a keeper do with them
//! ends, with an error of a type or without, and never panics, hangs or allocates what a file only
//! claims. The commands themselves, with what they print, are tried in `tests/faults/sealed.rs`.
//!
//! The input changes one file of a home that has everything, and says what is done to it.

#![no_main]

use std::cell::RefCell;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_heap::mend::mend;
use holdfast_heap::survey::Survey;
use holdfast_heap::{bytes_of, inspect};
use holdfast_keeper::{Cause, Config, Keeper};
use holdfast_region::{
    DamagedFile, Grant, KeyFingerprint, Medium, NameSpace, OwnerKey, Places, RegionError,
    RegionName, Rights,
};
use holdfast_testkit::full_home::FullHome;
use holdfast_testkit::sealed::{ABSURD, FileKind};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

const FILE_BYTES_MAX: u64 = 64 << 20;
const DATA_BYTES_MAX: u64 = 768 << 20;
/// Larger data is not looked at: its copies are what memory is needed for.
const LOOKED_BYTES_MAX: usize = 64 << 20;
const STEPS_MAX: usize = 6;

#[derive(Arbitrary, Debug)]
struct Input {
    file: u8,
    edits: Vec<Edit>,
    /// Its checksums are made right again.
    is_sealed: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Edit {
    /// A field of a header slot, of both if `both`.
    Field {
        at: u16,
        width: u8,
        value: Value,
        both: bool,
    },
    /// Any bytes, in the first pages or in the data area.
    Bytes {
        at: u16,
        is_data: bool,
        bytes: Vec<u8>,
    },
    Length(Value),
}

#[derive(Arbitrary, Debug)]
enum Value {
    Absurd(u8),
    Any(u64),
}

impl Value {
    fn number(&self) -> u64 {
        match self {
            Value::Absurd(index) => ABSURD[usize::from(*index) % ABSURD.len()],
            Value::Any(number) => *number,
        }
    }
}

#[derive(Arbitrary, Debug, Clone, Copy)]
enum Step {
    List,
    Look,
    Snapshots,
    Salvage { which: u8, make: bool },
    Export,
    Import,
    Repair { accept_loss: bool },
    Redundancy,
    Grants,
    Tidy,
    Snapshot,
    Restore { discard: bool },
    Copy,
    Limit,
    Move,
    Checkpoint,
    Evict,
    Rescue,
    Keep,
    Remove { which: u8 },
}

struct Scene {
    _directory: TempDir,
    home: FullHome,
    places: Places,
    names: NameSpace,
    files: PathBuf,
    paths: Vec<PathBuf>,
}

fn name(text: &str) -> RegionName {
    RegionName::parse(text).expect("a name")
}

/// All that tools compute of a heap's bytes.
fn look(bytes: &[u8]) {
    if bytes.len() > LOOKED_BYTES_MAX {
        return;
    }
    if let Some(survey) = Survey::new(bytes) {
        survey.classes();
        survey.chunks().for_each(|chunk| _ = survey.object_at(chunk.offset));
        survey.objects().for_each(|_| {});
        survey.roots().for_each(|_| {});
        survey.leaks(&mut |_| {});
        survey.unreadable_roots();
    }
    let words = bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
    let mut copy: Vec<u64> = words.collect();
    let _ = inspect(&mut copy, &mut |_| {}, &mut |_, _| {});
}

impl Scene {
    fn new() -> Scene {
        let directory = tempfile::Builder::new()
            .prefix("holdfast-fuzz-")
            .tempdir_in("/dev/shm")
            .expect("tmpfs");
        // SAFETY: plain system calls with valid arguments.
        unsafe {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            for (resource, most) in
                [(libc::RLIMIT_FSIZE, FILE_BYTES_MAX), (libc::RLIMIT_DATA, DATA_BYTES_MAX)]
            {
                let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
                libc::setrlimit(resource, &limit);
            }
        }
        let (home, pool) = (directory.path().join("home"), directory.path().join("pool"));
        let places = Places::at(&home, &pool).expect("places");
        let files = directory.path().join("files");
        let home = FullHome::make(&places, &files).expect("a home");
        let paths = home.home().paths().map(|(path, _)| path.to_owned()).collect();
        Scene {
            _directory: directory,
            home,
            names: NameSpace::new(places.clone()),
            places,
            files,
            paths,
        }
    }

    /// Errors are what is expected.
    fn step(&self, step: Step) -> Result<(), RegionError> {
        let (names, words) = (&self.names, name("words"));
        let key = OwnerKey::load_existing(&self.places, "default")?;
        match step {
            Step::List => drop(format!("{:?} {:?}", names.list()?, names.compartments(&words)?)),
            Step::Look => look(names.open_read(&words)?.bytes()),
            Step::Snapshots => {
                drop(format!("{:?}", names.snapshots(&words)?));
                look(names.open_snapshot(&words, &name("monday"))?.bytes());
            }
            Step::Salvage { which, make } => {
                let store = self.places.store();
                let path = match which % 3 {
                    0 => self.home.image(),
                    1 => store.join("words.base"),
                    _ => store.join("snapshots/words/monday.base"),
                };
                let damaged = DamagedFile::read(&path)?;
                drop(format!("{:?} {}", damaged.report(), damaged.report().lacks(0..u64::MAX)));
                look(damaged.bytes());
                if make {
                    names.salvage(&damaged, &name("saved"), &key)?;
                }
            }
            Step::Export => {
                let reader = names.open_read(&words)?;
                if reader.bytes().len() <= LOOKED_BYTES_MAX {
                    reader.export(&mut std::io::sink())?;
                }
            }
            Step::Import => {
                if let Ok(mut stream) = File::open(self.files.join("words.holdfast")) {
                    names.import(&name("third"), &key, &mut stream)?;
                }
            }
            Step::Repair { accept_loss } => {
                let examined = names.examine(&words, &key)?;
                if examined.bytes().len() > LOOKED_BYTES_MAX {
                    return Ok(());
                }
                let old = examined.bytes().chunks_exact(8);
                let mut copy: Vec<u64> =
                    old.map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect();
                if mend(&mut copy, accept_loss).is_ok() {
                    examined.mend(&[(0, &bytes_of(&copy)[..4096])])?;
                }
            }
            Step::Redundancy => drop(names.lost_redundancy(&words)?),
            Step::Grants => {
                drop(names.grants(&words, &key)?);
                let to = KeyFingerprint::from_bytes([7; 32]);
                names.grant(
                    &words,
                    &key,
                    Grant::new(to, None, Rights::Write { quota_bytes: Some(u64::MAX) }),
                )?;
                names.revoke_all(&words, &key)?;
            }
            Step::Tidy => {
                for leftover in names.leftovers()? {
                    names.remove_leftover(&leftover)?;
                }
            }
            Step::Snapshot => drop(names.snapshot(&words, &key, &name("now"))?),
            Step::Restore { discard } => {
                drop(names.restore(&words, &key, &name("monday"), discard)?)
            }
            Step::Copy => drop(names.copy(&words, &name("copy"), &key)?),
            Step::Limit => drop(names.set_limit(&words, &key, 16 << 20)?),
            Step::Move => names.set_medium(&words, &key, Medium::File)?,
            Step::Checkpoint => drop(names.checkpoint_unheld(&words)?),
            Step::Evict => drop(names.evict(&words)?),
            Step::Rescue => drop((names.rescue(&words, None)?, names.is_rescued(&words)?)),
            Step::Keep => {
                let mut config = Config::default();
                config.emergency = Duration::from_secs(1);
                if let Ok(mut keeper) = Keeper::new(self.places.clone(), config) {
                    let done = (keeper.tend(), keeper.evict(), keeper.flush(Cause::Asked));
                    drop(format!("{done:?} {:?}", keeper.status().map(|status| status.metrics())));
                }
            }
            Step::Remove { which } => match which % 3 {
                0 => drop(names.remove_damaged(&words)?),
                1 => names.remove_image(&words, &key)?,
                _ => names.remove_with_compartments(&words, &key)?,
            },
        }
        Ok(())
    }
}

thread_local! {
    static SCENE: RefCell<Scene> = RefCell::new(Scene::new());
}

fuzz_target!(|input: Input| {
    SCENE.with_borrow(|scene| {
        let path = scene.paths[usize::from(input.file) % scene.paths.len()].clone();
        let kind = FileKind::of(&path);
        let mut sketch = scene.home.home().sketch(&path).expect("a file of the home").clone();
        for edit in input.edits.iter().take(8) {
            match edit {
                Edit::Field { at, width, value, both } => {
                    let width = 1_u64 << (width % 4);
                    let at = u64::from(*at) % 4096 / width * width;
                    let bytes = &value.number().to_le_bytes()[..width as usize];
                    sketch.store(at, bytes);
                    if *both {
                        sketch.store(4096 + at, bytes);
                    }
                }
                Edit::Bytes { at, is_data, bytes } => {
                    sketch.store(u64::from(*at) + if *is_data { 2 << 20 } else { 0 }, bytes);
                }
                Edit::Length(value) => sketch.set_len(value.number().min((2 << 20) + (1 << 40))),
            }
        }
        if input.is_sealed {
            sketch.seal(kind);
        }
        scene.home.home().lay_out(&path, &sketch).expect("laid out");
        for step in input.steps.iter().take(STEPS_MAX) {
            let _ = scene.step(*step);
        }
    });
});
