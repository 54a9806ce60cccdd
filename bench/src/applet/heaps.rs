//! Section `heaps`: what a heap that grows asks its host for, and what many readers of one heap
//! cost.
//!
//! Both are counts, not times: a second run has the same. What crosses the sandbox is counted by
//! the host's own record ([`holdfast_crossings`]), in a process of its own, because a process
//! either keeps one from its start on or never.

use std::fs::File;
use std::io::{self, Error, Seek};
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use holdfast_applet::Grants;
use holdfast_crossings::{Record, VARIABLE};
use holdfast_testkit::{applet_file, proportional_bytes};
use rustix::fs::{MemfdFlags, memfd_create};

use super::started::start;
use crate::heap::ground::{Ground, Store, name};
use crate::race::{Side, race};
use crate::report::{Goal, Outcome};

pub(crate) const ROLE_PLAIN: &str = "growth";
pub(crate) const ROLE_HINT: &str = "growth-with-hint";

const APPLET: &str = "ledgers.wasm";
const TAKE: &str = "take";
const RESERVE_AND_TAKE: &str = "reserve_and_take";
const PLAIN: &str = "without a hint";
const HINT: &str = "with a hint";
const GROWN_MIB: u64 = 64;
const LIMIT_BYTES: u64 = (GROWN_MIB + 32) << 20;
const DICTIONARY_MIB: u64 = 1024;
const READERS: usize = 8;
/// Counts are the same in each round.
const ROUNDS: usize = 3;

pub(crate) fn run(_: usize, outcome: &mut Outcome) -> io::Result<()> {
    let sides =
        vec![Side::new(PLAIN, || crossings(ROLE_PLAIN)), Side::new(HINT, || crossings(ROLE_HINT))];
    let times = race(ROUNDS, sides)?;
    let mut add = |key: &'static str, side: &str, goal| {
        outcome.add(key, times.of(side).cloned(), "crossings", Some(Goal::AtMost(goal)));
    };
    add("growth_64mib_crossings", PLAIN, 9.0);
    add("growth_64mib_hint_crossings", HINT, 5.0);
    for (key, applet) in [
        ("readers_8_dictionary_pss_ratio", "ledgers"),
        ("readers_8_dictionary_pss_ratio_wasm", "ledgers.wasm"),
    ] {
        let sides = vec![Side::new(applet, || readers(applet))];
        let ratios = race(1, sides)?;
        outcome.add(key, ratios.of(applet).cloned(), "ratio", Some(Goal::AtMost(1.1)));
    }
    Ok(())
}

/// How often an applet in WebAssembly crosses its sandbox in a call in which its heap grows, the
/// call itself and the opening of the heap included.
fn crossings(role: &str) -> io::Result<f64> {
    let record: OwnedFd = memfd_create("holdfast-bench", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(record.try_clone()?);
    let mut command = Command::new(std::env::current_exe()?);
    command.args([super::PEER, role]).stdin(record).stdout(Stdio::null());
    let status = command.env(VARIABLE, "/proc/self/fd/0").status()?;
    if !status.success() {
        return Err(Error::other(format!("the host of the applet that grows ended with {status}")));
    }
    file.rewind()?;
    let read = holdfast_crossings::read(&mut file)?;
    let host = read.hosts.first().ok_or_else(|| Error::other("the host has kept no record"))?;
    let call = host.records().iter().find_map(|record| match record {
        Record::Call { name, start_ns, end_ns, .. }
            if [TAKE, RESERVE_AND_TAKE].contains(&host.name(*name)) =>
        {
            Some(*start_ns..*end_ns)
        }
        _ => None,
    });
    let call = call.ok_or_else(|| Error::other("the host has recorded no call"))?;
    // The one that brings the call and the one that takes its result are among them.
    let is_within = |record: &&Record| match record {
        Record::Crossing { start_ns, end_ns, .. } => *start_ns < call.end && *end_ns > call.start,
        _ => false,
    };
    Ok(host.records().iter().filter(is_within).count() as f64)
}

/// The other side: starts the applet, has it fill its heap, and ends without a call more.
pub(crate) fn grow(has_hint: bool) -> io::Result<()> {
    let ground = Ground::new()?;
    let home = ground.home(Store::Memory)?;
    let region = home.names.create(&name("heap")?, &home.key, LIMIT_BYTES).map_err(Error::other)?;
    let applet = start(applet_file(APPLET)?, Grants::none().heap(region))?;
    let function = if has_hint { RESERVE_AND_TAKE } else { TAKE };
    applet.call(function, &GROWN_MIB.to_le_bytes()).map_err(Error::other)?;
    applet.close().map_err(Error::other)?;
    Ok(())
}

/// The memory of eight applets that have read one heap, for one of them.
fn readers(applet: &str) -> io::Result<f64> {
    let ground = Ground::new()?;
    let home = ground.home(Store::Memory)?;
    let dictionary = name("dict")?;
    let limit_bytes = (DICTIONARY_MIB + 64) << 20;
    let region = home.names.create(&dictionary, &home.key, limit_bytes).map_err(Error::other)?;
    let maker = start(applet_file(applet)?, Grants::none().heap(region))?;
    let request = format!("dict {DICTIONARY_MIB}");
    maker.call("make_bulk", request.as_bytes()).map_err(Error::other)?;
    maker.close().map_err(Error::other)?;
    let before = proportional_bytes();
    let (mut applets, mut one) = (Vec::new(), 0);
    for number in 0..READERS {
        let region = home.names.open_read_only(&dictionary, &home.key).map_err(Error::other)?;
        let reader = start(applet_file(applet)?, Grants::none().heap(region))?;
        reader.call("read_all", b"dict").map_err(Error::other)?;
        applets.push(reader);
        if number == 0 {
            one = proportional_bytes() - before;
        }
    }
    let all = proportional_bytes() - before;
    if one < DICTIONARY_MIB << 19 {
        return Err(Error::other(format!("a reader of {DICTIONARY_MIB} MiB has {one} bytes")));
    }
    Ok(all as f64 / one as f64)
}
