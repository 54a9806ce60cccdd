//! The rows of `holdfast doctor` about databases in the pool.

use holdfast_command::exit::Failure;
use holdfast_command::finding::{Finding, Grade};
use holdfast_command::output::print_json;
use holdfast_command::size::show_size;
use holdfast_region::Places;
use holdfast_sqlite::{Database, Databases};

pub(crate) fn run() -> Result<u8, Failure> {
    print_json(&[databases(&Places::from_env()?)])?;
    Ok(0)
}

/// Which databases of the VFS `holdfast` have something in the pool that nothing else has.
fn databases(places: &Places) -> Finding {
    let what = "SQLite databases in the pool";
    let found = match Databases::of(places).list() {
        Ok(found) if found.is_empty() => return Finding::new(what, Grade::Ok, "none", ""),
        Ok(found) => found,
        Err(error) => {
            return Finding::new(what, Grade::Note, "cannot be listed", &error.to_string());
        }
    };
    let shown: Vec<String> = found
        .iter()
        .map(|database| {
            let only_here = show_size(database.unsaved_bytes);
            let state = match database {
                Database { damaged: Some(why), .. } => format!("damaged: {why}"),
                Database { unsaved_bytes: 0, .. } => "flushed or saved".to_owned(),
                Database { is_open: true, .. } => format!("open, {only_here} only here"),
                _ => format!("left by a crash, {only_here} only here"),
            };
            format!("{} ({state})", database.name())
        })
        .collect();
    let is_sound = found.iter().all(|database| database.damaged.is_none());
    let cost = "what is only in the pool is lost with it: `holdfast keeper run` saves it in time, `holdfast sqlite checkpoint` \
                at once; for one that is damaged `holdfast sqlite recover FILE` says what to do";
    Finding::new(what, if is_sound { Grade::Note } else { Grade::Weaker }, shown.join("; "), cost)
}
