//! The workspace: its root, the target directory, the packages and which of them are for guests.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::command::{cargo, output, own_folder};
use crate::failure::{Failure, Result};

/// What is built for `wasm32-wasip1` beside applets: what they link, which natively is for the jail,
/// and the module for pages. (All are tested on the host.)
const GUESTS: [&str; 3] = ["bindings/rust", "bindings/c", "web/heap-module"];
/// What is built alone: one is without the standard library and brings its own end of a panic, one
/// is linked the way Python wants it, and one brings a layout engine, which who builds the rest
/// need not wait for.
const ALONE: [&str; 3] = ["bindings/c", "bindings/python", "documents/page"];
/// The one with the layout engine.
pub(crate) const PAGE_PACKAGE: &str = "holdfast-page";
const APPLETS: &str = "applets";

/// The workspace as cargo describes it.
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// One package.
pub(crate) struct Package {
    pub(crate) name: String,
    /// Relative to the root, with `/`.
    pub(crate) folder: String,
    /// Names of its programs.
    pub(crate) programs: Vec<String>,
    /// Names of packages that it links, those of other people included; not what only its tests or
    /// its build use.
    pub(crate) links: Vec<String>,
}

impl Package {
    /// Whether it is built for the sandbox.
    fn is_guest(&self) -> bool {
        self.is_in(APPLETS) || GUESTS.contains(&self.folder.as_str())
    }

    /// Whether it cannot be built with the others.
    fn is_built_alone(&self) -> bool {
        ALONE.contains(&self.folder.as_str())
    }

    fn is_in(&self, folder: &str) -> bool {
        self.folder.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
    }
}

impl Workspace {
    pub(crate) fn load() -> Result<Workspace> {
        // This package lies one level below the root.
        let here = own_folder();
        let root = here.parent().unwrap_or(&here).to_owned();
        let text = output(cargo(&root).args([
            "metadata",
            "--no-deps",
            "--format-version=1",
            "--color=never",
        ]))?;
        let metadata: Value = serde_json::from_slice(&text).map_err(|error| {
            Failure::new(format!("cargo metadata is no JSON ({error}); update cargo"))
        })?;
        Workspace::from_metadata(&metadata).ok_or_else(|| {
            Failure::new("cargo metadata lacks the packages or the target directory; update cargo")
        })
    }

    fn from_metadata(metadata: &Value) -> Option<Workspace> {
        let root = PathBuf::from(metadata["workspace_root"].as_str()?);
        let packages = metadata["packages"].as_array()?;
        Some(Workspace {
            target: PathBuf::from(metadata["target_directory"].as_str()?),
            packages: packages.iter().filter_map(|package| package_from(&root, package)).collect(),
            root,
        })
    }

    /// Where `cargo xtask c-library` puts the C library, by default.
    pub(crate) fn c_library(&self) -> PathBuf {
        self.target.join("c-library")
    }

    /// Where `cargo xtask applets` puts guest programs.
    pub(crate) fn applets(&self) -> PathBuf {
        self.target.join("applets")
    }

    /// Arguments that select all that can be built for the host. Always the same ones, so that
    /// dependencies are built with one set of features, once.
    pub(crate) fn select_host(&self) -> Vec<String> {
        let excluded = self.packages.iter().filter(|package| package.is_built_alone());
        let excluded = excluded.flat_map(|package| ["--exclude".to_owned(), package.name.clone()]);
        // SQLite is compiled for its VFS anyway: so the suite `sqlite` has its tests run, too.
        let all = ["--workspace", "--features", "holdfast-bench/sqlite"].map(str::to_owned);
        all.into_iter().chain(excluded).collect()
    }

    /// Arguments that select all that runs in the sandbox.
    pub(crate) fn select_guests(&self) -> Vec<String> {
        let guests = self.packages.iter().filter(|package| package.is_guest());
        guests.flat_map(|package| ["-p".to_owned(), package.name.clone()]).collect()
    }
}

fn package_from(root: &Path, package: &Value) -> Option<Package> {
    let manifest = Path::new(package["manifest_path"].as_str()?);
    let targets = package["targets"].as_array()?;
    let is_program = |target: &&Value| {
        target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "bin"))
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    Some(Package {
        links: dependencies
            .filter(|dependency| dependency["kind"].is_null())
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect(),
        name: package["name"].as_str()?.to_owned(),
        folder: manifest.parent()?.strip_prefix(root).ok()?.to_str()?.to_owned(),
        programs: targets
            .iter()
            .filter(is_program)
            .filter_map(|target| target["name"].as_str().map(str::to_owned))
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_told_from_hosts_by_their_folder() {
        let package = |name: &str, folder: &str, kind: &str| {
            serde_json::json!({"name": name, "manifest_path": format!("/w/{folder}/Cargo.toml"),
                               "targets": [{"name": name, "kind": [kind]}]})
        };
        let metadata = serde_json::json!({
            "workspace_root": "/w", "target_directory": "/t",
            "packages": [
                package("applet", "applets/applet", "bin"),
                package("guest", "bindings/rust", "lib"),
                package("alone", "bindings/c", "lib"),
                package("host", "sandbox/host", "lib"),
                package("native", "bindings/c-native", "lib"),
            ],
        });
        let workspace = Workspace::from_metadata(&metadata).unwrap();
        assert_eq!(workspace.select_guests(), ["-p", "applet", "-p", "guest", "-p", "alone"]);
        assert_eq!(
            workspace.select_host(),
            ["--workspace", "--features", "holdfast-bench/sqlite", "--exclude", "alone"]
        );
        assert_eq!(workspace.packages[0].programs, ["applet"]);
        assert!(!workspace.packages[3].is_in("crate"), "a folder's name counts whole");
    }
}
