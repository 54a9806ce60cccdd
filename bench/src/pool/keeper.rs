//! Measures an idle keeper: `holdfast keeper run` over a home with a few heaps that no process
//! uses.
//!
//! Its time on the processors is the kernel's count in nanoseconds (`schedstat` of its threads),
//! its memory is `VmRSS`.

use std::io::{self, Error};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdfast_region::{NameSpace, OwnerKey};
use holdfast_testkit::{Programs, Scratch};
use procfs::ProcResult;
use procfs::process::Process;
use rustix::process::{Pid, Signal, kill_process};

use crate::heap::ground::{Home, name};
use crate::heap::raw::RawRegion;
use crate::stats::Series;

const HEAPS: usize = 4;
const HEAP_BYTES: u64 = 4 << 20;
/// What a keeper may do at its start, and for the heaps that it finds.
const SETTLING: Duration = Duration::from_secs(5);
const WATCHED: Duration = Duration::from_secs(4);

/// What was seen.
#[derive(Default)]
pub(super) struct Idle {
    /// Percent of one processor.
    pub(super) processor_pct: Series,
    /// MiB.
    pub(super) resident_mib: Series,
}

/// `Err` with the reason when there is no keeper to look at.
pub(super) fn run(rounds: usize) -> io::Result<Result<Idle, String>> {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let scratch = Scratch::new(programs)?;
    fill(scratch.names()?)?;
    let mut command = scratch.holdfast();
    command
        .args(["keeper", "run"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut keeper = Running(command.spawn()?);
    sleep(SETTLING);
    if let Some(status) = keeper.0.try_wait()? {
        return Ok(Err(format!("`holdfast keeper run` ended with {status}")));
    }
    let mut idle = Idle::default();
    for _ in 0..rounds {
        let (before_ns, started) = (keeper.processor_ns().map_err(Error::other)?, Instant::now());
        sleep(WATCHED);
        let taken_ns = keeper.processor_ns().map_err(Error::other)? - before_ns;
        idle.processor_pct.push(taken_ns as f64 / started.elapsed().as_nanos() as f64 * 100.0);
        idle.resident_mib.push(keeper.resident_kib()? as f64 / 1024.0);
    }
    Ok(Ok(idle))
}

fn fill(names: NameSpace) -> io::Result<()> {
    let key = OwnerKey::load_or_create(names.places(), "default").map_err(Error::other)?;
    let home = Home { names, key };
    for number in 0..HEAPS {
        RawRegion::create(&home, name(&format!("heap-{number}"))?.as_str(), HEAP_BYTES)?.close()?;
    }
    Ok(())
}

/// A keeper that ends with the value.
struct Running(Child);

impl Running {
    fn processor_ns(&self) -> ProcResult<u64> {
        let tasks = Process::new(self.0.id() as i32)?.tasks()?;
        tasks.map(|task| Ok(task?.schedstat()?.sum_exec_runtime)).sum()
    }

    fn resident_kib(&self) -> io::Result<u64> {
        let status = Process::new(self.0.id() as i32).and_then(|keeper| keeper.status());
        let resident = status.map_err(Error::other)?.vmrss;
        resident.ok_or_else(|| Error::other("the keeper has no memory; did it end?"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended, or ends at SIGTERM; the owner of this cannot do more.
        if let Some(keeper) = Pid::from_raw(self.0.id() as i32) {
            let _ = kill_process(keeper, Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
