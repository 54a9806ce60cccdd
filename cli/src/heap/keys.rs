//! `holdfast heap keys`.

use holdfast_region::{KeyFingerprint, OwnerKey, RegionName};
use serde::Serialize;

use crate::grant_args::KeysArgs;
use holdfast_command::exit::Failure;
use holdfast_command::output::{print_json, print_table};

/// What `--json` prints for each key.
#[derive(Serialize)]
struct Row {
    name: RegionName,
    /// SHA-256 of the key; null when its file cannot be used.
    fingerprint: Option<KeyFingerprint>,
    /// The heaps and compartments that belong to it.
    owns: Vec<RegionName>,
    /// Why its file cannot be used.
    error: Option<String>,
}

pub fn run(args: &KeysArgs) -> Result<u8, Failure> {
    let names = super::name_space()?;
    let heaps = names.list()?;
    let mut rows = Vec::new();
    for name in OwnerKey::names(names.places())? {
        rows.push(match OwnerKey::load_existing(names.places(), name.as_str()) {
            Ok(key) => {
                let is_owned = |owner: Option<KeyFingerprint>, heap| {
                    owner.is_some_and(|owner| key.owns(heap, owner))
                };
                let owned = heaps.iter().filter(|heap| is_owned(heap.owner, &heap.name));
                let owns = owned.map(|heap| heap.name.clone()).collect();
                Row {
                    name,
                    fingerprint: Some(KeyFingerprint::from_bytes(key.fingerprint())),
                    owns,
                    error: None,
                }
            }
            // One bad file does not hide the others.
            Err(error) => {
                Row { name, fingerprint: None, owns: Vec::new(), error: Some(error.to_string()) }
            }
        });
    }
    if args.json {
        print_json(&rows)?;
        return Ok(0);
    }
    let cells: Vec<_> = rows.iter().map(cells).collect();
    print_table(&["KEY", "FINGERPRINT", "OWNS"], &[], &cells)?;
    Ok(0)
}

fn cells(row: &Row) -> Vec<String> {
    let fingerprint =
        row.fingerprint.map_or_else(|| "-".to_owned(), |fingerprint| fingerprint.to_string());
    let owned: Vec<_> = row.owns.iter().map(RegionName::as_str).collect();
    let owns = match &row.error {
        Some(error) => error.clone(),
        None if owned.is_empty() => "-".to_owned(),
        None => owned.join(" "),
    };
    vec![row.name.to_string(), fingerprint, owns]
}
