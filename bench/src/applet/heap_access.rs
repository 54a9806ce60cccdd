//! Section `heap_access`: the same work in a persistent heap, in an applet and in a native program
//! with `libholdfast`.
//!
//! Invariant: both are other processes, started from the same sources (`applets/table`), each with
//! a heap of its own.

use std::ffi::CStr;
use std::io::{self, Error};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use holdfast_applet::{Applet, Grants};
use holdfast_testkit::applet_file;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::libraries::Table;
use super::other_side::{OtherSide, descriptor};
use super::started::start;
use crate::heap::ground::{Ground, Store, name};
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

pub(crate) const ROLE: &str = "table";
/// Names the library, for the other side.
const LIBRARY: &str = "HOLDFAST_BENCH_LIBRARY";
/// Where `cargo xtask c-library` has put it.
const C_LIBRARY: &str = "HOLDFAST_C_LIBRARY";

const APPLET: &str = "applet";
const WASM: &str = "WebAssembly applet";
const NATIVE: &str = "native program";
const LIMIT_BYTES: u64 = 64 << 20;
const HEAP: &CStr = c"table";
/// They take some 20 ms.
const ROUNDS: u64 = 100_000;

pub(crate) fn run(runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let Some(library) = library() else {
        outcome
            .missing
            .push("libholdfast: it is not built; `cargo xtask bench applet` builds it".to_owned());
        return Ok(());
    };
    let ground = Ground::new()?;
    let home = ground.home(Store::Memory)?;
    let applet = |region: &str, file: &str| {
        let region =
            home.names.create(&name(region)?, &home.key, LIMIT_BYTES).map_err(Error::other)?;
        start(applet_file(file)?, Grants::none().heap(region))
    };
    let (native, wasm) = (applet("native", "table")?, applet("wasm", "table.wasm")?);
    let places = home.names.places();
    let mut program = Program::start(&library, places.home(), places.pool())?;
    let expected = program.work(ROUNDS)?;
    let sides = vec![
        Side::new(APPLET, || timed(expected, || work(&native))),
        Side::new(NATIVE, || timed(expected, || program.work(ROUNDS))),
        Side::new(WASM, || timed(expected, || work(&wasm))),
    ];
    let times = race(runs, sides)?;
    outcome.add(
        "heap_access_vs_native",
        times.ratio(APPLET, NATIVE),
        "x",
        Some(Goal::AtMost(1.01)),
    );
    outcome.add("wasm_heap_access_vs_native", times.ratio(WASM, NATIVE), "x", None);
    outcome.add("heap_access_round_ns", times.of(APPLET).cloned(), "ns", None);
    Ok(())
}

fn library() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(C_LIBRARY)?).join("lib/libholdfast.so");
    path.is_file().then_some(path)
}

/// Nanoseconds for a round.
fn timed(expected: u64, work: impl FnOnce() -> io::Result<u64>) -> io::Result<f64> {
    let started = Instant::now();
    let result = work()?;
    let taken_ns = started.elapsed().as_secs_f64() * 1e9;
    if result != expected {
        return Err(Error::other("the same work came to another result"));
    }
    Ok(taken_ns / ROUNDS as f64)
}

fn work(applet: &Applet) -> io::Result<u64> {
    let result = applet.call("work", &ROUNDS.to_le_bytes()).map_err(Error::other)?;
    number(&result)
}

fn number(bytes: &[u8]) -> io::Result<u64> {
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// The native program.
struct Program {
    socket: OwnedFd,
    _other: OtherSide,
}

impl Program {
    fn start(library: &Path, home: &Path, pool: &Path) -> io::Result<Program> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let environment = [(LIBRARY, library), ("HOLDFAST_HOME", home), ("HOLDFAST_POOL", pool)];
        Ok(Program { socket, _other: OtherSide::start_with(ROLE, theirs, &environment)? })
    }

    fn work(&mut self, rounds: u64) -> io::Result<u64> {
        rustix::io::write(&self.socket, &rounds.to_le_bytes())?;
        let mut result = [0; 8];
        let bytes = rustix::io::read(&self.socket, &mut result)?;
        number(&result[..bytes])
    }
}

/// The other side.
pub(crate) fn serve() -> io::Result<()> {
    let library = std::env::var_os(LIBRARY).ok_or_else(|| Error::other("no library is named"))?;
    let (socket, table) = (descriptor()?, Table::load(Path::new(&library), HEAP, LIMIT_BYTES)?);
    loop {
        let mut rounds = [0; 8];
        match rustix::io::read(&socket, &mut rounds)? {
            0 => return Ok(()),
            bytes => {
                _ = rustix::io::write(
                    &socket,
                    &table.work(number(&rounds[..bytes])?)?.to_le_bytes(),
                )?
            }
        }
    }
}
