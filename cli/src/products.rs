//! The programs beside this one: `holdfast NAME` starts `holdfast-NAME`, as git and cargo start
//! theirs.
//!
//! A program is looked for beside this one, then in PATH, and replaces this process: its streams,
//! signals and exit code are the caller's without a detour. Programs that this one asks answer in
//! JSON.
//!
//! It must not know what a product does.

use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use holdfast_command::exit::{Failure, NOT_FOUND, OTHER};
use holdfast_command::finding::{Finding, Grade};
use holdfast_sys::program;
use holdfast_sys::terminal::Shown;

/// A product that comes with Holdfast.
pub struct Product {
    /// As in `holdfast NAME`.
    pub name: &'static str,
    /// For the help.
    pub about: &'static str,
    /// What builds it in the source tree.
    pub package: &'static str,
    /// Has findings for `holdfast doctor`.
    pub examines: bool,
}

/// In the order of the help.
pub const PRODUCTS: [Product; 7] = [
    Product {
        name: "keeper",
        about: "Save heaps when the machine is about to go, and keep the pool small",
        package: "holdfast-keeper-command",
        examines: true,
    },
    Product {
        name: "sqlite",
        about: "Look after databases of the SQLite VFS `holdfast`, and measure what it gains",
        package: "holdfast-sqlite-command",
        examines: true,
    },
    Product {
        name: "page",
        about: "Keep HTML pages in heaps: query them, open them without parsing or layout",
        package: "holdfast-page",
        examines: false,
    },
    Product {
        name: "trace",
        about: "Measure where programs' system calls spend their time",
        package: "holdfast-trace-command",
        examines: false,
    },
    Product {
        name: "serve",
        about: "Serve a web page whose applets run here, natively and in the jail",
        package: "holdfast-serve",
        examines: false,
    },
    Product {
        name: "model",
        about: "Measure what a call costs here, and when a computation is better done in an applet",
        package: "holdfast-model",
        examines: false,
    },
    Product {
        name: "bench",
        about: "Measure the papers' tables and figures on this machine, and write a report",
        package: "holdfast-bench",
        examines: false,
    },
];

/// The program of this name, as it would be started.
fn program_of(name: &OsStr) -> Option<PathBuf> {
    let mut file = OsString::from("holdfast-");
    file.push(name);
    program::find(&file)
}

/// Whether `holdfast NAME` would start a program.
pub fn is_there(name: &OsStr) -> bool {
    !name.is_empty() && !name.as_encoded_bytes().contains(&b'/') && program_of(name).is_some()
}

/// Replaces this process with the program of this name; returns only when it cannot.
pub fn exec(name: &OsStr, arguments: &[OsString]) -> Failure {
    let shown = name.to_string_lossy();
    let missing = || {
        let package =
            PRODUCTS.iter().find(|product| product.name == shown).map(|product| product.package);
        let build = package.map_or_else(String::new, |package| {
            format!(", or build it in Holdfast's source tree: cargo build --release -p {package}")
        });
        let message = format!(
            "`holdfast {0}` needs the program holdfast-{0}, which is neither beside this one nor in PATH; \
             install it{build}",
            Shown(&shown)
        );
        Failure::new(NOT_FOUND, message)
    };
    let Some(program) = program_of(name) else { return missing() };
    let error = Command::new(&program).args(arguments).exec();
    match error.kind() {
        ErrorKind::NotFound => missing(),
        _ => Failure::new(
            OTHER,
            format!("cannot start {}: {error}", Shown(&program.to_string_lossy())),
        ),
    }
}

/// What the installed products find on this machine.
pub fn findings() -> Vec<Finding> {
    PRODUCTS.iter().filter(|product| product.examines).flat_map(examined).collect()
}

/// What one product finds. One that is not installed needs nothing.
fn examined(product: &Product) -> Vec<Finding> {
    let name = format!("holdfast-{}", product.name);
    let Some(program) = program_of(OsStr::new(product.name)) else {
        return vec![Finding::new(&name, Grade::Note, "not installed", "")];
    };
    let mut command = Command::new(program);
    command.args(["doctor", "--json"]).stdin(Stdio::null()).stderr(Stdio::null());
    let broken = |why: String| vec![Finding::new(&name, Grade::Note, "does not answer", &why)];
    match command.output() {
        Ok(output) => serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            broken(format!("its answer, with {}, cannot be read: {error}", output.status))
        }),
        Err(error) => broken(format!("it cannot be started: {error}")),
    }
}
