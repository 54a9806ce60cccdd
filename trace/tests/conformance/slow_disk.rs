//! A disk that is slow by construction: a loop device whose writes the kernel lets through at a
//! fixed rate, for one control group.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast_trace::matrix::{self, MatrixError, Plan, Run};
use holdfast_trace::report::document::Source;
use holdfast_trace::{Summary, SummaryOptions as Options};

use crate::group::Group;
use crate::subject::{Subject, timed_over_each};
use crate::trace::{Trace, sum};

/// What the workload writes and waits for.
const WRITTEN_BYTES: u64 = 20 * (4 << 20);
/// What the kernel lets through in a second.
const RATE_BYTES: u64 = 40 << 20;
/// For how long that takes.
const WRITING_NS: u64 = WRITTEN_BYTES * 1_000_000_000 / RATE_BYTES;
/// The kernel counts in slices of a tenth of a second, and lets what comes in the first one through
/// at once.
const SLICE_NS: u64 = 100_000_000;

/// A group whose processes write slowly to the disk that this directory is on. They run in it by
/// `sh`, which goes into the group before it becomes the program.
struct SlowGroup(Group);

impl SlowGroup {
    /// None where the kernel has no such limit.
    fn for_disk_of(directory: &Path) -> Option<SlowGroup> {
        let disk = std::fs::metadata(directory).unwrap().dev();
        let disk = format!("{}:{}", rustix::fs::major(disk), rustix::fs::minor(disk));
        // Of the first and the second version of control groups.
        let limits = [
            ("blkio.throttle.write_bps_device", format!("{disk} {RATE_BYTES}")),
            ("io.max", format!("{disk} wbps={RATE_BYTES}")),
        ];
        limits.into_iter().find_map(|(file, limit)| {
            let group = Group::with_file(file)?;
            std::fs::write(group.path().join(file), limit).ok()?;
            Some(SlowGroup(group))
        })
    }

    /// The words that run a workload inside.
    fn command(&self) -> Vec<std::ffi::OsString> {
        let script = "echo $$ >\"$0\" && exec \"$@\"";
        ["sh".into(), "-c".into(), script.into(), self.0.path().join("cgroup.procs").into()].into()
    }
}

/// Traces `syncs` on such a disk, which is gone afterwards; or why that cannot be.
fn traced_on_a_slow_disk(subject: &Subject) -> Result<Trace, String> {
    let plan = Plan {
        // Without a journal, there is no other thread to wait for that waits for the disk.
        platforms: vec!["ext2=loop".parse().unwrap()],
        repetitions: 1,
        warm_ups: 0,
        set_up: None,
        drop_caches: false,
        image_bytes: 64 << 20,
    };
    let mut traced =
        Err("the kernel has no limit to the rate of writes, or lets us set none".to_owned());
    let mut run = |directory: &Path| {
        let mut summary = Summary::new(Options::default());
        if let Some(group) = SlowGroup::for_disk_of(directory) {
            let words = ["syncs", directory.to_str().unwrap()];
            let trace = Trace::inside(subject, group.command(), &words);
            trace.events.iter().for_each(|event| summary.add(event));
            traced = Ok(trace);
        }
        Ok::<_, MatrixError>(Run { report: summary.into_report(Source::default()), end: None })
    };
    matrix::run(&plan, &mut run, &mut |_| {}).map_err(|error| error.to_string())?;
    traced
}

/// All the time spent waiting for a slow disk counts as waiting for a device.
///
/// Guarantee: trace/device-waits
#[test]
fn slow_disk_is_all_device_wait() {
    timed_over_each(|subject| {
        // A thread of its own: it has mounts of its own from then on, which end with it.
        let traced = std::thread::scope(|scope| {
            let traced = scope.spawn(|| {
                // And so has what it starts: whatever else the machine does, they run when they
                // can. Root may.
                let _ = rustix::process::nice(-20);
                traced_on_a_slow_disk(subject)
            });
            traced.join()
        });
        let trace = match traced.unwrap_or_else(|failure| std::panic::resume_unwind(failure)) {
            Ok(trace) => trace,
            Err(why) => return println!("not run: over the backend {}: {why}", subject.name),
        };
        let (rounds_ns, seen_ns) = (trace.fact("rounds_wall_ns"), trace.seen_blocked_ns("syncs"));
        if rounds_ns < WRITING_NS - SLICE_NS {
            println!(
                "not run: over the backend {}: the kernel does not keep to its limit",
                subject.name
            );
            return;
        }
        // While the workload was on a CPU, or ready to be, the disk went on.
        let asked_ns = (WRITING_NS - SLICE_NS).saturating_sub(rounds_ns - seen_ns);
        let calls: Vec<_> = trace.named("fdatasync").collect();
        assert_eq!(calls.len(), 20);
        let time = sum(calls.into_iter());
        assert!(
            subject.is_within(time.blocked_ns(), asked_ns, seen_ns),
            "{time:?} of {asked_ns} to {seen_ns}"
        );
        assert!(
            subject.is_within(time.io_wait_ns, asked_ns, seen_ns),
            "{time:?} of {asked_ns} to {seen_ns}"
        );
        assert!(time.sleep_ns <= time.blocked_ns() / 100, "{time:?}");
    });
}
