//! Rules about packages: none uses one above it, and the folders at the root stay few enough to be
//! a map.
//!
//! Only what is linked counts: tests may use whatever they test with.

use std::collections::BTreeSet;

use crate::workspace::Package;

use super::{File, Findings};

/// From the bottom up. A package may use those of lower layers, and in its own layer those of its
/// own folder: products do not know each other.
const LAYERS: [&[&str]; 9] = [
    &["core"],
    &["cli/remedies"],
    &["keeper/client", "sandbox"],
    &[
        "bindings/rust",
        "bindings/c-core",
        "bindings/c",
        "documents/dom",
        "serve/fetch",
        "sqlite/vfs",
        "trace",
    ],
    &[
        "bindings/c-native",
        "bindings/python",
        "keeper/daemon",
        "sqlite/extension",
        "sqlite/static",
        "sqlite/preload",
        "web",
    ],
    &["cli/command"],
    &[
        "documents/page",
        "keeper/command",
        "serve",
        "sqlite/command",
        "sqlite/model",
        "trace/command",
    ],
    &["cli"],
    &["applets", "bench", "tests", "xtask"],
];

/// Folders with code at the root.
const SOURCE_FOLDERS_MAX: usize = 14;
const SOURCE: [&str; 9] = ["rs", "c", "h", "hpp", "cpp", "py", "sh", "js", "ts"];

pub(crate) fn check(files: &[File], packages: &[Package], findings: &mut Findings) {
    for package in packages {
        let manifest = format!("{}/Cargo.toml", package.folder);
        let Some(layer) = layer(&package.folder) else {
            findings.in_file(&manifest, "is in no layer; give it one in xtask/src/tidy/layers.rs");
            continue;
        };
        for used in packages.iter().filter(|other| package.links.contains(&other.name)) {
            if !may_use(layer, &package.folder, &used.folder) {
                let what = format!(
                    "uses {}, which is not below it; see xtask/src/tidy/layers.rs",
                    used.name
                );
                findings.in_file(&manifest, &what);
            }
        }
    }
    let folders: BTreeSet<&str> = files
        .iter()
        .filter(|file| file.has_extension(&SOURCE))
        .filter_map(|file| file.path.split_once('/').map(|(folder, _)| folder))
        .filter(|folder| !folder.starts_with('.'))
        .collect();
    if folders.len() > SOURCE_FOLDERS_MAX {
        let what = format!(
            "has {} folders with code ({}), more than {SOURCE_FOLDERS_MAX}; put what belongs together together",
            folders.len(),
            folders.into_iter().collect::<Vec<_>>().join(", ")
        );
        findings.in_file(".", &what);
    }
}

/// The layer of the entry that names most of this folder's path.
fn layer(folder: &str) -> Option<usize> {
    let is_in = |entry: &str| {
        folder.strip_prefix(entry).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let entries = LAYERS
        .iter()
        .enumerate()
        .flat_map(|(layer, entries)| entries.iter().map(move |entry| (layer, entry)));
    entries
        .filter(|(_, entry)| is_in(entry))
        .max_by_key(|(_, entry)| entry.len())
        .map(|(layer, _)| layer)
}

fn may_use(layer_of_user: usize, user: &str, used: &str) -> bool {
    let top = |folder: &str| folder.split('/').next().map(str::to_owned);
    layer(used).is_some_and(|layer_of_used| {
        let is_at_the_top = layer_of_user == LAYERS.len() - 1;
        layer_of_used < layer_of_user
            || layer_of_used == layer_of_user && (is_at_the_top || top(user) == top(used))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, links: &[&str]) -> Package {
        let links = links.iter().map(|name| (*name).to_owned()).collect();
        Package { name: folder.to_owned(), folder: folder.to_owned(), programs: Vec::new(), links }
    }

    fn about(packages: &[Package]) -> Vec<String> {
        let mut findings = Findings::default();
        check(&[], packages, &mut findings);
        findings.0
    }

    #[test]
    fn what_is_below_may_be_used_and_nothing_else() {
        let below = ["core/heap", "core/region", "keeper/client", "sqlite/vfs", "cli/command"];
        let mut packages: Vec<_> = below.iter().map(|folder| package(folder, &[])).collect();
        packages.push(package("sqlite/command", &below));
        assert_eq!(about(&packages), [""; 0]);
        packages.push(package("core/sys", &["sqlite/vfs"]));
        packages.push(package("documents/page", &["sqlite/command"]));
        packages.push(package("keeper/client2", &[]));
        let found = about(&packages);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].starts_with("core/sys/Cargo.toml: uses sqlite/vfs"), "{found:?}");
    }

    #[test]
    fn a_fifteenth_folder_is_one_too_many() {
        let folders = |count: usize| -> Vec<File> {
            let file = |number| File {
                path: format!("f{number}/a.rs"),
                bytes: Vec::new(),
                executable: false,
            };
            (0..count).map(file).collect()
        };
        for (count, findings_expected) in [(SOURCE_FOLDERS_MAX, 0), (SOURCE_FOLDERS_MAX + 1, 1)] {
            let mut findings = Findings::default();
            check(&folders(count), &[], &mut findings);
            assert_eq!(findings.0.len(), findings_expected);
        }
    }
}
