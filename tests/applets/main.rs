//! Applets that are called, through the host's API: the same promises for native applets, linked
//! statically and dynamically, and for WebAssembly. The applet is `applets/trial`, which has a
//! function for each thing to be tried.

#![deny(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

mod calls;
mod compartments;
mod deaths;
mod forks;
mod heaps;
mod host_functions;
mod interruptions;
#[allow(dead_code, reason = "as a program it has a main function")]
#[path = "../../sandbox/applet/examples/plugin_host.rs"]
mod plugin_host;
mod plugins;
mod pools;
mod portable;
mod resets;
mod runs;
mod several_heaps;
mod unread_answers;

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_applet::{
    Applet, AppletError, CallError, Command, Grants, Limits, SandboxKind, Stdio,
};
use holdfast_region::{Consistency, NameSpace, OwnerKey, Places, Region, RegionName};
use holdfast_testkit::Programs;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// The applet in each of its forms.
fn forms() -> [(SandboxKind, PathBuf); 3] {
    let programs = Programs::find().unwrap();
    [
        (SandboxKind::Native, programs.native_applet("trial").unwrap()),
        (SandboxKind::Native, programs.static_applet("trial").unwrap()),
        (SandboxKind::Wasm, programs.applet("trial").unwrap()),
    ]
}

/// Does the same with each form.
fn with_each(test: impl Fn(SandboxKind, PathBuf)) {
    for (kind, path) in forms() {
        eprintln!("{kind}: {}", path.display());
        test(kind, path);
    }
}

fn spawn(path: PathBuf) -> Applet {
    Command::new(path, Grants::none()).stdio(Stdio::capture(64 << 10)).spawn().unwrap()
}

fn spawn_with(path: PathBuf, limits: Limits) -> Applet {
    Applet::spawn(path, limits, Grants::none()).unwrap()
}

/// A home with one heap.
struct Home(TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::Builder::new().prefix("holdfast-applets-").tempdir_in("/dev/shm").unwrap())
    }

    fn names(&self) -> NameSpace {
        NameSpace::new(Places::at(self.0.path().join("home"), self.0.path().join("pool")).unwrap())
    }

    fn region(&self) -> Region {
        let key = OwnerKey::from_bytes([5; 32]);
        self.names().open_or_create(&RegionName::parse("numbers").unwrap(), &key, 32 * MIB).unwrap()
    }

    fn spawn(&self, path: PathBuf) -> Applet {
        Applet::spawn(path, Limits::default(), Grants::none().heap(self.region())).unwrap()
    }

    fn spawn_atomic(&self, path: PathBuf) -> Applet {
        let mut region = self.region();
        region.set_consistency(Consistency::Atomic).unwrap();
        Applet::spawn(path, Limits::default(), Grants::none().heap(region)).unwrap()
    }
}

/// Calls with a number and gets one.
fn ask(applet: &Applet, function: &str, number: u64) -> Result<u64, CallError> {
    let result = applet.call(function, &number.to_le_bytes())?;
    Ok(u64::from_le_bytes(result.try_into().unwrap()))
}

/// What the applet died of.
fn death<T: std::fmt::Debug>(result: Result<T, CallError>) -> Arc<AppletError> {
    match result {
        Err(CallError::Died(error)) => error,
        other => panic!("it lives: {other:?}"),
    }
}
